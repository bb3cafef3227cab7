"""A proof in about five minutes: simulated histories, then a run of faults on real processes, then one page.

Exit code 1 when a promise was broken. The page (proof.html) says what was tried, found and measured.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from config import PROJECT_ROOT, VERSION
from tests.proof.page import Proof, html_page

EXAMPLES = """examples:
  make prove                         five minutes; writes proof.html
  make prove SEED=7                  the same faults as in the proof that printed this seed
  python -m tests.proof.prove --minutes 60 --page hour.html
"""
SIMULATED = 0.35  # of the time; the other run has to start, to come to rest and to be judged besides
DISTURBED = 0.3
LEAST_MINUTES = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        simulation = _simulated(given, Path(directory) / "simulation.json")
        faults = _disturbed(given, Path(directory) / "faults.json")
    proof = Proof(
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=VERSION,
        machine=f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        seed=given.seed,
        minutes=(time.monotonic() - began) / 60,
        simulation=simulation,
        faults=faults,
    )
    given.page.write_text(html_page(proof), encoding="utf-8")
    print(f"\n{'no promise was broken' if proof.is_clean else 'BROKEN: ' + ', '.join(proof.found)}; see {given.page}")
    return 0 if proof.is_clean else 1


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.prove",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="in all, about (5)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what is drawn (random)")
    parser.add_argument("--page", type=Path, default=Path("proof.html"), help="where the page is written (proof.html)")
    given = parser.parse_args(arguments)
    if given.minutes < LEAST_MINUTES:
        parser.error(f"--minutes: at least {LEAST_MINUTES:g}; in less nothing is tried")
    return given


def _simulated(given: argparse.Namespace, figures: Path) -> dict[str, Any]:
    seconds = 60 * given.minutes * SIMULATED
    print(f"simulation: {seconds:.0f} s of histories from seed {given.seed}", flush=True)
    options = ["--seed", str(given.seed), "--seconds", str(seconds), "--processes", str(min(2, os.cpu_count() or 1))]
    return _figures_of(["tests.proof.simulation", *options, "--write", str(figures)], figures)


def _disturbed(given: argparse.Namespace, figures: Path) -> dict[str, Any]:
    minutes = given.minutes * DISTURBED
    print(f"\nreal processes: {minutes:.1f} minutes of faults", flush=True)
    options = ["--minutes", str(minutes), "--seed", str(given.seed), "--json", str(figures)]
    return _figures_of(["tests.proof.fault_run", *options], figures)


def _figures_of(command: Sequence[str], figures: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", *command], cwd=PROJECT_ROOT, check=False)
    if not figures.exists():  # 1 says that something was broken, and has its figures
        raise SystemExit(f"{command[0]} ended with {done.returncode} and told nothing")
    found: dict[str, Any] = json.loads(figures.read_text())
    return found


if __name__ == "__main__":
    sys.exit(main())
