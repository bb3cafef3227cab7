"""Stored scans: kept once, fenced, compared with the one before, listed in pages, deleted when they are old."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.errors import InvalidInput
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Ending
from services.scanning.failures import ScanRefused
from services.scanning.findings import (
    Category,
    ChangeKind,
    Consent,
    Cookie,
    CookieChange,
    EngineName,
    Page,
    Party,
    Storage,
)
from services.scanning.listing import ScanFilter
from services.scanning.outcome import ScanOutcome
from services.scanning.retention import ScanRetention
from services.scanning.store import Execution, ScanStore
from tests.support.executions import Make, fire
from tests.support.waiting import eventually

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def scans(db: DatabaseConnection) -> ScanStore:
    return ScanStore(db)


def a_cookie(name: str = "id", **changes: Any) -> Cookie:
    facts: dict[str, Any] = {
        "name": name,
        "domain": "example.com",
        "path": "/",
        "storage": Storage.COOKIE,
        "host_only": True,
        "expires_at": NOW + timedelta(days=1),
        "lifetime_seconds": 86_400,
        "secure": True,
        "http_only": False,
        "same_site": "Lax",
        "party": Party.FIRST,
        "consent": Consent.BEFORE,
        "category": Category.ANALYTICS,
        "category_rule": "id (me)",
        "page_url": "https://example.com/",
        "request_url": "https://example.com/x",
        "pages_seen": 3,
    }
    return Cookie(**(facts | changes))


def an_outcome(cookies: Sequence[Cookie] = (), **changes: Any) -> ScanOutcome:
    page = Page(
        url="https://example.com/",
        final_url="https://example.com/home",
        depth=0,
        attempts=2,
        status_code=200,
        error=None,
        elapsed_ms=7,
        notes=("a remark",),
    )
    failed = replace(page, final_url=None, status_code=None, error="no response in time", notes=())
    facts: dict[str, Any] = {
        "domain": "example.com",
        "engine": EngineName.HTTP,
        "started_at": NOW,
        "start_url": "https://example.com/",
        "config": {"max_pages": 5},
        "pages": (page, failed),
        "cookies": tuple(cookies),
        "notes": ("something",),
        "is_complete": True,
    }
    return ScanOutcome(**(facts | changes))


def count(db: DatabaseConnection, table: str) -> int:
    with db.transaction() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


# --- saved and read ---


def test_a_scan_is_read_as_it_was_saved(scans: ScanStore) -> None:
    outcome = an_outcome([a_cookie(), a_cookie("session", expires_at=None, lifetime_seconds=None, same_site=None)])
    saved = scans.save(outcome)
    assert scans.get(saved.scan_id) == saved
    assert (saved.pages, saved.cookies, saved.changes) == (outcome.pages, outcome.cookies, ())
    assert (saved.domain, saved.engine, saved.started_at) == ("example.com", EngineName.HTTP, NOW)
    assert (saved.execution_id, saved.schedule_id, saved.previous_scan_id) == (None, None, None)
    assert saved.config == {"max_pages": 5}
    assert saved.summary == outcome.summary(())


def test_nobody_finds_a_scan_that_does_not_exist(scans: ScanStore) -> None:
    assert scans.get(uuid4()) is None
    assert scans.previous("example.com", EngineName.HTTP) is None


def test_the_next_scan_tells_what_changed(scans: ScanStore) -> None:
    first = scans.save(an_outcome([a_cookie("stays"), a_cookie("goes"), a_cookie("changes", secure=True)]))
    second = scans.save(an_outcome([a_cookie("stays"), a_cookie("comes"), a_cookie("changes", secure=False)]))
    assert second.previous_scan_id == first.scan_id
    assert [(change.kind, change.name, change.fields) for change in second.changes] == [
        (ChangeKind.NEW, "comes", {}),
        (ChangeKind.GONE, "goes", {}),
        (ChangeKind.CHANGED, "changes", {"secure": (True, False)}),
    ]
    assert second.summary["changes"] == {"new": 1, "gone": 1, "changed": 1}
    assert all(isinstance(change, CookieChange) for change in second.changes)


def test_a_scan_is_compared_with_the_last_complete_one(scans: ScanStore) -> None:
    early = scans.save(an_outcome(is_complete=False))
    assert scans.save(an_outcome([a_cookie()])).previous_scan_id == early.scan_id, "better than nothing"
    complete = scans.save(an_outcome([a_cookie()]))
    assert scans.save(an_outcome(is_complete=False)).previous_scan_id == complete.scan_id
    saved = scans.save(an_outcome([a_cookie()]))
    assert (saved.previous_scan_id, saved.changes) == (complete.scan_id, ())


def test_scans_of_another_domain_or_engine_are_not_compared(scans: ScanStore) -> None:
    scans.save(an_outcome([a_cookie()], domain="other.example"))
    scans.save(an_outcome([a_cookie()], engine=EngineName.BROWSER))
    saved = scans.save(an_outcome())
    assert (saved.previous_scan_id, saved.changes) == (None, ())


def test_what_postgres_cannot_hold_is_replaced(scans: ScanStore) -> None:
    saved = scans.save(an_outcome([a_cookie("a\0b\ud800c")], notes=("\0",)))
    assert saved.cookies[0].name == "a\ufffdb\ufffdc"
    assert saved.summary["notes"] == ["\ufffd"]


def test_thousands_of_cookies_are_saved_in_order(scans: ScanStore) -> None:
    cookies = [a_cookie(f"c{number}") for number in range(5_000)]
    assert scans.get(scans.save(an_outcome(cookies)).scan_id).cookies == tuple(cookies)  # type: ignore[union-attr]


def test_two_scans_that_end_together_are_compared_one_after_the_other(db: DatabaseConnection) -> None:
    threads = [threading.Thread(target=ScanStore(db).save, args=(an_outcome([a_cookie()]),)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.transaction() as connection:
        previous = list(connection.execute(text("SELECT previous_scan_id FROM scans")).scalars())
    assert len(previous) == len(set(previous)) == 5  # a chain: nobody has the same one before it


# --- fenced ---


def running(store: ExecutionStore, make: Make) -> Claim:
    (claim,) = store.claim([fire(make())]).claims
    assert store.start([claim]).started == [claim]
    return claim


def execution_of(claim: Claim, **changes: Any) -> Execution:
    return replace(Execution(claim.execution_id, claim.schedule_id, claim.fencing_token), **changes)


def test_a_scan_belongs_to_its_execution(scans: ScanStore, store: ExecutionStore, make: Make) -> None:
    claim = running(store, make)
    saved = scans.save(an_outcome(), execution_of(claim))
    assert (saved.execution_id, saved.schedule_id) == (claim.execution_id, claim.schedule_id)


def test_a_replica_that_was_given_up_leaves_no_scan(
    db: DatabaseConnection, scans: ScanStore, store: ExecutionStore, make: Make
) -> None:
    claim = running(store, make)
    with pytest.raises(ScanRefused, match="was abandoned in the meantime; its scan is not saved"):
        scans.save(an_outcome([a_cookie()]), execution_of(claim, fencing_token=claim.fencing_token - 1))
    store.finish([Ending(claim=claim, status=ExecutionStatus.ABANDONED, duration_seconds=1.0)])
    with pytest.raises(ScanRefused):
        scans.save(an_outcome([a_cookie()]), execution_of(claim))
    with pytest.raises(ScanRefused):
        scans.save(an_outcome([a_cookie()]), execution_of(claim, execution_id=uuid4()))
    assert [count(db, table) for table in ("scans", "scan_pages", "scan_cookies")] == [0, 0, 0]


def test_nobody_gives_an_execution_up_while_its_scan_is_being_saved(
    db: DatabaseConnection, scans: ScanStore, store: ExecutionStore, make: Make
) -> None:
    """Whoever wants to end the execution waits until the scan is committed, so there is no scan of an abandoned one."""
    claim = running(store, make)
    order: list[str] = []
    with db.transaction() as blocker:  # holds up the insert, after the fence was checked
        blocker.execute(text("LOCK TABLE scans IN SHARE MODE"))
        saving = threading.Thread(
            target=lambda: order.append(str(scans.save(an_outcome(), execution_of(claim)).domain))
        )
        saving.start()
        eventually(lambda: _waiting(db) == 1)
        ending = threading.Thread(target=_abandon, args=(db, claim.execution_id, order))
        ending.start()
        eventually(lambda: _waiting(db) == 2)
        assert order == []
    saving.join()
    ending.join()
    assert set(order) == {"example.com", "abandoned"}


def _waiting(db: DatabaseConnection) -> int:
    with db.transaction() as connection:
        found = connection.execute(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        )
        return int(found.scalar_one())


def _abandon(db: DatabaseConnection, execution_id: UUID, order: list[str]) -> None:
    with db.transaction() as connection:
        connection.execute(
            text("UPDATE job_executions SET status = 'abandoned', completed_at = now() WHERE execution_id = :id"),
            {"id": execution_id},
        )
    order.append("abandoned")


# --- listed ---


def test_scans_are_listed_newest_first_in_pages(scans: ScanStore) -> None:
    saved = [scans.save(an_outcome(domain=f"host{number}.example")).scan_id for number in range(7)]
    seen: list[UUID] = []
    cursor = None
    while True:
        page = scans.list_scans(limit=3, cursor=cursor)
        seen += [record.scan_id for record in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page.items) == 3
    assert seen == saved[::-1]


def test_a_list_shows_the_summary_of_each_scan(scans: ScanStore) -> None:
    outcome = an_outcome([a_cookie()])
    scans.save(outcome)
    [record] = scans.list_scans().items
    assert (record.domain, record.engine, record.summary) == ("example.com", "http", outcome.summary(()))


def test_scans_are_found_by_domain_engine_schedule_and_time(
    scans: ScanStore, store: ExecutionStore, make: Make
) -> None:
    claim = running(store, make)
    mine = scans.save(an_outcome(domain="xn--bcher-kva.example"), execution_of(claim))
    other = scans.save(an_outcome(engine=EngineName.BROWSER))

    def found(**wanted: Any) -> list[UUID]:
        return [record.scan_id for record in scans.list_scans(ScanFilter(**wanted)).items]

    assert found(domain="Bücher.example") == [mine.scan_id]
    assert found(engine="browser") == [other.scan_id]
    assert found(schedule_id=claim.schedule_id) == found(execution_id=claim.execution_id) == [mine.scan_id]
    assert found(since=other.finished_at) == [other.scan_id]
    assert found(until=other.finished_at) == [mine.scan_id]
    assert found(domain="nobody.example") == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"wanted": ScanFilter(engine="curl")}, "engine: must be one of http, browser, got 'curl'"),
        ({"wanted": ScanFilter(domain="a\0")}, "domain: must not contain control characters"),
        (
            {"wanted": ScanFilter(since=datetime(2026, 1, 1))},  # noqa: DTZ001
            "since: needs a UTC offset, as in 2026-01-01T00:00:00+00:00",
        ),
        ({"limit": 0}, "limit: must be between 1 and 1000, got 0"),
        ({"cursor": "x"}, "cursor: must come from an earlier page of this list"),
        ({"cursor": "WyIyMDI2LTAxLTAxIiwgIngiXQ=="}, "cursor: must come from an earlier page of this list"),
    ],
)
def test_a_bad_question_is_refused_with_the_reason(scans: ScanStore, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scans.list_scans(**options)
    assert str(caught.value) == problem


# --- deleted ---


def aged(db: DatabaseConnection, scan_id: UUID, days: int) -> UUID:
    with db.transaction() as connection:
        connection.execute(
            text("UPDATE scans SET finished_at = clock_timestamp() - make_interval(days => :days) WHERE scan_id = :id"),
            {"days": days, "id": scan_id},
        )
    return scan_id


def test_old_scans_go_with_their_pages_and_cookies(db: DatabaseConnection, scans: ScanStore) -> None:
    for days in range(91, 151):
        aged(db, scans.save(an_outcome([a_cookie()])).scan_id, days)
    young = aged(db, scans.save(an_outcome([a_cookie()])).scan_id, 89)
    retention = ScanRetention(db)
    assert retention.count_old(90) == 60
    heard: list[int] = []
    assert retention.delete_old(90, heard.append) == 60
    assert heard == [50, 60]
    assert [record.scan_id for record in scans.list_scans().items] == [young]
    assert (count(db, "scan_pages"), count(db, "scan_cookies")) == (2, 1)
    assert retention.delete_old(90) == 0


def test_the_newest_scan_of_each_domain_and_engine_stays(db: DatabaseConnection, scans: ScanStore) -> None:
    kept = {
        aged(db, scans.save(an_outcome()).scan_id, 100),
        aged(db, scans.save(an_outcome(engine=EngineName.BROWSER)).scan_id, 200),
        aged(db, scans.save(an_outcome(domain="other.example")).scan_id, 300),
    }
    aged(db, scans.save(an_outcome()).scan_id, 101)
    assert ScanRetention(db).delete_old(90) == 1
    assert {record.scan_id for record in scans.list_scans().items} == kept


def test_the_last_complete_scan_stays_as_well(db: DatabaseConnection, scans: ScanStore) -> None:
    aged(db, scans.save(an_outcome()).scan_id, 300)
    complete = aged(db, scans.save(an_outcome()).scan_id, 200)
    aged(db, scans.save(an_outcome(is_complete=False)).scan_id, 150)
    newest = aged(db, scans.save(an_outcome(is_complete=False)).scan_id, 100)
    assert ScanRetention(db).delete_old(90) == 2
    assert [record.scan_id for record in scans.list_scans().items] == [newest, complete]
