"""Handlers in processes of their own: their results, their crashes, and their certain end."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config import PROJECT_ROOT
from database.models import ExecutionStatus
from services.engine.isolation import CHILD, run_isolated
from services.engine.pool import WorkerPool
from services.jobs import ExecutionContext, JobDefinition, JobResult
from tests.support.contexts import Heard, a_context
from tests.support.isolated_jobs import REGISTRY
from tests.support.waiting import eventually


def run(job_type: str, **changes: Any) -> JobResult:
    return run_in(a_context(job_type, **changes))


def run_in(context: ExecutionContext, grace_seconds: float = 0.2) -> JobResult:
    context.begin()
    return run_isolated(REGISTRY.get(context.job_type), context, (), grace_seconds)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def pid_in(path: Path) -> int:
    return eventually(lambda: path.exists() and int(path.read_text() or 0), 30)


@pytest.fixture
def pool() -> Iterator[tuple[WorkerPool, list[JobResult]]]:
    done: list[JobResult] = []
    pool = WorkerPool(2, REGISTRY, lambda _context, result, _seconds: done.append(result), grace_seconds=0.1)
    yield pool, done
    pool.shutdown(0)


def test_the_result_the_log_and_the_progress_come_back_from_the_child() -> None:
    context = a_context("isolated_add", job_config={"a": 1, "b": 2})
    result = run_in(context)
    assert result.status is ExecutionStatus.SUCCESS
    kept = result.details["result"]
    assert (kept["sum"], kept["key"]) == (3, context.idempotency_key)
    assert kept["pid"] != os.getpid()
    trace = context.trace()
    assert trace["progress"] == {"done": 1, "total": 2}
    assert trace["log"][0].endswith("Z adding, with ***")


def test_what_the_child_logs_is_heard_here_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at a level that only the replica's own logging would let through."""
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    context, heard = a_context("isolated_add", job_config={"a": 1, "b": 2}), Heard()
    context.listen(heard)
    run_in(context)
    assert [(line.level, line.text) for line in heard.lines] == [
        ("INFO", "adding, with ***"),
        ("INFO", "adder: a is 1, not ***"),
    ]
    assert (heard.kept, heard.progress) == (["adding, with ***"], [(1, 2)])


def test_a_failure_in_the_child_keeps_its_facts() -> None:
    result = run("isolated_fail")
    assert (result.status, result.retryable, result.error_message) == (ExecutionStatus.FAILED, False, "not today")
    assert result.error_details == {"type": "JobFailed", "code": 7}


def test_a_copy_of_the_child_that_comes_back_from_the_handler_reports_nothing() -> None:
    assert run("isolated_fork").details["result"] == {"copy": False}


def test_an_unexpected_exception_in_the_child_comes_with_its_traceback() -> None:
    result = run("isolated_add", job_config={"a": 1})
    assert (result.error_message, result.retryable) == ("KeyError: 'b'", True)
    assert "isolated_jobs.py" in str(result.error_details)


def test_a_configuration_can_choose_the_process_and_the_key_does_not_reach_the_handler(
    pool: tuple[WorkerPool, list[JobResult]],
) -> None:
    for isolation in ("process", "thread"):
        pool[0].submit(a_context("isolated_by_choice", job_config={"isolation": isolation, "x": 1}))
    eventually(lambda: len(pool[1]) == 2, 30)
    kept = [result.details["result"] for result in pool[1]]
    assert sorted(one["pid"] == os.getpid() for one in kept) == [False, True]
    assert [one["config"] for one in kept] == [{"x": 1}, {"x": 1}]


def test_a_crash_names_the_signal_and_keeps_the_log() -> None:
    context = a_context("isolated_segfault")
    result = run_in(context)
    assert (result.status, result.error_message) == (ExecutionStatus.FAILED, "the process ended with signal 11")
    assert result.retryable
    assert context.trace()["log"][0].endswith("about to crash")


def test_a_handler_that_leaves_the_process_is_a_failure_with_its_exit_code() -> None:
    assert run("isolated_exit").error_message == "the process ended with exit code 3, without a result"


def test_a_huge_result_is_capped_before_it_crosses_the_pipe() -> None:
    kept = run("isolated_huge").details["result"]
    assert kept["truncated"]
    assert kept["bytes"] > 5_000_000


def test_a_large_configuration_reaches_the_child() -> None:
    job_config = {"a": "ü" * 100_000, "b": ""}
    assert run("isolated_add", job_config=job_config).details["result"]["bytes"] > 200_000


def test_a_process_killed_from_outside_is_a_failure(tmp_path: Path, pool: tuple[WorkerPool, list[JobResult]]) -> None:
    pool[0].submit(a_context("isolated_spin", job_config={"path": str(tmp_path / "pid")}))
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
    eventually(lambda: pool[1])
    assert pool[1][0].error_message == "the process ended with signal 9 (out of memory?)"


@pytest.mark.parametrize("job_type", ["isolated_spin", "isolated_deaf", "isolated_frozen"])
def test_a_process_that_listens_to_nothing_is_killed_at_its_timeout(
    job_type: str, tmp_path: Path, pool: tuple[WorkerPool, list[JobResult]]
) -> None:
    path = tmp_path / "pid"
    context = a_context(job_type, job_config={"path": str(path)}, timeout_seconds=600.0)
    pool[0].submit(context)
    pid = pid_in(path)
    context._live.begun_at = time.monotonic() - 600  # ten minutes pass
    eventually(lambda: pool[1], 30)
    assert pool[1][0].status is ExecutionStatus.TIMED_OUT
    assert not alive(pid)  # it is dead when the result is reported, not some time later
    assert pool[0].leaked == 0


def test_what_the_handler_started_dies_with_it(tmp_path: Path, pool: tuple[WorkerPool, list[JobResult]]) -> None:
    path = tmp_path / "pid"
    context = a_context("isolated_deaf", job_config={"path": str(path)})
    pool[0].submit(context)
    grandchild = pid_in(Path(f"{path}.grandchild"))
    assert pool[0].cancel(context.execution_id, "asked by anna")
    eventually(lambda: pool[1], 30)
    assert pool[1][0].error_message == "cancelled: asked by anna"
    eventually(lambda: not alive(grandchild))


def test_after_its_result_a_process_has_a_moment_to_write_its_files(tmp_path: Path) -> None:
    context = a_context("isolated_farewell", job_config={"path": str(tmp_path / "farewell")})
    assert run_in(context, grace_seconds=30).status is ExecutionStatus.SUCCESS
    assert (tmp_path / "farewell").read_text() == "written at the end"


def test_a_cooperative_handler_hears_of_its_cancellation_in_the_child(
    tmp_path: Path, pool: tuple[WorkerPool, list[JobResult]]
) -> None:
    context = a_context("isolated_polite", job_config={"path": str(tmp_path / "pid")})
    pool[0].submit(context)
    pid_in(tmp_path / "pid")
    pool[0].cancel(context.execution_id, "asked by anna")
    eventually(lambda: pool[1], 30)
    assert (pool[1][0].status, pool[1][0].error_message) == (ExecutionStatus.CANCELLED, "cancelled: asked by anna")


def test_shutdown_kills_the_processes_that_it_returns(tmp_path: Path) -> None:
    done: list[JobResult] = []
    pool = WorkerPool(1, REGISTRY, lambda _context, result, _seconds: done.append(result), grace_seconds=0.1)
    context = a_context("isolated_spin", job_config={"path": str(tmp_path / "pid")})
    pool.submit(context)
    pid = pid_in(tmp_path / "pid")
    assert pool.shutdown(0) == [context]
    assert not alive(pid)
    assert done == []


@pytest.mark.parametrize("job_type", ["isolated_spin", "isolated_frozen"])
def test_the_child_dies_with_its_parent(job_type: str, tmp_path: Path) -> None:
    program = f"""
import time
from services.engine.pool import WorkerPool
from tests.support.contexts import a_context
from tests.support.isolated_jobs import REGISTRY
WorkerPool(1, REGISTRY, print).submit(a_context({job_type!r}, job_config={{"path": {str(tmp_path / "pid")!r}}}))
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT_ROOT) as parent:
        try:
            child = pid_in(tmp_path / "pid")
            assert alive(child)
        finally:
            parent.kill()
    eventually(lambda: not alive(child))


def test_a_child_whose_parent_died_before_it_started_leaves_at_once() -> None:
    stranger = [sys.executable, "-c", CHILD, "1", *sys.path]
    ended = subprocess.run(stranger, stdin=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, b""), "not of an error later on"


def test_a_handler_of_the_main_program_cannot_be_isolated() -> None:
    def handler(context: ExecutionContext, config: Any) -> None: ...

    handler.__module__ = "__main__"
    result = run_isolated(JobDefinition("mine", handler, None, "process"), a_context("mine"), (), 0.1)
    assert "must be in an importable module" in str(result.error_message)
    assert not result.retryable


def test_a_module_that_breaks_in_the_child_is_a_failure_that_names_it() -> None:
    context = a_context("isolated_add")
    result = run_isolated(REGISTRY.get("isolated_add"), context, ("no_such_module",), 0.1)
    assert "JOB_MODULES: 'no_such_module' cannot be imported" in str(result.error_message)
