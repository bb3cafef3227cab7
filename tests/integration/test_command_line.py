"""manage.py as its users meet it: clear answers, JSON on request, nothing written for bad input."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import manage
from config import PROJECT_ROOT
from services.schedule_repository import ScheduleRepository
from tests.schedules import BAD_INPUT, TAKEN, VALID, many

Cli = Callable[..., Result]


@pytest.fixture
def cli(own_process: dict[str, str]) -> Cli:
    def run(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(manage.app, list(arguments), input=answer)

    return run


def add(cli: Cli, *more: str, domain: str = "example.com", when: str = "daily 02:00") -> dict[str, Any]:
    result = cli("schedule", "add", domain, "--when", when, "--json", *more)
    assert result.exit_code == 0, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    return record


# --- bad input ---


def as_arguments(definition: dict[str, Any]) -> list[str]:
    arguments = [definition["domain"], "--frequency", str(definition["frequency"])]
    arguments += ["--time-config", json.dumps(definition["time_config"])]
    for name, value in definition.items():
        if name not in VALID:
            arguments += ["--set", f"{name}={json.dumps(value)}"]
    return arguments


# A command line carries text only: a frequency that is a number cannot be given there.
FOR_THE_COMMAND_LINE = [case for case in BAD_INPUT if case[0].get("frequency") != 7]


@pytest.mark.parametrize(("difference", "lines"), FOR_THE_COMMAND_LINE, ids=lambda value: str(value)[:60])
def test_bad_input_gets_the_same_answer_on_the_command_line(
    cli: Cli, repository: ScheduleRepository, difference: dict[str, Any], lines: list[str]
) -> None:
    repository.create_schedule(**{**VALID, "schedule_id": TAKEN, "name": "taken"})
    result = cli("schedule", "add", *as_arguments({**VALID, **difference}))
    assert (result.exit_code, result.stderr.splitlines(), result.stdout) == (2, lines, "")
    assert repository.count_schedules() == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["add", "example.com", "--when", "sometimes"], "when: cannot read 'sometimes'; examples: "),
        (["add", "example.com", "--when", "daily 2 o'clock"], 'when: cannot read "daily 2 o\'clock"; examples: '),
        (["add", "example.com", "--when", "daily 02:00", "--frequency", "daily"], "when: give either --when or"),
        (["add", "example.com", "--frequency", "daily", "--time-config", "{hour"], "time_config: is not JSON: "),
        (["add", "example.com", "--when", "every 5m", "--set", "priority"], "--set: must look like FIELD=VALUE"),
        (["add", "example.com"], "frequency: is required"),
        (["edit", "taken"], "edit: nothing to change was given; see --help"),
        (["preview"], "preview: give either a schedule or --when"),
        (["preview", "taken", "-n", "0"], "n: must be between 1 and 1000, got 0"),
        (["list", "--sort", "colour"], "sort: must be one of domain, name"),
        (["list", "--cursor", "x"], "cursor: is not one that a former page gave"),
        (["import", "missing.yaml"], "missing.yaml: cannot be read: no such file or directory"),
    ],
)
def test_a_command_that_makes_no_sense_says_why(
    cli: Cli, repository: ScheduleRepository, arguments: list[str], line: str
) -> None:
    repository.create_schedule(**{**VALID, "schedule_id": TAKEN, "name": "taken"})
    result = cli("schedule", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(line)
    assert repository.count_schedules() == 1


@pytest.mark.parametrize("command", ["show", "edit", "enable", "disable", "delete", "preview"])
def test_an_unknown_schedule_is_one_clear_line(cli: Cli, command: str) -> None:
    more = ["--set", "priority=1"] if command == "edit" else []
    result = cli("schedule", command, "nobody.example", *more)
    assert (result.exit_code, result.stderr) == (1, "there is no schedule nobody.example\n")


# --- the commands ---


@pytest.mark.parametrize(
    ("when", "description"),
    [
        ("hourly", "every hour at minute 0 (UTC)"),
        ("hourly :15", "every hour at minute 15 (UTC)"),
        ("daily at 02:00", "daily at 02:00 UTC"),
        ("weekly monday 02:00", "every Monday at 02:00 UTC"),
        ("weekly on Fri at 9:05", "every Friday at 09:05 UTC"),
        ("monthly 31 02:00", "monthly on day 31 (or the month's last day) at 02:00 UTC"),
        ("every 15m", "every 15 minutes"),
        ("every 1h 30min", "every 1 hour 30 minutes"),
        ("every 2 days", "every 2 days"),
        ("cron 0 2 * * 1", "cron 0 2 * * 1 (UTC)"),
        ("once 2099-01-31T08:00", "once at 2099-01-31 08:00+00:00 (UTC)"),
    ],
)
def test_timing_can_be_said_in_words(cli: Cli, when: str, description: str) -> None:
    result = cli("schedule", "preview", "--when", when, "--json", "-n", "1")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["description"] == description
    assert len(answer["fires"]) == 1


def test_a_new_schedule_is_confirmed_with_its_next_run(cli: Cli) -> None:
    result = cli("schedule", "add", "example.com", "--when", "daily 02:30", "--timezone", "Europe/Berlin")
    assert result.exit_code == 0
    assert "example.com, daily at 02:30 Europe/Berlin" in result.stdout
    assert "next run: " in result.stdout
    assert "02:30 does not exist" in result.stderr, "the clock change of the coming year is announced"


def test_a_schedule_is_shown_with_its_fires_executions_and_changes(cli: Cli, db: Any) -> None:
    record = add(cli, "--name", "nightly", "--set", "max_retries=3", "--tag", "a")
    cli("schedule", "edit", "nightly", "--set", "max_retries=", "--when", "daily 03:00")
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions
                   (schedule_id, job_id, domain, domain_config_id, status, duration_seconds, reason)
               SELECT schedule_id, name, domain, domain_config_id, 'skipped', 1.5, 'overlap' FROM schedules"""
        )
    shown = cli("schedule", "show", "nightly").stdout
    assert "daily at 03:00 UTC" in shown
    assert shown.count(" 03:00:00 UTC") >= 5
    assert "skipped" in shown
    assert "overlap" in shown
    assert "max_retries: 3 -> None" in shown
    as_json = json.loads(cli("schedule", "show", "nightly", "--json").stdout)
    assert as_json["schedule"]["schedule_id"] == record["schedule_id"]
    assert len(as_json["next_fires"]) == 5
    assert as_json["executions"][0]["reason"] == "overlap"
    assert as_json["changes"][0]["differences"]["max_retries"] == [3, None]
    assert as_json["changes"][0]["changed_by"].startswith("cli:")


def test_a_row_that_somebody_broke_by_sql_can_still_be_listed_and_shown(cli: Cli, db: Any) -> None:
    add(cli)
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET time_config = '{\"hour\": 77}'")
    assert "invalid: time_config.hour: must be between 0 and 23, got 77" in cli("schedule", "list").stdout
    shown = cli("schedule", "show", "example.com")
    assert shown.exit_code == 0
    assert "invalid: time_config.hour" in shown.stdout


def test_schedules_are_switched_off_and_on(cli: Cli) -> None:
    add(cli, "--name", "one")
    assert cli("schedule", "disable", "one").stdout == "one is off\n"
    assert cli("schedule", "disable", "one").stdout == "one is off already\n"
    assert json.loads(cli("schedule", "list", "--disabled", "--json").stdout)["items"][0]["next_run"] is None
    assert cli("schedule", "enable", "one").stdout.startswith("one is on, next run 2")


def test_deleting_asks_first(cli: Cli, repository: ScheduleRepository) -> None:
    add(cli)
    assert cli("schedule", "delete", "example.com", answer="n\n").exit_code == 1
    assert repository.count_schedules() == 1
    assert cli("schedule", "delete", "example.com", "--yes").exit_code == 0
    assert repository.count_schedules() == 0


def test_an_edit_says_what_changed_and_refuses_a_stale_revision(cli: Cli) -> None:
    record = add(cli)
    result = cli("schedule", "edit", "example.com", "--when", "weekly sunday 04:00")
    assert "frequency: daily -> weekly" in result.stdout
    assert cli("schedule", "edit", "example.com", "--when", "weekly sunday 04:00").stdout.startswith("nothing changed")
    stale = cli(
        "schedule", "edit", "example.com", "--set", "priority=1", "--expected-revision", str(record["revision"])
    )
    assert stale.exit_code == 1
    assert "somebody changed it meanwhile" in stale.stderr


def test_a_long_list_is_read_page_by_page(cli: Cli, repository: ScheduleRepository) -> None:
    repository.save_schedules(many(7))
    seen, cursor = [], None
    while True:
        more: list[str] = ["--cursor", cursor] if cursor else []
        page = json.loads(cli("schedule", "list", "--limit", "3", "--json", *more).stdout)
        seen += [item["domain"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"host{number:06}.example" for number in range(7)]
    assert "3 of 7" in cli("schedule", "list", "--limit", "3").stdout


def test_an_empty_list_says_what_to_do_next(cli: Cli) -> None:
    assert "add one: manage.py schedule add" in cli("schedule", "list").stdout


def test_markup_in_names_is_printed_as_it_is(cli: Cli) -> None:
    add(cli, "--name", "[red]alarm[/red]")
    assert "[red]alarm[/red]" in cli("schedule", "list").stdout


# --- import and export ---


def test_an_export_imports_into_the_same_schedules(cli: Cli, repository: ScheduleRepository, tmp_path: Path) -> None:
    options = """--name full --config-id abc-123 --tag x --timezone Asia/Tokyo --set max_retries=3
                 --job-config {"maxPages":50} --set start_at=2027-01-01T00:00:00+00:00"""
    add(cli, *options.split())
    repository.save_schedules(many(3))
    file = tmp_path / "schedules.yaml"
    assert cli("schedule", "export", str(file)).stdout == f"4 schedules written to {file}\n"
    again = cli("schedule", "import", str(file), "--json")
    assert {name: json.loads(again.stdout)[name] for name in ("created", "updated", "unchanged", "refused")} == {
        "created": 0, "updated": 0, "unchanged": 4, "refused": 0,
    }  # fmt: skip
    before = [record.definition() for record in repository.iter_schedules()]
    cli("schedule", "delete", "full", *(f"host{n:06}.example" for n in range(3)), "--yes")
    assert cli("schedule", "import", str(file)).exit_code == 0
    assert [record.definition() for record in repository.iter_schedules()] == before


def test_a_dry_run_shows_the_difference_and_writes_nothing(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path
) -> None:
    add(cli, "--name", "known", "--set", "priority=7")
    file = tmp_path / "schedules.yaml"
    file.write_text(yaml.safe_dump({"schedules": [{**VALID, "name": "known"}, {**VALID, "name": "new"}]}))
    result = cli("schedule", "import", str(file), "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "~ known: priority: 7 -> 0",
        "+ new",
        "would be: 1 created, 1 updated, 0 unchanged, 0 refused",
    ]
    assert [record.priority for record in repository.iter_schedules()] == [7]


def test_one_bad_item_stops_an_import_unless_told_otherwise(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path
) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(yaml.safe_dump_all([VALID, {**VALID, "domain": "localhost"}]))
    refused = cli("schedule", "import", str(file))
    assert refused.exit_code == 2
    assert (
        refused.stderr.splitlines()
        == [
            "! item 2 (localhost): domain: 'localhost' has no dot; a public domain name such as example.com is needed",
            "nothing was written: 1 created, 0 updated, 0 unchanged, 1 refused; mend the file or use --skip-invalid",
        ]
        or repository.count_schedules() == 0
    )
    assert repository.count_schedules() == 0
    assert cli("schedule", "import", str(file), "--skip-invalid").exit_code == 2
    assert repository.count_schedules() == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "is not YAML: "),
        (b"- 3", "a schedule must be a mapping of fields, got 3"),
        (b"\xff\xfe\xff", "is not "),
        (b"!!python/object/apply:os.system ['true']", "is not YAML: could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_list_of_schedules_is_refused(cli: Cli, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_bytes(content)
    result = cli("schedule", "import", str(file))
    assert result.exit_code == 2
    assert f"{file}: {message}" in result.stderr


def test_an_import_can_be_piped(cli: Cli, repository: ScheduleRepository) -> None:
    assert cli("schedule", "import", "-", answer=yaml.safe_dump(VALID)).exit_code == 0
    assert repository.count_schedules() == 1


# --- doctor, settings, dev ---


def test_the_doctor_finds_everything_in_order(cli: Cli) -> None:
    result = cli("doctor", "--json")
    assert result.exit_code == 0
    findings = json.loads(result.stdout)
    assert {finding["check"] for finding in findings} == {
        "settings",
        "postgres",
        "schema",
        "redis",
        "clocks",
        "time zones",
    }
    assert {finding["verdict"] for finding in findings} == {"ok"}


def test_the_doctor_says_how_to_mend_an_old_schema(cli: Cli, db: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM alembic_version")
    result = cli("doctor")
    assert result.exit_code == 1
    assert "FAIL  schema      at revision none, newest is" in result.stdout
    assert "-> run: python run_migrations.py" in result.stdout


def test_the_doctor_reports_dead_servers_and_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@127.0.0.1:1/db")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    result = cli("doctor")
    assert result.exit_code == 1
    assert result.stdout.count("FAIL") == 4
    assert "Postgres at u:***@127.0.0.1:1/db does not answer" in result.stdout
    assert "Redis at redis://:***@127.0.0.1:1/0 does not answer" in result.stdout
    assert "hunter2" not in result.output


def test_the_doctor_warns_of_a_misspelt_setting(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("MAX_WORKRES=9\n")
    monkeypatch.setenv("ENV_FILE", str(tmp_path / ".env"))
    assert "did you mean MAX_WORKERS?" in cli("doctor").stdout


def test_a_database_without_a_schema_is_one_clear_line(cli: Cli, db: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE schedules CASCADE")
    result = cli("schedule", "list")
    assert (result.exit_code, result.stderr) == (
        1,
        "the database has no (or an old) schema; run: python run_migrations.py\n",
    )


def test_settings_are_shown_without_secrets(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@127.0.0.1:1/db")
    shown = json.loads(cli("settings", "--json").stdout)
    assert shown["DATABASE_URL"] == "postgresql://u:***@127.0.0.1:1/db"
    assert "hunter2" not in cli("settings").stdout


def test_dev_fills_an_empty_database_once(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDED_DIR", str(tmp_path))
    first = cli("dev", "--seconds", "1", "--replicas", "1")
    assert first.exit_code == 0, first.output
    assert "added 5 demo schedules to the empty database" in first.stdout
    assert "note on nightly report: 02:30 does not exist on" in first.stdout
    addresses = {record.job_config["url"].split("/")[2] for record in repository.iter_schedules()}
    assert len(addresses) == 1
    second = cli("dev", "--seconds", "1", "--replicas", "1")
    assert "5 demo schedules call the demo site at its new address http://127.0.0.1:" in second.stdout
    assert addresses.isdisjoint(record.job_config["url"].split("/")[2] for record in repository.iter_schedules())
    assert repository.count_schedules() == 5


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"MAX_WORKERS": "many"}, "MAX_WORKERS='many': input should be a valid integer"),
        (
            {"DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/db", "REDIS_HOST": "x"},
            "Postgres at u:***@127.0.0.1:1/db does",
        ),
        ({"REDIS_HOST": "x"}, "REDIS_HOST is set but DATABASE_URL is not; set it, or unset REDIS_HOST to use"),
    ],
)
def test_a_program_that_cannot_start_ends_with_one_line(variables: dict[str, str], line: str) -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "schedule", "list"],
        cwd=PROJECT_ROOT, env={"ENV_FILE": "", "PATH": "", **variables}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["schedule"], *([["schedule", name] for name in ("add", "list", "edit", "import")])]
)
def test_help_comes_with_examples(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments, "--help")
    assert result.exit_code == 0
    if len(arguments) == 2:
        assert "Examples" in result.stdout
