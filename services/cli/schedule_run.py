"""`manage.py schedule run`: one run now, beside the plan."""

import sys
from typing import Annotated

import typer

from database.models import ExecutionStatus
from services.cli.durations import parse_duration
from services.cli.output import FAILED, AsJson, actor, console, error_console, print_json
from services.execution_listing import ExecutionRecord
from services.job_history import JobHistory, get_job_history
from services.schedule_repository import get_schedule_repository


def run_now(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its id, its name or its domain.")],
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end, retries included.")] = False,
    timeout: Annotated[str, typer.Option(help="How long to wait.")] = "1h",
    as_json: AsJson = False,
) -> None:
    """Run a schedule once now, also a disabled one; its next fire comes as planned.

    Prints the execution's id. With --wait the exit code is 0 only if it succeeded.

    Examples:

      manage.py schedule run nightly

      manage.py schedule run example.com --wait --timeout 10m
    """
    seconds = parse_duration(timeout, "timeout").total_seconds()
    history = get_job_history()
    record = get_schedule_repository().find_schedule(schedule)
    execution_id = history.request_run(record.schedule_id, actor())
    if not wait:
        print_json({"execution_id": execution_id}) if as_json else console().print(str(execution_id))
        return
    if not as_json:
        console().print(str(execution_id))
    ended = _wait(history, str(execution_id), seconds)
    if as_json:
        print_json(ended)
    else:
        _print_end(ended, timeout)
    if ended is None or ended.status != ExecutionStatus.SUCCESS:
        raise typer.Exit(FAILED)


def _wait(history: JobHistory, execution_id: str, seconds: float) -> ExecutionRecord | None:
    if not sys.stderr.isatty():
        return history.wait_for(execution_id, seconds)
    with error_console().status("waiting for its end …"):
        return history.wait_for(execution_id, seconds)


def _print_end(record: ExecutionRecord | None, timeout: str) -> None:
    if record is None:
        console().print("somebody deleted the execution")
        return
    if not record.is_terminal:
        hint = "; does a replica run? (python manage.py doctor)" if record.status == ExecutionStatus.PENDING else ""
        console().print(f"still {record.status} after {timeout}{hint}")
        return
    took = "" if record.duration_seconds is None else f" after {record.duration_seconds:.2f} s"
    attempts = f", attempt {record.attempt}" if record.attempt > 1 else ""
    why = f": {record.error_message or record.reason}" if record.error_message or record.reason else ""
    console().print(f"{record.status}{took}{attempts}{why}")
