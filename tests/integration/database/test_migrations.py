"""The schema: made by migrations, equal to the models, safe to run twice, adopting what was there before."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

import run_migrations
from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from database.late_indexes import late_indexes
from database.models import Base
from run_migrations import downgrade, schema_state, upgrade
from services.errors import SchedulerError
from services.schedule_repository import ScheduleRepository
from tests.support.waiting import eventually

REVISIONS = sorted(path.name[:4] for path in (PROJECT_ROOT / "migrations/versions").glob("[0-9]*.py"))

# The tables of the first scheduler, as its own documentation defines them.
FIRST_TABLES = """
CREATE TABLE scan_profiles (profile_id UUID PRIMARY KEY);
CREATE TABLE schedules (
    schedule_id UUID PRIMARY KEY,
    domain_config_id UUID NOT NULL,
    domain VARCHAR(255) NOT NULL,
    profile_id UUID REFERENCES scan_profiles(profile_id),
    frequency VARCHAR(50) NOT NULL,
    time_config JSONB NOT NULL,
    enabled BOOLEAN DEFAULT TRUE,
    next_run TIMESTAMP,
    last_run TIMESTAMP,
    last_status VARCHAR(50),
    created_at TIMESTAMP DEFAULT NOW(),
    updated_at TIMESTAMP DEFAULT NOW()
);
CREATE TABLE job_executions (
    execution_id UUID PRIMARY KEY,
    schedule_id UUID REFERENCES schedules(schedule_id),
    job_id VARCHAR(255) NOT NULL,
    domain VARCHAR(255) NOT NULL,
    domain_config_id UUID NOT NULL,
    status VARCHAR(50) NOT NULL,
    started_at TIMESTAMP NOT NULL,
    completed_at TIMESTAMP,
    duration_seconds FLOAT,
    scan_id UUID,
    error_message TEXT,
    error_details JSONB,
    metadata JSONB,
    created_at TIMESTAMP DEFAULT NOW()
);
"""

FIRST_ROWS = """
INSERT INTO scan_profiles VALUES ('aaaaaaaa-0000-0000-0000-000000000001');
INSERT INTO schedules (schedule_id, domain_config_id, domain, profile_id, frequency, time_config, enabled, next_run)
VALUES
    ('11111111-0000-0000-0000-000000000001', '22222222-0000-0000-0000-000000000001', 'one.example',
     'aaaaaaaa-0000-0000-0000-000000000001', 'daily', '{"hour": 2, "minute": 0}', TRUE, '2026-01-01 02:00'),
    ('11111111-0000-0000-0000-000000000002', '22222222-0000-0000-0000-000000000002', 'two.example',
     NULL, 'interval', '{"minutes": -5}', TRUE, NULL),
    ('11111111-0000-0000-0000-000000000003', '22222222-0000-0000-0000-000000000003', 'three.example',
     NULL, 'daily', '[1]', NULL, NULL);
INSERT INTO job_executions (execution_id, schedule_id, job_id, domain, domain_config_id, status, started_at) VALUES
    ('33333333-0000-0000-0000-000000000001', '11111111-0000-0000-0000-000000000001', 'job', 'one.example',
     '22222222-0000-0000-0000-000000000001', 'completed', '2026-01-01 02:00'),
    ('33333333-0000-0000-0000-000000000002', '11111111-0000-0000-0000-000000000001', 'job', 'one.example',
     '22222222-0000-0000-0000-000000000001', 'running', '2026-01-01 02:00'),
    ('33333333-0000-0000-0000-000000000003', NULL, 'job', 'gone.example',
     '22222222-0000-0000-0000-000000000009', 'failed', '2026-01-01 03:00');
"""

CATALOG = {
    "columns": """
        SELECT table_name, column_name, data_type, udt_name, character_maximum_length, is_nullable, is_identity,
               column_default
        FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0
          AND conrelid::regclass::text <> 'alembic_version'""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    " AND tablename <> 'alembic_version'",
    "sequences": "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'",
}


def catalog(db: DatabaseConnection) -> dict[str, set[tuple[Any, ...]]]:
    with db.transaction() as connection:
        return {what: {tuple(row) for row in connection.execute(text(sql))} for what, sql in CATALOG.items()}


def run_sql(db: DatabaseConnection, sql: str) -> list[Any]:
    with db.transaction() as connection:
        result = connection.execute(text(sql.replace(":", r"\:")))
        return list(result) if result.returns_rows else []


@pytest.fixture
def empty_db(empty_database_url: str) -> DatabaseConnection:
    return DatabaseConnection(empty_database_url)


@pytest.fixture
def first_db(empty_db: DatabaseConnection) -> DatabaseConnection:
    """A database of the first scheduler, with rows, some of them odd."""
    run_sql(empty_db, FIRST_TABLES)
    run_sql(empty_db, FIRST_ROWS)
    return empty_db


def test_the_migrated_schema_equals_the_models(
    db: DatabaseConnection, new_database: Callable[[str | None], str]
) -> None:
    from_models = DatabaseConnection(new_database(None))
    Base.metadata.create_all(from_models.engine)
    expected, migrated = catalog(from_models), catalog(db)
    for what in CATALOG:
        assert migrated[what] == expected[what], what


def test_a_second_run_finds_nothing_to_do(db: DatabaseConnection) -> None:
    before = catalog(db)
    assert upgrade(db) == []
    assert catalog(db) == before


def test_two_runs_at_once_apply_each_revision_once(empty_database_url: str) -> None:
    def run(_: int) -> list[str]:
        return upgrade(DatabaseConnection(empty_database_url))

    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(run, range(4)))
    assert sorted(len(lines) for lines in applied) == [0, 0, 0, len(REVISIONS)]


def test_a_session_that_reads_a_table_delays_the_upgrade_and_not_the_replicas(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_migrations, "PAUSE_SECONDS", 0.1)
    downgrade(db, "-1")
    downgrade(db, "0027")
    with ThreadPoolExecutor(1) as threads:
        with db.transaction() as reader:
            reader.exec_driver_sql("SELECT count(*) FROM job_executions")
            upgraded = threads.submit(upgrade, db)
            eventually(lambda: run_sql(db, "SELECT FROM pg_locks WHERE NOT granted"))
            run_sql(db, "INSERT INTO job_executions (job_id, domain, domain_config_id, status) "
                        "VALUES ('j', 'd', gen_random_uuid(), 'success') RETURNING 1")  # fmt: skip
            assert not upgraded.done()
        assert upgraded.result()[0].startswith("applied 0028")


def test_an_upgrade_gives_up_when_a_table_is_held_for_too_long(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_migrations, "PATIENCE_SECONDS", 0.0)
    downgrade(db, "0027")
    with db.transaction() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM job_executions")
        with pytest.raises(SchedulerError, match="nothing was changed; run it again"):
            upgrade(db)
    assert schema_state(db).current == "0027"


def test_a_failing_revision_leaves_nothing_half_done(empty_db: DatabaseConnection) -> None:
    run_sql(empty_db, "CREATE TABLE schedules (id int)")
    with pytest.raises(Exception, match=r"not the scheduler's: .*schedules.schedule_id"):
        upgrade(empty_db)
    assert run_sql(empty_db, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("schedules",)]


def test_an_existing_database_is_adopted_with_all_its_rows(first_db: DatabaseConnection) -> None:
    upgrade(first_db)
    schedules = run_sql(
        first_db, "SELECT domain, enabled, next_run, last_status, time_config FROM schedules ORDER BY 1"
    )
    assert [tuple(row) for row in schedules] == [
        ("one.example", True, datetime(2026, 1, 1, 2, tzinfo=UTC), None, {"hour": 2, "minute": 0}),
        ("three.example", False, None, "invalid", {"adopted": "[1]"}),
        ("two.example", False, None, "invalid", {"adopted": '{"minutes": -5}'}),
    ]
    executions = run_sql(
        first_db,
        """SELECT status, scheduled_for, attempt, reason, metadata->>'adopted_status'
           FROM job_executions ORDER BY execution_id""",
    )
    two, three = datetime(2026, 1, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, 3, tzinfo=UTC)
    assert [tuple(row) for row in executions] == [
        ("success", two, 1, None, "completed"),
        ("abandoned", two, 2, "adopted with status running", "running"),
        ("failed", three, 1, None, None),
    ]


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [
        ("SUCCESS", "success", None), ("Failed", "failed", None), ("CANCELLED", "cancelled", None),
        ("canceled", "cancelled", None), ("timeout", "timed_out", None), ("TimedOut", "timed_out", None),
        (" Done ", "success", None), ("paused", "abandoned", "adopted with status paused"),
    ],
)  # fmt: skip
def test_other_systems_words_for_an_end_are_understood(
    first_db: DatabaseConnection, word: str, status: str, reason: str | None
) -> None:
    run_sql(first_db, f"UPDATE job_executions SET status = '{word}'")
    upgrade(first_db)
    found = run_sql(first_db, "SELECT DISTINCT status, reason, metadata->>'adopted_status' FROM job_executions")
    assert [tuple(row) for row in found] == [(status, reason, word)]


UNREADABLE = {
    "a huge number": '{"hour": 1e5000}',
    "deep nesting": '{"hour": ' + "[" * 4000 + "]" * 4000 + "}",
    "no measure": '{"hour": "' + "x" * 600_000 + '"}',
}


@pytest.mark.parametrize("config", UNREADABLE.values(), ids=UNREADABLE)
def test_an_adopted_row_that_no_program_could_read_is_parked(first_db: DatabaseConnection, config: str) -> None:
    odd = "next_run = 'infinity', created_at = '0044-03-15 BC'"
    run_sql(first_db, f"UPDATE schedules SET time_config = '{config}', {odd}")
    upgrade(first_db)
    records = ScheduleRepository(first_db).get_all_schedules()
    assert [(record.enabled, record.last_status, record.next_run) for record in records] == [
        (False, "invalid", None)
    ] * 3
    assert all((record.invalid_reason or "").startswith('time_config: was {"hour"') for record in records)


def test_going_back_keeps_what_was_there_before_the_adoption(first_db: DatabaseConnection) -> None:
    run_sql(first_db, "ALTER TABLE scan_profiles ADD name varchar(255), ADD config jsonb NOT NULL DEFAULT '{}'")
    run_sql(first_db, "UPDATE scan_profiles SET name = 'thorough', config = '{\"depth\": 3}'")
    before = run_sql(first_db, "SELECT schedule_id, time_config FROM schedules ORDER BY 1")
    upgrade(first_db)
    run_sql(first_db, "UPDATE schedules SET priority = 1")
    downgrade(first_db, "0001")
    assert run_sql(first_db, "SELECT schedule_id, time_config FROM schedules ORDER BY 1") == before
    assert run_sql(first_db, "SELECT name, config FROM scan_profiles") == [("thorough", {"depth": 3})]
    upgrade(first_db)


def test_an_adopted_database_ends_with_the_same_schema(db: DatabaseConnection, first_db: DatabaseConnection) -> None:
    upgrade(first_db)
    assert catalog(first_db) == catalog(db)


def test_down_and_up_again_keeps_the_rows(first_db: DatabaseConnection) -> None:
    upgrade(first_db)
    downgrade(first_db, "0001")
    run_sql(first_db, "DELETE FROM job_executions WHERE schedule_id IS NULL")
    assert run_sql(first_db, "SELECT started_at FROM job_executions LIMIT 1")[0][0] == datetime(2026, 1, 1, 2)  # noqa: DTZ001
    upgrade(first_db)
    assert run_sql(first_db, "SELECT count(*) FROM schedules")[0][0] == 3
    assert run_sql(first_db, "SELECT count(DISTINCT revision) FROM schedules")[0][0] == 3
    assert run_sql(first_db, "SELECT count(*) FROM job_executions")[0][0] == 2


def test_history_of_deleted_schedules_survives_down_and_up(first_db: DatabaseConnection) -> None:
    upgrade(first_db)
    run_sql(first_db, "DELETE FROM schedules")
    downgrade(first_db, "0001")
    upgrade(first_db)
    assert run_sql(first_db, "SELECT count(*) FROM job_executions WHERE schedule_id IS NOT NULL")[0][0] == 2


def test_a_schedule_is_watched_as_before_once_notes_are_gone_again(empty_db: DatabaseConnection) -> None:
    definitions = "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'schedules'::regclass ORDER BY tgname"
    upgrade(empty_db, "0012")
    before = run_sql(empty_db, definitions)
    upgrade(empty_db, "0013")
    columns = "domain_config_id, domain, frequency, time_config"
    run_sql(empty_db, f"INSERT INTO schedules ({columns}) VALUES (gen_random_uuid(), 'one.example', 'daily', '{{}}')")
    run_sql(empty_db, "UPDATE schedules SET enabled = false, disabled_note = 'moving house'")
    downgrade(empty_db, "0012")
    assert run_sql(empty_db, definitions) == before
    run_sql(empty_db, "UPDATE schedules SET enabled = true")
    assert run_sql(empty_db, "SELECT count(*) FROM schedule_changes WHERE operation = 'update'") == [(2,)]
    upgrade(empty_db)


def test_the_tables_themselves_are_never_dropped(first_db: DatabaseConnection) -> None:
    upgrade(first_db)
    with pytest.raises(Exception, match="never dropped by a migration"):
        downgrade(first_db, "base")
    assert schema_state(first_db).current == REVISIONS[-1]


def test_an_insert_that_names_only_the_first_columns_works(db: DatabaseConnection) -> None:
    run_sql(
        db, FIRST_ROWS.split("INSERT INTO job_executions")[0].split(",\n    ('11111111-0000-0000-0000-000000000002'")[0]
    )
    run_sql(
        db,
        """INSERT INTO job_executions (execution_id, job_id, domain, domain_config_id, status, started_at)
           VALUES (gen_random_uuid(), 'job', 'one.example', gen_random_uuid(), 'running', now())""",
    )
    assert run_sql(db, "SELECT timezone, job_type, source FROM schedules") == [("UTC", "cookie_scan", "manual")]
    assert run_sql(db, "SELECT attempt, cause FROM job_executions") == [(1, "schedule")]


def command(*arguments: str, url: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "run_migrations.py", *arguments],
        cwd=PROJECT_ROOT,
        env={"DATABASE_URL": url, "ENV_FILE": "", "PATH": "", "HOME": "/nonexistent"},
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
    )


def queue_schedules(db: DatabaseConnection) -> dict[str, Any]:
    return dict(run_sql(db, "SELECT name, job_config FROM schedules WHERE job_type = 'workflow'"))


@pytest.fixture
def tuned_db(empty_db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch) -> DatabaseConnection:
    """Of version 0.1, whose operator has tuned two queues by variables, and has edited one of their schedules."""
    upgrade(empty_db, "0017")
    run_sql(empty_db, QUEUE_SCHEDULES)
    run_sql(empty_db, "UPDATE schedules SET max_instances = 2 WHERE name = 'page'")
    for name, value in TUNED.items():
        monkeypatch.setenv(name, value)
    return empty_db


TUNED = {
    "DEEP_SCAN_SCHEDULER_CONCURRENCY": "9",
    "DEEP_SCAN_SCHEDULER_ITEM_TIMEOUT_SECONDS": "0.5",
    "PAGE_CURATION_SCHEDULER_RUN_BUDGET_SECONDS": "600",
    "PAGE_CURATION_SCHEDULER_MAX_ATTEMPTS": "many",
}
QUEUE_SCHEDULES = """
SELECT set_config('scheduler.actor', 'system:workflows', true);
INSERT INTO schedules (schedule_id, domain_config_id, domain, name, job_type, job_config, frequency, time_config)
SELECT gen_random_uuid(), gen_random_uuid(), 'x', name, type, config::jsonb, 'interval', '{"minutes": 1}'
FROM (VALUES ('deep', 'workflow', '{"queue": "deep_scan"}'), ('page', 'workflow', '{"queue": "page_curation"}'),
             ('untuned', 'workflow', '{"queue": "sitemap_jobs"}'), ('other', 'http_request', '{"queue": "deep_scan"}')
     ) AS v (name, type, config)
"""
CARRIED: dict[str, dict[str, Any]] = {
    "deep": {"queue": "deep_scan", "concurrency": 9, "item_timeout_seconds": 0.5},
    "page": {"queue": "page_curation", "run_budget_seconds": 600},
    "untuned": {"queue": "sitemap_jobs"},
}
LAST_ACTORS = """SELECT DISTINCT ON (s.name) s.name, c.changed_by FROM schedules AS s
                 JOIN schedule_changes AS c USING (schedule_id) ORDER BY s.name, c.change_id DESC"""


def test_what_was_tuned_in_the_environment_is_carried_into_the_schedules(tuned_db: DatabaseConnection) -> None:
    upgrade(tuned_db, "0018")
    assert queue_schedules(tuned_db) == CARRIED
    assert dict(run_sql(tuned_db, LAST_ACTORS)) == {
        "deep": "system:workflows",
        "page": "system:upgrade",  # an operator had edited it
        "untuned": "system:workflows",
        "other": "system:workflows",
    }


def test_a_schedule_s_own_number_wins_over_the_environment(tuned_db: DatabaseConnection) -> None:
    run_sql(
        tuned_db, """UPDATE schedules SET job_config = '{"queue": "deep_scan", "concurrency": 2}' WHERE name = 'deep'"""
    )
    upgrade(tuned_db, "0018")
    assert queue_schedules(tuned_db)["deep"] == {**CARRIED["deep"], "concurrency": 2}


def test_nothing_is_carried_over_under_a_live_replica_which_could_not_read_it(tuned_db: DatabaseConnection) -> None:
    run_sql(tuned_db, "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('old', gen_random_uuid())")
    upgrade(tuned_db, "0018")
    assert all(config.keys() == {"queue"} for config in queue_schedules(tuned_db).values())


def test_what_waits_for_a_limit_waits_like_everything_else_after_going_back(empty_db: DatabaseConnection) -> None:
    """An older program never looks at rows with a reason."""
    upgrade(empty_db)
    run_sql(
        empty_db,
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, status, reason)
           SELECT gen_random_uuid(), 'job', 'x', gen_random_uuid(), now(), v.status, v.reason
           FROM (VALUES ('pending', 'limit:customer'), ('missed', 'limit')) AS v (status, reason)""",
    )
    downgrade(empty_db, "0023")
    assert set(run_sql(empty_db, "SELECT status, reason FROM job_executions")) == {
        ("pending", None),
        ("missed", "limit"),
    }


def test_older_programs_can_read_the_schedules_again_after_going_back(tuned_db: DatabaseConnection) -> None:
    upgrade(tuned_db, "0018")
    downgrade(tuned_db, "0017")
    assert all(config.keys() == {"queue"} for config in queue_schedules(tuned_db).values())
    upgrade(tuned_db, "0018")
    assert queue_schedules(tuned_db) == CARRIED


def test_the_command_needs_only_the_database_and_says_what_it_did(empty_database_url: str) -> None:
    assert command("--status", url=empty_database_url).returncode == 1
    first = command(url=empty_database_url)
    assert (first.returncode, first.stderr) == (0, "")
    assert [line.split(":")[0] for line in first.stdout.splitlines()] == [
        *(f"applied {revision}" for revision in REVISIONS),
        f"the database schema is at revision {REVISIONS[-1]}",
    ]
    assert (
        command(url=empty_database_url).stdout == f"the database schema is at revision {REVISIONS[-1]}, nothing to do\n"
    )
    assert command("--status", url=empty_database_url).stdout == f"applied: {REVISIONS[-1]}   newest: {REVISIONS[-1]}\n"


def test_the_command_says_what_became_of_the_rows_of_an_earlier_scheduler(
    first_db: DatabaseConnection, empty_database_url: str
) -> None:
    run_sql(
        first_db,
        """INSERT INTO schedules (schedule_id, domain_config_id, domain, frequency, time_config)
           VALUES (gen_random_uuid(), gen_random_uuid(), 'four.example', 'fortnightly', '{}')""",
    )
    result = command(url=empty_database_url)
    assert result.returncode == 0, result.stderr
    said = result.stdout.splitlines()[len(REVISIONS) :]
    assert said[0] == "adopted 4 schedules and 3 executions"
    assert said[1] == "  parked: 3 schedules with an invalid timing; nothing was deleted"
    assert said[2].startswith("    four.example: frequency: ")
    assert said[5:] == [
        "    list them: python manage.py schedule list --status invalid",
        "  disabled: 1 schedule whose `enabled` was empty",
        "    list them: python manage.py schedule list --disabled",
        "  translated: 2 executions with a status unknown to this scheduler, 1 to abandoned (no end recorded)",
        "    list them: python manage.py executions --status abandoned",
        "times without a time zone were read as UTC; check the fires: python manage.py schedule list --sort next_run",
        *(f"built index {name}" for name in late_indexes()),  # the tables have rows
        "analyzed job_executions",
        "analyzed schedules",
        f"the database schema is at revision {REVISIONS[-1]}",
    ]
    parked = run_sql(first_db, "SELECT domain FROM schedules WHERE last_status = 'invalid' ORDER BY 1")
    assert [row.domain for row in parked] == ["four.example", "three.example", "two.example"]


def test_going_back_asks_first(database_url: str) -> None:
    refused = command("--down", "-1", url=database_url, answer="n\n")
    assert refused.returncode == 1
    assert schema_state(DatabaseConnection(database_url)).current == REVISIONS[-1]
    agreed = command("--down", "-1", url=database_url, answer="y\n")
    assert f"the database schema is at revision {REVISIONS[-2]}" in agreed.stdout


def test_sql_can_be_printed_and_applied_by_hand(
    empty_db: DatabaseConnection, db: DatabaseConnection, empty_database_url: str
) -> None:
    sql = command("--sql", url=empty_database_url).stdout
    with empty_db.engine.connect() as connection:
        connection.connection.cursor().execute(sql)
        connection.connection.commit()
    assert catalog(empty_db) == catalog(db)


def test_the_sql_of_going_back_can_be_printed_and_applied_by_hand(db: DatabaseConnection, database_url: str) -> None:
    sql = command("--down", "-1", "--sql", url=database_url).stdout
    assert schema_state(db).current == REVISIONS[-1]
    with db.engine.connect() as connection:
        connection.connection.cursor().execute(sql)
        connection.connection.commit()
    assert schema_state(db).current == REVISIONS[-2]
    upgrade(db)


def test_an_unknown_revision_is_one_clear_line(database_url: str) -> None:
    result = command("--to", "0815", url=database_url)
    assert (result.returncode, result.stderr) == (1, "Can't locate revision identified by '0815'\n")


def test_a_dead_server_is_one_clear_line(database_url: str) -> None:
    result = command(url="postgresql://user:secret@127.0.0.1:1/nothing")
    assert result.returncode == 1
    assert result.stderr.startswith("Postgres at user:***@127.0.0.1:1/nothing does not answer: ")
    assert "secret" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
