"""What runs and replicas share about a queue: its circuit, its pause, its batch, what keeps it from running."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy.orm import Session

from database.connection import DatabaseConnection
from services.fetching import FetchFailed
from services.jobs import JobFailed, PermanentFailure
from services.queues.circuit import Breaker
from services.queues.item_threads import abandoned
from services.queues.job_loop import Downstream
from services.queues.outcomes import Summary
from services.queues.queue_state import QueueStates
from services.workflows.domain_extraction import DOMAIN_EXTRACTION
from tests.support.places import QUEUE, add_places, places, query, run_places, working
from tests.support.waiting import eventually

BREAKER = Breaker(window=5, failures=3, cool_down_seconds=3600)


@pytest.fixture(autouse=True)
def _no_hanging_thread_of_another_test() -> None:
    """It would take the place of an item here: the queue has the same name."""
    eventually(lambda: abandoned.count(QUEUE) == 0, 60)


def run_broken(db: DatabaseConnection, error: Exception | None = None, **more: Any) -> Summary:
    def work(key: int) -> None:
        raise error or JobFailed("the API is down")

    return run_places(
        db, working(work), breaker=BREAKER, concurrency=1, batch_size=1, retry_backoff_seconds=3600, **more
    )


def cool_down(db: DatabaseConnection) -> None:
    query(db, "UPDATE workflow_queues SET circuit_changed_at = now() - interval '2 hours'")


def circuit(db: DatabaseConnection) -> str:
    return str(query(db, "SELECT circuit FROM workflow_queues")[0][0])


# --- circuit ---


def test_too_many_failures_open_the_circuit_and_end_the_run(db: DatabaseConnection) -> None:
    add_places(db, 20)
    summary = run_broken(db)
    assert (summary.claimed, summary.ended, circuit(db)) == (3, "circuit_open", "open")


def test_while_the_circuit_is_open_runs_of_every_replica_are_skipped(db: DatabaseConnection, database_url: str) -> None:
    add_places(db, 20)
    run_broken(db)
    another = DatabaseConnection(database_url)
    summary = run_places(another, working(str), breaker=BREAKER)
    another.close()
    assert (summary.skipped, summary.claimed) == ("circuit_open", 0)


def test_after_the_cool_down_one_good_item_closes_it_and_the_run_goes_on(db: DatabaseConnection) -> None:
    add_places(db, 20)
    run_broken(db)
    cool_down(db)
    in_work = []

    def work(key: int) -> None:
        in_work.append(query(db, "SELECT count(*) FROM places_staging WHERE deep_scan_status = 'Processing'")[0][0])

    summary = run_places(db, working(work), breaker=BREAKER, concurrency=4)
    assert (summary.succeeded, circuit(db)) == (17, "closed")
    assert in_work[0] == 1


def test_a_bad_probe_opens_it_again_after_one_item(db: DatabaseConnection) -> None:
    add_places(db, 20)
    run_broken(db)
    cool_down(db)
    summary = run_broken(db)
    assert (summary.claimed, circuit(db)) == (1, "open")
    assert run_broken(db).skipped == "circuit_open"


def test_of_two_runs_after_the_cool_down_one_probes(db: DatabaseConnection) -> None:
    add_places(db, 20)
    run_broken(db)
    cool_down(db)
    probing, go_on = threading.Event(), threading.Event()

    def work(key: int) -> None:
        probing.set()
        assert go_on.wait(20)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_places, db, working(work), breaker=BREAKER)
        assert probing.wait(20)
        assert run_places(db, working(str), breaker=BREAKER).skipped == "circuit_open"
        go_on.set()
        assert first.result(30).succeeded == 17


def test_a_probe_without_an_item_is_left_to_the_next_run(db: DatabaseConnection) -> None:
    add_places(db, 3)
    run_broken(db)
    cool_down(db)
    assert run_broken(db).claimed == 0
    add_places(db, 1)
    assert run_places(db, working(str), breaker=BREAKER).succeeded == 1
    assert circuit(db) == "closed"


def test_permanent_failures_are_the_items_own_and_open_nothing(db: DatabaseConnection) -> None:
    add_places(db, 20)
    summary = run_broken(db, PermanentFailure("no such place"))
    assert (summary.failed, summary.ended, circuit(db)) == (20, "empty", "closed")


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (JobFailed("the site answered 503"), "closed"),
        (FetchFailed("the connection was refused"), "closed"),
        (FetchFailed("no name server answers", of_network=True), "open"),
        (KeyError("a mistake of ours"), "open"),
    ],
)
def test_where_every_item_asks_a_site_of_its_own_a_site_in_trouble_opens_nothing(
    db: DatabaseConnection, error: Exception, left: str
) -> None:
    add_places(db, 20)

    def work(key: int) -> None:
        raise error

    steps = replace(working(work), own_sites=True)
    run_places(db, steps, breaker=BREAKER, concurrency=1, retry_backoff_seconds=3600)
    assert circuit(db) == left


def test_a_site_that_hangs_opens_nothing_either(db: DatabaseConnection) -> None:
    add_places(db, 3)
    hangs = replace(working(lambda key: threading.Event().wait(1)), own_sites=True)
    summary = run_places(
        db, hangs, breaker=BREAKER, concurrency=3, item_timeout_seconds=0.1, retry_backoff_seconds=3600
    )
    assert (summary.retried, circuit(db)) == (3, "closed")


def test_another_queue_has_a_circuit_of_its_own(db: DatabaseConnection) -> None:
    add_places(db, 20)
    run_broken(db)
    assert QueueStates(db).enter("another", BREAKER).state.circuit == "closed"


# --- pause ---


def test_a_paused_queue_waits_until_it_is_resumed(db: DatabaseConnection) -> None:
    add_places(db, 1)
    states = QueueStates(db)
    states.pause(QUEUE, "under repair", "anna")
    states.pause(QUEUE, "a second reason", "bert")
    assert run_places(db, working(str)).skipped == "paused"
    assert query(db, "SELECT paused_reason, paused_by FROM workflow_queues") == [("under repair", "anna")]
    states.resume(QUEUE)
    assert run_places(db, working(str)).succeeded == 1


def test_whoever_resumes_a_queue_closes_its_circuit(db: DatabaseConnection) -> None:
    add_places(db, 20)
    run_broken(db)
    QueueStates(db).resume(QUEUE)
    assert run_places(db, working(str), breaker=BREAKER).succeeded == 17


# --- backpressure ---


def add_businesses(db: DatabaseConnection, count: int) -> None:
    query(
        db,
        "INSERT INTO local_businesses (place_id, domain_extraction_status)"
        f" SELECT gen_random_uuid(), 'Queued' FROM generate_series(1, {count})",
    )


def test_a_run_is_skipped_while_the_next_queue_is_too_deep(db: DatabaseConnection) -> None:
    downstream = Downstream(DOMAIN_EXTRACTION.table, limit=3)
    add_places(db, 1)
    add_businesses(db, 4)
    assert run_places(db, working(str), downstream=downstream).skipped == "backpressure"
    query(db, "UPDATE local_businesses SET domain_extraction_status = 'Completed' WHERE ctid = '(0,1)'")
    assert run_places(db, working(str), downstream=downstream).succeeded == 1


def test_a_run_that_fills_the_next_queue_stops(db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.queues.run_ledger.REPORT_SECONDS", 0.0)
    add_places(db, 50)
    summary = run_places(
        db, lambda key, session: add_businesses(db, 1), batch_size=1, downstream=Downstream(DOMAIN_EXTRACTION.table, 5)
    )
    assert summary.ended == "backpressure"
    assert 6 <= summary.succeeded < 50


# --- batches ---


def batch_size(db: DatabaseConnection) -> int:
    return int(query(db, "SELECT batch_size FROM workflow_queues")[0][0])


def test_the_batch_grows_with_a_deep_queue_and_is_remembered(db: DatabaseConnection) -> None:
    add_places(db, 200)
    run_places(db, nothing, batch_size=4)
    assert batch_size(db) == 16
    add_places(db, 17)
    claims = claimed_together(db, lambda record: run_places(db, record, batch_size=4))
    assert claims[0] == 16


def test_the_batch_shrinks_when_items_are_slow(db: DatabaseConnection) -> None:
    """In threads, slow is half of the item's timeout."""
    add_places(db, 8)
    slow = threading.Event()
    run_places(db, working(lambda key: slow.wait(0.3)), batch_size=8, concurrency=8, item_timeout_seconds=0.5)
    assert batch_size(db) == 4


def nothing(key: int, session: Session) -> None:
    pass


def claimed_together(db: DatabaseConnection, run: Callable[[Callable[[int, Session], None]], Any]) -> list[int]:
    """How many rows were in work at each call."""
    counts: list[int] = []
    sql = "SELECT count(*) FROM places_staging WHERE deep_scan_status = 'Processing'"
    run(lambda key, session: counts.append(query(db, sql)[0][0]))
    return counts


# --- metrics ---


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"queue": QUEUE, **labels}) or 0.0


def test_what_becomes_of_items_is_counted(db: DatabaseConnection) -> None:
    kinds = ("claimed", "succeeded", "failed")
    before = [value("scheduler_queue_items_total", **{"as": kind}) for kind in kinds]
    add_places(db, 3)
    run_places(db, working(str))
    add_places(db, 1)
    run_broken(db, PermanentFailure("no"))
    after = [value("scheduler_queue_items_total", **{"as": kind}) for kind in kinds]
    assert [now - then for now, then in zip(after, before, strict=True)] == [4, 3, 1]
    assert value("scheduler_queue_item_seconds_count") >= 4


def test_the_circuit_the_batch_and_skipped_runs_are_shown(db: DatabaseConnection) -> None:
    skipped = value("scheduler_queue_runs_skipped_total", reason="circuit_open")
    add_places(db, 20)
    run_broken(db)
    assert value("scheduler_queue_circuit") == 2
    assert value("scheduler_queue_batch_size") >= 1
    run_broken(db)
    assert value("scheduler_queue_runs_skipped_total", reason="circuit_open") == skipped + 1
    assert places(db).count("Queued") == 20
