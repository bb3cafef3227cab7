"""The job loop in several real processes: shared fairly, killed in the middle, in each other's way."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from services.queues.queue_state import QueueStates
from services.queues.queue_table import FailedFilter
from services.queues.requeue import Requeue
from services.workflows.deep_scan import DEEP_SCAN
from tests.support.places import QUEUE, add_places, places, query, run_places, working
from tests.support.waiting import eventually

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(db: DatabaseConnection, database_url: str) -> Iterator[Start]:
    """Starts a worker that is ready and waits for `go`."""
    query(db, "CREATE TABLE worked (key int, pid int)")
    started: list[subprocess.Popen[str]] = []

    def start(seconds_per_item: float = 0.0, runs: int = 1) -> "subprocess.Popen[str]":
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.support.workflow_worker", database_url, str(seconds_per_item), str(runs)],
            cwd=PROJECT_ROOT,
            env={"ENV_FILE": "", "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        return worker

    yield start
    for worker in started:
        worker.kill()
        worker.communicate()


def go(worker: "subprocess.Popen[str]") -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def test_two_processes_over_200_rows_work_on_each_row_once(db: DatabaseConnection, start: Start) -> None:
    add_places(db, 200)
    workers = [start(0.002), start(0.002)]
    for worker in workers:
        go(worker)
    for worker in workers:
        assert worker.wait(60) == 0
    assert query(db, "SELECT count(*), count(DISTINCT key) FROM worked") == [(200, 200)]
    assert set(places(db, "deep_scan_status, attempts")) == {("Completed", 1)}
    assert query(db, "SELECT claimed, succeeded, lost FROM workflow_queues") == [(200, 200, 0)]


def test_what_a_killed_process_had_in_work_is_finished_by_another(db: DatabaseConnection, start: Start) -> None:
    add_places(db, 10)
    victim = start(60)
    go(victim)
    eventually(lambda: query(db, "SELECT count(*) FROM worked")[0][0] == 4, 30)
    victim.kill()
    victim.wait(30)
    assert places(db).count("Processing") == 4
    early = run_places(db, working(str))
    assert (early.stale, early.succeeded) == (0, 6)  # a claim that young may still have its worker
    later = run_places(db, working(lambda key: "by another"), stale_seconds=0.0)
    assert (later.stale, later.succeeded) == (4, 4)
    assert set(places(db)) == {"Completed"}
    assert places(db, "name").count("by another") == 4


def test_two_processes_that_are_killed_in_the_middle_lose_nothing(db: DatabaseConnection, start: Start) -> None:
    add_places(db, 200)
    workers = [start(0.01), start(0.01)]
    for worker in workers:
        go(worker)
    eventually(lambda: places(db).count("Completed") > 20, 30)
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.wait(30)
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    eventually(lambda: query(db, others) == [(0,)], 30)  # what was under way in Postgres has ended, too
    summary = run_places(db, working(str), stale_seconds=0.0)
    assert (summary.dead, set(places(db))) == (0, {"Completed"})
    assert places(db, "attempts").count(2) == summary.stale <= 8  # four at once in each of them


def test_processes_in_each_other_s_way_and_an_operator_in_theirs_never_deadlock(
    db: DatabaseConnection, start: Start
) -> None:
    """Claims that are taken away, a person's UPDATEs in no order, requeues, pauses. For ten minutes: benchmarks."""
    keys = add_places(db, 100)
    workers = [start(0.002, runs=10), start(0.002, runs=10)]
    for worker in workers:
        go(worker)
    while any(worker.poll() is None for worker in workers):
        update_in_no_order(db, random.sample(keys, 40))
        query(db, "UPDATE places_staging SET deep_scan_status = 'Queued' WHERE deep_scan_status = 'Completed'")
        Requeue(db, "anna").failed(DEEP_SCAN, FailedFilter())
        QueueStates(db).pause(QUEUE, "tea", "anna")
        QueueStates(db).resume(QUEUE)
    assert [worker.returncode for worker in workers] == [0, 0]
    assert query(db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]
    run_places(db, working(str), stale_seconds=0.0)
    assert set(places(db)) <= {"Completed", "Error"}


def update_in_no_order(db: DatabaseConnection, keys: list[int]) -> None:
    """At the pace of a person's script: whoever waits for one of its rows should better hold none."""
    with db.transaction() as connection:
        for key in keys:
            connection.exec_driver_sql("UPDATE places_staging SET priority = 1 - priority WHERE id = %s", (key,))
            connection.exec_driver_sql("SELECT pg_sleep(0.002)")
