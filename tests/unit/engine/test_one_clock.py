"""Which modules on a fire's way read a clock or make a thread: the simulation replaces these, and no others."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import PROJECT_ROOT

ON_ITS_WAY = (
    "database",
    "enhanced_scheduler",
    "services/engine",
    "services/ledger",
    "services/jobs",
)
ALONE = (
    "services/schedule_watcher.py",
    "services/distributed_lock.py",
    "services/redis_client.py",
    "services/enhanced_scheduler.py",
)
WALL_CLOCKS = {("time", "time"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}
MAY_READ_THE_WALL_CLOCK = {
    "database/clock.py",  # Postgres' clock is estimated from it
    "services/engine/timer.py",  # APScheduler wants to be told its own time
    "enhanced_scheduler/context.py",  # the stamps of a handler's log lines
}
SOURCES = ("threading", "queue")
WAITING = {"Thread", "Event", "Condition", "SimpleQueue", "Queue", "Semaphore", "Barrier"}
MAY_MAKE_THREADS = {
    "services/engine/threads.py",  # for all the others
    "enhanced_scheduler/scheduler.py",  # in a user's program: watches a replica that is a process of its own
    "enhanced_scheduler/child.py",  # the other side of a handler in a process of its own
    "services/jobs/project.py",  # questions to a project; no fire asks one
    "services/engine/event_loop.py",  # threads for what users call by asyncio.to_thread
    "services/engine/async_runs.py",  # queues of the event loop, which is not simulated
    "services/engine/finisher.py",  # a queue that nobody waits for
    "services/distributed_lock.py",  # renews named locks: no fire has one
}


def modules() -> Iterator[str]:
    for room in ON_ITS_WAY:
        yield from (str(path.relative_to(PROJECT_ROOT)) for path in sorted((PROJECT_ROOT / room).rglob("*.py")))
    yield from ALONE


def tree(module: str) -> ast.Module:
    return ast.parse(Path(PROJECT_ROOT / module).read_text(encoding="utf-8"))


def attributes(module: str) -> set[tuple[str, str]]:
    nodes = (node for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute))
    return {(node.value.id, node.attr) for node in nodes if isinstance(node.value, ast.Name)}


def made(module: str) -> set[str]:
    """What it calls of threading and queue, by a name of its own or the module's."""
    nodes = list(ast.walk(tree(module)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module in SOURCES]
    own = {alias.name for node in imports for alias in node.names}
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    names = {each.id for each in called if isinstance(each, ast.Name)} & own
    names |= {
        each.attr
        for each in called
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in SOURCES
    }
    return names & WAITING


@pytest.mark.parametrize("module", list(modules()))
def test_no_module_binds_a_clock_by_name(module: str) -> None:
    imports = [node for node in ast.walk(tree(module)) if isinstance(node, ast.ImportFrom) and node.module == "time"]
    assert imports == []


def test_only_these_modules_read_the_wall_clock() -> None:
    assert {module for module in modules() if attributes(module) & WALL_CLOCKS} == MAY_READ_THE_WALL_CLOCK


def test_threads_and_what_they_wait_with_are_made_in_one_place() -> None:
    assert {module for module in modules() if made(module)} <= MAY_MAKE_THREADS
