"""The pool: every submitted execution ends exactly once, whatever its handler does."""

import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from config import PROJECT_ROOT
from database.models import ExecutionStatus
from services.engine.pool import WorkerPool
from services.jobs import BUILT_IN_JOB_TYPES, ExecutionContext, JobRegistry, JobResult
from tests.support.contexts import a_context
from tests.support.waiting import eventually

Handler = Callable[[ExecutionContext, Any], Any]


class Bench:
    """A pool with one job type, and what it reported."""

    def __init__(self) -> None:
        self.done: list[tuple[UUID, JobResult, float]] = []
        self.release = threading.Event()
        self._pools: list[WorkerPool] = []

    def pool(self, handler: Handler, max_workers: int = 1, **options: Any) -> WorkerPool:
        registry = JobRegistry(BUILT_IN_JOB_TYPES)
        registry.job("test")(handler)
        on_done = options.pop("on_done", self.on_done)
        pool = WorkerPool(max_workers, registry, on_done, **{"grace_seconds": 0.02, **options})
        self._pools.append(pool)
        return pool

    def on_done(self, context: ExecutionContext, result: JobResult, duration_seconds: float) -> None:
        self.done.append((context.execution_id, result, duration_seconds))

    def hang(self, _context: ExecutionContext, _config: Any) -> None:
        self.release.wait(60)

    def results(self, count: int) -> list[JobResult]:
        eventually(lambda: len(self.done) >= count)
        return [result for _, result, _ in self.done]

    def close(self) -> None:
        self.release.set()
        for pool in self._pools:
            pool.shutdown(5)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_a_handler_is_run_and_its_result_reported_with_its_duration(bench: Bench) -> None:
    context = a_context()
    bench.pool(lambda context, _config: {"attempt": context.attempt}).submit(context)
    [result] = bench.results(1)
    assert result.details == {"result": {"attempt": 1}}
    [(execution_id, _, duration_seconds)] = bench.done
    assert execution_id == context.execution_id
    assert duration_seconds >= 0


def test_the_start_of_a_job_is_logged_with_its_names_and_ids(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "services.engine.pool")
    context = a_context(job_type="test")
    bench.pool(lambda _context, _config: None).submit(context)
    bench.results(1)
    (said,) = [record for record in caplog.records if vars(record).get("event") == "execution_started"]
    assert said.levelname == "INFO"
    assert context.job_id in said.getMessage()
    facts = vars(said)
    assert (facts["execution_id"], facts["schedule_id"]) == (str(context.execution_id), str(context.schedule_id))
    assert (facts["job_type"], facts["attempt"]) == ("test", context.attempt)


def test_the_start_of_a_job_without_a_name_is_logged_by_what_it_is_about(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "services.engine.pool")
    schedule_id = uuid4()
    bench.pool(lambda _context, _config: None).submit(
        a_context(schedule_id=schedule_id, job_id=str(schedule_id), domain="shop.example")
    )
    bench.results(1)
    (said,) = [record for record in caplog.records if vars(record).get("event") == "execution_started"]
    assert said.getMessage().startswith("shop.example at ")


def test_log_and_progress_are_kept_beside_the_result(bench: Bench) -> None:
    def handler(context: ExecutionContext, _config: Any) -> dict[str, Any]:
        context.log("half way")
        context.progress(1, 2)
        return {"x": 1}

    bench.pool(handler).submit(a_context())
    [result] = bench.results(1)
    assert result.details["result"] == {"x": 1}
    assert result.details["progress"] == {"done": 1, "total": 2}
    assert result.details["log"][0].endswith("half way")


def test_at_most_max_workers_handlers_run_at_once_and_the_rest_waits(bench: Bench) -> None:
    pool = bench.pool(bench.hang, max_workers=3)
    for _ in range(5):
        pool.submit(a_context())
    eventually(lambda: len(pool.running) == 3)
    assert len(pool.held) == 5
    bench.release.set()
    assert {result.status for result in bench.results(5)} == {ExecutionStatus.SUCCESS}
    eventually(lambda: not pool.held)


def test_a_hung_handler_ends_timed_out_and_its_slot_is_replaced(bench: Bench) -> None:
    def handler(context: ExecutionContext, config: Any) -> None:
        if context.job_config.get("hang"):
            bench.hang(context, config)

    pool = bench.pool(handler)
    pool.submit(a_context(timeout_seconds=0.05, job_config={"hang": True}))
    [result] = bench.results(1)
    assert (result.status, result.retryable) == (ExecutionStatus.TIMED_OUT, True)
    assert result.error_message == "did not finish within 0.05 s"
    assert pool.leaked == 1
    pool.submit(a_context())
    assert bench.results(2)[1].status is ExecutionStatus.SUCCESS


def test_a_thread_that_returns_after_all_is_no_leak_any_more_and_its_result_is_dropped(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    pool = bench.pool(bench.hang)
    pool.submit(a_context(timeout_seconds=0.05))
    bench.results(1)
    with caplog.at_level(logging.WARNING):
        bench.release.set()
        eventually(lambda: pool.leaked == 0)
        eventually(lambda: caplog.records)
    assert [record.__dict__["event"] for record in caplog.records][-1] == "late_result_dropped"
    assert len(bench.done) == 1


def test_a_pool_of_one_survives_many_hung_handlers(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    for _ in range(20):
        pool.submit(a_context(timeout_seconds=0.01))
    assert {result.status for result in bench.results(20)} == {ExecutionStatus.TIMED_OUT}
    assert pool.leaked == 20
    bench.release.set()
    eventually(lambda: pool.leaked == 0)


def test_a_cooperative_handler_ends_timed_out_without_a_leak(bench: Bench) -> None:
    def handler(context: ExecutionContext, _config: Any) -> None:
        while True:
            context.check()
            time.sleep(0.001)

    pool = bench.pool(handler, grace_seconds=30)
    pool.submit(a_context(timeout_seconds=0.05))
    [result] = bench.results(1)
    assert result.status is ExecutionStatus.TIMED_OUT
    assert pool.leaked == 0


def test_an_execution_ends_once_when_it_finishes_just_as_its_time_is_over(bench: Bench) -> None:
    def handler(context: ExecutionContext, _config: Any) -> None:
        time.sleep(context.timeout_seconds)

    pool = bench.pool(handler, max_workers=20, grace_seconds=0)
    contexts = [a_context(timeout_seconds=0.005) for _ in range(400)]
    for context in contexts:
        pool.submit(context)
    eventually(lambda: len(bench.done) >= 400, 30)
    eventually(lambda: pool.leaked == 0)
    reported = Counter(execution_id for execution_id, _, _ in bench.done)
    assert reported == Counter(context.execution_id for context in contexts)
    eventually(lambda: not pool.held)


def test_an_execution_ends_once_when_it_is_cancelled_from_many_sides(bench: Bench) -> None:
    pool = bench.pool(lambda context, _config: context.check(), max_workers=4, grace_seconds=0)
    contexts = [a_context() for _ in range(300)]
    for context in contexts:
        pool.submit(context)
        threading.Thread(target=pool.cancel, args=(context.execution_id,)).start()
        pool.cancel(context.execution_id)
    eventually(lambda: len(bench.done) >= 300, 30)
    eventually(lambda: not pool.held)
    assert set(Counter(execution_id for execution_id, _, _ in bench.done).values()) == {1}


def test_cancel_ends_a_handler_that_does_not_listen(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    context = a_context()
    pool.submit(context)
    eventually(lambda: pool.running)
    assert pool.cancel(context.execution_id, "asked by anna")
    [result] = bench.results(1)
    assert (result.status, result.error_message) == (ExecutionStatus.CANCELLED, "cancelled: asked by anna")
    assert pool.leaked == 1


def test_an_execution_that_is_cancelled_while_it_waits_never_starts(bench: Bench) -> None:
    started: list[UUID] = []

    def handler(context: ExecutionContext, config: Any) -> None:
        started.append(context.execution_id)
        bench.hang(context, config)

    pool = bench.pool(handler)
    first, second = a_context(), a_context()
    pool.submit(first)
    pool.submit(second)
    eventually(lambda: started)
    assert pool.cancel(second.execution_id)
    [result] = bench.results(1)
    assert result.status is ExecutionStatus.CANCELLED
    bench.release.set()
    bench.results(2)
    assert started == [first.execution_id]
    assert pool.leaked == 0


def test_what_is_not_here_cannot_be_cancelled(bench: Bench) -> None:
    context = a_context()
    pool = bench.pool(lambda _context, _config: None)
    assert not pool.cancel(context.execution_id)
    pool.submit(context)
    bench.results(1)
    assert not pool.cancel(context.execution_id)


def test_an_execution_that_may_not_run_any_more_is_dropped_unreported(bench: Bench) -> None:
    allowed = a_context()
    pool = bench.pool(lambda _context, _config: None, may_run=lambda context: context is allowed)
    pool.submit(a_context())
    pool.submit(allowed)
    bench.results(1)
    assert [execution_id for execution_id, _, _ in bench.done] == [allowed.execution_id]
    assert pool.dropped == 1
    eventually(lambda: not pool.held)


def test_waiting_for_the_permission_is_not_the_handler_s_time(bench: Bench) -> None:
    """Postgres was away for longer than the job may take."""
    back = threading.Event()
    pool = bench.pool(lambda _context, _config: None, may_run=lambda _context: back.wait(60))
    context = a_context(timeout_seconds=0.01)
    pool.submit(context)
    time.sleep(0.1)  # well over its time
    assert not context.begun
    back.set()
    [result] = bench.results(1)
    assert result.status is ExecutionStatus.SUCCESS


def test_what_was_taken_back_while_it_waited_for_the_permission_is_not_run_any_more(bench: Bench) -> None:
    asked, back = threading.Event(), threading.Event()
    ran: list[UUID] = []

    def may_run(_context: ExecutionContext) -> bool:
        asked.set()
        return back.wait(60)

    pool = bench.pool(lambda context, _config: ran.append(context.execution_id), may_run=may_run)
    first, second = a_context(), a_context()
    pool.submit(first)
    asked.wait(60)
    assert pool.take_back(0) == [first]
    back.set()
    pool.submit(second)
    bench.results(1)
    assert ran == [second.execution_id]


def test_a_guard_that_breaks_is_a_failed_execution(bench: Bench) -> None:
    def broken(_context: ExecutionContext) -> bool:
        raise OSError("lost")

    bench.pool(lambda _context, _config: None, may_run=broken).submit(a_context())
    [result] = bench.results(1)
    assert (result.status, result.error_message) == (ExecutionStatus.FAILED, "OSError: lost")


def test_on_done_cannot_kill_a_worker(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[ExecutionContext] = []

    def on_done(context: ExecutionContext, _result: JobResult, _duration: float) -> None:
        calls.append(context)
        raise SystemExit

    pool = bench.pool(lambda _context, _config: None, on_done=on_done)
    for _ in range(5):
        pool.submit(a_context())
    eventually(lambda: len(calls) == 5 and not pool.held)
    assert {record.__dict__["event"] for record in caplog.records} == {"result_not_delivered"}


def test_on_done_cannot_kill_the_watchdog(bench: Bench) -> None:
    calls: list[JobResult] = []

    def on_done(_context: ExecutionContext, result: JobResult, _duration: float) -> None:
        calls.append(result)
        raise ValueError

    pool = bench.pool(bench.hang, on_done=on_done)
    for _ in range(3):
        pool.submit(a_context(timeout_seconds=0.01))
    eventually(lambda: len(calls) == 3)
    assert {result.status for result in calls} == {ExecutionStatus.TIMED_OUT}


def test_an_unknown_job_type_is_reported_as_a_permanent_failure(bench: Bench) -> None:
    bench.pool(lambda _context, _config: None).submit(a_context("ftp"))
    [result] = bench.results(1)
    assert (result.status, result.retryable) == (ExecutionStatus.FAILED, False)
    assert str(result.error_message).startswith("no job type 'ftp' is registered")


def test_an_execution_is_accepted_once(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    context = a_context()
    pool.submit(context)
    with pytest.raises(RuntimeError, match="submitted twice"):
        pool.submit(context)


def test_shutdown_waits_for_what_runs_and_its_result_was_delivered(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    pool.submit(a_context())
    eventually(lambda: pool.running)
    threading.Timer(0.05, bench.release.set).start()
    assert pool.shutdown(30) == []
    assert [result.status for _, result, _ in bench.done] == [ExecutionStatus.SUCCESS]


def test_shutdown_returns_what_did_not_finish_and_reports_nothing_about_it_later(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    running, waiting = a_context(), a_context()
    pool.submit(running)
    eventually(lambda: pool.running)
    pool.submit(waiting)
    assert pool.shutdown(0.05) == [waiting, running]
    assert [context.begun for context in (waiting, running)] == [False, True]
    assert running.cancelled
    bench.release.set()
    eventually(lambda: "job-worker" not in {thread.name for thread in threading.enumerate() if thread.is_alive()})
    assert bench.done == []


def test_what_waits_too_long_for_a_worker_is_taken_back_and_never_called(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    running, waiting = a_context(), a_context()
    pool.submit(running)
    eventually(lambda: pool.running)
    pool.submit(waiting)
    assert pool.take_back(60) == []
    assert pool.take_back(0) == [waiting]
    assert pool.held == [running]
    pool.submit(waiting)  # as if it had been claimed again
    bench.release.set()
    bench.results(2)
    assert [execution_id for execution_id, _, _ in bench.done] == [running.execution_id, waiting.execution_id]


def test_what_runs_hears_that_the_replica_stops_soon(bench: Bench) -> None:
    def handler(context: ExecutionContext, _config: Any) -> None:
        eventually(lambda: context.draining)

    pool = bench.pool(handler)
    pool.submit(a_context())
    eventually(lambda: pool.running)
    assert pool.shutdown(30) == []


def test_a_handler_that_a_shutdown_ends_has_a_moment_to_clean_up(bench: Bench) -> None:
    cleaned = []

    def handler(context: ExecutionContext, _config: Any) -> None:
        try:
            while True:
                context.check()
                time.sleep(0.01)
        finally:
            cleaned.append(context.execution_id)

    pool, context = bench.pool(handler), a_context()
    pool.submit(context)
    eventually(lambda: pool.running)
    assert pool.shutdown(0) == [context]
    assert cleaned == [context.execution_id]
    assert bench.done == []


def test_nothing_is_accepted_after_shutdown(bench: Bench) -> None:
    pool = bench.pool(bench.hang)
    pool.shutdown(0)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(a_context())


def test_a_hung_handler_does_not_keep_the_interpreter_alive() -> None:
    program = """
import threading
from services.engine.pool import WorkerPool
from services.jobs import JobRegistry
from tests.support.contexts import a_context
begun = threading.Event()
def hang(context, config):
    begun.set()
    threading.Event().wait()
registry = JobRegistry()
registry.job("test")(hang)
WorkerPool(2, registry, print).submit(a_context())
begun.wait()
"""
    subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, check=True, timeout=60)
