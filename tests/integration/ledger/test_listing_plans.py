"""The lists that people look at are answered from indexes: a page must not read the whole history."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Select, select, text

from database.connection import DatabaseConnection
from services.insight import failures_sql, overview_sql
from services.insight.explain import history_sql as explain_sql
from services.insight.replicas import REPLICAS
from services.ledger.history_sql import STATISTICS
from services.ledger.listing import ExecutionFilter, select_records
from services.ledger.tallies_sql import READ
from services.scanning.listing import ScanFilter, select_page
from services.schedule_repository import select_meant
from services.schedules.batch import RECORD_COLUMNS
from services.schedules.changes import select_changes, select_deleted
from services.schedules.listing import SORT_KEYS, ScheduleFilter, order_of
from services.workflows.row_lists import (
    BUSINESSES,
    DOMAINS,
    PAGES,
    PLACES,
    SITEMAP_FILES,
    RowFilter,
    list_rows,
    select_rows,
)

# One domain has a third of the history, and none of its trouble: who multiplies the two shares expects a page of both.
FILL = """
INSERT INTO schedules (schedule_id, domain_config_id, domain, name, frequency, time_config, job_type, enabled, next_run,
                       last_run, last_status)
SELECT md5(n::text)::uuid, md5(n::text)::uuid, 'host' || n || '.example', CASE WHEN n % 3 = 0 THEN 'job ' || n END,
       'daily', '{"hour": 2}', 'noop', true, now() + make_interval(secs => n * 40), now() - make_interval(secs => n),
       CASE WHEN n % 50 = 7 THEN 'failed' ELSE 'success' END
FROM generate_series(1, 2000) AS n;
INSERT INTO schedules (domain_config_id, domain, name, frequency, time_config, job_type)
SELECT gen_random_uuid(), 'gone' || n || '.example', 'gone ' || n, 'daily', '{"hour": 2}', 'noop'
FROM generate_series(1, 5000) AS n;
DELETE FROM schedules WHERE name LIKE 'gone %';
INSERT INTO scans (execution_id, schedule_id, domain, engine, started_at, finished_at)
SELECT md5(n::text)::uuid, md5((n % 2000)::text)::uuid, 'host' || n || '.example', 'http', now(),
       now() - make_interval(mins => n) FROM generate_series(1, 5000) AS n;
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, created_at)
SELECT md5('busy')::uuid, 'busy', 'busy.example', gen_random_uuid(), 'success',
       now() - make_interval(secs => n * 120), now() - make_interval(secs => n * 120)
FROM generate_series(1, 20000) AS n;
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, created_at, reason)
SELECT md5((n % 200 + 1)::text)::uuid, 'job', 'host' || n % 200 + 1 || '.example', gen_random_uuid(),
       CASE WHEN n % 40 = 0 THEN 'failed' WHEN n % 5000 = 1 THEN 'running' WHEN n % 2 = 1 THEN 'skipped'
            ELSE 'success' END,
       now() - make_interval(mins => n), now() - make_interval(mins => n), NULL
FROM generate_series(1, 40000) AS n;
INSERT INTO dead_letters (queue, item_key, attempts, error, died_at)
SELECT 'deep_scan', n, 3, 'no', now() - make_interval(mins => n * 20) FROM generate_series(1, 20000) AS n;
"""
IN_ORDER = (  # the others find only few rows here
    "job_executions_created_at_idx",
    "job_executions_troubled_",
    "job_executions_troubled_idx",
    "job_executions_troubled_at_idx",
    "job_executions_troubled_domain_idx",
    "job_executions_troubled_fire_idx",
)
BUSY = "8bc1b2f8-4252-c3df-4edd-53e4aad097a7"
ONE = "c4ca4238-a0b9-2382-0dcc-509a6f75849b"
WENT_WRONG = "failed,timed_out,abandoned"
LATER = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture(scope="module")
def filled(new_database: Any, template: str) -> DatabaseConnection:
    db = DatabaseConnection(new_database(template))
    with db.transaction() as connection:
        connection.execute(text(FILL.replace(":", r"\:")))
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CLUSTER job_executions USING job_executions_created_at_idx"))  # as time writes them
        connection.execute(text("VACUUM (ANALYZE) schedules, job_executions, schedule_changes, scans, dead_letters"))
    return db


def plan(db: DatabaseConnection, query: Select[Any]) -> str:
    sql = str(query.compile(db.engine, compile_kwargs={"literal_binds": True}))
    return explain(db, sql.replace("%", "%%"))


def explain(db: DatabaseConnection, statement: str, **values: Any) -> str:
    with db.transaction() as connection:
        return "\n".join(connection.exec_driver_sql("EXPLAIN " + statement, values or None).scalars())


def executions(where: ExecutionFilter, cursor: str | None = None) -> Select[Any]:
    return where.order.apply(select_records().where(*where.conditions()), cursor).limit(51)


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (ExecutionFilter(), "job_executions_created_at_idx"),
        (ExecutionFilter(since=LATER), "job_executions_created_at_idx"),
        (ExecutionFilter(status="success"), "job_executions_created_at_idx"),
        (ExecutionFilter(status="failed"), "job_executions_troubled_"),  # by status, or by time and status
        (ExecutionFilter(status="missed"), "job_executions_troubled_idx"),
        (ExecutionFilter(status=WENT_WRONG), "job_executions_troubled_at_idx"),
        (ExecutionFilter(status=WENT_WRONG, since=LATER), "job_executions_troubled_at_idx"),
        (ExecutionFilter(status=WENT_WRONG, domain="busy.example"), "job_executions_troubled_domain_idx"),
        (ExecutionFilter(status="failed", domain="busy.example"), "job_executions_troubled_domain_idx"),
        (ExecutionFilter(status="success", domain="busy.example"), "job_executions_domain_idx"),
        (ExecutionFilter(outcome="recovered"), "job_executions_troubled_at_idx"),
        (ExecutionFilter(outcome="failed", since=LATER), "job_executions_troubled_at_idx"),
        (ExecutionFilter(error="refused", since=LATER), "job_executions_troubled_at_idx"),
        (ExecutionFilter(domain="busy.example"), "job_executions_domain_idx"),
        (ExecutionFilter(status=WENT_WRONG, schedule_id=BUSY), "job_executions_troubled_fire_idx"),
        (ExecutionFilter(status="failed", schedule_id=BUSY), "job_executions_troubled_fire_idx"),
        (ExecutionFilter(status="running"), "job_executions_live_idx"),
        (ExecutionFilter(status="claimed,running"), "job_executions_live_idx"),
        (ExecutionFilter(status="pending"), "job_executions_pending_idx"),
        (ExecutionFilter(cause="manual", domain="busy.example"), "job_executions_cause_idx"),
        (ExecutionFilter(cause="manual"), "job_executions_cause_idx"),
        (ExecutionFilter(domain="host7.example"), "job_executions_domain_idx"),
        (ExecutionFilter(schedule_id=ONE), "job_executions_schedule_id_scheduled_for_attempt_key"),
    ],
)
def test_a_page_of_executions_is_read_from_an_index(
    filled: DatabaseConnection, where: ExecutionFilter, index: str
) -> None:
    found = plan(filled, executions(where))
    assert index in found
    assert "Seq Scan" not in found
    whole_sort = re.search(r"(?<!Incremental )Sort  \(", found)
    assert whole_sort is None or index not in IN_ORDER


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (ExecutionFilter(), "job_executions_created_at_idx"),
        (ExecutionFilter(domain="busy.example"), "job_executions_domain_idx"),
    ],
)
def test_a_later_page_costs_no_more_than_the_first(
    filled: DatabaseConnection, where: ExecutionFilter, index: str
) -> None:
    cursor = (
        "WyJjcmVhdGVkIiwgIjIwMjctMDEtMDEgMDA6MDA6MDArMDA6MDAiLCAiM2YyYTkwYzEtMDAwMC00MDAwLTgwMDAtMDAwMDAwMDAwMDAxIl0="
    )
    found = plan(filled, executions(where, cursor))
    assert index in found
    assert "created_at" in re.findall(r"Index Cond: (.*)", found)[0]
    assert "Seq Scan" not in found


def schedules(where: ScheduleFilter, sort: str) -> Select[Any]:
    return order_of(sort).apply(select(*RECORD_COLUMNS).where(*where.conditions()), None).limit(51)


@pytest.mark.parametrize("where", [ScheduleFilter(), ScheduleFilter(enabled=True), ScheduleFilter(search="host")])
@pytest.mark.parametrize("sort", ["domain", "-domain"])
def test_schedules_in_the_order_of_their_domains_are_read_from_an_index_until_a_page_is_full(
    filled: DatabaseConnection, where: ScheduleFilter, sort: str
) -> None:
    found = plan(filled, schedules(where, sort))
    assert "schedules_domain_idx" in found
    assert "Seq Scan" not in found


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (ScheduleFilter(domain="host7.example"), "schedules_domain_idx"),
        (ScheduleFilter(name="job 3"), "schedules_name_key"),
    ],
)
@pytest.mark.parametrize("sort", SORT_KEYS)
def test_who_names_a_schedule_finds_it_by_an_index_in_every_order(
    filled: DatabaseConnection, where: ScheduleFilter, index: str, sort: str
) -> None:
    found = plan(filled, schedules(where, sort))
    assert index in found
    assert "Seq Scan" not in found


@pytest.mark.parametrize("sort", [*SORT_KEYS, *(f"-{key}" for key in SORT_KEYS)])
@pytest.mark.parametrize(
    "where",
    [
        ScheduleFilter(),
        ScheduleFilter(search="host"),
        ScheduleFilter(search="nowhere"),
        ScheduleFilter(enabled=False),
        ScheduleFilter(last_status="failed"),
        ScheduleFilter(tag="rare"),
        ScheduleFilter(search="nowhere", enabled=True, last_status="failed", source="api", job_type="noop"),
    ],
    ids=["all", "many", "none", "off", "failed", "tag", "several"],
)
def test_any_other_page_of_schedules_reads_the_table_once_and_keeps_only_a_page_of_it(
    filled: DatabaseConnection, where: ScheduleFilter, sort: str
) -> None:
    """What changes with every fire has no index (docs/decisions.md). The benchmark says what one reading costs."""
    found = plan(filled, schedules(where, sort))
    assert len(SCANS.findall(found)) == 1
    assert found.startswith("Limit")


@pytest.mark.parametrize("statement", [failures_sql.LATELY, failures_sql.OF_SCHEDULE])
def test_failures_are_counted_from_an_index_of_what_went_wrong(filled: DatabaseConnection, statement: str) -> None:
    found = explain(filled, statement, hours=24, schedule_id=BUSY, most=5000)
    assert "job_executions_troubled_" in found
    assert "using job_executions_schedule_id_scheduled_for_attempt_key" in found  # the next attempt, one by one
    assert "Seq Scan" not in found


SCANS = re.compile(r"(?:Scan|Scan Backward) (?:using \w+ )?on \w+")


@pytest.mark.parametrize(
    ("reference", "index"),
    [("job 3", "schedules_name_key"), ("host7.example", "schedules_domain_idx"), (ONE[:8], "schedules_pkey")],
)
def test_a_schedule_is_found_by_what_people_call_it(filled: DatabaseConnection, reference: str, index: str) -> None:
    found = plan(filled, select_meant(reference))
    assert index in found
    assert "Seq Scan" not in found


@pytest.mark.parametrize("name", ["gone 7", "gone7.example", "nowhere"])
def test_a_deleted_schedule_is_found_by_the_name_and_the_domain_that_it_had(
    filled: DatabaseConnection, name: str
) -> None:
    found = plan(filled, select_deleted(name))
    assert "schedule_changes_deleted_name_idx" in found
    assert "schedule_changes_deleted_domain_idx" in found
    assert "Seq Scan" not in found
    assert "Sort  (" not in found


def test_the_changes_of_a_schedule_are_read_from_an_index(filled: DatabaseConnection) -> None:
    found = plan(filled, select_changes(UUID(ONE), 20))
    assert "schedule_changes_schedule_id_idx" in found
    assert "Seq Scan" not in found


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (ScanFilter(), "scans_finished_at_idx"),
        (ScanFilter(engine="http"), "scans_finished_at_idx"),
        (ScanFilter(domain="host7.example"), "scans_domain_idx"),
        (ScanFilter(schedule_id=UUID(ONE)), "scans_schedule_id_idx"),
        (ScanFilter(execution_id=UUID(ONE)), "scans_execution_id_idx"),
    ],
)
def test_a_page_of_scans_is_read_from_an_index(filled: DatabaseConnection, where: ScanFilter, index: str) -> None:
    found = plan(filled, select_page(where, 50, None))
    assert index in found
    assert "Seq Scan" not in found


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (overview_sql.MINUTES, {"minutes": 60}, "job_executions_created_at_idx"),
        (overview_sql.TIMELINE, {"minutes": 60, "limit": 2000}, "job_executions_created_at_idx"),
        (overview_sql.STUCK, {"seconds": 60, "limit": 20}, "job_executions_live_idx"),
        (overview_sql.WAITING, {"seconds": 60, "limit": 20}, "job_executions_pending_idx"),
        (overview_sql.PARKED, {"limit": 20}, "schedules_parked_idx"),
        (overview_sql.DEAD, {"hours": 24, "limit": 20}, "dead_letters_died_at_idx"),
        (
            overview_sql.CALENDAR,
            {"schedule_id": ONE, "timezone": "UTC", "days": 365},
            "job_executions_schedule_id_scheduled_for_attempt_key",
        ),
        (STATISTICS, {"days": 1}, "job_executions_created_at_idx"),
        (READ, {"days": 1}, "job_executions_created_at_idx"),
        (REPLICAS, {"timeout": 30}, "schedules_revision_idx"),
    ],
    ids=[
        "minutes",
        "timeline",
        "stuck",
        "waiting",
        "parked",
        "dead letters",
        "calendar",
        "statistics",
        "counted hours",
        "newest revision",
    ],
)
def test_what_the_first_page_shows_is_read_from_an_index(
    filled: DatabaseConnection, statement: str, values: dict[str, Any], index: str
) -> None:
    found = explain(filled, statement, **values)
    assert index in found
    assert "Seq Scan on job_executions" not in found
    assert "Seq Scan on schedules" not in found


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (overview_sql.LATE, {"seconds": 120, "limit": 20}, None),
        (overview_sql.FAILING, {"limit": 20}, "job_executions_schedule_id_scheduled_for_attempt_key"),
        (overview_sql.DUE_WITHIN, {"minutes": 60, "sample": 500}, "job_executions_created_at_idx"),
    ],
    ids=["late", "failing", "due soon"],
)
def test_what_is_said_about_schedules_reads_them_once_and_the_history_by_an_index(
    filled: DatabaseConnection, statement: str, values: dict[str, Any], index: str | None
) -> None:
    """When they run next and how they ended changes with every fire, and has no index (docs/decisions.md)."""
    found = explain(filled, statement, **values)
    assert found.count("Scan on schedules") == 1
    assert "Seq Scan on job_executions" not in found
    if index is not None:
        assert index in found


YESTERDAY, TOMORROW = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))


@pytest.mark.parametrize(
    ("statement", "at", "index"),
    [
        (explain_sql.CHANGE_BEFORE, TOMORROW, "schedule_changes_schedule_id_idx"),
        (explain_sql.CHANGE_AFTER, YESTERDAY, "schedule_changes_schedule_id_idx"),
        (explain_sql.CHANGE_OF_FIELD, TOMORROW, "schedule_changes_schedule_id_idx"),
        (explain_sql.PRESENT, YESTERDAY, "schedules_pkey"),
        (explain_sql.BLOCKERS, YESTERDAY, "job_executions_schedule_id_scheduled_for_attempt_key"),
        (explain_sql.COALESCED_INTO, YESTERDAY, "job_executions_created_at_idx"),
        (explain_sql.BUSY, YESTERDAY, "job_executions_created_at_idx"),
        (explain_sql.SUMMARY, YESTERDAY, "job_executions_summary_idx"),
    ],
    ids=["before", "after", "field", "present", "blockers", "coalesced", "busy", "summary"],
)
def test_why_a_fire_ran_or_not_is_found_by_indexes(
    filled: DatabaseConnection, statement: str, at: datetime, index: str
) -> None:
    values = {"id": BUSY, "at": at, "field": "enabled", "execution_id": ONE, "reach": 3600, "created_at": at}
    found = explain(filled, statement, **values)
    assert index in found
    assert "Seq Scan" not in found


PIPELINE = """
INSERT INTO places_staging (place_id, created_at)
SELECT n, now() - make_interval(secs => n) FROM generate_series(1, 5000) AS n;
INSERT INTO local_businesses (place_id, created_at)
SELECT n, now() - make_interval(secs => n) FROM generate_series(1, 5000) AS n;
INSERT INTO domains (domain, created_at)
SELECT n || '.example', now() - make_interval(secs => n) FROM generate_series(1, 5000) AS n;
INSERT INTO sitemap_files (domain_id, url, created_at) SELECT id, 'https://' || domain, created_at FROM domains;
INSERT INTO pages (domain_id, url, created_at) SELECT id, 'https://' || domain, created_at FROM domains;
ANALYZE places_staging, local_businesses, domains, sitemap_files, pages;
"""


def test_a_page_of_the_pipeline_s_rows_is_read_from_an_index_wherever_it_is(db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.execute(text(PIPELINE.replace(":", r"\:")))
    for rows in (PLACES, BUSINESSES, DOMAINS, SITEMAP_FILES, PAGES):
        cursor = list_rows(db, rows).next_cursor
        found = plan(db, select_rows(rows, RowFilter(), 50, cursor))
        assert f"{rows.model.__tablename__}_created_at_idx" in found, found
        assert "Sort" not in found, found
