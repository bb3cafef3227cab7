"""What the database itself does when a schedule changes, whoever changes it."""

import select
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg2
import psycopg2.errors
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection

INSERT = """
INSERT INTO schedules (domain_config_id, domain, frequency, time_config)
SELECT gen_random_uuid(), 'host' || n || '.example', 'daily', '{"hour": 2, "minute": 0}'
FROM generate_series(1, %s) AS n
"""


@pytest.fixture
def sql(db: DatabaseConnection) -> Any:
    def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with db.transaction() as connection:
            result = connection.exec_driver_sql(statement, values)
            return [tuple(row) for row in result] if result.returns_rows else []

    return run


def test_every_definition_change_gets_a_new_revision_from_one_sequence(sql: Any) -> None:
    sql(INSERT, 3)
    revisions = [revision for (revision,) in sql("SELECT revision FROM schedules ORDER BY revision")]
    assert len(set(revisions)) == 3
    sql("UPDATE schedules SET priority = 7 WHERE domain = 'host1.example'")
    assert sql("SELECT revision FROM schedules WHERE domain = 'host1.example'")[0][0] > max(revisions)


@pytest.mark.parametrize("bookkeeping", ["next_run = now()", "last_run = now()", "last_status = 'success'"])
def test_bookkeeping_is_no_change(sql: Any, bookkeeping: str) -> None:
    sql(INSERT, 1)
    before = sql("SELECT revision, updated_at, effective_from FROM schedules")
    sql(f"UPDATE schedules SET {bookkeeping}")
    assert sql("SELECT revision, updated_at, effective_from FROM schedules") == before
    assert sql("SELECT count(*) FROM schedule_changes") == [(1,)]


def test_an_update_that_changes_nothing_is_no_change(sql: Any) -> None:
    sql(INSERT, 1)
    before = sql("SELECT revision FROM schedules")
    sql("UPDATE schedules SET domain = domain, enabled = enabled, time_config = time_config")
    assert sql("SELECT revision FROM schedules") == before


@pytest.mark.parametrize(
    "change",
    ["enabled = false", """time_config = '{"hour": 1}'""", "timezone = 'Europe/Berlin'", "frequency = 'weekly'",
     "start_at = now()", "end_at = now()"],
)  # fmt: skip
def test_new_timing_holds_from_now_on(sql: Any, change: str) -> None:
    sql(INSERT, 1)
    ((before,),) = sql("SELECT effective_from FROM schedules")
    sql(f"UPDATE schedules SET {change}")
    ((after,),) = sql("SELECT effective_from FROM schedules")
    assert after > before


@pytest.mark.parametrize(
    "change",
    [
        "job_config = '{\"a\": 1}'",
        "priority = 1",
        "max_retries = 2",
        "spread_seconds = 9",
        "requires = '{gpu}'",
        "queue = 'q'",
        "limit_keys = '{customer:42}'",
    ],
)
def test_a_change_that_is_not_about_time_keeps_the_timing_valid(sql: Any, change: str) -> None:
    sql(INSERT, 1)
    before = sql("SELECT effective_from FROM schedules")
    sql(f"UPDATE schedules SET {change}")
    assert sql("SELECT effective_from FROM schedules") == before


def test_a_note_is_audited_and_is_not_about_time(sql: Any) -> None:
    sql(INSERT, 1)
    sql("UPDATE schedules SET enabled = false, disabled_note = 'moving house'")
    ((revision, since),) = sql("SELECT revision, effective_from FROM schedules")
    sql("UPDATE schedules SET disabled_note = 'still moving'")
    assert sql("SELECT revision > %s, effective_from = %s FROM schedules", revision, since) == [(True, True)]
    words = "changed_by, old->>'disabled_note', new->>'disabled_note'"
    assert sql(f"SELECT {words} FROM schedule_changes ORDER BY change_id DESC LIMIT 1") == [
        ("sql:postgres", "moving house", "still moving")
    ]


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ("requires = '{eu,gpu}'", ["eu", "gpu"]),
        ("queue = 'browser'", "browser"),
        ("limit_keys = '{customer:42}'", ["customer:42"]),
    ],
)
def test_what_a_schedule_requires_its_queue_and_its_limit_keys_are_audited(sql: Any, change: str, new: object) -> None:
    sql(INSERT, 1)
    ((revision,),) = sql("SELECT revision FROM schedules")
    sql(f"UPDATE schedules SET {change}")
    assert sql("SELECT revision > %s FROM schedules", revision) == [(True,)]
    field = change.split(" ")[0]
    assert sql(f"SELECT new->'{field}' FROM schedule_changes ORDER BY change_id DESC LIMIT 1") == [(new,)]


def test_whoever_switches_a_schedule_on_ends_its_note(sql: Any) -> None:
    sql(INSERT, 1)
    sql("UPDATE schedules SET enabled = false, disabled_note = 'moving house'")
    sql("UPDATE schedules SET enabled = true")
    assert sql("SELECT disabled_note FROM schedules") == [(None,)]
    words = "old->>'disabled_note', new->>'disabled_note'"
    assert sql(f"SELECT {words} FROM schedule_changes ORDER BY change_id DESC LIMIT 1") == [("moving house", None)]
    sql("UPDATE schedules SET enabled = false")
    assert sql("SELECT disabled_note FROM schedules") == [(None,)]


def test_bookkeeping_of_a_schedule_that_is_off_leaves_its_note(sql: Any) -> None:
    sql(INSERT, 1)
    sql("UPDATE schedules SET enabled = false, disabled_note = 'moving house'")
    before = sql("SELECT revision, disabled_note FROM schedules")
    sql("UPDATE schedules SET next_run = NULL, last_run = now(), last_status = 'success'")
    assert sql("SELECT revision, disabled_note FROM schedules") == before


def test_nobody_can_write_revision_or_effective_from(sql: Any) -> None:
    sql(INSERT, 1)
    ((revision, since),) = sql("SELECT revision, effective_from FROM schedules")
    sql("UPDATE schedules SET revision = 1, effective_from = '2000-01-01'")
    assert sql("SELECT revision > %s, effective_from = %s FROM schedules", revision, since) == [(True, True)]


def test_a_recreated_schedule_never_repeats_a_revision(sql: Any) -> None:
    sql(INSERT, 1)
    ((schedule_id, first),) = sql("SELECT schedule_id, revision FROM schedules")
    sql("DELETE FROM schedules")
    sql(
        """INSERT INTO schedules (schedule_id, domain_config_id, domain, frequency, time_config)
           VALUES (%s, gen_random_uuid(), 'x.example', 'daily', '{}')""",
        schedule_id,
    )
    assert sql("SELECT revision FROM schedules")[0][0] > first


def test_edits_by_plain_sql_are_audited_with_the_login(sql: Any) -> None:
    sql(INSERT, 1)
    sql("UPDATE schedules SET priority = 3")
    sql("DELETE FROM schedules")
    changes = sql(
        "SELECT operation, changed_by, old->>'priority', new->>'priority' FROM schedule_changes ORDER BY 1 DESC"
    )
    assert changes == [
        ("update", "sql:postgres", "0", "3"),
        ("insert", "sql:postgres", None, "0"),
        ("delete", "sql:postgres", "3", None),
    ]


def test_the_actor_of_a_transaction_is_recorded(sql: Any, db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.execute(text("SELECT set_config('scheduler.actor', 'api:alice', true)"))
        connection.exec_driver_sql(INSERT, (1,))
    sql("UPDATE schedules SET priority = 1")
    assert sql("SELECT changed_by FROM schedule_changes ORDER BY change_id") == [("api:alice",), ("sql:postgres",)]


def test_a_refused_insert_leaves_no_trace(sql: Any) -> None:
    sql(INSERT, 1)
    sql(
        """INSERT INTO schedules SELECT * FROM schedules ON CONFLICT DO NOTHING""",
    )
    assert sql("SELECT count(*) FROM schedule_changes") == [(1,)]


def test_a_truncated_table_is_audited_too(sql: Any) -> None:
    sql(INSERT, 2)
    sql("TRUNCATE schedules")
    assert sql("SELECT schedule_id, operation FROM schedule_changes ORDER BY change_id DESC LIMIT 1") == [
        (None, "truncate")
    ]


@pytest.fixture
def listener(db: DatabaseConnection) -> Any:
    raw = psycopg2.connect(db.engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    raw.autocommit = True
    raw.cursor().execute("LISTEN schedules_changed")

    def heard() -> list[str]:
        select.select([raw], [], [], 0.3)
        raw.poll()
        payloads = [notification.payload for notification in raw.notifies]
        raw.notifies.clear()
        return payloads

    yield heard
    raw.close()


@pytest.mark.parametrize(
    "change",
    ["UPDATE schedules SET priority = 1", "DELETE FROM schedules", "TRUNCATE schedules",
     "INSERT INTO schedules (domain_config_id, domain, frequency, time_config) "
     "VALUES (gen_random_uuid(), 'x.example', 'daily', '{}')"],
)  # fmt: skip
def test_listeners_wake_up_once_per_transaction(sql: Any, listener: Any, change: str) -> None:
    sql(INSERT, 50)
    assert listener() == [""]
    sql(change)
    assert listener() == [""]


def test_listeners_sleep_through_bookkeeping(sql: Any, listener: Any) -> None:
    sql(INSERT, 1)
    assert listener() == [""]
    sql("UPDATE schedules SET next_run = now()")
    sql("DELETE FROM schedules WHERE domain = 'nobody.example'")
    assert listener() == []


def test_a_verdict_ends_with_the_revision_it_was_passed_on(sql: Any) -> None:
    sql(INSERT, 1)
    sql("UPDATE schedules SET last_status = 'invalid', invalid_reason = 'time_config.hour: is 25'")
    assert sql("SELECT last_status FROM schedules") == [("invalid",)]
    sql("""UPDATE schedules SET time_config = '{"hour": 3}'""")
    assert sql("SELECT last_status, invalid_reason FROM schedules") == [(None, None)]


@pytest.mark.parametrize(
    ("poison", "constraint"),
    [
        ("""time_config = '{"seconds": -1}'""", "schedules_time_config_not_negative_check"),
        ("time_config = '[]'", "schedules_time_config_object_check"),
        ("job_config = '3'", "schedules_job_config_object_check"),
        ("max_instances = 0", "schedules_max_instances_check"),
        ("timeout_seconds = 0", "schedules_timeout_seconds_check"),
        ("misfire_grace_seconds = 0", "schedules_misfire_grace_seconds_check"),
        ("max_retries = -1", "schedules_max_retries_check"),
        ("retry_backoff_seconds = -1", "schedules_retry_backoff_seconds_check"),
        ("spread_seconds = 90000", "schedules_spread_seconds_check"),
        ("start_at = '2027-01-02', end_at = '2027-01-01'", "schedules_ends_after_start_check"),
        ("catchup = 'some'", "schedules_catchup_check"),
        ("enabled = false, disabled_note = repeat('x', 501)", "schedules_disabled_note_check"),
        ("disabled_note = 'moving house'", "schedules_disabled_note_while_on_check"),
        ("source = 'mars'", "schedules_source_check"),
        ("start_at = '0044-03-15 BC'", "schedules_start_at_check"),
        ("start_at = 'infinity'", "schedules_start_at_check"),
        ("end_at = '12026-01-01'", "schedules_end_at_check"),
        ("end_at = '-infinity'", "schedules_end_at_check"),
        ("next_run = 'infinity'", "schedules_next_run_check"),
        ("last_run = '0001-01-01 BC'", "schedules_last_run_check"),
        ("updated_at = '0001-01-01 BC'", "schedules_updated_at_check"),
        ("""time_config = '{"hour": 1e5000}'""", "schedules_time_config_readable_check"),
        ("""time_config = '{"hour": [{"deep": 1e12}]}'""", "schedules_time_config_readable_check"),
        (f"""time_config = '{{"a": {"[" * 4000 + "]" * 4000}}}'""", "schedules_time_config_readable_check"),
        ("time_config = jsonb_build_object('a', repeat('x', 600000))", "schedules_time_config_readable_check"),
        ("""job_config = '{"n": [-1e5000]}'""", "schedules_job_config_readable_check"),
        (f"""job_config = '{{"a": {"[" * 4000 + "]" * 4000}}}'""", "schedules_job_config_readable_check"),
        ("tags = '{NULL}'", "schedules_tags_check"),
        ("tags = '{{a,b},{c,d}}'", "schedules_tags_check"),
    ],
)
def test_poison_is_refused_by_the_table(sql: Any, poison: str, constraint: str) -> None:
    sql(INSERT, 1)
    with pytest.raises(DBAPIError) as refused:
        sql(f"UPDATE schedules SET {poison}")
    assert isinstance(refused.value.orig, psycopg2.errors.CheckViolation)
    assert refused.value.orig.diag.constraint_name == constraint


def test_the_largest_honest_row_is_accepted(sql: Any) -> None:
    sql(INSERT, 1)
    sql(
        """UPDATE schedules SET end_at = '9999-12-31 23:59:59+00', tags = '{a,b}', start_at = '1970-01-01+00',
                  job_config = (SELECT jsonb_build_object('n', jsonb_agg(1)) FROM generate_series(1, 32000))"""
    )


def test_the_id_of_a_schedule_never_changes(sql: Any) -> None:
    sql(INSERT, 1)
    with pytest.raises(DBAPIError, match="never changes: its history hangs on it") as refused:
        sql("UPDATE schedules SET schedule_id = gen_random_uuid()")
    assert isinstance(refused.value.orig, psycopg2.errors.RestrictViolation)


@pytest.fixture
def stranger(db: DatabaseConnection) -> Any:
    """A login that may write schedules, and nothing else, and looks for tables elsewhere."""
    role = f"stranger_{uuid4().hex}"
    with db.transaction() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON schedules TO {role}")
    yield role
    with db.transaction() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_whoever_may_write_schedules_is_audited(sql: Any, db: DatabaseConnection, stranger: str) -> None:
    with db.engine.connect() as connection:
        connection.exec_driver_sql(f"SET SESSION AUTHORIZATION {stranger}; SET search_path = pg_catalog")
        connection.exec_driver_sql("CREATE TEMP TABLE schedule_changes (note text)")
        connection.exec_driver_sql(INSERT.replace("INTO schedules", "INTO public.schedules"), (1,))
        connection.exec_driver_sql("UPDATE public.schedules SET priority = 2")
        connection.exec_driver_sql("DELETE FROM public.schedules")
        connection.commit()
        connection.invalidate()
    assert sql("SELECT operation, changed_by FROM schedule_changes ORDER BY change_id") == [
        (operation, f"sql:{stranger}") for operation in ("insert", "update", "delete")
    ]
    assert sql("SELECT count(DISTINCT revision) FROM schedule_changes") == [(3,)]


def test_a_terminal_status_never_changes(sql: Any) -> None:
    sql(
        """INSERT INTO job_executions (job_id, domain, domain_config_id, status, started_at, scheduled_for)
           VALUES ('job', 'x.example', gen_random_uuid(), 'success', now(), %s)""",
        datetime(2027, 1, 1, tzinfo=UTC),
    )
    with pytest.raises(DBAPIError, match="ended as success: a terminal status never changes"):
        sql("UPDATE job_executions SET status = 'running'")
    sql("UPDATE job_executions SET metadata = '{}'")


def test_a_fire_has_one_row_per_attempt(sql: Any) -> None:
    insert = """INSERT INTO job_executions
                    (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, attempt)
                VALUES ('11111111-0000-0000-0000-000000000001', 'job', 'x.example', gen_random_uuid(), 'claimed',
                        '2027-01-01', %s)"""
    sql(insert, 1)
    sql(insert, 2)
    with pytest.raises(DBAPIError) as refused:
        sql(insert, 2)
    assert isinstance(refused.value.orig, psycopg2.errors.UniqueViolation)
