"""Statements of the engine's transactions are parsed and planned once per session."""

from collections.abc import Iterator

import pytest
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection, DedicatedConnection
from database.prepared import MOST, PLANS_LIVE_SECONDS, Prepared


@pytest.fixture
def connection(db: DatabaseConnection) -> Iterator[DedicatedConnection]:
    dedicated = db.dedicated()
    yield dedicated
    dedicated.close()


def known(connection: DedicatedConnection) -> list[tuple[str, int]]:
    rows = connection.run("SELECT name, generic_plans + custom_plans AS times FROM pg_prepared_statements ORDER BY 1")
    return [(row.name, row.times) for row in rows]


def one(connection: DedicatedConnection, sql: str, **values: object) -> object:
    with connection.transaction():
        return [tuple(row) for row in connection.run(sql, values)]


def test_a_statement_is_prepared_once_and_named_for_whoever_reads_pg_stat_activity(
    connection: DedicatedConnection,
) -> None:
    for number in range(3):
        assert one(connection, "SELECT %(n)s::int + %(n)s AS sum", n=number) == [(2 * number,)]
    assert one(connection, "SELECT count(*) FROM schedules AS s WHERE s.domain = %(domain)s", domain="a%'b") == [(0,)]
    assert known(connection) == [("s0_select", 3), ("s1_select_schedules", 1)]


def test_percent_signs_and_nulls_arrive_as_they_are(connection: DedicatedConnection) -> None:
    text = "SELECT %(text)s::text LIKE 'a%%' AS begins, %(text)s IS NULL AS is_null"
    assert one(connection, text, text="a%s") == [(True, False)]
    assert one(connection, text, text=None) == [(None, True)]


def test_a_statement_outside_a_transaction_is_planned_each_time(connection: DedicatedConnection) -> None:
    connection.run("SELECT count(*) FROM schedules")
    assert known(connection) == []


def test_a_session_in_which_a_statement_failed_is_replaced(connection: DedicatedConnection) -> None:
    with pytest.raises(DBAPIError):
        one(connection, "SELECT 1 / %(n)s::int", n=0)
    assert one(connection, "SELECT 1 / %(n)s::int", n=1) == [(1,)]
    assert known(connection) == [("s0_select", 1)]


def test_a_migration_under_a_running_session_is_followed(
    db: DatabaseConnection, connection: DedicatedConnection
) -> None:
    look = "WITH ended AS (UPDATE limits SET max_running = %(n)s RETURNING *) SELECT name FROM ended"
    assert one(connection, look, n=1) == []
    with db.transaction() as other:
        other.exec_driver_sql("ALTER TABLE limits ADD COLUMN new_one text")
        other.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES ('customer:42', 2)")
    assert one(connection, look, n=1) == [("customer:42",)]


def test_behind_a_transaction_pooler_nothing_is_prepared(db: DatabaseConnection) -> None:
    pooled = DatabaseConnection(db.engine.url.render_as_string(hide_password=False), transaction_pooler=True)
    dedicated = pooled.dedicated()
    assert one(dedicated, "SELECT %(n)s::int + %(n)s", n=1) == [(2,)]
    assert known(dedicated) == []
    dedicated.close()
    pooled.close()


def test_plans_are_made_anew_from_time_to_time() -> None:
    now = [0.0]
    prepared = Prepared(lambda: now[0])
    said = []
    for now[0] in (0.0, PLANS_LIVE_SECONDS - 1, PLANS_LIVE_SECONDS, PLANS_LIVE_SECONDS + 1, 2 * PLANS_LIVE_SECONDS):
        said.append(prepared.opening())
    assert said == ["", "", "DISCARD PLANS; ", "", "DISCARD PLANS; "]


def test_a_session_does_not_collect_statements_without_end() -> None:
    prepared = Prepared()
    sent = [prepared.sent_for(f"SELECT {number}") for number in range(MOST + 1)]
    assert sent[-2:] == [
        f"PREPARE s{MOST - 1}_select AS SELECT {MOST - 1}; EXECUTE s{MOST - 1}_select",
        f"SELECT {MOST}",
    ]


@pytest.mark.parametrize("sql", ["COMMIT", "SET LOCAL a = 'b'; SELECT 1", "EXPLAIN SELECT 1"])
def test_what_is_not_one_statement_on_rows_is_sent_as_it_is(sql: str) -> None:
    assert Prepared().sent_for(sql) == sql
