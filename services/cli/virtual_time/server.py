"""The program that the test kit talks to: makes the database, moves its clock, runs commands, removes schedules.

Its argument is the file of the clock. Lines of JSON, one answer per question; an answer may be {"error": words}.
    {"install": true} -> {}      {"now": true} -> {"now": instant}      {"remove": [names]} -> {}
    {"move_to": instant, "patience_seconds": number} -> {"now": instant, "ended": [execution, …]}
    {"command": [word, …]} -> {"out": text, "err": text}, as manage.py prints them
"""

import json
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from config import get_settings
from database.connection import DatabaseConnection
from manage import app
from services.cli.virtual_time.clock import VirtualClock
from services.cli.virtual_time.mover import Mover
from services.errors import InvalidInput, ScheduleNotFound, SchedulerError
from services.schedule_repository import ScheduleRepository

ACTOR = "test"


def main(file: Path) -> None:
    db = DatabaseConnection.from_settings(get_settings(), pool_size=2)
    clock = VirtualClock(file, db)
    for line in sys.stdin:
        print(json.dumps(_answered(json.loads(line), db, clock), default=_as_text), flush=True)  # noqa: T201 - a pipe


def _answered(question: dict[str, Any], db: DatabaseConnection, clock: VirtualClock) -> dict[str, Any]:
    try:
        return _answer(question, db, clock)
    except (SchedulerError, DBAPIError) as error:
        return {"error": str(error)}


def _answer(question: dict[str, Any], db: DatabaseConnection, clock: VirtualClock) -> dict[str, Any]:
    match question:
        case {"install": _}:
            clock.install()
            return {}
        case {"command": words}:
            return _run(words)
        case {"remove": names}:
            _remove(ScheduleRepository(db), names)
            return {}
        case {"move_to": target, "patience_seconds": patience_seconds}:
            ended = Mover(db, clock).move_to(datetime.fromisoformat(target), patience_seconds)
            return {"now": clock.now(), "ended": ended}
        case _:
            return {"now": clock.now()}


def _run(words: list[str]) -> dict[str, Any]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), suppress(SystemExit):
        app(words)
    return {"out": out.getvalue(), "err": err.getvalue()}


def _remove(repository: ScheduleRepository, names: list[str]) -> None:
    for name in names:
        try:
            repository.delete_schedule(repository.find_schedule(name).schedule_id, actor=ACTOR)
        except (ScheduleNotFound, InvalidInput):  # the test has removed or renamed it
            continue


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
