"""Failures are counted by fire, and equal errors are one group."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.insight.failures import Failures, FireCounts, group_errors, pattern_of
from services.insight.series import Series
from services.insight.windows import WINDOWS, Window
from services.job_history import ExecutionFilter, JobHistory
from services.ledger.fate_sql import Fate

NOW = datetime.now(UTC).replace(microsecond=0)
INSERT = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, attempt, error_message,
                            scheduled_for, due_at, created_at)
VALUES (%(schedule_id)s, %(name)s, 'nightly', %(schedule_id)s, %(status)s, %(attempt)s, %(error)s,
        %(at)s, %(at)s, %(created_at)s)
"""


def add_fire(
    db: DatabaseConnection,
    statuses: Sequence[str],
    error: str = "no",
    hours_ago: float = 0.5,
    schedule_id: UUID | None = None,
) -> UUID:
    """A fire, with an attempt for each status, a second apart; without a schedule, of one of its own."""
    schedule_id, at = schedule_id or uuid4(), NOW - timedelta(hours=hours_ago)
    with db.transaction() as connection:
        for number, status in enumerate(statuses):
            values = {
                "schedule_id": schedule_id,
                "name": f"nightly {schedule_id}",
                "status": status,
                "attempt": number + 1,
                "error": error if status in ("failed", "timed_out") else None,
                "at": at,
                "created_at": at + timedelta(seconds=number),
            }
            connection.exec_driver_sql(INSERT, values)
    return schedule_id


@pytest.mark.parametrize(
    ("statuses", "fate"),
    [
        (["failed"], Fate.FAILED),
        (["failed", "timed_out", "abandoned"], Fate.FAILED),
        (["failed", "failed", "success"], Fate.RECOVERED),
        (["failed", "cancelled", "success"], Fate.RECOVERED),
        (["failed", "cancelled"], Fate.FAILED),
        (["failed", "skipped"], Fate.FAILED),
        (["failed", "failed", "pending"], Fate.RETRYING),
        (["failed", "running"], Fate.RETRYING),
        (["success"], None),
        (["skipped", "success"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_fire_counts_once_by_how_it_ended_and_the_list_finds_what_was_counted(
    db: DatabaseConnection, statuses: list[str], fate: Fate | None
) -> None:
    schedule_id = add_fire(db, statuses)
    failed, recovered, retrying = (int(fate == each) for each in Fate)
    wanted = FireCounts(failed, recovered, retrying)
    assert Failures(db).counts(1) == Failures(db).counts(1, schedule_id) == wanted
    history = JobHistory(db)
    found = {each: history.list_executions(ExecutionFilter(outcome=each)).items for each in Fate}
    assert {each: len(items) for each, items in found.items()} == {each: int(fate == each) for each in Fate}


def test_a_failure_before_the_window_is_not_counted(db: DatabaseConnection) -> None:
    add_fire(db, ["failed"], hours_ago=30)
    assert Failures(db).counts(24) == FireCounts()
    assert Failures(db).counts(7 * 24) == FireCounts(failed=1)


def test_errors_that_differ_only_in_ids_numbers_and_addresses_are_one_group(db: DatabaseConnection) -> None:
    for number in range(84):
        statuses = ["failed", "success"] if number < 4 else ["failed"]
        add_fire(
            db, statuses, f"GET https://shop{number}.example/{uuid4()}: refused by 10.0.0.{number} after {number} s"
        )
    add_fire(db, ["timed_out"], "timed out after 60 s")
    alike, other = group_errors(Failures(db).lately(1))
    assert (alike.attempts, alike.schedules, alike.counts) == (84, 84, FireCounts(failed=80, recovered=4))
    assert alike.counts.words == "80 failed for good, 4 recovered by retry"
    assert other.attempts == 1
    found = JobHistory(db).list_executions(ExecutionFilter(error=alike.common_text), limit=1000).items
    assert len(found) == 84


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("host a.example cannot be resolved", "host b.shop.example cannot be resolved"),
        ("KeyError: 'row 17'", "KeyError: 'row 4711'"),
        ("<Job object at 0x7f3a>", "<Job object at 0x99ab>"),
        ("commit 1f3a9c2e77 is missing", "commit 99aa3b2f00 is missing"),
        ("no answer from [2001:db8::1]:80", "no answer from [2001:db8::2]:80"),
        ("first line 1\nTraceback", "first line 2\nother"),
    ],
)
def test_a_pattern_hides_what_differs(one: str, other: str) -> None:
    assert pattern_of(one) == pattern_of(other)


def test_a_pattern_keeps_what_says_which_error_it_is() -> None:
    assert pattern_of("psycopg2.OperationalError: server closed") == "psycopg2.OperationalError: server closed"
    assert pattern_of("the answer was 503") != pattern_of("the server is down")


@pytest.mark.parametrize("window", WINDOWS.values(), ids=lambda window: window.key)
def test_a_chart_counts_a_fire_once_by_its_last_attempt(db: DatabaseConnection, window: Window) -> None:
    for statuses in (["failed", "success"], ["failed", "failed"], ["success"], ["failed", "pending"]):
        add_fire(db, statuses, hours_ago=0.25)
    failures = Failures(db).lately(window.hours)
    bars = Series(db).read(window, UTC, failures)
    totals: dict[str, int] = {}
    for bar in bars:
        for status, number in bar.outcomes.items():
            totals[status] = totals.get(status, 0) + number
    assert totals == {"success": 2, "failed": 1, "pending": 1}
    assert [bar.at for bar in bars] == sorted({bar.at for bar in bars})
