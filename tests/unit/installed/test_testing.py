"""The test kit that users import: what a call of a handler comes to, and when a schedule fires."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, PositiveInt

from config import PROJECT_ROOT
from enhanced_scheduler import ExecutionContext, JobFailed, JobSkipped
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.statuses import ExecutionStatus
from enhanced_scheduler.testing import NIGHT, CommandFailed, JobRun, fires_between, run_job


class Report(BaseModel):
    pages: PositiveInt


def report(context: ExecutionContext, config: Mapping[str, Any]) -> dict[str, Any]:
    context.hide("hunter2")
    context.log(f"attempt {context.attempt}, with hunter2")
    context.progress(1, 3)
    context.check()
    return {"key": context.idempotency_key, "pages": config["pages"]}


def test_a_call_tells_the_result_the_log_and_the_progress() -> None:
    done = run_job(report, {"pages": 3}, attempt=2, scheduled_for=datetime(2027, 5, 1, tzinfo=UTC))
    assert done.succeeded
    assert done.result == {"key": "11111111-2222-3333-4444-555555555555/2027-05-01T00:00:00Z", "pages": 3}
    assert (done.log, done.progress) == (["attempt 2, with ***"], {"done": 1, "total": 3})
    assert not done.would_be_retried


def test_a_call_tells_whether_a_failure_would_be_retried() -> None:
    def busy(context: ExecutionContext, config: Any) -> None:
        raise JobFailed("busy", retry_after_seconds=7, details={"queue": 3})

    done = run_job(busy)
    assert (done.status, done.error_message) == (ExecutionStatus.FAILED, "busy")
    assert (done.would_be_retried, done.retry_after_seconds) == (True, 7)
    assert (done.error_details or {})["queue"] == 3
    assert run_job(report, {}).would_be_retried, "any other exception"


def test_a_call_that_is_cancelled_or_skips_ends_so() -> None:
    def skip(context: ExecutionContext, config: Any) -> None:
        raise JobSkipped("holiday")

    cancelled = run_job(report, {"pages": 1}, cancel="by anna")
    assert (cancelled.status, cancelled.error_message) == (ExecutionStatus.CANCELLED, "cancelled: by anna")
    assert (run_job(skip).status, run_job(skip).reason) == (ExecutionStatus.SKIPPED, "holiday")
    assert run_job(report, {"pages": 1}, timeout_seconds=0).status is ExecutionStatus.TIMED_OUT


def test_an_async_handler_is_called_to_its_end_also_by_an_async_test() -> None:
    async def wait(context: ExecutionContext, config: Mapping[str, Any]) -> dict[str, Any]:
        context.log("before")
        await asyncio.sleep(0.01)
        return {"pages": config["pages"]}

    async def an_async_test() -> JobRun:
        return run_job(wait, {"pages": 2})

    for done in (run_job(wait, {"pages": 2}), asyncio.run(an_async_test())):
        assert (done.result, done.log) == ({"pages": 2}, ["before"])


def test_what_an_async_handler_leaves_behind_costs_it_nothing() -> None:
    """As in a replica's event loop: a task that swallows its cancellation, and a thread that hangs."""
    is_over = threading.Event()

    async def stubborn() -> None:
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    async def leave(context: ExecutionContext, config: Any) -> dict[str, int]:
        tasks.append(asyncio.create_task(stubborn()))
        asyncio.get_running_loop().run_in_executor(None, is_over.wait)
        await asyncio.sleep(0)
        return {"pages": 1}

    tasks: list[asyncio.Task[None]] = []
    done = run_job(leave)
    is_over.set()
    assert (done.result, done.log) == (
        {"pages": 1},
        ["the handler has ended; 1 tasks that it had started are cancelled"],
    )


@pytest.mark.parametrize(
    ("how", "status"),
    [({"cancel": "by anna"}, ExecutionStatus.CANCELLED), ({"timeout_seconds": 0}, ExecutionStatus.TIMED_OUT)],
)
def test_an_async_handler_that_should_stop_hears_it_at_its_first_await(
    how: Mapping[str, Any], status: ExecutionStatus
) -> None:
    async def quick(context: ExecutionContext, config: Any) -> None:
        context.log("begun")
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            context.log("told to stop")
            raise

    done = run_job(quick, **how)
    assert (done.status, done.log) == (status, ["begun", "told to stop"])


def test_a_declared_handler_gets_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(context: ExecutionContext, config: Report) -> dict[str, int]:
        return {"pages": config.pages}

    monkeypatch.setattr("enhanced_scheduler.jobs._declared", {"total": JobDefinition("total", total, Report)})
    assert run_job(total, {"pages": 2}).result == {"pages": 2}
    refused = run_job(total, {"pages": 0})
    assert refused.error_message == "job_config.pages: input should be greater than 0"
    assert not refused.would_be_retried


def test_fires_between_two_instants_include_the_first_and_not_the_last() -> None:
    """In the night of the 28th Berlin's clocks skip 02:30."""
    night = {"frequency": "daily", "time_config": {"hour": 2, "minute": 30}, "timezone": "Europe/Berlin"}
    start, end = datetime(2027, 3, 27, 1, 30, tzinfo=UTC), datetime(2027, 3, 29, 0, 30, tzinfo=UTC)
    fires = fires_between(night, start, end)
    assert fires == [start, datetime(2027, 3, 28, 1, 0, tzinfo=UTC)]


def test_a_misspelt_field_of_a_schedule_is_refused_and_not_left_out() -> None:
    with pytest.raises(CommandFailed, match="timezon: is not a field of a schedule, did you mean 'timezone'"):
        fires_between({"when": "daily 02:30", "timezon": "Europe/Berlin"}, NIGHT, NIGHT)


def test_a_timing_that_cannot_be_read_is_refused_with_the_reason() -> None:
    day = datetime(2027, 3, 27, tzinfo=UTC)
    with pytest.raises(CommandFailed, match=r"time_config\.hour: must be between 0 and 23, got 25"):
        fires_between("daily 25:00", day, day)


def test_without_the_embedded_servers_the_fixture_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from enhanced_scheduler import extras\nextras.MODULES['embedded'] = ('no_such_module',)\n"
    )
    (tmp_path / "test_shop.py").write_text("def test_one(scheduler): ...\n")
    words = ["-m", "pytest", "-q", "-p", "enhanced_scheduler.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(PROJECT_ROOT), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "the fixture `scheduler` runs servers of its own: `pip install" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
