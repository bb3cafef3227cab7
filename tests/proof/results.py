"""The figures of the last full runs, as docs/guarantees.md shows them: results.json, a section per program.

`--record` of the simulation, of the fault run and of the mutants writes its section.
"""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from config import PROJECT_ROOT

PATH = Path(__file__).with_name("results.json")


def read() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return found


def record(section: str, command: str, figures: dict[str, Any]) -> None:
    about = {"command": command, "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": _commit()}
    PATH.write_text(json.dumps({**read(), section: {**about, **figures}}, indent=1, sort_keys=True) + "\n")


def _commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"
