"""One process at a time, one per interval, and the others see the result."""

import threading
import time

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.client import SyncInterrupted
from services.api_sync.report import Outcome, SyncReport
from services.api_sync.state import LeaseLost, SyncState
from services.api_sync.sync import ApiSyncFailed, open_api_sync
from services.schedule_repository import ScheduleRepository
from tests.integration.api_sync.looking import Run, counts, rows, write
from tests.support.api_stand_in import ApiStandIn, many_items, status

# --- one at a time ---


def test_whoever_comes_meanwhile_waits_and_gets_the_same_report(
    api: ApiStandIn, run: Run, settings: Settings, database_url: str
) -> None:
    api.script = [api.held_back]
    reports: list[SyncReport] = []

    def other() -> None:
        db = DatabaseConnection(database_url)
        with open_api_sync(settings.model_copy(update={"instance_id": "other"}), db) as sync:
            reports.append(sync.run())
        db.close()

    first = threading.Thread(target=lambda: reports.append(run()))
    first.start()
    assert api.held.wait(10)
    second = threading.Thread(target=other)
    second.start()
    time.sleep(0.3)  # gives the second one a chance to do it wrong
    assert second.is_alive()
    api.go_on.set()
    first.join(20)
    second.join(20)
    assert len(reports) == 2
    assert reports[0] == reports[1]
    assert (reports[0].by, len(api.requests)) == ("tester", 1)


def test_no_transaction_is_open_while_the_api_takes_its_time(api: ApiStandIn, run: Run, db: DatabaseConnection) -> None:
    api.script = [api.held_back]
    syncing = threading.Thread(target=run)
    syncing.start()
    assert api.held.wait(10)
    open_ones = rows(
        db,
        """SELECT query FROM pg_stat_activity
           WHERE datname = current_database() AND state LIKE 'idle in transaction%'""",
    )
    api.go_on.set()
    syncing.join(20)
    assert open_ones == []


def test_somebody_else_s_failure_is_ours_too(run: Run, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = SyncState(db).take("other", 60)
    assert lease is not None
    failed = {"outcome": "failed", "by": "other", "error": "told by the other"}
    report = SyncReport.from_json({**failed, "started_at": "2026-01-01T00:00Z", "finished_at": "2026-01-01T00:00Z"})
    # While we wait, the other one ends.
    monkeypatch.setattr("services.api_sync.client.ApiClient.pause", lambda self, seconds: lease.end(report))
    with pytest.raises(ApiSyncFailed, match=r"^told by the other$"):
        run()


def test_a_dead_replica_s_sync_is_taken_over(api: ApiStandIn, run: Run, db: DatabaseConnection) -> None:
    run()
    assert SyncState(db).take("dead", 0.5)
    run()
    assert len(api.requests) == 2, "the report of an earlier sync is not what the dead one would have said"


def test_a_replica_that_was_frozen_past_its_lease_writes_nothing(
    api: ApiStandIn, run: Run, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    api.script = [api.held_back]
    failures: list[BaseException] = []

    def frozen() -> None:
        try:
            run()
        except ApiSyncFailed as error:
            failures.append(error)

    thread = threading.Thread(target=frozen)
    thread.start()
    assert api.held.wait(10)
    write(db, "UPDATE api_sync_state SET lease_until = clock_timestamp() - interval '1 second'")
    other = SyncState(db).take("other", 60)
    assert other is not None
    api.go_on.set()
    thread.join(20)
    assert [str(error) for error in failures] == [str(LeaseLost())]
    assert repository.count_schedules() == 0
    assert SyncState(db).read().lease_owner == "other"


def test_a_lease_that_is_lost_on_the_way_ends_the_sync_before_the_next_portion(
    api: ApiStandIn, settings: Settings, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    api.items = many_items(2500)
    with open_api_sync(settings, db) as sync, pytest.raises(ApiSyncFailed, match="another replica took the sync over"):
        sync.run(lambda done, total: write(db, "UPDATE api_sync_state SET lease_token = gen_random_uuid()"))
    assert repository.count_schedules() == 1000


def test_an_interrupted_sync_is_handed_back(
    api: ApiStandIn, settings: Settings, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    api.items = many_items(2500)
    stopping = threading.Event()
    with open_api_sync(settings, db, stopping=stopping) as sync, pytest.raises(SyncInterrupted):
        sync.run(lambda done, total: stopping.set())
    assert repository.count_schedules() == 1000
    state = SyncState(db).read()
    assert (state.is_busy, state.started_at, state.last) == (False, None, None)
    with open_api_sync(settings, db) as sync:
        report = sync.run_if_due(300)
    assert report is not None
    assert counts(report) == {"created": 1500, "unchanged": 1000}


# --- due ---


def test_one_process_per_interval_asks(api: ApiStandIn, settings: Settings, db: DatabaseConnection) -> None:
    with open_api_sync(settings, db) as one, open_api_sync(settings, db) as other:
        assert one.run_if_due(300) is not None
        assert other.run_if_due(300) is None
        assert one.run_if_due(300) is None
        assert len(api.requests) == 1
        write(db, "UPDATE api_sync_state SET started_at = started_at - interval '301 seconds'")
        assert other.run_if_due(300) is not None


def test_processes_that_find_it_due_at_the_same_instant_ask_once(
    api: ApiStandIn, settings: Settings, database_url: str
) -> None:
    barrier = threading.Barrier(5)
    reports: list[SyncReport | None] = []

    def replica() -> None:
        db = DatabaseConnection(database_url)
        with open_api_sync(settings, db) as sync:
            barrier.wait(10)
            reports.append(sync.run_if_due(300))
        db.close()

    threads = [threading.Thread(target=replica) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(report is not None for report in reports) == [False] * 4 + [True]
    assert len(api.requests) == 1


def test_an_api_that_asks_to_be_left_alone_is_left_alone(
    api: ApiStandIn, settings: Settings, db: DatabaseConnection
) -> None:
    api.script = [status(503, Retry_After="3600")]
    with open_api_sync(settings, db) as sync:
        with pytest.raises(ApiSyncFailed):
            sync.run_if_due(1)
        write(db, "UPDATE api_sync_state SET started_at = started_at - interval '1000 seconds'")
        assert sync.run_if_due(1) is None
        assert sync.run().outcome is Outcome.DONE, "a person may insist"


def test_progress_is_told_item_by_item(api: ApiStandIn, settings: Settings, db: DatabaseConnection) -> None:
    api.items = many_items(2500)
    told: list[tuple[int, int]] = []
    with open_api_sync(settings, db) as sync:
        sync.run(lambda done, total: told.append((done, total)))
    assert told == [(1000, 2500), (2000, 2500), (2500, 2500)]
