"""python -m benchmarks [--quick] [--peers] [--beside DIR] [scenario …]: run the named scenarios, or all of them.

What was found is printed, and written to benchmarks/results as JSON, Markdown and plots. A comparison is only printed.
"""

import argparse
import inspect
import os
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import (
    beside,
    burst,
    changes,
    claim_path,
    failover,
    fleet,
    history,
    job_loop,
    limits,
    load,
    pipeline,
    plots,
    replicas,
    repository,
    round_trips,
    shares,
    sheet,
    steady,
    surface,
    sync,
    triggers,
    voice,
)
from benchmarks.progress import scenario
from benchmarks.scale import FULL, QUICK, Scale
from benchmarks.sheet import Sheet

RESULTS = Path(__file__).parent / "results"
Scenario = Callable[[Scale], Iterable[Sheet]]

# In the order in which people ask; --quick runs the first ones.
ENGINE: dict[str, Scenario] = {
    "burst": burst.run,
    "steady": steady.run,
    "round-trips": round_trips.run,
    "changes": changes.run,
    "claim-path": claim_path.run,
    "load": load.run,
    "failover": failover.run,
    "replicas": replicas.run,
    "shares": shares.run,
    "limits": limits.run,
    "fleet": fleet.run,
    "voice": voice.run,
    "cleanup": history.run,
}
OTHERS: dict[str, Scenario] = {
    "surface": surface.run,
    "sync": sync.run,
    "job-loop": job_loop.throughput,
    "contention": job_loop.contention,
    "pipeline": pipeline.run,
    "repository": repository.run,
    "triggers": triggers.run,
}
SCENARIOS = ENGINE | OTHERS
IN_QUICK = ("burst", "round-trips", "changes", "claim-path")
EXAMPLES = """examples:
  make bench ARGS=--quick              a look, in under two minutes
  make bench ARGS="burst steady"       two scenarios
  make bench PEERS=1 ARGS=burst        beside Celery, procrastinate and APScheduler 4, installed on demand
  make bench ARGS="--beside ../before burst replicas"     beside the commit checked out there, in turns
"""


def main() -> None:
    arguments = _arguments()
    scale = replace(QUICK if arguments.quick else FULL, peers=arguments.peers)
    names = list(arguments.scenario or _default_names(arguments))
    about = {"at": datetime.now(UTC).isoformat(timespec="minutes"), "quick": arguments.quick, **_machine()}
    found: list[Sheet] = []
    for number, name in enumerate(names, 1):
        with scenario(name, number, len(names), _about(SCENARIOS[name])):
            sheets = list(_measure(name, scale, arguments.beside))
        for one in sheets:
            one.show()
        found += sheets
    if not arguments.quick and not arguments.beside:
        sheet.write(found, RESULTS, about)
        plots.draw(RESULTS)


def _default_names(arguments: argparse.Namespace) -> Iterable[str]:
    if arguments.beside:
        return beside.COMPARABLE
    return IN_QUICK if arguments.quick else SCENARIOS


def _measure(name: str, scale: Scale, other: Path | None) -> Iterable[Sheet]:
    return beside.compare(name, scale, beside.Checkout(other.resolve())) if other else SCENARIOS[name](scale)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure, on servers of its own. Prints, and unless quick writes to benchmarks/results.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", nargs="*", help=f"one or more of: {', '.join(SCENARIOS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small numbers, one round, nothing written")
    parser.add_argument("--peers", action="store_true", help="other schedulers too, each in its own environment")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="DIR",
        help=f"our own design here and in DIR, a checkout of another commit, in turns: {', '.join(beside.COMPARABLE)}",
    )
    arguments = parser.parse_args()
    known = beside.COMPARABLE if arguments.beside else SCENARIOS
    unknown = [name for name in arguments.scenario if name not in known]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)} (known: {', '.join(known)})")
    if arguments.beside and not (arguments.beside / "benchmarks").is_dir():
        parser.error(f"{arguments.beside} is not a checkout of this project: it has no benchmarks")
    return arguments


def _about(run: Scenario) -> str:
    """What the scenario's module says it does."""
    return re.split(r"[.:\n]", inspect.getdoc(inspect.getmodule(run)) or "")[0]


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cores": os.cpu_count(), "memory_gib": round(memory), "python": platform.python_version()}


if __name__ == "__main__":
    main()
