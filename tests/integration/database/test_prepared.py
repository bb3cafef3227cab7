"""The engine's statements are parsed and planned once per session."""

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError

from database.connection import DatabaseConnection, DedicatedConnection
from database.prepared import MOST, PLANS_LIVE_SECONDS, Prepared
from database.sqlstates import sqlstate
from services.errors import Unavailable


@pytest.fixture
def connection(db: DatabaseConnection) -> Iterator[DedicatedConnection]:
    dedicated = db.dedicated()
    yield dedicated
    dedicated.close()


def known(connection: DedicatedConnection) -> list[tuple[str, int]]:
    rows = connection.run("TABLE pg_prepared_statements")  # not prepared itself
    return sorted((row.name, row.generic_plans + row.custom_plans) for row in rows)


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


def test_a_semicolon_in_a_text_ends_no_statement(connection: DedicatedConnection) -> None:
    assert one(connection, "SELECT 'a; b' AS said") == [("a; b",)]
    assert known(connection) == [("s0_select", 1)]


def test_a_list_is_given_as_an_array_of_the_type_that_is_asked_for(connection: DedicatedConnection) -> None:
    asked = uuid4()
    text = "SELECT each FROM unnest(%(ids)s::uuid[]) AS a (each)"
    assert one(connection, text, ids=[str(asked)]) == [(asked,)]
    assert one(connection, text, ids=[]) == []


def test_so_is_a_statement_outside_a_transaction(connection: DedicatedConnection) -> None:
    for _ in range(2):
        connection.run("SELECT count(*) FROM schedules")
    assert known(connection)[0] == ("s0_select_schedules", 2)


def test_settings_before_a_statement_hold_for_its_plan_and_its_execution(connection: DedicatedConnection) -> None:
    sql = (
        "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SELECT current_setting('enable_bitmapscan')"
    )
    assert [connection.run(sql)[0][0] for _ in range(2)] == ["off", "off"]
    assert connection.run("SELECT current_setting('enable_bitmapscan')")[0][0] == "on"
    assert known(connection)[0] == ("s0_select", 2)


def test_what_fails_again_and_again_leaves_no_statements_behind_and_works_once_it_can(
    connection: DedicatedConnection,
) -> None:
    sql = "SELECT 1 / %(n)s::int"
    for _ in range(3):
        with pytest.raises(DBAPIError):
            one(connection, sql, n=0)
        with pytest.raises(DBAPIError):
            connection.run(sql, {"n": 0})
    assert connection.run(sql, {"n": 1})[0][0] == 1
    assert one(connection, sql, n=1) == [(1,)]
    assert known(connection) == [("s0_select", 2)]


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


@pytest.mark.parametrize("sql", ["COMMIT", "SET LOCAL a = 'b'; SELECT 1", "EXPLAIN SELECT 1", "SELECT 1; SELECT 2"])
def test_what_is_not_one_statement_on_rows_is_sent_as_it_is(sql: str) -> None:
    assert Prepared().sent_for(sql) == sql


# --- a shorter way than SQLAlchemy's, to the same results ---


@pytest.fixture(params=["unheard", "heard"])
def statements(request: pytest.FixtureRequest, db: DatabaseConnection) -> Iterator[list[str]]:
    """Those that a listener of the engine hears, if there is one: then they go SQLAlchemy's own way."""
    heard: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        heard.append(statement)

    if request.param == "heard":
        event.listen(db.engine, "before_cursor_execute", note)
    yield heard
    if request.param == "heard":
        event.remove(db.engine, "before_cursor_execute", note)
        assert heard


def test_rows_are_read_by_name_and_by_place_with_and_without_a_listener(
    connection: DedicatedConnection, statements: list[str]
) -> None:
    sql = "SELECT %(n)s::int AS number, ARRAY['a', NULL] AS words, '{\"a\": 1}'::jsonb AS facts"
    (row,) = connection.run(sql, {"n": 4})
    assert (row.number, row.words, row._mapping["facts"]) == (4, ["a", None], {"a": 1})
    assert tuple(row[-2:]) == (["a", None], {"a": 1})
    assert connection.run("SET enable_sort = on") == []


def test_a_refusal_is_the_same_error_with_and_without_a_listener(
    connection: DedicatedConnection, statements: list[str]
) -> None:
    insert = "INSERT INTO scan_profiles (name) VALUES (%(name)s)"
    connection.run(insert, {"name": "once"})
    with pytest.raises(IntegrityError, match="duplicate key") as refused:
        connection.run(insert, {"name": "once"})
    assert sqlstate(refused.value) == "23505"
    assert not refused.value.connection_invalidated


def test_a_session_that_the_server_has_ended_is_one_error_and_then_opened_anew(
    db: DatabaseConnection, connection: DedicatedConnection, statements: list[str]
) -> None:
    (row,) = connection.run("SELECT pg_backend_pid() AS pid")
    db.run_alone("SELECT pg_terminate_backend(%(pid)s, 5000)", {"pid": row.pid})
    with pytest.raises(Unavailable):
        connection.run("SELECT 1")
    (again,) = connection.run("SELECT pg_backend_pid() AS pid")
    assert again.pid != row.pid


def test_a_row_of_many_columns_costs_much_less_than_through_sqlalchemy(
    db: DatabaseConnection, connection: DedicatedConnection
) -> None:
    sql = f"SELECT {', '.join(f'{n} AS c{n}' for n in range(40))}"
    with db.transaction() as ordinary:
        theirs = least_cpu(lambda: ordinary.exec_driver_sql(sql).all())
    assert least_cpu(lambda: connection.run(sql)) < 0.75 * theirs


def least_cpu(call: Callable[[], object]) -> float:
    """The best of some batches: what else the machine does is not the call's."""
    found = []
    for _ in range(8):
        begun = time.thread_time()
        for _ in range(50):
            call()
        found.append(time.thread_time() - begun)
    return min(found)
