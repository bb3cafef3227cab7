"""The lists that people look at are answered from indexes: a page must not read the whole history."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Select, select, text

from database.connection import DatabaseConnection
from services import overview_sql
from services.execution_listing import ExecutionFilter, select_records
from services.execution_tallies_sql import READ
from services.job_history_sql import STATISTICS
from services.replica_listing import REPLICAS
from services.schedule_batch import RECORD_COLUMNS
from services.schedule_listing import Order, ScheduleFilter

FILL = """
INSERT INTO schedules (schedule_id, domain_config_id, domain, frequency, time_config, job_type, enabled)
SELECT md5(n::text)::uuid, md5(n::text)::uuid, 'host' || n || '.example', 'daily', '{"hour": 2}', 'noop', true
FROM generate_series(1, 2000) AS n;
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, created_at, reason)
SELECT md5((n % 2000 + 1)::text)::uuid, 'job', 'host' || n % 2000 + 1 || '.example', gen_random_uuid(),
       CASE WHEN n % 500 = 0 THEN 'failed' WHEN n % 5000 = 1 THEN 'running' ELSE 'success' END,
       now() - make_interval(mins => n), now() - make_interval(mins => n), NULL
FROM generate_series(1, 40000) AS n;
"""
IN_ORDER = ("job_executions_created_at_idx", "job_executions_troubled_idx")  # the others find only few rows here
LATER = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture(scope="module")
def filled(new_database: Any, template: str) -> DatabaseConnection:
    db = DatabaseConnection(new_database(template))
    with db.transaction() as connection:
        connection.execute(text(FILL.replace(":", r"\:")))
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE schedules, job_executions"))
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
        (ExecutionFilter(status="failed"), "job_executions_troubled_idx"),
        (ExecutionFilter(status="missed"), "job_executions_troubled_idx"),
        (ExecutionFilter(status="running"), "job_executions_live_idx"),
        (ExecutionFilter(cause="manual"), "job_executions_cause_idx"),
        (ExecutionFilter(domain="host7.example"), "job_executions_domain_idx"),
        (
            ExecutionFilter(schedule_id="c4ca4238-a0b9-2382-0dcc-509a6f75849b"),
            "job_executions_schedule_id_scheduled_for_attempt_key",
        ),
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


def test_a_later_page_costs_no_more_than_the_first(filled: DatabaseConnection) -> None:
    cursor = (
        "WyJjcmVhdGVkIiwgIjIwMjctMDEtMDEgMDA6MDA6MDArMDA6MDAiLCAiM2YyYTkwYzEtMDAwMC00MDAwLTgwMDAtMDAwMDAwMDAwMDAxIl0="
    )
    found = plan(filled, executions(ExecutionFilter(), cursor))
    assert "job_executions_created_at_idx" in found
    assert "Seq Scan" not in found


def test_schedules_in_the_order_of_their_domains_are_read_from_an_index(filled: DatabaseConnection) -> None:
    where = ScheduleFilter(enabled=True)
    query = Order.parse("domain").apply(select(*RECORD_COLUMNS).where(*where.conditions()), None).limit(51)
    found = plan(filled, query)
    assert "schedules_domain_idx" in found
    assert "Seq Scan" not in found


def test_a_search_that_finds_many_stops_after_a_page_of_them(filled: DatabaseConnection) -> None:
    where = ScheduleFilter(search="host")
    found = plan(filled, Order().apply(select(*RECORD_COLUMNS).where(*where.conditions()), None).limit(51))
    assert "schedules_domain_idx" in found
    assert "Seq Scan" not in found


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (overview_sql.MINUTES, {"minutes": 60}, "job_executions_created_at_idx"),
        (overview_sql.TIMELINE, {"minutes": 60, "limit": 2000}, "job_executions_created_at_idx"),
        (overview_sql.STUCK, {"seconds": 60, "limit": 20}, "job_executions_live_idx"),
        (overview_sql.WAITING, {"seconds": 60, "limit": 20}, "job_executions_pending_idx"),
        (overview_sql.PARKED, {"limit": 20}, "schedules_parked_idx"),
        (
            overview_sql.CALENDAR,
            {"schedule_id": "c4ca4238-a0b9-2382-0dcc-509a6f75849b", "timezone": "UTC", "days": 365},
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
