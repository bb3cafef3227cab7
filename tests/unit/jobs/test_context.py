"""What a handler is given."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from database.models import Cause
from enhanced_scheduler.context import MAX_LOG_BYTES
from services.jobs import ExecutionContext, JobCancelled, JobStopped, JobTimedOut
from tests.support.contexts import SCHEDULE_ID, Heard, a_context


def test_every_attempt_of_a_fire_has_the_same_idempotency_key() -> None:
    keys = {a_context(attempt=attempt, cause=cause).idempotency_key for attempt in (1, 2, 3) for cause in FIRED}
    assert keys == {f"{SCHEDULE_ID}/2026-03-01T02:00:00Z"}


FIRED = (Cause.SCHEDULE, Cause.CATCHUP, Cause.BACKFILL)


def test_the_key_is_the_same_in_whatever_offset_the_instant_is_written() -> None:
    there = datetime(2026, 3, 1, 4, 0, tzinfo=timezone(timedelta(hours=2)))
    assert a_context(scheduled_for=there).idempotency_key == a_context().idempotency_key


def test_a_manual_run_is_an_effect_of_its_own() -> None:
    context = a_context(cause=Cause.MANUAL)
    assert context.idempotency_key == str(context.execution_id)


def test_an_execution_without_schedule_is_identified_by_itself() -> None:
    context = a_context(schedule_id=None)
    assert context.idempotency_key == str(context.execution_id)


def test_check_does_nothing_while_there_is_time() -> None:
    context = a_context()
    context.begin()
    context.check()
    assert not context.cancelled
    assert 0 < context.remaining_seconds <= 30


def test_check_ends_a_cancelled_handler_and_says_why() -> None:
    context = a_context()
    context.cancel("asked by anna")
    assert context.cancelled
    with pytest.raises(JobCancelled, match="asked by anna"):
        context.check()


def test_the_first_reason_of_a_cancellation_stays() -> None:
    context = a_context()
    context.cancel("asked by anna")
    context.cancel("shutdown")
    assert context.cancel_reason == "asked by anna"


def test_check_ends_a_handler_whose_time_is_over() -> None:
    context = a_context(timeout_seconds=0.0)
    context.begin()
    assert context.remaining_seconds == 0
    with pytest.raises(JobTimedOut, match="within 0 s"):
        context.check()


def test_except_exception_does_not_swallow_a_stop() -> None:
    context = a_context()
    context.cancel("now")

    def handler() -> None:
        try:
            context.check()
        except Exception:  # noqa: BLE001 - what handlers are full of
            return

    with pytest.raises(JobStopped):
        handler()


def test_lines_of_the_log_carry_their_time() -> None:
    context = a_context()
    context.log("first")
    context.log("second")
    first, second = context.trace()["log"]
    assert first.endswith("Z first")
    assert second.endswith("Z second")
    assert datetime.fromisoformat(first.split()[0]).tzinfo is not None


def test_a_long_log_loses_its_oldest_lines_with_a_note() -> None:
    context = a_context()
    for number in range(2000):
        context.log(f"line {number} " + "ü" * 100)
    note, *lines = context.trace()["log"]
    assert lines[-1].split()[2] == "1999"
    assert note == f"… {2000 - len(lines)} earlier lines were dropped"
    assert sum(len(line.encode()) for line in lines) <= MAX_LOG_BYTES


def test_what_postgres_refuses_is_replaced_in_the_log() -> None:
    context = a_context()
    context.log("a\x00b\ud800c")
    assert context.trace()["log"][0].endswith("a\ufffdb\ufffdc")


def test_a_hidden_value_does_not_reach_the_log() -> None:
    context = a_context()
    context.hide("s3cr3t/+")
    context.log("token s3cr3t/+ and in a url s3cr3t%2F%2B")
    assert context.trace()["log"][0].endswith("token *** and in a url ***")


def test_the_last_progress_is_kept() -> None:
    context = a_context()
    context.progress(1, 10)
    context.progress(7, 10)
    assert context.trace() == {"progress": {"done": 7, "total": 10}}


def test_progress_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a number"):
        a_context().progress(float("nan"))


def test_an_execution_without_log_and_progress_leaves_no_trace() -> None:
    assert a_context().trace() == {}


@pytest.mark.parametrize("schedule_id", [SCHEDULE_ID, None])
def test_a_context_survives_the_way_into_another_process(schedule_id: UUID | None) -> None:
    heard = Heard()
    context = a_context(schedule_id=schedule_id, job_config={"ü": [1, None]}, cause=Cause.CATCHUP)
    context.begin()
    copy = ExecutionContext.from_wire(json.loads(json.dumps(context.to_wire())), heard)
    for name in ("execution_id", "schedule_id", "domain_config_id", "job_config", "scheduled_for", "cause"):
        assert getattr(copy, name) == getattr(context, name)
    assert copy.scheduled_for.tzinfo == UTC
    earlier = context.remaining_seconds
    assert copy.remaining_seconds <= earlier < 30
    copy.progress(1, 2)
    copy.log("hello")
    assert (heard.progress, [line.text for line in heard.lines]) == ([(1, 2)], ["hello"])
