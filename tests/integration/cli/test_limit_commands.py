"""`manage.py limit …` and `schedule … --limit-key`, as people type them."""

import json
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from database.connection import DatabaseConnection
from services.engine.housekeeping import Housekeeping
from services.insight.limits import LimitUses
from services.schedule_repository import ScheduleRepository
from tests.integration.cli.test_command_line import Cli, add
from tests.integration.cli.test_command_line import cli as cli


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_limit_is_added_listed_changed_and_deleted(cli: Cli, db: DatabaseConnection) -> None:
    add(cli, "--name", "first", "--limit-key", "customer:42")
    add(cli, "--name", "second", "--limit-key", "customer:42", "--limit-key", "site:a")
    told = cli("limit", "add", "customer:42", "--max", "2", "--note", "small server").stdout
    assert told == "added customer:42: at most 2 at once\nit applies to 2 schedules now\n"
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, limit_keys,
                                           due_at)
               VALUES (gen_random_uuid(), 'scan', 'a', gen_random_uuid(), 'running', NULL, '{customer:42}', now()),
                      (gen_random_uuid(), 'scan', 'b', gen_random_uuid(), 'pending', 'limit:customer:42', '{}',
                       now() - interval '2 hours')"""
        )
    (row,) = json.loads(cli("limit", "list", "--json").stdout)["items"]
    assert (row["max_running"], row["running"], row["waiting"], row["schedules"]) == (2, 1, 1, 2)
    assert row["oldest_wait_seconds"] >= 7200
    listed = words(cli("limit", "list").stdout)
    assert "limit max running waiting oldest wait schedules note" in listed
    assert "customer:42 2 1 1 2 h" in listed
    assert cli("limit", "edit", "customer:42", "--max", "0", "--note", "").stdout == (
        "max_running: 2 -> 0\nnote: small server -> None\n"
    )
    shown = words(cli("limit", "show", "customer:42").stdout)
    assert "stopped: nothing starts" in shown
    assert "max_running: 2 -> 0" in shown
    assert cli("limit", "delete", "customer:42", "--yes").exit_code == 0
    assert cli("limit", "show", "customer:42").exit_code == 1


def test_a_dry_run_of_a_deletion_says_how_many_schedules_it_frees(cli: Cli) -> None:
    add(cli, "--limit-key", "customer:42")
    for name in ("customer:42", "customer:*"):
        cli("limit", "add", name, "--max", "3")
    told = cli("limit", "delete", "customer:42", "--dry-run")
    assert told.stderr == ""
    assert told.stdout == "1 schedule would be limited by customer:* instead\n"
    answer = json.loads(cli("limit", "delete", "customer:*", "--dry-run", "--json").stdout)
    assert (answer["deleted"], answer["schedules"], answer["then"]) == (False, 0, None)
    assert len(json.loads(cli("limit", "list", "--json").stdout)["items"]) == 2
    assert (
        "1 schedule would be limited by customer:* instead" in cli("limit", "delete", "customer:42", answer="n").stderr
    )
    assert len(json.loads(cli("limit", "list", "--json").stdout)["items"]) == 2


def test_a_wrong_limit_is_refused_with_the_field_and_the_reason(cli: Cli) -> None:
    refused = cli("limit", "add", "two words", "--max", "-1")
    assert refused.exit_code == 2
    assert "name: must be 1 to 200 printable characters" in words(refused.stderr)
    assert "max_running: must be between 0 and 100000, got -1" in words(refused.stderr)
    assert "give at least one field" in cli("limit", "edit", "customer:42").stderr


def test_the_limit_keys_of_a_schedule_are_set_replaced_and_removed(cli: Cli) -> None:
    record = add(cli, "--name", "nightly", "--limit-key", "site:a", "--limit-key", "customer:42")
    assert record["limit_keys"] == ["customer:42", "site:a"]
    assert "customer:42, site:a" in cli("schedule", "show", "nightly").stdout
    cli("schedule", "edit", "nightly", "--limit-key", "customer:7")
    assert keys_of(cli) == ["customer:7"]
    cli("schedule", "edit", "nightly", "--tag", "other")
    assert keys_of(cli) == ["customer:7"]
    cli("schedule", "edit", "nightly", "--limit-key", "")
    assert keys_of(cli) == []
    assert "limit_keys: must be 1 to 200" in words(cli("schedule", "edit", "nightly", "--limit-key", "a b").stderr)


def keys_of(cli: Cli) -> Any:
    return json.loads(cli("schedule", "show", "nightly", "--json").stdout)["schedule"]["limit_keys"]


def test_an_export_carries_the_limit_keys_and_an_import_reads_them(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path
) -> None:
    add(cli, "--name", "nightly", "--limit-key", "customer:42")
    file = tmp_path / "schedules.yaml"
    cli("schedule", "export", str(file))
    cli("schedule", "edit", "nightly", "--limit-key", "")
    cli("schedule", "import", str(file))
    assert repository.find_schedule("nightly").limit_keys == ["customer:42"]


def test_the_doctor_names_limits_that_stop_and_keys_that_wait_for_an_hour(cli: Cli, db: DatabaseConnection) -> None:
    cli("limit", "add", "customer:42", "--max", "0")
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, due_at)
               VALUES (gen_random_uuid(), 'scan', 'b', gen_random_uuid(), 'pending', 'limit:customer:42',
                       now() - interval '3 hours')"""
        )
    told = words(cli("doctor").stdout)
    assert "warn limits customer:42 lets nothing start (max_running 0)" in told
    assert "warn limits 1 execution has waited too long for limit customer:42 (max_running 0): the first" in told


def test_what_runs_and_waits_under_a_limit_is_a_metric(cli: Cli, db: DatabaseConnection) -> None:
    cli("limit", "add", "customer:*", "--max", "1")
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, limit_keys,
                                           due_at)
               SELECT gen_random_uuid(), 'scan', 'b', gen_random_uuid(), 'pending', 'limit:customer:' || n, '{}',
                      now() - make_interval(hours => n) FROM generate_series(1, 3) AS n"""
        )
    Housekeeping(db, 90, 86_400, {}, limits=LimitUses(db).figures).count_history()
    lines = [line for line in generate_latest().decode().splitlines() if line.startswith("scheduler_limit_")]
    told = {line.partition(" ")[0]: float(line.partition(" ")[2]) for line in lines}
    assert told['scheduler_limit_waiting{limit="customer:*"}'] == 3
    assert told['scheduler_limit_running{limit="customer:*"}'] == 0
    assert told['scheduler_limit_oldest_seconds{limit="customer:*"}'] >= 3 * 3600
    assert len(lines) == 3
