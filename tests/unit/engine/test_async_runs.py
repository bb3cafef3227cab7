"""Coroutine handlers in the pool: they take no thread, end exactly once, and cannot stop the loop for the others."""

import asyncio
import contextlib
import contextvars
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from config import PROJECT_ROOT
from database.models import ExecutionStatus
from enhanced_scheduler.results import JobFailed, PermanentFailure
from services.engine import async_runs
from services.engine.pool import WorkerPool
from services.jobs import ExecutionContext, JobRegistry, JobResult
from tests.support.contexts import a_context
from tests.support.waiting import eventually

AsyncHandler = Callable[[ExecutionContext, Any], Awaitable[Any]]


class Bench:
    """A pool with one async job type and one plain one, and what it reported."""

    def __init__(self) -> None:
        self.done: list[tuple[UUID, JobResult]] = []
        self._pools: list[WorkerPool] = []
        self.is_open = False

    def pool(self, handler: AsyncHandler, max_workers: int = 1, **options: Any) -> WorkerPool:
        registry = JobRegistry()
        registry.job("test")(handler)
        registry.job("plain")(lambda _context, _config: None)
        pool = WorkerPool(max_workers, registry, self._on_done, **{"grace_seconds": 0.1, **options})
        self._pools.append(pool)
        return pool

    def _on_done(self, context: ExecutionContext, result: JobResult, _seconds: float) -> None:
        self.done.append((context.execution_id, result))

    def results(self, count: int) -> list[JobResult]:
        eventually(lambda: len(self.done) >= count, 30)
        return [result for _, result in self.done]

    async def hang(self, _context: ExecutionContext, _config: Any) -> None:
        """Ignores every CancelledError until the bench is opened."""
        while not self.is_open:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def close(self) -> None:
        self.is_open = True
        for pool in self._pools:
            pool.shutdown(5)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("job-loop")]


async def forever(_context: ExecutionContext, _config: Any) -> None:
    await asyncio.sleep(3600)


def test_waiting_handlers_take_no_threads(bench: Bench) -> None:
    at_once = most = 0

    async def handler(_context: ExecutionContext, _config: Any) -> dict[str, int]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.2)
        at_once -= 1
        return {"thread": threading.get_ident()}

    pool = bench.pool(handler, max_workers=1, max_async=60)
    for _ in range(150):
        pool.submit(a_context())
    pool.submit(a_context("plain"))
    results = bench.results(151)
    assert {result.status for result in results} == {ExecutionStatus.SUCCESS}
    assert most == 60
    assert len({result.details["result"]["thread"] for result in results if result.details}) == 1, "one loop"


def test_nothing_of_a_loop_is_started_without_an_async_handler(bench: Bench) -> None:
    eventually(lambda: not loop_threads())  # of other tests
    bench.pool(forever).submit(a_context("plain"))
    bench.results(1)
    assert not loop_threads()


def test_a_timeout_arrives_as_cancelled_error(bench: Bench) -> None:
    heard: list[str] = []

    async def handler(_context: ExecutionContext, _config: Any) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    bench.pool(handler).submit(a_context(timeout_seconds=0.05))
    [result] = bench.results(1)
    assert (result.status, result.error_message) == (ExecutionStatus.TIMED_OUT, "did not finish within 0.05 s")
    assert (heard, result.retryable) == (["cancelled"], True)


def test_a_cancelled_handler_may_clean_up_and_what_it_returns_is_kept(bench: Bench) -> None:
    async def handler(_context: ExecutionContext, _config: Any) -> dict[str, int]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return {"pages": 3}
        return {}

    pool, context = bench.pool(handler), a_context()
    pool.submit(context)
    eventually(lambda: pool.running)
    assert pool.cancel(context.execution_id, "asked by anna")
    [result] = bench.results(1)
    assert (result.status, result.error_message) == (ExecutionStatus.CANCELLED, "cancelled: asked by anna")
    assert result.details["result"] == {"pages": 3}
    assert pool.leaked == 0


def test_an_execution_that_is_cancelled_while_it_waits_never_starts(bench: Bench) -> None:
    started: list[UUID] = []

    async def handler(context: ExecutionContext, _config: Any) -> None:
        started.append(context.execution_id)
        await asyncio.sleep(3600)

    pool = bench.pool(handler, max_async=1)
    first, second = a_context(), a_context()
    pool.submit(first)
    pool.submit(second)
    eventually(lambda: started)
    pool.cancel(second.execution_id)
    bench.results(1)
    pool.cancel(first.execution_id)
    bench.results(2)
    assert started == [first.execution_id]


def test_a_handler_that_swallows_its_cancellation_ends_timed_out_and_keeps_nobody_s_place(bench: Bench) -> None:
    pool = bench.pool(bench.hang, max_async=1)
    pool.submit(a_context(timeout_seconds=0.05))
    pool.submit(a_context(timeout_seconds=0.05))
    results = bench.results(2)
    assert {result.status for result in results} == {ExecutionStatus.TIMED_OUT}
    assert pool.leaked == 2
    bench.is_open = True
    eventually(lambda: pool.leaked == 0)
    assert len(bench.done) == 2


def test_each_execution_ends_once_when_it_finishes_just_as_its_time_is_over(bench: Bench) -> None:
    async def handler(context: ExecutionContext, _config: Any) -> None:
        await asyncio.sleep(context.timeout_seconds)

    pool = bench.pool(handler, grace_seconds=0)
    contexts = [a_context(timeout_seconds=0.02) for _ in range(400)]
    for context in contexts:
        pool.submit(context)
        pool.cancel(context.execution_id) if context.execution_id.int % 3 == 0 else None
    eventually(lambda: len(bench.done) >= 400, 30)
    eventually(lambda: pool.leaked == 0)
    assert set(Counter(execution_id for execution_id, _ in bench.done).values()) == {1}
    eventually(lambda: not pool.held)


# --- what a handler says and returns ---


def test_log_progress_and_threads_of_its_own_keep_the_execution(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine")

    class Listener:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def hear(self, line: Any, *, kept: bool) -> None:
            self.heard.append(line.text)

        def see(self, progress: Any) -> None: ...

    async def handler(context: ExecutionContext, _config: Any) -> dict[str, str]:
        mine.set(str(context.execution_id))
        context.log("half way")
        context.progress(1, 2)
        await asyncio.sleep(0.01)
        logging.getLogger("shop").warning("from %s", context.execution_id)
        await asyncio.to_thread(lambda: logging.getLogger("shop").warning("thread of %s", mine.get()))
        await asyncio.create_task(asyncio.sleep(0))
        return {"mine": mine.get()}

    pool = bench.pool(handler)
    contexts = [a_context() for _ in range(5)]
    listeners = [Listener() for _ in contexts]
    for context, listener in zip(contexts, listeners, strict=True):
        context.listen(listener)
        pool.submit(context)
    bench.results(5)
    for context, listener in zip(contexts, listeners, strict=True):
        own = str(context.execution_id)
        [result] = [result for execution_id, result in bench.done if execution_id == context.execution_id]
        assert result.details["result"] == {"mine": own}
        assert result.details["progress"] == {"done": 1, "total": 2}
        assert listener.heard == ["half way", f"shop: from {own}", f"shop: thread of {own}"]


@pytest.mark.parametrize(
    ("error", "message", "retryable"),
    [
        (JobFailed("later", retry_after_seconds=5), "later", True),
        (PermanentFailure("never"), "never", False),
        (ValueError("bad"), "ValueError: bad", True),
        (SystemExit(3), "the handler called sys.exit(3)", True),
        (asyncio.CancelledError(), "the handler raised CancelledError although it was not cancelled", True),
        (ExceptionGroup("tasks", [PermanentFailure("never")]), "never", False),
        (ExceptionGroup("tasks", [ValueError("a"), PermanentFailure("b")]), "2 errors: ValueError: a; b", False),
        (ExceptionGroup("tasks", [ValueError("a"), KeyError("b")]), "2 errors: ValueError: a; KeyError: 'b'", True),
    ],
    ids=str,
)
def test_a_failure_is_recorded_and_the_loop_goes_on(
    bench: Bench, error: BaseException, message: str, retryable: bool
) -> None:
    async def handler(context: ExecutionContext, _config: Any) -> None:
        await asyncio.sleep(0)
        if context.job_config.get("fail"):
            raise error

    pool = bench.pool(handler)
    pool.submit(a_context(job_config={"fail": True}))
    pool.submit(a_context())
    failed, _ = sorted(bench.results(2), key=lambda result: result.status is ExecutionStatus.SUCCESS)
    assert (failed.status, failed.error_message, failed.retryable) == (ExecutionStatus.FAILED, message, retryable)


def test_a_handler_that_shuts_the_threads_of_the_loop_down_takes_them_from_nobody(bench: Bench) -> None:
    async def handler(_context: ExecutionContext, _config: Any) -> dict[str, int]:
        await asyncio.get_running_loop().shutdown_default_executor()
        return {"pages": await asyncio.to_thread(int, "3")}

    pool = bench.pool(handler)
    for _ in range(2):
        pool.submit(a_context())
    assert [result.details.get("result") for result in bench.results(2)] == [{"pages": 3}] * 2


def test_a_task_that_calls_sys_exit_does_not_end_the_loop(bench: Bench) -> None:
    async def leave() -> None:
        sys.exit(1)

    async def handler(_context: ExecutionContext, _config: Any) -> None:
        task = asyncio.create_task(leave())
        await asyncio.sleep(0.05)
        assert isinstance(task.exception(), SystemExit)

    pool = bench.pool(handler)
    for _ in range(3):
        pool.submit(a_context())
    assert {result.status for result in bench.results(3)} == {ExecutionStatus.SUCCESS}


def test_tasks_that_a_handler_leaves_behind_are_cancelled_and_named_in_its_log(bench: Bench) -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def handler(_context: ExecutionContext, _config: Any) -> None:
        keep.extend(asyncio.create_task(linger()) for _ in range(2))
        await asyncio.sleep(0.01)

    keep: list[asyncio.Task[None]] = []
    bench.pool(handler).submit(a_context())
    [result] = bench.results(1)
    assert result.status is ExecutionStatus.SUCCESS
    assert result.details["log"][0].endswith("the handler has ended; 2 tasks that it had started are cancelled")
    eventually(lambda: ended == ["cancelled"] * 2)


def test_a_huge_result_is_cut_outside_the_loop(bench: Bench) -> None:
    ticks: list[float] = []

    async def handler(context: ExecutionContext, _config: Any) -> dict[str, Any]:
        if context.job_config.get("huge"):
            return {"rows": [str(number) * 20 for number in range(400_000)]}
        while len(ticks) < 100:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)
        return {}

    pool = bench.pool(handler)
    pool.submit(a_context())
    pool.submit(a_context(job_config={"huge": True}))
    results = bench.results(2)
    assert any(result.details.get("result", {}).get("truncated") for result in results)
    assert {result.status for result in results} == {ExecutionStatus.SUCCESS}


def test_a_method_and_an_object_whose_call_is_a_coroutine_function_are_async_handlers(bench: Bench) -> None:
    class Shop:
        async def close(self, _context: ExecutionContext, _config: Any) -> dict[str, str]:
            return {"thread": threading.current_thread().name}

        async def __call__(self, context: ExecutionContext, config: Any) -> dict[str, str]:
            return await self.close(context, config)

    bench.pool(Shop().close).submit(a_context())
    bench.pool(Shop()).submit(a_context())
    assert [result.details["result"] for result in bench.results(2)] == [{"thread": "job-loop"}] * 2


def test_a_plain_function_that_returns_a_coroutine_runs_in_its_thread(bench: Bench) -> None:
    """As behind a decorator that knows nothing of coroutines."""

    async def inner(_context: ExecutionContext) -> dict[str, str]:
        await asyncio.sleep(0.01)
        return {"thread": threading.current_thread().name}

    pool = bench.pool(lambda context, _config: inner(context))
    pool.submit(a_context())
    assert bench.results(1)[0].details["result"] == {"thread": "job-worker"}


# --- the gate ---


def test_an_execution_that_may_not_run_any_more_is_dropped_unreported(bench: Bench) -> None:
    allowed = a_context()

    async def handler(_context: ExecutionContext, _config: Any) -> None: ...

    pool = bench.pool(handler, may_run=lambda context: context is allowed)
    pool.submit(a_context())
    pool.submit(allowed)
    bench.results(1)
    assert [execution_id for execution_id, _ in bench.done] == [allowed.execution_id]
    assert pool.dropped == 1
    eventually(lambda: not pool.held)


def test_one_without_an_answer_keeps_no_other_one_waiting(bench: Bench) -> None:
    """Another session holds its row."""
    unknown, answers = a_context(), {"unknown": None}

    async def handler(_context: ExecutionContext, _config: Any) -> None: ...

    pool = bench.pool(handler, answer=lambda context: answers["unknown"] if context is unknown else True)
    pool.submit(unknown)
    for _ in range(10):
        pool.submit(a_context())
    bench.results(10)
    assert not unknown.begun
    answers["unknown"] = True  # type: ignore[assignment]
    bench.results(11)


def test_what_the_heart_confirms_from_memory_is_asked_of_nobody(bench: Bench) -> None:
    asked: list[UUID] = []

    async def handler(_context: ExecutionContext, _config: Any) -> None: ...

    def may_run(context: ExecutionContext) -> bool:
        asked.append(context.execution_id)
        return True

    pool = bench.pool(handler, is_sure=lambda _context: True, may_run=may_run)
    pool.submit(a_context())
    bench.results(1)
    assert asked == []


def test_an_answer_that_waited_too_long_for_the_loop_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen in between, and has been given up."""
    asked: list[UUID] = []
    ran: list[UUID] = []

    async def handler(context: ExecutionContext, _config: Any) -> None:
        ran.append(context.execution_id)

    def may_run(context: ExecutionContext) -> bool:
        asked.append(context.execution_id)
        return len(asked) == 1

    monkeypatch.setattr(async_runs, "CONFIRMED_SECONDS", 0.0)
    pool = bench.pool(handler, may_run=may_run)
    pool.submit(a_context())
    eventually(lambda: pool.dropped == 1)
    assert (len(asked), ran) == (2, [])


# --- a handler that blocks the loop ---


def blocked_total(job_type: str) -> float:
    return REGISTRY.get_sample_value("scheduler_event_loop_blocked_total", {"job_type": job_type}) or 0.0


def test_a_handler_that_blocks_the_loop_is_named_within_a_second(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[float] = []
    free = threading.Event()

    async def handler(_context: ExecutionContext, _config: Any) -> None:
        begun.append(time.monotonic())
        free.wait(30)  # the line that is named

    before = blocked_total("test")
    context = a_context()
    pool = bench.pool(handler)
    with caplog.at_level(logging.WARNING):
        pool.submit(context)
        eventually(lambda: [record for record in caplog.records if vars(record).get("event") == "loop_blocked"], 10)
        noticed = time.monotonic()
        plain = a_context("plain")
        pool.submit(plain)
        eventually(lambda: bench.done)  # threads go on
        free.set()
        bench.results(2)
        eventually(lambda: [record for record in caplog.records if vars(record).get("event") == "loop_free"], 10)
    [said] = [record for record in caplog.records if vars(record).get("event") == "loop_blocked"]
    assert noticed - begun[0] < 5, "about 0.6 s on a quiet machine"
    assert context.job_id in said.getMessage()
    assert "job type test" in said.getMessage()
    assert "test_async_runs.py" in vars(said)["where"]
    assert vars(said)["where"].endswith(" in handler")
    assert vars(said)["execution_id"] == str(context.execution_id)
    assert blocked_total("test") == before + 1


def test_a_handler_that_waits_for_a_child_process_is_named_as_well(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Python waits for its output just as an idle loop waits for events."""

    async def handler(_context: ExecutionContext, _config: Any) -> None:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(2)"], check=True, capture_output=True)

    with caplog.at_level(logging.WARNING):
        bench.pool(handler).submit(a_context())
        bench.results(1)
    assert [record for record in caplog.records if vars(record).get("event") == "loop_blocked"]


def test_a_loop_that_stays_blocked_is_replaced_and_ends_with_what_it_had_begun(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_runs, "REPLACED_SECONDS", 0.7)
    free, begun = threading.Event(), threading.Event()

    async def handler(context: ExecutionContext, _config: Any) -> None:
        match context.job_config.get("do"):
            case "block":
                begun.set()
                free.wait(30)
            case "wait":
                await asyncio.sleep(0.3)

    pool = bench.pool(handler)
    beside, blocker, late = a_context(job_config={"do": "wait"}), a_context(job_config={"do": "block"}), a_context()
    pool.submit(beside)
    eventually(lambda: beside.begun)
    pool.submit(blocker)
    begun.wait(30)
    pool.submit(late)
    bench.results(1)
    assert [execution_id for execution_id, _ in bench.done] == [late.execution_id]
    free.set()
    bench.results(3)
    eventually(lambda: len([each for each in threading.enumerate() if each.name == "job-loop"]) == 1)


def test_a_handler_that_never_awaits_ends_timed_out_while_it_still_blocks(bench: Bench) -> None:
    free = threading.Event()

    async def handler(_context: ExecutionContext, _config: Any) -> None:
        free.wait(30)

    pool = bench.pool(handler)
    pool.submit(a_context(timeout_seconds=0.1))
    [result] = bench.results(1)
    assert (result.status, pool.leaked) == (ExecutionStatus.TIMED_OUT, 1)
    free.set()
    eventually(lambda: pool.leaked == 0)
    assert len(bench.done) == 1


# --- the end ---


def test_shutdown_waits_for_what_runs(bench: Bench) -> None:
    async def handler(_context: ExecutionContext, _config: Any) -> None:
        await asyncio.sleep(0.1)

    pool = bench.pool(handler)
    pool.submit(a_context())
    eventually(lambda: pool.running)
    assert pool.shutdown(30) == []
    assert [result.status for result in bench.results(1)] == [ExecutionStatus.SUCCESS]


def test_shutdown_cancels_what_did_not_finish_and_leaves_no_thread(bench: Bench) -> None:
    cleaned: list[UUID] = []

    async def handler(context: ExecutionContext, _config: Any) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append(context.execution_id)

    pool = bench.pool(handler, max_async=1)
    running, waiting = a_context(), a_context()
    pool.submit(running)
    eventually(lambda: pool.running)
    pool.submit(waiting)
    assert set(pool.shutdown(0.05)) == {running, waiting}
    assert cleaned == [running.execution_id]
    assert bench.done == []
    eventually(lambda: not loop_threads())


def test_an_answer_that_comes_after_the_end_starts_no_loop(bench: Bench) -> None:
    asked, is_over = threading.Event(), threading.Event()

    def answer(_context: ExecutionContext) -> bool:
        asked.set()
        return is_over.wait(30)

    pool = bench.pool(forever, answer=answer)
    pool.submit(a_context())
    asked.wait(30)
    pool.shutdown(0)
    is_over.set()
    eventually(lambda: not loop_threads())


def test_a_handler_that_still_hangs_in_a_thread_of_its_own_does_not_keep_the_interpreter_alive() -> None:
    program = """
import asyncio, threading, time
from services.engine.pool import WorkerPool
from services.jobs import JobRegistry
from tests.support.contexts import a_context
begun = threading.Event()
async def hang(context, config):
    begun.set()
    await asyncio.to_thread(time.sleep, 3600)
registry = JobRegistry()
registry.job("test")(hang)
pool = WorkerPool(2, registry, print)
pool.submit(a_context())
begun.wait()
pool.shutdown(0)
"""
    subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, check=True, timeout=60)


def test_a_copy_that_a_handler_forks_runs_nothing_of_the_others() -> None:
    program = """
import asyncio, os, threading
from services.engine.pool import WorkerPool
from services.jobs import JobRegistry
from tests.support.contexts import a_context
ended = threading.Semaphore(0)
async def handler(context, config):
    if config:
        await asyncio.sleep(0.05)
        os.fork()
        return
    await asyncio.sleep(0.05)
    os.write(1, b"other\\n")
registry = JobRegistry()
registry.job("test")(handler)
pool = WorkerPool(1, registry, lambda *_: ended.release())
for number in range(6):
    pool.submit(a_context(job_config={"fork": True} if number == 3 else {}))
for _ in range(6):
    assert ended.acquire(timeout=30)
pool.shutdown(1)
os.write(1, b"end\\n")
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=PROJECT_ROOT, check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert Counter(done.stdout.split()) == {"other": 5, "end": 1}
