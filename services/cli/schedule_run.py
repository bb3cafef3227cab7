"""`manage.py schedule run`: one run now, outside the timing; --wait follows its attempts."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from config import get_settings
from database.connection import get_db_connection
from database.models import ExecutionStatus
from services.cli.durations import parse_duration
from services.cli.log_lines import AttemptLogs, print_lines
from services.cli.output import FAILED, AsJson, actor, console, error_console, print_json, until
from services.insight.replicas import list_replicas
from services.job_history import POLL_SECONDS, get_job_history
from services.ledger.listing import ExecutionRecord
from services.ledger.logs import LoggedLine
from services.schedule_repository import get_schedule_repository
from services.wording.durations import duration


def run_now(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its id, name or domain.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, retries included.")] = False,
    timeout: Annotated[str, typer.Option(help="How long to wait.")] = "1h",
    as_json: AsJson = False,
) -> None:
    """Run a schedule once now, even if it is disabled; its next fire stays as it is.

    Prints the execution's id. With --wait it reports each attempt and what its job logs, and the exit code is 0 only
    on success.

    Examples:

      manage.py schedule run nightly

      manage.py schedule run example.com --wait --timeout 10m
    """
    seconds = parse_duration(timeout, "timeout").total_seconds()
    record = get_schedule_repository().find_schedule(schedule)
    execution_id = get_job_history().request_run(record.schedule_id, actor())
    if not as_json:
        console().print(str(execution_id))
    elif not wait:
        print_json({"execution_id": execution_id})
    _warn_without_replicas()
    if not wait:
        return
    ended = _follow(str(execution_id), seconds)
    if as_json:
        print_json(ended)
    else:
        _print_end(ended, timeout)
    if ended is None or ended.status != ExecutionStatus.SUCCESS:
        raise typer.Exit(FAILED)


def _warn_without_replicas() -> None:
    replicas = list_replicas(get_db_connection(), get_settings().heartbeat_timeout_seconds)
    if not replicas.live:
        error_console().print(
            "no replica is live: the run waits for one (python services/enhanced_scheduler.py)", style="yellow"
        )


def _follow(execution_id: str, seconds: float) -> ExecutionRecord | None:
    attempts: list[ExecutionRecord] = []
    reported: set[tuple[int, str]] = set()
    with _steps_console() as out:
        said = AttemptLogs(get_job_history().logs)
        for attempts in get_job_history().follow(execution_id, seconds):
            print_lines(out, said.news(attempts))
            for step, words in _steps(attempts):
                if step not in reported:
                    reported.add(step)
                    out.print(f"attempt {step[0]} {words}")
        print_lines(out, _last_lines(said, attempts))
    return attempts[-1] if attempts else None


def _last_lines(said: AttemptLogs, attempts: list[ExecutionRecord]) -> list[LoggedLine]:
    """The log of the last attempt may be written a moment after its end."""
    lines = list[LoggedLine]()
    if attempts and attempts[-1].is_terminal:
        rest = get_job_history().follow_log(attempts[-1].execution_id, said.position_in(attempts[-1]))
        while not (look := rest.look()).is_over:
            lines += look.lines
            time.sleep(POLL_SECONDS)
        lines += look.lines
    return lines


def _steps(attempts: list[ExecutionRecord]) -> Iterator[tuple[tuple[int, str], str]]:
    """What has happened so far. The end of the last attempt is the command's result, not a step."""
    for record in attempts:
        if record.attempt > 1:
            yield (record.attempt, "follows"), f"follows {_when_due(record)}"
        if record.started_at is not None:
            where = f"runs on {record.instance_id or 'an embedding program'}"
            yield (record.attempt, where), where
        if record is not attempts[-1]:
            yield (record.attempt, "ended"), _verdict(record)


def _when_due(record: ExecutionRecord) -> str:
    soon = record.due_at is None or record.due_at <= datetime.now(UTC)
    return "at once" if soon or record.due_at is None else until(record.due_at)


def _verdict(record: ExecutionRecord) -> str:
    took = "" if record.duration_seconds is None else f" after {duration(record.duration_seconds)}"
    why = f": {record.why}" if record.why else ""
    return f"{record.status}{took}{why}"


@contextmanager
def _steps_console() -> Iterator[Console]:
    """Standard error, with a spinner if it is a terminal."""
    out = error_console()
    if not sys.stderr.isatty():
        yield out
        return
    with out.status("waiting for the execution to end …"):
        yield out


def _print_end(record: ExecutionRecord | None, timeout: str) -> None:
    if record is None:
        console().print("the execution was deleted")
    elif record.is_terminal:
        attempt = f"attempt {record.attempt} " if record.attempt > 1 else ""
        console().print(f"{attempt}{_verdict(record)}")
    else:
        console().print(f"still {record.status} after {timeout}{_hint(record)}")


def _hint(record: ExecutionRecord) -> str:
    if record.status != ExecutionStatus.PENDING:
        return ""
    if record.attempt > 1:
        return f": attempt {record.attempt} is due {_when_due(record)}"
    return "; is a replica running? (python manage.py doctor)"
