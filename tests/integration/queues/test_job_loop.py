"""The job loop on a real table: what becomes of an item, whatever happens on its way."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, asc, text
from sqlalchemy.event import listen
from sqlalchemy.orm import Session

from database.connection import DatabaseConnection
from database.workflow_models import Domain, LocalBusiness, Place
from database.workflow_statuses import DeepScanStatus, DomainExtractionStatus, SitemapAnalysisStatus
from enhanced_scheduler.log_capture import speaking_for
from services.embedded import Addresses
from services.errors import ConfigurationError, Unavailable
from services.jobs import ExecutionContext, JobCancelled, JobFailed, PermanentFailure
from services.queues import job_loop
from services.queues.batches import BatchPace
from services.queues.deadline import remaining_seconds
from services.queues.item_writer import ItemWriter
from services.queues.job_loop import run_job_loop
from services.queues.loop_limits import LoopLimits
from services.queues.outcomes import Claim, Ending, Verdict
from services.queues.queue_table import QueueTable
from services.queues.rescue import Rescue
from services.queues.run_ledger import RunLedger
from services.queues.steps import Steps
from tests.support.contexts import Heard, a_context
from tests.support.places import QUEUE, add_places, places, query, run_places, working
from tests.support.waiting import eventually


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends what a test has made hang."""
    event = threading.Event()
    yield event
    event.set()
    eventually(lambda: not any(thread.name.startswith("item-") for thread in threading.enumerate()))


def nothing(key: int, session: Session) -> None:
    pass


def raising(error: BaseException) -> Callable[[Any], Any]:
    def work(snapshot: Any) -> Any:
        raise error

    return work


# --- the way of an item ---


def test_a_queued_row_is_worked_on_and_completed(db: DatabaseConnection) -> None:
    (key,) = add_places(db, 1, deep_scan_error="of yesterday")
    summary = run_places(db, working(lambda snapshot: f"place {snapshot}"))
    row = "deep_scan_status, name, deep_scan_error, attempts, claim_token, claimed_at"
    assert places(db, row) == [("Completed", f"place {key}", None, 1, None, None)]
    assert (summary.claimed, summary.succeeded, summary.ended) == (1, 1, "empty")


def test_only_queued_rows_are_taken(db: DatabaseConnection) -> None:
    for status in (None, "Processing", "Completed", "Error"):
        add_places(db, 1, deep_scan_status=status)
    assert run_places(db, nothing).claimed == 0
    assert places(db) == [None, "Processing", "Completed", "Error"]


def test_a_plain_function_and_the_end_of_its_item_are_one_transaction(db: DatabaseConnection) -> None:
    add_places(db, 1)

    def process(key: int, session: Session) -> None:
        session.execute(text("UPDATE places_staging SET name = 'half done'"))
        raise PermanentFailure("the second half failed")

    run_places(db, process)
    assert places(db, "name, deep_scan_status, deep_scan_error") == [(None, "Error", "the second half failed")]


def test_a_save_may_choose_another_end(db: DatabaseConnection) -> None:
    add_places(db, 1)

    def process(key: int, session: Session) -> None:
        session.execute(text("UPDATE places_staging SET deep_scan_status = NULL"))

    assert run_places(db, process).succeeded == 1
    assert places(db, "deep_scan_status, claim_token") == [(None, None)]


# --- a function of a user's, as the documents write it ---


async def coroutine(key: int, session: Session) -> None:
    raise AssertionError("nobody awaits this")


def generator(key: int, session: Session) -> Iterator[None]:
    yield


async def async_generator(key: int, session: Session) -> Any:
    yield


@pytest.mark.parametrize("function", [generator, partial(generator), async_generator])
def test_a_function_that_a_plain_call_would_not_run_is_refused_before_anything_is_claimed(
    db: DatabaseConnection, function: Any
) -> None:
    add_places(db, 3)
    with pytest.raises(TypeError, match=r"processing_function .* is a generator function"):
        run_places(db, function)
    assert places(db, "deep_scan_status, attempts") == [("Queued", 0)] * 3


def test_a_function_that_returns_a_coroutine_completes_nothing(db: DatabaseConnection) -> None:
    add_places(db, 3)
    summary = run_places(db, lambda key, session: coroutine(key, session))
    assert (summary.succeeded, summary.ended) == (0, "paused")
    assert places(db, "deep_scan_status, attempts") == [("Queued", 0)] * 3
    assert "coroutine" in query(db, "SELECT paused_reason FROM workflow_queues")[0][0]


def test_a_function_that_sets_the_failed_status_itself_ends_with_its_own_text(
    db: DatabaseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    add_places(db, 2)

    def process(key: int, session: Session) -> None:
        place = session.get_one(Place, key)
        if key == 1:
            place.deep_scan_status, place.deep_scan_error = DeepScanStatus.ERROR, "no such place at Google"

    summary = run_places(db, process)
    assert (summary.succeeded, summary.failed) == (1, 1)
    assert places(db, "deep_scan_status, deep_scan_error, claim_token") == [
        ("Error", "no such place at Google", None), ("Completed", None, None),
    ]  # fmt: skip
    assert [record.levelname for record in caplog.records if "no such place at Google" in record.message] == ["WARNING"]


def test_a_failed_status_without_a_text_says_who_set_it(db: DatabaseConnection) -> None:
    add_places(db, 1)

    def process(key: int, session: Session) -> None:
        session.get_one(Place, key).deep_scan_status = DeepScanStatus.ERROR

    assert run_places(db, process).failed == 1
    assert places(db, "deep_scan_error") == ["the processing function set this status and gave no error"]


def test_a_save_that_fails_its_item_tells_the_same_hook_as_an_exception(db: DatabaseConnection) -> None:
    add_places(db, 1)
    told = []

    def save(session: Session, key: int, result: None) -> None:
        session.execute(text("UPDATE places_staging SET deep_scan_status = 'Error', deep_scan_error = 'no'"))

    run_places(db, Steps(save=save, on_failed=lambda session, key, error: told.append((key, error))))
    assert told == [(1, "no")]


def begins(session: Session, key: int) -> None:
    with session.begin():
        session.get_one(Place, key).name = "done"


def commits(session: Session, key: int) -> None:
    session.get_one(Place, key).name = "done"
    session.commit()


def starts_over(session: Session, key: int) -> None:
    session.get_one(Place, key).name = "a mistake"
    session.flush()
    session.rollback()
    session.get_one(Place, key).name = "done"
    session.commit()
    session.close()


@pytest.mark.parametrize("write", [begins, commits, starts_over])
def test_a_function_may_handle_its_own_transaction(
    db: DatabaseConnection, write: Callable[[Session, int], None]
) -> None:
    add_places(db, 3)
    summary = run_places(db, lambda key, session: write(session, key))
    assert (summary.succeeded, summary.retried, summary.dead) == (3, 0, 0)
    assert places(db, "deep_scan_status, name, attempts") == [("Completed", "done", 1)] * 3


def test_what_a_function_committed_is_gone_if_it_fails_afterwards(db: DatabaseConnection) -> None:
    """Its commit is a savepoint in the transaction that ends the item: the next attempt finds the row as it was."""
    add_places(db, 1)

    def process(key: int, session: Session) -> None:
        commits(session, key)
        raise PermanentFailure("after all")

    run_places(db, process)
    assert places(db, "deep_scan_status, name") == [("Error", None)]


def test_the_keys_of_a_model_may_be_of_any_type(db: DatabaseConnection) -> None:
    query(
        db,
        "INSERT INTO local_businesses (place_id, domain_extraction_status)"
        " SELECT n, 'Queued' FROM generate_series(1, 3) AS n",
    )
    seen = []
    summary = run_job_loop(
        model=LocalBusiness,
        status_enum=DomainExtractionStatus,
        queued_status=DomainExtractionStatus.QUEUED,
        processing_status=DomainExtractionStatus.PROCESSING,
        completed_status=DomainExtractionStatus.COMPLETED,
        failed_status=DomainExtractionStatus.ERROR,
        processing_function=lambda key, session: seen.append(session.get_one(LocalBusiness, key).place_id),
        batch_size=2,
        order_by_column=asc(LocalBusiness.updated_at),
        status_field_name="domain_extraction_status",
        error_field_name="domain_extraction_error",
        db=db,
    )
    assert (sorted(seen), summary.succeeded) == (["1", "2", "3"], 3)


def test_a_status_of_another_enum_is_refused(db: DatabaseConnection) -> None:
    with pytest.raises(ValueError, match=r"DomainExtractionStatus.ERROR.* is not one of DeepScanStatus"):
        run_job_loop(
            model=Place,
            status_enum=DeepScanStatus,
            queued_status=DeepScanStatus.QUEUED,
            processing_status=DeepScanStatus.PROCESSING,
            completed_status=DeepScanStatus.COMPLETED,
            failed_status=DomainExtractionStatus.ERROR,
            processing_function=nothing,
            status_field_name="deep_scan_status",
            error_field_name="deep_scan_error",
            db=db,
        )


# --- claims ---


def test_a_run_claims_again_until_the_queue_is_empty(db: DatabaseConnection) -> None:
    add_places(db, 35)
    summary = run_places(db, nothing, batch_size=3)
    assert (summary.claimed, set(places(db))) == (35, {"Completed"})


def test_never_more_rows_are_claimed_than_are_worked_on(db: DatabaseConnection) -> None:
    add_places(db, 12)
    counts = []

    def work(snapshot: int) -> None:
        counts.append(query(db, "SELECT count(*) FROM places_staging WHERE deep_scan_status = 'Processing'")[0][0])

    run_places(db, working(work), concurrency=3, batch_size=12)
    assert max(counts) <= 3
    assert set(places(db)) == {"Completed"}


def test_items_are_worked_on_at_the_same_time(db: DatabaseConnection) -> None:
    add_places(db, 3)
    together = threading.Barrier(3, timeout=20)
    summary = run_places(db, working(lambda snapshot: together.wait()), concurrency=3)
    assert summary.succeeded == 3


def test_a_run_ends_when_its_budget_is_spent(db: DatabaseConnection) -> None:
    add_places(db, 50)
    summary = run_places(
        db, working(lambda snapshot: time.sleep(0.05)), batch_size=1, concurrency=1, run_budget_seconds=0.3
    )
    assert 0 < summary.claimed < 50
    assert summary.ended == "budget"
    assert places(db).count("Completed") == summary.claimed
    assert places(db).count("Queued") == 50 - summary.claimed


def test_rows_that_come_in_while_the_last_item_is_worked_on_are_taken(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_loop, "LOOK_AGAIN_SECONDS", 0.05)
    add_places(db, 1)
    second_is_done = threading.Event()

    def work(snapshot: int) -> None:
        if snapshot == 1:
            add_places(db, 1)
            assert second_is_done.wait(20)
        second_is_done.set()

    assert run_places(db, working(work)).succeeded == 2


def test_two_queues_of_one_table_do_not_disturb_each_other(db: DatabaseConnection) -> None:
    query(db, "INSERT INTO domains (domain, sitemap_analysis_status) VALUES ('x.example', 'queued')")
    token = "SELECT sitemap_claim_token IS NULL, claim_token IS NULL, attempts, sitemap_attempts FROM domains"
    seen = []
    run_job_loop(
        model=Domain,
        status_enum=SitemapAnalysisStatus,
        queued_status=SitemapAnalysisStatus.QUEUED,
        processing_status=SitemapAnalysisStatus.PROCESSING,
        completed_status=SitemapAnalysisStatus.SUBMITTED,
        failed_status=SitemapAnalysisStatus.FAILED,
        processing_function=lambda key, session: seen.append(session.execute(text(token)).one()),
        status_field_name="sitemap_analysis_status",
        error_field_name="sitemap_analysis_error",
        column_prefix="sitemap_",
        db=db,
    )
    assert [tuple(row) for row in seen] == [(False, True, 0, 1)]
    row = query(db, "SELECT status, sitemap_analysis_status, attempts, sitemap_attempts FROM domains")
    assert row == [("pending", "submitted", 0, 1)]


# --- order ---


def claimed_order(db: DatabaseConnection) -> list[int]:
    seen: list[int] = []
    run_places(db, lambda key, session: seen.append(key), batch_size=1)
    return seen


def ago(minutes: int) -> str:
    return f"now() - interval '{minutes} minutes'"


def waiting_since(db: DatabaseConnection, key: int, minutes: int) -> None:
    query(db, f"UPDATE places_staging SET not_before = {ago(minutes)} WHERE id = {key}")


def test_urgent_rows_go_first_and_old_ones_before_new_ones(db: DatabaseConnection) -> None:
    new, old, urgent = add_places(db, 3)
    for key, minutes in ((new, 1), (old, 5), (urgent, 0)):
        waiting_since(db, key, minutes)
    query(db, f"UPDATE places_staging SET priority = 1 WHERE id = {urgent}")
    assert claimed_order(db) == [urgent, old, new]


def test_a_row_that_waited_long_enough_overtakes_an_urgent_one(db: DatabaseConnection) -> None:
    urgent, patient = add_places(db, 2)
    query(db, f"UPDATE places_staging SET priority = 2 WHERE id = {urgent}")
    waiting_since(db, patient, 21)  # two points are worth twenty minutes
    assert claimed_order(db) == [patient, urgent]


def test_the_claim_reads_its_order_from_an_index(db: DatabaseConnection) -> None:
    add_places(db, 2000)
    query(db, "ANALYZE places_staging")
    sent: list[tuple[str, Any]] = []
    listen(db.engine, "before_cursor_execute", lambda *call: sent.append((call[2], call[3])))
    run_places(db, nothing, run_budget_seconds=0.0001)
    claim, values = next(one for one in sent if "chosen" in one[0])
    with db.transaction() as connection:
        plan = "\n".join(row[0] for row in connection.exec_driver_sql(claim.replace("WITH", "EXPLAIN WITH", 1), values))
    assert "places_staging_deep_scan_status_queued_idx" in plan
    assert "Sort" not in plan


# --- failures ---


def test_a_retryable_failure_is_tried_again_later(db: DatabaseConnection) -> None:
    add_places(db, 1)
    summary = run_places(db, working(raising(JobFailed("busy"))), retry_backoff_seconds=100)
    ((status, error, attempts, delay),) = places(
        db, "deep_scan_status, deep_scan_error, attempts, extract(epoch FROM not_before - now())"
    )
    assert (status, error, attempts, summary.retried) == ("Queued", "busy", 1, 1)
    assert 80 < delay <= 110


def test_the_backoff_doubles_and_a_server_may_ask_for_more(db: DatabaseConnection) -> None:
    one, _ = add_places(db, 2)
    query(db, f"UPDATE places_staging SET attempts = 1 WHERE id = {one}")

    def work(key: int) -> None:
        raise JobFailed("busy", retry_after_seconds=0 if key == one else 20_000)

    run_places(db, working(work), retry_backoff_seconds=100)
    delays = places(db, "extract(epoch FROM not_before - now())")
    assert 160 < delays[0] <= 220
    assert 19_900 < delays[1] <= 20_000


def test_a_permanent_failure_is_not_tried_again(db: DatabaseConnection) -> None:
    add_places(db, 1)
    summary = run_places(db, working(raising(PermanentFailure("no such place"))))
    assert places(db, "deep_scan_status, deep_scan_error, attempts") == [("Error", "no such place", 1)]
    assert (summary.failed, summary.dead) == (1, 0)
    assert query(db, "SELECT * FROM dead_letters") == []


def test_after_the_last_attempt_there_is_a_dead_letter(db: DatabaseConnection) -> None:
    (key,) = add_places(db, 1)
    summary = run_places(db, working(raising(ZeroDivisionError("oops"))), max_attempts=3)
    assert (summary.claimed, summary.retried, summary.dead) == (3, 2, 1)
    assert places(db, "deep_scan_status, deep_scan_error") == [("Error", "ZeroDivisionError: oops")]
    ((queue, item, attempts, error, traceback),) = query(
        db, "SELECT queue, item_key, attempts, error, traceback FROM dead_letters"
    )
    assert (queue, item, attempts, error) == (QUEUE, str(key), 3, "ZeroDivisionError: oops")
    assert "raise error" in traceback


def test_an_error_is_cut_and_cleaned(db: DatabaseConnection) -> None:
    add_places(db, 1)
    run_places(db, working(raising(PermanentFailure("\0" + "x" * 5000))))
    ((error,),) = query(db, "SELECT deep_scan_error FROM places_staging")
    assert len(error) == 1024
    assert error.startswith("\ufffdxxx")


def test_one_row_that_cannot_be_loaded_fails_alone(db: DatabaseConnection) -> None:
    keys = add_places(db, 4)

    def load(session: Session, key: int) -> int:
        session.execute(text("SELECT 1 / :n"), {"n": key - keys[1]})
        return key

    run_places(db, Steps(load=load, work=str, save=working(str).save), max_attempts=1)
    assert places(db) == ["Completed", "Error", "Completed", "Completed"]
    assert "division by zero" in query(db, "SELECT error FROM dead_letters")[0][0]


def test_one_row_that_cannot_be_saved_fails_alone(db: DatabaseConnection) -> None:
    keys = add_places(db, 4)

    def process(key: int, session: Session) -> None:
        session.execute(text("UPDATE places_staging SET name = 'saved' WHERE id = :id"), {"id": key})
        session.execute(text("SELECT 1 / :n"), {"n": key - keys[1]})

    summary = run_places(db, process, max_attempts=1)
    assert places(db, "deep_scan_status, name") == [
        ("Completed", "saved"), ("Error", None), ("Completed", "saved"), ("Completed", "saved"),
    ]  # fmt: skip
    assert (summary.succeeded, summary.dead) == (3, 1)


def test_what_has_to_be_told_about_a_final_failure_is_in_its_transaction(db: DatabaseConnection) -> None:
    add_places(db, 2)

    def on_failed(session: Session, key: int, error: str) -> None:
        session.execute(text("UPDATE places_staging SET name = :error WHERE id = :id"), {"error": error, "id": key})

    steps = Steps(work=raising(JobFailed("busy")), save=working(str).save, on_failed=on_failed)
    run_places(db, steps, max_attempts=2)
    assert places(db, "deep_scan_status, name, attempts") == [("Error", "busy", 2), ("Error", "busy", 2)]


def test_a_broken_report_of_a_failure_does_not_keep_the_row_from_its_end(db: DatabaseConnection) -> None:
    add_places(db, 1)

    def on_failed(session: Session, key: int, error: str) -> None:
        session.execute(text("SELECT 1 / 0"))

    run_places(db, Steps(work=raising(PermanentFailure("no")), save=working(str).save, on_failed=on_failed))
    assert places(db, "deep_scan_status, deep_scan_error") == [("Error", "no")]


# --- configuration errors and pauses ---


def test_a_configuration_error_pauses_the_queue_and_hands_the_batch_back(
    db: DatabaseConnection, release: threading.Event
) -> None:
    add_places(db, 5)
    held = threading.Barrier(4, timeout=20)

    def work(key: int) -> None:
        held.wait()
        if key == 1:
            raise ConfigurationError("GOOGLE_MAPS_API_KEY is not set")
        release.wait(30)

    summary = run_places(db, working(work), concurrency=4)
    assert summary.ended == "paused"
    assert places(db, "deep_scan_status, attempts, claim_token") == [("Queued", 0, None)] * 5
    state = query(db, "SELECT paused_reason, paused_by FROM workflow_queues")
    assert state == [("GOOGLE_MAPS_API_KEY is not set", "system:deep_scan")]
    again = run_places(db, working(str))
    assert (again.skipped, again.claimed) == ("paused", 0)


def test_a_plain_function_can_meet_a_configuration_error_too(db: DatabaseConnection) -> None:
    add_places(db, 3)

    def process(key: int, session: Session) -> None:
        raise ConfigurationError("no key")

    run_places(db, process)
    assert places(db, "deep_scan_status, attempts") == [("Queued", 0)] * 3


def test_a_pause_ends_a_run_that_is_under_way(db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.queues.run_ledger.REPORT_SECONDS", 0.0)
    add_places(db, 30)

    def work(key: int) -> None:
        if key == 3:
            query(db, "UPDATE workflow_queues SET paused_at = now(), paused_reason = 'enough'")

    summary = run_places(db, working(work), concurrency=1, batch_size=1)
    assert summary.ended == "paused"
    assert summary.claimed < 30
    assert set(places(db)) == {"Completed", "Queued"}


# --- time ---


def test_an_item_that_hangs_is_given_up_and_the_others_go_on(db: DatabaseConnection, release: threading.Event) -> None:
    keys = add_places(db, 6)

    def work(key: int) -> str:
        if key == keys[0]:
            release.wait(30)
            return "too late"
        return "in time"

    summary = run_places(db, working(work), concurrency=2, item_timeout_seconds=0.5, retry_backoff_seconds=100)
    assert (summary.succeeded, summary.retried) == (5, 1)
    row = places(db, "deep_scan_status, deep_scan_error, claim_token, name")[0]
    assert row == ("Queued", "did not finish within 0.5 s", None, None)
    release.set()
    eventually(lambda: not any(thread.name == f"item-{QUEUE}" for thread in threading.enumerate()))
    assert places(db, "name")[0] is None


def test_hanging_threads_cannot_pile_up(db: DatabaseConnection, release: threading.Event) -> None:
    add_places(db, 10)
    hang = working(lambda key: release.wait(30))
    first = run_places(db, hang, concurrency=2, item_timeout_seconds=0.2, retry_backoff_seconds=100)
    second = run_places(db, hang, concurrency=2, item_timeout_seconds=0.2)
    release.set()
    assert (first.claimed, first.ended) == (2, "hung_threads")  # eight rows wait: the queue is not empty
    assert (second.skipped, second.claimed) == ("hung_threads", 0)
    eventually(lambda: run_places(db, working(str), concurrency=2).skipped is None)


def test_an_item_can_ask_how_long_it_may_take(db: DatabaseConnection) -> None:
    add_places(db, 1)
    answers: list[float] = []

    def work(key: int) -> None:
        answers.append(remaining_seconds())
        while True:
            remaining_seconds()
            time.sleep(0.01)

    summary = run_places(db, working(work), item_timeout_seconds=0.3, max_attempts=1)
    assert 0 < answers[0] <= 0.3
    assert summary.dead == 1
    assert places(db, "deep_scan_error") == ["did not finish within 0.3 s"]


def test_a_cancelled_run_hands_its_items_back(db: DatabaseConnection, release: threading.Event) -> None:
    add_places(db, 6)
    context = a_context()

    def work(key: int) -> None:
        context.cancel("on request")
        release.wait(30)

    with pytest.raises(JobCancelled):
        run_places(db, working(work), concurrency=2, context=context)
    assert places(db, "deep_scan_status, attempts, claim_token") == [("Queued", 0, None)] * 6


def test_one_row_that_somebody_has_locked_is_the_only_one_that_cannot_go_back(
    db: DatabaseConnection, release: threading.Event
) -> None:
    keys = add_places(db, 4)
    context = a_context()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_places, db, working(lambda key: release.wait(30)), concurrency=4, context=context)
        eventually(lambda: places(db).count("Processing") == 4, 20)
        with db.transaction() as holder:
            holder.execute(text(f"SELECT FROM places_staging WHERE id = {keys[0]} FOR UPDATE"))
            context.cancel("on request")
            with pytest.raises(JobCancelled):
                run.result(30)
            assert places(db) == ["Processing", "Queued", "Queued", "Queued"]


def test_a_draining_replica_takes_no_further_item_and_finishes_what_it_has(db: DatabaseConnection) -> None:
    add_places(db, 6)
    context = a_context()

    def work(key: int) -> str:
        context.drain()
        return "done"

    summary = run_places(db, working(work), concurrency=1, batch_size=1, context=context)
    assert (summary.ended, summary.succeeded, places(db).count("Queued")) == ("draining", 1, 5)


# --- the connection ---


def test_no_connection_is_held_while_items_are_worked_on(database_url: str) -> None:
    """A pool of one: the work itself could not ask Postgres if the loop kept a connection."""
    db = DatabaseConnection(database_url, pool_size=1)
    add_places(db, 4)
    ready = threading.Barrier(2, timeout=20)

    def work(key: int) -> int:
        ready.wait()
        return int(query(db, "SELECT 41 + 1")[0][0])

    summary = run_places(db, working(work), concurrency=2)
    assert summary.succeeded == 4
    assert places(db, "name") == ["42"] * 4
    db.close()


def test_a_postgres_that_is_away_for_a_moment_costs_no_result(
    db: DatabaseConnection, servers: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_loop, "AGAIN_SECONDS", 0.05)
    admin, name = DatabaseConnection(servers.database_url), db.engine.url.database
    add_places(db, 1)

    def work(key: int) -> str:
        query(admin, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        query(admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name", name=name)
        threading.Timer(0.5, lambda: query(admin, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')).start()
        return "kept"

    assert run_places(db, working(work)).succeeded == 1
    assert places(db, "deep_scan_status, name, attempts") == [("Completed", "kept", 1)]
    admin.close()


def test_housekeeping_waits_for_a_postgres_that_is_away_too(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run ends, and what its items have found so far is thrown away."""
    monkeypatch.setattr(job_loop, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(job_loop, "RESCUE_SECONDS", 0)
    rescue, looks = Rescue.run, 0

    def away_the_second_time(self: Rescue[int], ledger: RunLedger) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise Unavailable("Postgres", "somewhere", "is away")
        rescue(self, ledger)

    monkeypatch.setattr(Rescue, "run", away_the_second_time)
    add_places(db, 3)
    assert run_places(db, working(str), concurrency=1).succeeded == 3
    assert looks > 2


def test_a_row_that_somebody_has_locked_delays_nobody_else(db: DatabaseConnection) -> None:
    keys = add_places(db, 5)
    locked = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_places, db, working(lambda key: locked.wait(20)), concurrency=5)
        eventually(lambda: places(db).count("Processing") == 5, 20)
        with db.transaction() as holder:
            holder.execute(text(f"SELECT FROM places_staging WHERE id = {keys[0]} FOR UPDATE"))
            locked.set()
            eventually(lambda: places(db).count("Completed") == 4, 20)
            assert places(db)[0] == "Processing"
        assert run.result(30).succeeded == 5


def test_an_item_that_waits_for_somebody_s_lock_counts_once_for_the_batch(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again and again, and each time it would say that items are as slow, or as fast, as this one."""
    counted: list[int] = []
    tries: list[int] = []
    ended, write = BatchPace.ended, ItemWriter.write

    def count(pace: BatchPace, items: int, seconds: float, *, deep: bool) -> None:
        counted.append(items)
        ended(pace, items, seconds, deep=deep)

    def tried(writer: ItemWriter[int], items: Sequence[Ending[int]]) -> Iterator[tuple[Ending[int], Verdict]]:
        tries.append(len(items))
        return write(writer, items)

    monkeypatch.setattr(BatchPace, "ended", count)
    monkeypatch.setattr(ItemWriter, "write", tried)
    (key,) = add_places(db, 1)
    locked = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_places, db, working(lambda key: locked.wait(20)))
        eventually(lambda: places(db) == ["Processing"], 20)
        with db.transaction() as holder:
            holder.execute(text(f"SELECT FROM places_staging WHERE id = {key} FOR UPDATE"))
            locked.set()
            eventually(lambda: tries.count(1) > 2, 20)
        assert run.result(30).succeeded == 1
    assert counted == [1]


# --- fences ---


def test_a_late_worker_cannot_overwrite(db: DatabaseConnection) -> None:
    """The first worker is so slow that its row is rescued and finished by another."""
    add_places(db, 1)
    begun, go_on = threading.Event(), threading.Event()

    def slow(key: int) -> str:
        begun.set()
        assert go_on.wait(30)
        return "late"

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(run_places, db, working(slow), run_budget_seconds=0.001)  # else it would take it again
        assert begun.wait(20)
        time.sleep(0.05)
        fast = run_places(db, working(lambda key: "rescued"), stale_seconds=0.02)
        go_on.set()
        summary = late.result(30)
    assert (fast.stale, fast.succeeded) == (1, 1)
    assert (summary.succeeded, summary.lost) == (0, 1)
    assert places(db, "deep_scan_status, name, attempts") == [("Completed", "rescued", 2)]


@pytest.mark.parametrize("error", [None, PermanentFailure("late")])
def test_a_late_worker_cannot_end_what_another_has_in_work(db: DatabaseConnection, error: Exception | None) -> None:
    """The row is in processing, as the late one left it; only the token has changed."""
    add_places(db, 1)
    begun, late_ended, taken = threading.Event(), threading.Event(), threading.Event()

    def late(key: int) -> str:
        begun.set()
        assert taken.wait(30)
        if error:
            raise error
        return "late"

    def second(key: int) -> str:
        taken.set()
        assert late_ended.wait(30)
        return "second"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_places, db, working(late), run_budget_seconds=0.001)
        assert begun.wait(20)
        time.sleep(0.05)
        other = pool.submit(run_places, db, working(second), stale_seconds=0.02, run_budget_seconds=0.001)
        assert first.result(30).lost == 1
        assert places(db, "deep_scan_status, name, deep_scan_error") == [("Processing", None, None)]
        late_ended.set()
        assert other.result(30).succeeded == 1
    assert places(db, "deep_scan_status, name") == [("Completed", "second")]


def test_a_claim_whose_answer_comes_too_late_to_be_worked_on_in_time_goes_back(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its work could end, another worker would take it for abandoned and do the work again."""
    add_places(db, 1)
    late: list[float] = []
    claim, monotonic = QueueTable.claim, time.monotonic

    def answered_late(self: QueueTable[int], connection: Connection, count: int) -> list[Claim[int]]:
        claims = claim(self, connection, count)
        if claims and not late:
            late.append(LoopLimits().late_claim_seconds + 1)
        return claims

    monkeypatch.setattr(QueueTable, "claim", answered_late)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(late))
    worked: list[object] = []
    run_places(db, working(worked.append))
    assert (worked, places(db, "deep_scan_status, attempts, claim_token")) == ([], [("Queued", 0, None)])
    run_places(db, working(worked.append))
    assert (len(worked), places(db, "deep_scan_status, attempts")) == (1, [("Completed", 1)])


def test_a_late_failure_changes_nothing_either(db: DatabaseConnection) -> None:
    add_places(db, 1)

    def work(key: int) -> None:
        query(db, "UPDATE places_staging SET deep_scan_status = 'Completed', claim_token = NULL")
        raise PermanentFailure("no")

    assert run_places(db, working(work)).lost == 1
    assert places(db, "deep_scan_status, deep_scan_error") == [("Completed", None)]


def test_what_an_operator_decided_meanwhile_stays(db: DatabaseConnection) -> None:
    add_places(db, 1)

    def work(key: int) -> str:
        query(db, "UPDATE places_staging SET deep_scan_status = NULL")
        return "unwanted"

    assert run_places(db, working(work)).lost == 1
    assert places(db, "deep_scan_status, name") == [(None, None)]


# --- rescue ---


def stale(db: DatabaseConnection, **columns: Any) -> int:
    (key,) = add_places(db, 1, **{"deep_scan_status": "Processing", "attempts": 1, **columns})
    query(db, "UPDATE places_staging SET claimed_at = now() - interval '1 hour', claim_token = gen_random_uuid()")
    return key


def test_a_row_whose_worker_vanished_is_worked_on_again(db: DatabaseConnection) -> None:
    stale(db)
    summary = run_places(db, working(str))
    assert (summary.stale, summary.succeeded) == (1, 1)
    assert places(db, "deep_scan_status, attempts") == [("Completed", 2)]


def test_a_young_claim_is_left_alone(db: DatabaseConnection) -> None:
    add_places(db, 1, deep_scan_status="Processing")
    query(db, "UPDATE places_staging SET claimed_at = now()")
    assert run_places(db, working(str)).stale == 0
    assert places(db) == ["Processing"]


def test_a_row_that_somebody_set_to_processing_by_hand_is_rescued_too(db: DatabaseConnection) -> None:
    add_places(db, 1, deep_scan_status="Processing")
    assert run_places(db, working(str), stale_seconds=0.0).succeeded == 1


@pytest.mark.parametrize("claimed_at", ["infinity", "-infinity", "tomorrow"])
def test_a_claim_of_no_sensible_time_is_stale(db: DatabaseConnection, claimed_at: str) -> None:
    """Written by hand, or by a clock that was set back since."""
    add_places(db, 1, deep_scan_status="Processing", claimed_at=claimed_at)
    summary = run_places(db, working(str))
    assert (summary.stale, summary.succeeded) == (1, 1)


def test_a_row_with_the_most_attempts_that_a_column_holds_stops_nobody(db: DatabaseConnection) -> None:
    add_places(db, 1, attempts=2**31 - 1)
    add_places(db, 1)
    assert run_places(db, working(str)).succeeded == 2


def test_a_stale_row_after_its_last_attempt_is_dead(db: DatabaseConnection) -> None:
    key = stale(db, attempts=3)
    told = []
    steps = Steps(save=working(str).save, on_failed=lambda session, key, error: told.append(key))
    summary = run_places(db, steps)
    assert (summary.stale, summary.dead, summary.claimed) == (1, 1, 0)
    assert places(db, "deep_scan_status, deep_scan_error") == [
        ("Error", "its worker vanished: the claim was older than 80 s")
    ]
    assert (query(db, "SELECT item_key FROM dead_letters"), told) == ([(str(key),)], [key])


def test_a_paused_queue_still_rescues(db: DatabaseConnection) -> None:
    stale(db)
    query(db, f"INSERT INTO workflow_queues (queue, paused_at) VALUES ('{QUEUE}', now())")
    assert run_places(db, working(str)).skipped == "paused"
    assert places(db) == ["Queued"]


REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON places_staging FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse();
"""


def test_a_row_is_no_zombie_although_its_failure_could_not_be_written(db: DatabaseConnection) -> None:
    add_places(db, 1)
    query(db, REFUSING.format(when="NEW.deep_scan_status = 'Error'").replace(":", r"\:"))
    summary = run_places(db, working(raising(PermanentFailure("no"))))
    assert summary.retried == 1
    assert places(db, "deep_scan_status, deep_scan_error, claim_token") == [("Queued", "no", None)]


def test_what_was_saved_is_gone_when_its_end_could_not_be_written(db: DatabaseConnection) -> None:
    """One transaction: else the next attempt would save it a second time."""
    add_places(db, 1)
    query(db, REFUSING.format(when="NEW.deep_scan_status = 'Completed'"))
    summary = run_places(db, working(lambda key: "saved"), max_attempts=1)
    assert (summary.dead, places(db, "deep_scan_status, name")) == (1, [("Error", None)])


def test_a_row_that_can_not_even_go_back_is_rescued_later(db: DatabaseConnection) -> None:
    add_places(db, 1)
    query(db, REFUSING.format(when="NEW.deep_scan_status <> 'Processing'"))
    summary = run_places(db, working(raising(PermanentFailure("no"))))
    assert (summary.lost, places(db)) == (1, ["Processing"])
    query(db, "DROP TRIGGER refuse ON places_staging")
    later = run_places(db, working(lambda key: "at last"), stale_seconds=0.0)
    assert (later.stale, later.succeeded, places(db, "deep_scan_status, name")) == (1, 1, [("Completed", "at last")])


def test_rows_that_died_in_the_middle_are_no_longer_there(db: DatabaseConnection) -> None:
    """Deleted while it was worked on: lost, and nothing else happens."""
    add_places(db, 1)
    summary = run_places(db, working(lambda key: query(db, "DELETE FROM places_staging")))
    assert (summary.lost, summary.succeeded) == (1, 0)


# --- what is kept about a run ---


def test_what_an_item_logs_in_its_own_thread_belongs_to_the_run_s_execution(db: DatabaseConnection) -> None:
    add_places(db, 3)
    context, heard = a_context(), Heard()
    context.listen(heard)

    def work(key: Any) -> str:
        logging.getLogger("step").warning("looked at one")
        return "seen"

    speaking_for(context, lambda: run_places(db, working(work), context=context))
    assert heard.texts.count("step: looked at one") == 3


def test_a_run_says_how_far_it_is(db: DatabaseConnection) -> None:
    add_places(db, 5)
    context: ExecutionContext = a_context()
    summary = run_places(db, working(str), context=context)
    assert context.trace()["progress"]["done"] == 5
    kept = summary.as_dict()
    assert {name: kept[name] for name in ("claimed", "succeeded", "retried", "failed", "dead", "lost")} == {
        "claimed": 5, "succeeded": 5, "retried": 0, "failed": 0, "dead": 0, "lost": 0,
    }  # fmt: skip
    assert kept["seconds"] > 0


def test_the_totals_of_all_runs_are_kept(db: DatabaseConnection) -> None:
    for _ in range(2):
        add_places(db, 3)
        run_places(db, working(str))
    add_places(db, 1)
    run_places(db, working(raising(PermanentFailure("no"))))
    assert query(db, "SELECT claimed, succeeded, failed FROM workflow_queues") == [(7, 6, 1)]
