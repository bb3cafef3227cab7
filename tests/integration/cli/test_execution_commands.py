"""The commands about executions as their users meet them: lists, runs on request, the audit, the clean-up."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

import manage
from database.connection import DatabaseConnection
from services.cli import executions as commands
from services.cli.durations import parse_duration
from services.cli.log_lines import AttemptLogs
from services.errors import InvalidInput
from services.job_history import JobHistory, get_job_history
from services.ledger.listing import ExecutionFilter
from services.ledger.logs import LogStore
from services.schedule_repository import ScheduleRepository
from tests.support.logs import a_row, say
from tests.support.schedules import VALID
from tests.support.waiting import eventually

Cli = Callable[..., Result]
NOW = datetime.now(UTC)


@pytest.fixture
def cli(own_process: dict[str, str]) -> Iterator[Cli]:
    get_job_history.cache_clear()

    def run(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(manage.app, list(arguments), input=answer)

    yield run
    get_job_history.cache_clear()


@pytest.fixture
def schedule_id(repository: ScheduleRepository) -> UUID:
    return repository.create_schedule(**{**VALID, "name": "nightly"})


def add(db: DatabaseConnection, schedule_id: UUID, status: str = "success", age_seconds: float = 60) -> UUID:
    with db.transaction() as connection:
        execution_id: UUID = connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for,
                   created_at, duration_seconds, incarnation, instance_id, error_message)
               VALUES (%(id)s, 'nightly', 'example.com', %(id)s, %(status)s, %(at)s, %(at)s, 1.5, gen_random_uuid(),
                   'replica-1', CASE WHEN %(status)s = 'failed' THEN 'boom [red]' END)
               RETURNING execution_id""",
            {"id": schedule_id, "status": status, "at": datetime.now(UTC) - timedelta(seconds=age_seconds)},
        ).scalar_one()
    return execution_id


def run_sql(db: DatabaseConnection, sql: str, *values: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(sql, values)


# --- durations ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("30m", 1800),
        ("24h", 86_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1h30m", 5400),
        (" 1H 5 m", 3900),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "24", "h", "-1h", "1.5h", "1y", "1h!", "٣"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(text)
    assert str(refused.value) == f"since: cannot read {text!r}; examples: 30m, 24h, 7d, 1h30m"


@pytest.mark.parametrize("text", ["0h", "999999999d", "999999999w"])
def test_a_duration_has_limits(text: str) -> None:
    with pytest.raises(InvalidInput, match="since: must be between 1s and 36500d"):
        parse_duration(text)


# --- lists ---


def test_executions_are_listed_newest_first(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    old, new = add(db, schedule_id, age_seconds=120), add(db, schedule_id, "failed", age_seconds=60)
    result = cli("executions")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(new)[:8], str(old)[:8]]
    assert "boom [red]" in lines[1]


def test_an_execution_of_a_schedule_without_a_name_is_listed_by_what_it_is_about(
    cli: Cli, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    add(db, repository.create_schedule(**VALID))
    run_sql(db, "UPDATE job_executions SET job_id = schedule_id::text, domain = 'shop.example'")
    assert cli("executions").stdout.splitlines()[1].split()[1] == "shop.example"


def test_executions_are_narrowed_to_a_tag_or_a_job_type_of_their_schedules(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID
) -> None:
    run_sql(db, "UPDATE schedules SET tags = '{billing}'")
    shown = str(add(db, schedule_id))[:8]
    assert shown in cli("executions", "--tag", "billing").stdout
    for wrong in (("--tag", "shop"), ("--job-type", "another")):
        assert "no execution matches" in cli("executions", *wrong).stdout


def test_a_list_is_narrowed_and_paged(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    add(db, schedule_id, "failed", age_seconds=7200)
    failed = [add(db, schedule_id, "failed", age_seconds=n) for n in (10, 20, 30)]
    add(db, uuid4(), "failed", age_seconds=5)
    add(db, schedule_id, "success", age_seconds=5)
    narrowed = ["executions", "--schedule", "nightly", "--status", "failed", "--since", "1h", "--limit", "2", "--json"]
    first = json.loads(cli(*narrowed).stdout)
    second = json.loads(cli(*narrowed, "--cursor", first["next_cursor"]).stdout)
    assert [item["execution_id"] for item in first["items"] + second["items"]] == [str(found) for found in failed]
    assert second["next_cursor"] is None
    assert "next page: --cursor " in cli("executions", "--limit", "1").stdout


def test_executions_of_a_deleted_schedule_are_found_by_its_id(
    cli: Cli, db: DatabaseConnection, repository: ScheduleRepository, schedule_id: UUID
) -> None:
    add(db, schedule_id)
    repository.delete_schedule(schedule_id)
    assert len(json.loads(cli("executions", "--schedule", str(schedule_id), "--json").stdout)["items"]) == 1
    assert cli("executions", "--schedule", "nightly").stderr == "there is no schedule nightly\n"


def test_an_empty_list_says_so(cli: Cli) -> None:
    assert cli("executions").stdout == "no execution matches\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["executions", "--since", "soon"], "since: cannot read 'soon'; examples: 30m, 24h, 7d, 1h30m"),
        (["executions", "--status", "fine"], "status: must be one of pending, claimed"),
        (["executions", "--limit", "0"], "limit: must be between 1 and 1000, got 0"),
        (["execution", "abc"], "execution: must be an id, or at least 8 characters of it, got 'abc'"),
        (["cancel", "00000000"], "execution: there is no execution 00000000"),
        (["stats", "--days", "0"], "days: must be between 1 and 36500, got 0"),
        (["audit", "--since", "1y"], "since: cannot read '1y'"),
        (["audit", "--since", "91d"], "since: history is kept for 90 days (HISTORY_RETENTION_DAYS)"),
        (["cleanup", "--days", "1"], "days: must be longer than FENCE_HORIZON_SECONDS=86400, got 1"),
        (["schedule", "run", "nightly", "--timeout", "x"], "timeout: cannot read 'x'"),
    ],
)
def test_a_command_that_makes_no_sense_says_why(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID, arguments: list[str], line: str
) -> None:
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(line)


@pytest.mark.parametrize("command", ["executions", "execution", "cancel", "stats", "audit", "cleanup", "schedule run"])
def test_every_command_explains_itself_with_an_example(cli: Cli, command: str) -> None:
    result = cli(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"manage.py {command}" in result.stdout
    assert "--json" in result.stdout


def test_one_execution_is_shown_whole(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    found = add(db, schedule_id, "failed")
    shown = cli("execution", str(found)[:8]).stdout
    assert str(found) in shown
    assert "boom [red]" in shown
    assert json.loads(cli("execution", str(found), "--json").stdout)["duration_seconds"] == 1.5


def test_an_overlap_with_an_execution_of_a_replica_that_is_gone_says_so(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID
) -> None:
    skipped, gone = add(db, schedule_id, "skipped", 30), add(db, schedule_id, "abandoned", 60)
    run_sql(db, "UPDATE job_executions SET reason = 'overlap' WHERE execution_id = %s", skipped)
    run_sql(db, "UPDATE job_executions SET claimed_at = created_at, completed_at = now() WHERE execution_id = %s", gone)
    words = "overlap with an execution of a dead replica"
    assert words in cli("execution", str(skipped)).stdout
    assert json.loads(cli("executions", "--json").stdout)["items"][0]["note"] == words
    assert words in " ".join(cli("executions", "--status", "skipped").stdout.split())


def test_following_says_each_execution_when_it_appears_and_when_it_ends(
    db: DatabaseConnection, schedule_id: UUID
) -> None:
    history = JobHistory(db)
    long_running = add(db, schedule_id, "running", age_seconds=7200)
    shown = add(db, schedule_id)
    first_page = history.list_executions(limit=1).items
    assert [record.execution_id for record in first_page] == [shown]
    follower = commands.Follower(history, ExecutionFilter(), first_page)
    assert follower.news() == []
    fresh = add(db, schedule_id, "running", age_seconds=0)
    assert [(record.execution_id, record.status) for record in follower.news()] == [(fresh, "running")]
    run_sql(db, "UPDATE job_executions SET status = 'success', completed_at = now() WHERE status = 'running'")
    assert {record.execution_id for record in follower.news()} == {long_running, fresh}
    assert follower.news() == []


def test_following_can_be_narrowed_to_a_status(db: DatabaseConnection, schedule_id: UUID) -> None:
    follower = commands.Follower(JobHistory(db), ExecutionFilter(status="failed"), [])
    add(db, schedule_id, "success", age_seconds=0)
    failed = add(db, schedule_id, "failed", age_seconds=0.5)
    assert [record.execution_id for record in follower.news()] == [failed]


def test_follow_prints_lines_until_it_is_interrupted(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = add(db, schedule_id), list[UUID]()

    def between_two_looks(_: float) -> None:
        if later:
            raise KeyboardInterrupt
        later.append(add(db, schedule_id, age_seconds=0))

    monkeypatch.setattr("services.cli.executions.time", SimpleNamespace(sleep=between_two_looks))  # nobody else's
    result = cli("executions", "--follow", "--json")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["execution_id"] for line in lines] == [str(first), str(later[0])]


def test_follow_says_first_what_its_columns_are(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution_id = add(db, schedule_id)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("services.cli.executions.time", SimpleNamespace(sleep=interrupt))
    header, line = cli("executions", "--follow").stdout.splitlines()
    assert header.split("  ")[0].strip() == "id"
    assert line.startswith(str(execution_id)[:8])
    for column, cell in (("job", "nightly"), ("status", "success"), ("replica", "replica-1")):
        assert header.index(column) == line.index(cell)


def test_statistics_are_a_table_or_json(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    add(db, schedule_id)
    add(db, schedule_id, "abandoned", age_seconds=61)
    numbers = json.loads(cli("stats", "--json").stdout)
    assert list(numbers)[:4] == ["total_executions", "successful", "failed", "success_rate"]
    assert (numbers["total_executions"], numbers["failed"], numbers["success_rate"]) == (2, 1, 50.0)
    shown = cli("stats", "--days", "1").stdout
    assert "success rate" in shown
    assert "50 %" in shown
    assert "1.500 s" in shown


# --- a run on request ---


def test_a_requested_run_prints_its_id(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    result = cli("schedule", "run", "nightly")
    assert result.exit_code == 0
    record = JobHistory(db).get_execution(result.stdout.strip())
    assert record is not None
    assert (record.schedule_id, record.status, record.cause) == (schedule_id, "pending", "manual")
    assert str(record.details).startswith("{'requested_by': 'cli:")
    assert list(json.loads(cli("schedule", "run", "nightly", "--json").stdout)) == ["execution_id"]
    assert cli("schedule", "run", "nobody").stderr == "there is no schedule nobody\n"


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("failed", 1), ("cancelled", 1)])
def test_waiting_for_a_run_ends_with_its_verdict(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID, status: str, code: int
) -> None:
    def end() -> None:
        eventually(lambda: JobHistory(db).get_recent_executions())
        run_sql(db, "UPDATE job_executions SET status = %s, duration_seconds = 2", status)

    ender = threading.Thread(target=end)
    ender.start()
    result = cli("schedule", "run", "nightly", "--wait", "--timeout", "20s")
    ender.join()
    assert result.exit_code == code
    assert result.stdout.splitlines()[1] == f"{status} after 2.0 s"


def test_waiting_for_a_run_that_nobody_takes_ends_too(cli: Cli, schedule_id: UUID) -> None:
    result = cli("schedule", "run", "nightly", "--wait", "--timeout", "1s")
    assert result.exit_code == 1
    assert "still pending after 1s; is a replica running?" in result.stdout
    answer = json.loads(cli("schedule", "run", "nightly", "--wait", "--timeout", "1s", "--json").stdout)
    assert answer["status"] == "pending"


def test_waiting_for_a_run_tells_each_attempt_and_the_wait_before_the_next(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID
) -> None:
    def fail() -> None:
        eventually(lambda: JobHistory(db).get_recent_executions())
        run_sql(
            db,
            """UPDATE job_executions SET status = 'failed', duration_seconds = 2, error_message = 'boom [red]';
               INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, cause, attempt,
                   status, due_at)
               SELECT schedule_id, job_id, domain, domain_config_id, scheduled_for, cause, 2, 'pending',
                   now() + interval '59 minutes' FROM job_executions""",
        )

    replica = threading.Thread(target=fail)
    replica.start()
    result = cli("schedule", "run", "nightly", "--wait", "--timeout", "3s")
    replica.join()
    assert "attempt 1 failed after 2.0 s: boom [red]\nattempt 2 follows in 58 min" in result.stderr
    assert "still pending after 3s: attempt 2 is due in 58 min" in result.stdout


def test_who_asks_for_a_run_is_told_at_once_that_no_replica_is_alive(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID
) -> None:
    nobody = "no replica is live: the run waits for one (python services/enhanced_scheduler.py)\n"
    assert cli("schedule", "run", "nightly").stderr == nobody
    run_sql(db, "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('one', gen_random_uuid())")
    assert cli("schedule", "run", "nightly").stderr == ""


def test_cancelling_says_what_became_of_it(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    waiting = cli("schedule", "run", "nightly").stdout.strip()
    assert cli("cancel", waiting).stdout == f"cancelled {waiting}\n"
    again = cli("cancel", waiting)
    assert (again.exit_code, again.stdout) == (1, f"{waiting} has already ended: cancelled\n")
    running = add(db, schedule_id, "running")
    assert cli("cancel", str(running)[:8]).stdout == f"asked replica-1 to stop {running} (running)\n"
    answer = json.loads(cli("cancel", str(running), "--json").stdout)
    assert answer == {"execution_id": str(running), "requested": True, "status": "running"}


# --- the audit ---


@pytest.fixture
def every_hour(db: DatabaseConnection, repository: ScheduleRepository) -> UUID:
    """It has been valid for a day, and all of its fires ran."""
    schedule_id = repository.create_schedule(
        **{**VALID, "name": "every hour", "frequency": "interval", "time_config": {"hours": 1}}
    )
    run_sql(
        db,
        """SET LOCAL session_replication_role = replica;
           UPDATE schedules SET effective_from = now() - interval '1 day'""",
    )
    run_sql(
        db,
        """INSERT INTO job_executions
               (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, created_at, incarnation)
           SELECT schedule_id, name, domain, domain_config_id, 'success', at, at, gen_random_uuid() FROM schedules,
               generate_series(date_trunc('hour', now()) - interval '1 day', now(), interval '1 hour') AS at
           WHERE at > effective_from""",
    )
    run_sql(db, "INSERT INTO fires_watched (since, until) VALUES (now() - interval '1 day', now())")
    return schedule_id


def test_the_audit_of_a_whole_history_is_clean(cli: Cli, every_hour: UUID) -> None:
    result = cli("audit", "--since", "5h")
    assert result.exit_code == 0, result.output
    assert "expected 5 = accounted 5" in result.stdout or "on the edge 1" in result.stdout
    assert "unexplained 0" in result.stdout
    assert "all accounted for" in result.stdout


def test_the_audit_names_what_is_missing_and_fails(cli: Cli, db: DatabaseConnection, every_hour: UUID) -> None:
    missing = NOW.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    run_sql(db, "DELETE FROM job_executions WHERE scheduled_for = %s", missing)
    result = cli("audit")
    assert result.exit_code == 1
    assert f"  {missing:%Y-%m-%d %H:%M:%S} UTC   {str(every_hour)[:8]}   every hour" in result.stdout
    assert "NOT all accounted for" in result.stdout
    answer = json.loads(cli("audit", "--json").stdout)
    assert (answer["clean"], answer["unexplained"]["count"], answer["duplicates"]) == (False, 1, 0)
    assert answer["unexplained"]["first"][0]["schedule_id"] == str(every_hour)


def test_the_audit_says_that_nobody_has_run_since_and_fails(cli: Cli, db: DatabaseConnection, every_hour: UUID) -> None:
    run_sql(db, "DELETE FROM job_executions WHERE scheduled_for > now() - interval '150 minutes'")
    until = NOW - timedelta(minutes=150)
    run_sql(db, "UPDATE fires_watched SET until = %s", until)
    result = cli("audit", "--since", "5h")
    assert result.exit_code == 1
    assert "unexplained 0" in result.stdout
    assert "unwatched" in result.stdout
    assert f"to {until:%Y-%m-%d %H:%M:%S} UTC; the next one to start runs or records later fires" in result.stdout
    run_sql(db, "DELETE FROM fires_watched")
    assert "no replica has used this database yet: start one" in cli("audit", "--since", "5h").stdout


# --- the clean-up ---


def test_a_clean_up_asks_first_and_counts_on_request(cli: Cli, db: DatabaseConnection, schedule_id: UUID) -> None:
    for n in range(3):
        add(db, schedule_id, age_seconds=100 * 86_400 + n)
    add(db, schedule_id)
    counted = cli("cleanup", "--dry-run")
    expected = "3 executions, 0 schedule changes and 0 scans older than 90 days; nothing was deleted\n"
    assert (counted.exit_code, counted.stdout) == (0, expected)
    refused = cli("cleanup", answer="n\n")
    assert (refused.exit_code, len(JobHistory(db).get_executions_by_schedule(schedule_id))) == (1, 4)
    done = cli("cleanup", "--days", "30", "--yes", "--json")
    assert json.loads(done.stdout) == {"days": 30, "dry_run": False, "executions": 3, "changes": 0, "scans": 0}
    assert len(JobHistory(db).get_executions_by_schedule(schedule_id)) == 1
    assert "nothing was deleted" in cli("cleanup", "--yes").stdout


# --- logs ---


def test_waiting_for_a_run_shows_what_its_attempts_log(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID, log_store: LogStore
) -> None:
    def work() -> None:
        first = eventually(lambda: waiting_run(db, schedule_id))
        assert first is not None
        run_sql(
            db,
            "UPDATE job_executions SET status = 'running', started_at = clock_timestamp(), instance_id = 'r',"
            " fencing_token = 7 WHERE execution_id = %s",
            first,
        )
        say(log_store, first, "page 1 \x1b[31m", "page 2")
        time.sleep(0.6)  # it is shown while it runs: the row ends after that
        run_sql(
            db,
            """UPDATE job_executions SET status = 'success', completed_at = clock_timestamp(), duration_seconds = 1,
               metadata = '{"log": ["…"]}' WHERE execution_id = %s""",
            first,
        )
        time.sleep(0.6)
        say(log_store, first, "the last line", first=3, is_complete=True)

    replica = threading.Thread(target=work)
    replica.start()
    result = cli("schedule", "run", "nightly", "--wait", "--timeout", "20s")
    replica.join()
    assert result.exit_code == 0
    said = [line.split("  ", 2)[-1] for line in result.stderr.splitlines() if "page" in line or "last" in line]
    assert said == ["page 1 \\x1b[31m", "page 2", "the last line"]


def waiting_run(db: DatabaseConnection, schedule_id: UUID) -> UUID | None:
    with db.transaction() as connection:
        found = connection.exec_driver_sql(
            "SELECT execution_id FROM job_executions WHERE schedule_id = %s AND status = 'pending'", (schedule_id,)
        ).scalar_one_or_none()
        return found if isinstance(found, UUID) else None


def test_the_log_of_one_execution_is_printed_also_that_of_an_earlier_version(
    cli: Cli, db: DatabaseConnection, log_store: LogStore
) -> None:
    execution_id, before = a_row(db, "success"), a_row(db, "success", {"log": ["2026-01-01T00:00:00Z from before"]})
    say(log_store, execution_id, "one", "two", is_complete=True)
    printed = cli("execution", str(execution_id), "--log").stdout.splitlines()
    assert [line.split()[-1] for line in printed] == ["one", "two"]
    as_json = [json.loads(line) for line in cli("execution", str(execution_id), "--log", "--json").stdout.splitlines()]
    assert [(line["position"]["line"], line["text"]) for line in as_json] == [(1, "one"), (2, "two")]
    assert cli("execution", str(before), "--log").stdout == "2026-01-01T00:00:00Z from before\n"


def test_the_log_of_an_execution_that_has_not_started_says_what_it_waits_for(
    cli: Cli, db: DatabaseConnection, schedule_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, missed = add(db, schedule_id, "pending"), add(db, schedule_id, "missed", age_seconds=90)
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE job_executions SET reason = 'limit:customer:42' WHERE status = 'pending'")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("services.cli.log_lines.time", SimpleNamespace(sleep=interrupt))
    said = cli("execution", str(waits), "--log")
    assert "is pending (limit:customer:42): its log begins when it starts" in said.stderr
    assert said.stdout == ""
    assert "is missed: it never started, so it has no log" in cli("execution", str(missed), "--log").stderr


def test_following_shows_what_running_executions_say_from_now_on(db: DatabaseConnection, log_store: LogStore) -> None:
    logs = AttemptLogs(JobHistory(db).logs)
    history = JobHistory(db)
    old, new = a_row(db, "running"), a_row(db, "running")
    say(log_store, old, "long ago")
    records = [record for each in (old, new) if (record := history.get_execution(each))]
    logs.skip(records)
    say(log_store, old, "now", first=2)
    say(log_store, new, "begun")
    assert sorted(line.text for line in logs.news(records)) == ["begun", "now"]
    say(log_store, new, "after its end", first=2)
    assert [line.text for line in logs.news()] == ["after its end"]
    for _ in range(5):
        assert logs.news(records[:1]) == []
    assert list(logs._seen) == [old]


@pytest.fixture
def log_store(db: DatabaseConnection) -> Iterator[LogStore]:
    with closing(LogStore(db)) as store:
        yield store
