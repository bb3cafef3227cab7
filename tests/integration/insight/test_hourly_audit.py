"""The audit as a fact: each closed hour is audited by one replica, and people see what it found."""

import logging
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.insight import hourly_audit
from services.insight.audit import AuditReport, audit_by
from services.insight.hourly_audit import HourlyAudit, Judge, last_day
from services.insight.overview import Overview, Trouble
from services.schedule_repository import ScheduleRepository
from tests.support.past import Past

HOUR = timedelta(hours=1)
WATCHED = "INSERT INTO fires_watched (since, until) VALUES ('2000-01-01', '2100-01-01')"
EVERY_MINUTE = {"frequency": "interval", "time_config": {"minutes": 1}}


@pytest.fixture
def past(db: DatabaseConnection, repository: ScheduleRepository) -> Past:
    return Past(db, repository)


@pytest.fixture
def this_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def replica(db: DatabaseConnection, judge: Judge = audit_by) -> HourlyAudit:
    audit = HourlyAudit(Settings(), db, Event(), judge)
    audit._certain = 0.0  # the last hour is closed, even in the first minute of the next one
    return audit


def all_of_the_day(audit: HourlyAudit) -> int:
    hours = 0
    while audit.audit_one():
        hours += 1
    return hours


def every_minute(past: Past, until: datetime, *, without: datetime | None = None) -> UUID:
    """A schedule of the last 30 hours with a row for each minute, but for one."""
    schedule_id = past.create(until - 30 * HOUR, **EVERY_MINUTE)
    minutes = (until - timedelta(minutes=back) for back in range(26 * 60))
    past.ran(schedule_id, [at for at in minutes if at != without])
    return schedule_id


def test_each_closed_hour_of_the_last_day_is_audited_once(
    past: Past, db: DatabaseConnection, this_hour: datetime
) -> None:
    past.run(WATCHED)
    every_minute(past, this_hour)
    assert last_day(db) is None
    audit = replica(db)
    assert all_of_the_day(audit) == 24
    fact = last_day(db)
    assert fact is not None
    assert (fact.hours, fact.expected, fact.accounted, fact.until) == (24, 24 * 60, 24 * 60, this_hour)
    assert fact.is_clean
    assert fact.words == ""
    assert not audit.audit_one()


def test_a_fire_without_a_row_is_said_until_an_audit_finds_it_explained(
    past: Past, db: DatabaseConnection, this_hour: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    past.run(WATCHED)
    lost = this_hour - timedelta(minutes=150)
    schedule_id = every_minute(past, this_hour, without=lost)
    audit = replica(db)
    with caplog.at_level(logging.ERROR):
        all_of_the_day(audit)
    assert "found 1 wrong fire; run: manage.py audit" in caplog.text
    fact = last_day(db)
    assert fact is not None
    assert (fact.expected - fact.accounted, fact.words) == (1, "1 fire without a row")
    (item,) = [item for item in Overview(db).attention() if item.trouble is Trouble.UNACCOUNTED]
    assert item.words == "1 fire without a row: manage.py audit lists them"
    assert item.since == lost.replace(minute=0)

    past.ran(schedule_id, [lost])
    assert not audit.audit_one(), "not before its pause is over"
    past.run("UPDATE audited_hours SET audited_at = audited_at - interval '9 hours', claimed_until = since")
    assert all_of_the_day(audit) == 1
    fact = last_day(db)
    assert fact is not None
    assert fact.is_clean


def test_two_replicas_never_audit_the_same_hour(
    past: Past, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.run(WATCHED)

    def meanwhile(*arguments: Any) -> AuditReport:
        assert all_of_the_day(replica(db)) == 23
        return audit_by(*arguments)

    first = replica(db, meanwhile)
    assert first.audit_one()
    assert not first.audit_one()


def test_who_was_too_slow_with_its_hour_writes_nothing(
    past: Past, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.run(WATCHED)

    def slowly(*arguments: Any) -> AuditReport:
        report = audit_by(*arguments)
        past.run("UPDATE audited_hours SET claimed_until = clock_timestamp() + interval '1 hour'")  # another's by now
        return report

    assert replica(db, slowly).audit_one()
    assert last_day(db) is None


def test_an_hour_that_no_gap_scan_has_checked_is_put_off(
    past: Past, db: DatabaseConnection, this_hour: datetime
) -> None:
    every_minute(past, this_hour, without=this_hour - timedelta(minutes=30))
    audit = replica(db)
    assert all_of_the_day(audit) == 24
    fact = last_day(db)
    assert fact is not None
    assert (fact.hours, fact.is_clean) == (23, True)
    past.run(WATCHED)
    past.run("UPDATE audited_hours SET claimed_until = since")
    assert all_of_the_day(audit) == 1
    fact = last_day(db)
    assert fact is not None
    assert (fact.hours, fact.words) == (24, "1 fire without a row")


def test_a_replica_that_drains_leaves_its_hour_to_others(
    past: Past, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch, this_hour: datetime
) -> None:
    past.run(WATCHED)
    every_minute(past, this_hour)
    monkeypatch.setattr(hourly_audit, "WORKS_SECONDS", -1.0)
    audit = replica(db)
    audit._stopping.set()
    assert not audit.audit_one()
    assert last_day(db) is None
    past.run("UPDATE audited_hours SET claimed_until = since")
    assert all_of_the_day(replica(db)) == 24


A_BUSY_HOUR = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at, created_at,
                            started_at, completed_at, incarnation, instance_id)
SELECT s.schedule_id, 'job', 'example.com', s.schedule_id, 'success', at, at, at, at, at, gen_random_uuid(), 'replica-1'
FROM schedules AS s, generate_series(%(since)s::timestamptz, %(since)s + interval '2 hours', interval '1 second') AS at
"""


def test_an_audit_costs_less_than_one_percent_of_a_core(
    past: Past, db: DatabaseConnection, this_hour: datetime
) -> None:
    """At 100 fires a second an hour has 360,000, and one percent of it is 36 seconds of CPU."""
    past.run(WATCHED)
    for _ in range(10):
        past.create(this_hour - 30 * HOUR, frequency="interval", time_config={"seconds": 1})
    past.run(A_BUSY_HOUR, since=this_hour - 2 * HOUR)
    past.run("ANALYZE job_executions")
    before = time.process_time() + cpu_of_postgres(db)
    report = audit_by(Settings(), db, this_hour - HOUR, this_hour)
    seconds = time.process_time() + cpu_of_postgres(db) - before
    assert (report.expected, report.is_clean) == (36_000, True)
    assert seconds * 10 < 36


def cpu_of_postgres(db: DatabaseConnection) -> float:
    """Of all sessions with this database, in seconds."""
    with db.transaction() as connection:
        pids = connection.exec_driver_sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for (pid,) in pids]
    return sum(int(user) + int(system) for user, system in (stat[11:13] for stat in stats)) / os.sysconf("SC_CLK_TCK")
