"""manage.py as its users meet it: clear answers, JSON on request, nothing written for bad input."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

import manage
from config import PROJECT_ROOT, get_settings
from database.connection import get_db_connection
from database.schema import newest_revision
from run_migrations import downgrade, schema_state, upgrade
from services.cli import import_report, schedule_files
from services.cli.schedules import schedule_table
from services.schedule_repository import ScheduleRepository, get_schedule_repository
from services.schedules.listing import ScheduleFilter
from tests.support.schedules import BAD_INPUT, TAKEN, VALID, many

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
        (["edit", "taken"], "edit: give at least one field to change; see --help"),
        (["preview"], "preview: give either a schedule or --when"),
        (["preview", "taken", "-n", "0"], "n: must be between 1 and 1000, got 0"),
        (["list", "--sort", "colour"], "sort: must be one of domain, name"),
        (["list", "--cursor", "x"], "cursor: must come from an earlier page of this list"),
        (["import", "missing.yaml"], "missing.yaml: cannot be read: no such file or directory"),
        (["add", "example.com", "--when", "every 5m", "--set", "domain=x"], "domain: is given twice"),
        (["add", "example.com", "--when", "every 5m", "--set", "frequency=daily"], "frequency: is given twice"),
        (["add", "x.example", "--when", "every 5m", "--disabled", "--set", "enabled=true"], "enabled: is given twice"),
        (["add", "x.example", "--when", "every 5m", "--name", "a", "--set", "name=b"], "name: is given twice"),
        (["add", "example.com", "--when", "every 5m", "--name", ""], "name: must not be empty"),
        (["add", "example.com", "--when", "every 5m", "--set", "actor=root"], "actor: is not a field of a schedule"),
        (["edit", "taken", "--set", f"schedule_id={TAKEN}"], "schedule_id: is not a field of a schedule"),
        (["edit", "taken", "--set", "expected_revision=1"], "expected_revision: is not a field of a schedule"),
        (["edit", "taken", "--job-config", "[" * 5000], "job_config: is n"),
        (["edit", "taken", "--set", f"job_config={'[' * 99_000}"], "job_config: must be an object, got '[[["),
        (["edit", "taken", "--set", f"priority={'9' * 5000}"], "priority: must be a whole number, got '999"),
        (["preview", "taken", "--timezone", "Europe/Berln"], "timezone: unknown time zone 'Europe/Berln'"),
        (["preview", "--when", "daily 02:00", "--timezone", ""], "timezone: must not be empty"),
        (["show", "\udcff"], "schedule: contains bytes that are not text: '\\udcff'"),
        (["list", "--search", "\udcff"], "search: contains bytes that are not text: '\\udcff'"),
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


def test_a_schedule_gets_its_queue_and_its_labels_and_loses_them(cli: Cli) -> None:
    record = add(cli, "--name", "shots", "--queue", "browser", "--requires", "gpu, eu")
    assert (record["queue"], record["requires"]) == ("browser", ["eu", "gpu"])
    shown = cli("schedule", "show", "shots").stdout
    assert "browser" in shown
    assert "eu, gpu" in shown
    cli("schedule", "edit", "shots", "--queue", "", "--requires", "")
    assert json.loads(cli("schedule", "show", "shots", "--json").stdout)["schedule"]["queue"] is None


def test_a_schedule_that_no_live_replica_can_run_is_saved_with_a_warning(cli: Cli, db: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, abilities, queues)
               VALUES ('replica', gen_random_uuid(), '{job:cookie_scan,job:theirs}', '{default}')"""
        )
    given = ("schedule", "add", "example.com", "--when", "daily 02:00")
    assert "no live replica" not in cli(*given).stderr
    warned = cli(*given, "--queue", "browser", "--requires", "gpu")
    assert warned.exit_code == 0
    assert "no live replica offers gpu, queue:browser" in " ".join(warned.stderr.split())


def test_a_job_type_that_only_a_live_replica_knows_may_be_saved(cli: Cli, db: Any) -> None:
    given = ("schedule", "add", "their job", "--when", "daily 02:00", "--job-type", "theirs", "--json")
    assert "no job type 'theirs'" in cli(*given).stderr
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, abilities, queues)
               VALUES ('replica', gen_random_uuid(), '{job:theirs}', '{default}')"""
        )
    assert json.loads(cli(*given).stdout)["job_type"] == "theirs"


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


def test_schedules_are_disabled_and_enabled(cli: Cli) -> None:
    add(cli, "--name", "one")
    assert cli("schedule", "disable", "one").stdout == "one is disabled\n"
    assert cli("schedule", "disable", "one").stdout == "one is already disabled\n"
    assert json.loads(cli("schedule", "list", "--disabled", "--json").stdout)["items"][0]["next_run"] is None
    assert cli("schedule", "enable", "one").stdout.startswith("one is enabled, next run 2")


def test_a_broken_schedule_can_be_disabled(cli: Cli, db: Any) -> None:
    add(cli, "--name", "one")
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET timezone = 'Mars/Olympus'")
    assert cli("schedule", "disable", "one").stdout == "one is disabled\n"
    assert cli("schedule", "enable", "one").exit_code == 2
    assert cli("schedule", "edit", "one", "--set", "enabled=false").stdout.startswith("nothing changed")


def test_a_disabled_schedule_says_why_wherever_it_is_shown(cli: Cli) -> None:
    note = "supplier migrates until Friday"
    add(cli, "--name", "one")
    add(cli, "--name", "two")
    off = cli("schedule", "disable", "one", "two", "--note", note)
    assert off.stdout == f"one is disabled: {note}\ntwo is disabled: {note}\n"
    assert cli("schedule", "disable", "one").stdout == f"one is already disabled: {note}\n"
    assert f"disabled: {note}" in cli("schedule", "list").stdout
    assert f"disabled: {note}" in cli("schedule", "show", "one").stdout
    assert json.loads(cli("schedule", "show", "one", "--json").stdout)["schedule"]["disabled_note"] == note
    assert f"): {note}" in cli("schedule", "explain", "one", "--at", "2150-01-01T02:00").stdout
    assert "disabled_note" not in cli("schedule", "enable", "one").stdout
    assert "disabled: " not in cli("schedule", "show", "one").stdout


def test_a_note_is_edited_and_taken_away(cli: Cli) -> None:
    add(cli, "--name", "one", "--disabled", "--set", "disabled_note=moving house")
    edited = cli("schedule", "edit", "one", "--set", "disabled_note=still moving").stdout.splitlines()
    assert edited == ["disabled_note: moving house -> still moving", "disabled: still moving"]
    assert cli("schedule", "disable", "one", "--note", "").stdout == "one is already disabled\n"
    cli("schedule", "enable", "one")
    refused = cli("schedule", "edit", "one", "--set", "disabled_note=too late")
    assert (refused.exit_code, refused.stderr.partition(":")[0]) == (2, "disabled_note")
    assert "set enabled=false or omit it" in refused.stderr


def test_a_note_is_left_out_where_a_terminal_has_no_room(
    cli: Cli, repository: ScheduleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = add(cli, "--disabled", "--set", "disabled_note=moving house")
    monkeypatch.setattr("services.cli.output.PIPE_WIDTH", 100)
    cells = schedule_table([repository.find_schedule(record["schedule_id"])]).columns[4].cells
    assert list(cells) == ["disabled"]


def test_set_counts_when_no_option_says_otherwise(cli: Cli) -> None:
    assert add(cli, "--set", "enabled=false")["enabled"] is False


def test_a_schedule_without_a_further_fire_says_so(cli: Cli) -> None:
    past = cli("schedule", "add", "a.example", "--when", "once 2020-01-01T00:00", "--name", "past")
    assert past.stdout.splitlines()[1] == "it has no further fires"
    never = cli("schedule", "add", "b.example", "--when", "cron 0 0 30 2 *")
    assert never.stdout.splitlines()[1] == "it has no further fires"
    off = cli("schedule", "add", "c.example", "--when", "daily 02:00", "--disabled")
    assert off.stdout.splitlines()[1] == "disabled"
    assert cli("schedule", "enable", "past").stdout == "past is already enabled, but it has no further fires\n"


def test_a_preview_can_be_had_for_another_zone(cli: Cli) -> None:
    add(cli)
    answer = json.loads(cli("schedule", "preview", "example.com", "--timezone", "Asia/Tokyo", "--json").stdout)
    assert answer["description"] == "daily at 02:00 Asia/Tokyo"


def test_json_of_a_deletion_is_alone_on_stdout(cli: Cli) -> None:
    """The question goes to stderr."""
    record = add(cli)
    result = cli("schedule", "delete", "example.com", "--json", answer="y\n")
    typed, _, printed = result.stdout.partition("\n")
    assert (typed.strip(), json.loads(printed)) == ("y", {"deleted": [record["schedule_id"]]})
    assert "Delete example.com?" in result.stderr


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
    assert "it was changed in the meantime" in stale.stderr


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
    add(cli, *options.split(), "--disabled", "--set", "disabled_note=moving house")
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


def test_an_export_says_which_configuration_it_is_now(cli: Cli, repository: ScheduleRepository, tmp_path: Path) -> None:
    add(cli, "--name", "one", "--config-id", "abc-123")
    cli("schedule", "edit", "one", "--config-id", "22222222-0000-0000-0000-000000000001")
    file = tmp_path / "schedules.yaml"
    cli("schedule", "export", str(file))
    assert "22222222-0000-0000-0000-000000000001" in file.read_text()
    assert json.loads(cli("schedule", "import", str(file), "--json").stdout)["unchanged"] == 1


def test_an_export_as_json_goes_where_it_is_told(cli: Cli, repository: ScheduleRepository, tmp_path: Path) -> None:
    file = tmp_path / "schedules.json"
    assert json.loads(cli("schedule", "export", "--json").stdout) == []
    repository.save_schedules(many(3))
    assert cli("schedule", "export", str(file), "--json").stdout == f"3 schedules written to {file}\n"
    assert json.loads(file.read_text()) == json.loads(cli("schedule", "export", "--json").stdout)
    assert cli("schedule", "export", "-").stdout == cli("schedule", "export").stdout != ""
    assert json.loads(cli("schedule", "import", str(file), "--json").stdout)["unchanged"] == 3


def test_an_export_follows_a_link_and_keeps_the_file_s_mode(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path
) -> None:
    repository.save_schedules(many(1))
    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    assert cli("schedule", "export", str(link)).exit_code == 0
    assert link.is_symlink()
    assert target.read_text().startswith("---\n")
    assert target.stat().st_mode & 0o777 == 0o640


def test_an_export_into_a_pipe_leaves_it_a_pipe(cli: Cli, repository: ScheduleRepository, tmp_path: Path) -> None:
    repository.save_schedules(many(2))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert cli("schedule", "export", str(pipe)).exit_code == 0
    reader.join(10)
    assert pipe.is_fifo()
    assert read[0].count("---\n") == 2


def test_a_place_where_no_file_can_be_is_one_clear_line(cli: Cli, tmp_path: Path) -> None:
    nowhere, circle = tmp_path / "nowhere" / "file.yaml", tmp_path / "circle"
    circle.symlink_to(circle)
    for command, file, reason in (
        ("export", nowhere, "cannot be written: no such file or directory"),
        ("export", tmp_path, "cannot be written: is a directory"),
        ("import", tmp_path, "cannot be read: is a directory"),
    ):
        result = cli("schedule", command, str(file))
        assert (result.exit_code, result.stderr) == (2, f"{file}: {reason}\n")
    assert f"{circle}: cannot be written: " in cli("schedule", "export", str(circle)).stderr


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_failed_export_leaves_the_former_file_and_nothing_else(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    repository.save_schedules(many(2))
    file = tmp_path / "schedules.yaml"
    file.write_text("old")

    def fail(_: Any) -> str:
        raise failure

    monkeypatch.setattr(schedule_files, "yaml_text", fail)
    result = cli("schedule", "export", str(file))
    assert result.exit_code == (130 if failure is KeyboardInterrupt else 2)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    if failure is not KeyboardInterrupt:
        assert result.stderr == f"{file}: cannot be written: no space left on device\n"


def test_items_that_clash_across_commits_stop_the_import(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path
) -> None:
    file = tmp_path / "schedules.yaml"
    twin = {**VALID, "name": "twin"}
    file.write_text("".join(schedule_files.yaml_text(item) for item in [twin, *many(1001), twin]))
    result = cli("schedule", "import", str(file))
    assert result.exit_code == 2
    assert "! item 1003 (twin): name: twin is already used by item 1" in result.stderr
    assert repository.count_schedules() == 0


def test_an_import_that_is_beaten_to_a_name_says_so(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(yaml.safe_dump({**VALID, "schedule_id": str(TAKEN), "name": "wanted"}))
    save = import_report.save_items

    def beaten(*arguments: Any, dry_run: bool, **more: Any) -> Any:
        if not dry_run:
            repository.create_schedule(**VALID, name="wanted")
        return save(*arguments, dry_run=dry_run, **more)

    monkeypatch.setattr(schedule_files, "save_items", beaten)
    result = cli("schedule", "import", str(file))
    assert result.exit_code == 2
    assert "! item 1 (wanted): name: 'wanted' is already used by schedule" in result.stderr
    assert "0 created, 0 updated, 0 unchanged, 1 refused" in result.stdout


def test_an_interrupted_import_says_what_was_written(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text("".join(schedule_files.yaml_text(item) for item in many(1500)))
    read, passes = schedule_files.read_documents, []

    def interrupted(*arguments: Any) -> Any:
        passes.append(1)
        for number, item in enumerate(read(*arguments)):
            if len(passes) == 2 and number == 1200:
                raise KeyboardInterrupt
            yield item

    monkeypatch.setattr(schedule_files, "read_documents", interrupted)
    result = cli("schedule", "import", str(file))
    assert (result.exit_code, result.stderr) == (130, "interrupted; written so far: 1000\n")
    assert repository.count_schedules() == 1000


def test_an_import_that_changes_nothing_reads_its_file_once(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.save_schedules(many(3))
    file = tmp_path / "schedules.yaml"
    cli("schedule", "export", str(file))
    read, passes = schedule_files.read_documents, []

    def counted(*arguments: Any) -> Any:
        passes.append(1)
        return read(*arguments)

    monkeypatch.setattr(schedule_files, "read_documents", counted)
    assert cli("schedule", "import", str(file)).stdout == "0 created, 0 updated, 3 unchanged, 0 refused\n"
    assert len(passes) == 1


def test_a_dry_run_shows_the_difference_and_writes_nothing(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path
) -> None:
    add(cli, "--name", "known", "--set", "priority=7")
    file = tmp_path / "schedules.yaml"
    file.write_text(json.dumps({"schedules": [{**VALID, "name": "known"}, {**VALID, "name": "new"}]}))
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
    assert refused.stderr.splitlines() == [
        "! item 2 (localhost): domain: 'localhost' has no dot; a public domain name such as example.com is required",
        "nothing was written; it would be: 1 created, 0 updated, 0 unchanged, 1 refused; "
        "fix the file or use --skip-invalid",
    ]
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
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "is not YAML: aliases (*name) are not allowed"),
        (b"a: &a [*a]", "is not YAML: aliases (*name) are not allowed"),
        (b"domain: a.example\ndomain: b.example", "is not YAML: duplicate key: domain"),
        (b"time_config: {hour: 1, hour: 2}", "is not YAML: duplicate key: hour"),
        (b"start_at: 2026-02-30 10:00:00", "has an impossible value: day is out of range for month"),
        (b"priority: " + b"9" * 5000, "has an impossible value: Exceeds the limit"),
        (b"job_config: " + b"[" * 20_000, "is n"),
    ],
)
def test_a_file_that_is_no_list_of_schedules_is_refused(cli: Cli, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_bytes(content)
    result = cli("schedule", "import", str(file))
    assert result.exit_code == 2
    assert f"{file}: {message}" in result.stderr


def test_an_import_can_be_piped(cli: Cli, repository: ScheduleRepository, tmp_path: Path) -> None:
    assert cli("schedule", "import", "-", answer=yaml.safe_dump(VALID)).exit_code == 0
    assert repository.count_schedules() == 1
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(yaml.safe_dump(VALID)), daemon=True)
    writer.start()
    assert cli("schedule", "import", str(pipe)).stdout.splitlines()[-1].startswith("1 created")
    assert repository.count_schedules() == 2


def test_a_narrow_terminal_cuts_no_id(cli: Cli, repository: ScheduleRepository) -> None:
    record = add(cli, domain="a-rather-long-name.of-a-domain.example.com")
    narrow = Console(width=40)
    with narrow.capture() as shown:
        narrow.print(schedule_table([repository.find_schedule(record["schedule_id"])]))
    assert record["schedule_id"][:8] in shown.get()


LIST_AND_TELL = """
import sys
import manage
sys.argv = ["manage.py", "schedule", "list", "--json"]
try:
    manage.app()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_list_of_schedules_loads_neither_engine_nor_web_nor_what_the_jobs_need(cli: Cli) -> None:
    add(cli)
    told = subprocess.run(
        [sys.executable, "-c", LIST_AND_TELL], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert len(json.loads(told.stdout)["items"]) == 1
    needless = {
        "redis",
        "apscheduler",
        "fastapi",
        "nicegui",
        "requests",
        "lxml",
        "services.engine",
        "services.job_types",
    }
    assert not needless & set(told.stderr.split())


# --- help ---

PROGRAM = typer.main.get_command(manage.app)
# They stay, or write a file in a format of your choice; `migrate` is run_migrations.py, with its own examples.
WITHOUT_JSON = {"dev", "web", "replica", "scans export", "migrate", "worker"}


def commands(group: Any = PROGRAM, *path: str) -> Iterator[tuple[str, Any]]:
    for name in group.commands:
        command = command_of(group, name)
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield " ".join((*path, name)), command


def command_of(group: Any, name: str) -> Any:
    _, command, _ = group.resolve_command(typer.Context(group), [name])
    return command


@pytest.mark.parametrize("name", [name for name in dict(commands()) if name != "migrate"])
def test_each_command_shows_examples_that_it_understands_and_can_answer_in_json(name: str) -> None:
    command = dict(commands())[name]
    examples = re.findall(r"^\s*(?:export TOKEN=\$\()?manage\.py (.*?)\)?$", command.help, re.MULTILINE)
    own = [example for example in examples if example.startswith(name)]
    assert own
    for example in examples:
        parsed = PROGRAM.make_context("manage.py", shlex.split(example.partition(" > ")[0]), resilient_parsing=False)
        parse_rest(PROGRAM, parsed)
    assert name in WITHOUT_JSON or "--json" in {option for parameter in command.params for option in parameter.opts}


def parse_rest(group: Any, context: Any) -> None:
    """Down to the last command, calling none."""
    rest = [*context._protected_args, *context.args]
    if not rest or not hasattr(group, "commands"):
        return
    name, *arguments = rest
    command = command_of(group, name)
    parse_rest(command, command.make_context(name, arguments, parent=context))


def test_one_field_of_the_job_is_set_and_unset_alone(cli: Cli) -> None:
    add(cli, "--set", "job_config.max_pages=9", "--set", "job_config.delay_seconds=2")
    cli("schedule", "edit", "example.com", "--set", "job_config.max_pages=7", "--set", "priority=3")
    shown = json.loads(cli("schedule", "show", "example.com", "--json").stdout)["schedule"]
    assert (shown["job_config"], shown["priority"]) == ({"max_pages": 7, "delay_seconds": 2}, 3)
    cli("schedule", "edit", "example.com", "--set", "job_config.max_pages=")
    shown = json.loads(cli("schedule", "show", "example.com", "--json").stdout)["schedule"]
    assert shown["job_config"] == {"delay_seconds": 2}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["--set", "job_config.max_pages=1", "--set", "job_config.max_pages=2"],
            "job_config.max_pages: is given twice",
        ),
        (["--job-config", "{}", "--set", "job_config.max_pages=1"], "job_config: is given twice: as a whole, and one"),
        (["--set", "job_config.max_page=1"], "job_config.max_page: is not a field of this job"),
        (["--set", "job_config.=1"], "job_config.: is not a field of a schedule"),
    ],
)
def test_a_field_of_the_job_is_checked_like_every_other(cli: Cli, arguments: list[str], reason: str) -> None:
    add(cli)
    result = cli("schedule", "edit", "example.com", *arguments)
    assert (result.exit_code, result.stderr.startswith(reason)) == (2, True), result.stderr


def test_a_change_in_between_is_not_undone_by_one_field_of_the_job(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    add(cli)
    repository = get_schedule_repository()
    find = repository.find_schedule

    def found_and_then_changed(reference: str) -> Any:
        record = find(reference)
        repository.update_schedule(record.schedule_id, job_config={"max_pages": 1})
        return record

    monkeypatch.setattr(repository, "find_schedule", found_and_then_changed)
    result = cli("schedule", "edit", "example.com", "--set", "job_config.delay_seconds=2")
    assert result.exit_code != 0
    assert dict(find("example.com").job_config) == {"max_pages": 1}


# --- doctor, settings, dev ---


def heartbeat(db: Any, name: str, *, claiming: bool = True, tzdata: str = "2026.1", revision: int = 9999) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, claiming, revision, facts)
               VALUES (%s, gen_random_uuid(), %s, %s, jsonb_build_object('tzdata', %s::text))""",
            (name, claiming, revision, tzdata),
        )


def test_the_doctor_finds_everything_in_order(cli: Cli, db: Any) -> None:
    heartbeat(db, "one")
    heartbeat(db, "two")
    result = cli("doctor", "--json")
    assert result.exit_code == 0
    findings = json.loads(result.stdout)
    assert {finding["check"] for finding in findings} == {
        "settings",
        "postgres",
        "schema",
        "redis",
        "clocks",
        "replicas",
        "schedules",
        "jobs",
        "time zones",
        "cookie rules",
        "browser",
    }
    assert {finding["verdict"] for finding in findings} == {"ok"}


def test_the_doctor_says_that_nothing_runs(cli: Cli) -> None:
    result = cli("doctor")
    assert result.exit_code == 0
    assert "warn  replicas      none is live: nothing runs" in result.stdout


def test_the_doctor_says_who_serves_a_fleet_queue_and_whether_its_broker_answers(
    cli: Cli, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat(db, "one")
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, kind, running, queues, abilities, facts)
               VALUES ('worker-1', gen_random_uuid(), 'worker', 1, '{browser}', '{}', '{"max_workers": 4}')"""
        )
    monkeypatch.setenv("CELERY_QUEUES", "browser,scan")
    get_settings.cache_clear()
    said = " ".join(cli("doctor").stdout.split())
    assert "browser: 1 of 4 places busy in 1 process" in said
    assert "scan: no worker is live" in said
    assert re.search(r"the broker at \S+ answers; [\d,]+ messages wait in it", said)
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:secret@127.0.0.1:1/0")
    get_settings.cache_clear()
    result = cli("doctor")
    assert result.exit_code == 1
    assert "the Celery broker at redis://:***@127.0.0.1:1/0 does not answer" in " ".join(result.stdout.split())


def test_the_doctor_counts_schedules_and_names_those_that_are_parked(cli: Cli, db: Any) -> None:
    add(cli, "--disabled", domain="off.example")
    for number in range(4):
        add(cli, domain=f"bad-{number}.example")
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET invalid_reason = 'time_config: no' WHERE enabled")
    result = cli("doctor")
    assert result.exit_code == 0
    assert "ok    schedules     4 of 5 enabled" in result.stdout
    assert re.search(
        r"warn  schedules     4 parked \(invalid, not run\): bad-\d\.example \(time_config: no\); ", result.stdout
    )
    assert "; and 1 more" in result.stdout
    assert "schedule list --status invalid" in result.stdout


def test_the_doctor_says_that_a_browser_without_its_driver_is_none(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAN_BROWSER", "sh")  # any program will do: it is not started
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    get_settings.cache_clear()
    result = cli("doctor")
    assert "warn  browser       none found; only scans with engine: browser need one" in result.stdout
    assert "run `pip install -r requirements-browser.txt`" in result.stdout


def test_the_doctor_names_replicas_that_are_not_like_the_others(cli: Cli, db: Any) -> None:
    add(cli)
    heartbeat(db, "idle", claiming=False)
    heartbeat(db, "behind", revision=0)
    heartbeat(db, "old", tzdata="2019.3")
    result = cli("doctor")
    assert result.exit_code == 0
    assert "warn  replicas      behind had not applied the newest change at the last heartbeat" in result.stdout
    assert "warn  replicas      idle: claims nothing" in result.stdout
    assert "warn  replicas      tzdata differs: 2019.3, 2026.1" in result.stdout


def test_the_doctor_names_job_types_that_live_replicas_do_not_know(cli: Cli, db: Any) -> None:
    add(cli)
    for name, job_types in (("new", ["http_request", "cookie_scan"]), ("old", ["http_request"])):
        heartbeat(db, name)
        with db.transaction() as connection:
            told = (
                "UPDATE scheduler_instances SET facts = facts || jsonb_build_object('job_types', to_jsonb(%s::text[]))"
            )
            connection.exec_driver_sql(f"{told} WHERE instance_id = %s", (job_types, name))
    result = cli("doctor")
    assert result.exit_code == 0
    assert (
        "warn  jobs          job type 'cookie_scan': 1 schedule uses it; old has no handler for it, new has one"
        in result.stdout
    )
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM scheduler_instances WHERE instance_id = 'new'")
    result = cli("doctor")
    assert result.exit_code == 1
    assert (
        "FAIL  jobs          job type 'cookie_scan': 1 schedule uses it and cannot run: no live replica"
        in result.stdout
    )


def test_the_doctor_names_a_module_of_jobs_that_a_replica_would_not_start_with(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOB_MODULES", "no.such.module")
    get_settings.cache_clear()
    result = cli("doctor")
    assert result.exit_code == 1
    assert "FAIL  jobs          JOB_MODULES: 'no.such.module' cannot be imported" in result.stdout


def test_the_doctor_says_where_the_number_of_a_former_variable_lives(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP_SCAN_SCHEDULER_CONCURRENCY", "7")
    get_settings.cache_clear()
    result = cli("doctor")
    assert result.exit_code == 0
    assert "warn  queues        DEEP_SCAN_SCHEDULER_CONCURRENCY=7 is no longer a setting" in result.stdout
    assert "schedule edit process_deep_scan_queue --set job_config.concurrency=7" in " ".join(result.stdout.split())


def test_the_doctor_says_once_what_is_wrong_with_a_setting(cli: Cli) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MAX_WORKERS", "many")
        get_settings.cache_clear()
        result = cli("doctor")
    get_settings.cache_clear()
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("FAIL  settings      MAX_WORKERS='many'")


def test_the_doctor_names_a_broken_table_of_cookie_rules(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules.yaml").write_text("rules: [{name: _ga}]")
    monkeypatch.setenv("SCAN_COOKIE_RULES_FILE", str(tmp_path / "rules.yaml"))
    get_settings.cache_clear()
    result = cli("doctor")
    assert result.exit_code == 1
    assert "rule 1.category: is required" in " ".join(result.stdout.split())


def test_a_machine_without_a_browser_is_in_order_and_told_how_to_get_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = cli("doctor")
    assert result.exit_code == 0
    assert "install one with `apt-get install chromium`" in " ".join(result.stdout.split())


def test_the_doctor_says_how_to_mend_an_old_schema(cli: Cli, db: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM alembic_version")
    result = cli("doctor")
    assert result.exit_code == 1
    assert "FAIL  schema        at revision none, newest is" in result.stdout
    assert "-> run: python run_migrations.py" in result.stdout


def test_the_doctor_reports_dead_servers_and_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@127.0.0.1:1/db")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    result = cli("doctor")
    assert result.exit_code == 1
    assert result.stdout.count("FAIL") == 8
    assert "Postgres at u:***@127.0.0.1:1/db does not answer" in result.stdout
    assert "Redis at redis://:***@127.0.0.1:1/0 does not answer" in result.stdout
    assert result.stdout.count("does not answer") == 2, "each cause is told once"
    assert "FAIL  schema        the same as postgres" in result.stdout
    assert "hunter2" not in result.output


def test_the_doctor_warns_of_a_misspelt_setting(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("MAX_WORKRES=9\n")
    monkeypatch.setenv("ENV_FILE", str(tmp_path / ".env"))
    assert "did you mean MAX_WORKERS?" in cli("doctor").stdout


def test_the_doctor_does_not_send_people_to_the_server_for_a_bad_setting(
    cli: Cli,
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("REDIS_URL", "redis://127.0.0.1/0?bogus=1")
        result = cli("doctor")
    get_settings.cache_clear()
    assert result.exit_code == 1
    assert "has no option 'bogus'" in result.stdout
    assert "start the server" not in result.stdout


def test_a_newer_schema_is_normal_while_replicas_are_upgraded_one_after_the_other(
    cli: Cli, db: Any, own_process: dict[str, str]
) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0815'")
    assert f"at revision 0815, newer than this program's {newest_revision()}, which works with it" in (
        cli("doctor").stdout
    )
    assert add(cli)["revision"] > 0
    assert (
        run_program(["run_migrations.py"], own_process).stdout
        == "the database schema is at revision 0815, nothing to do\n"
    )
    refused = run_program(["run_migrations.py", "--down=-1", "-y"], own_process)
    assert refused.returncode == 1
    assert refused.stderr.startswith("the database schema is at revision 0815, which this program does not know")


REPLICA, WEB = ["services/enhanced_scheduler.py"], ["manage.py", "web", "--port", "0"]
ADD = ["manage.py", "schedule", "add", "example.com", "--when", "daily 02:00"]


@pytest.mark.parametrize("program", [REPLICA, WEB, ADD], ids=["replica", "web", "command that writes"])
def test_a_schema_that_does_not_fit_is_the_same_clear_line_from_every_program(
    db: Any, own_process: dict[str, str], program: list[str]
) -> None:
    newest = newest_revision()
    migrations = "python run_migrations.py"
    downgrade(db, "-1")
    behind = schema_state(db).current
    expect_line(
        program,
        own_process,
        f"the database schema is at revision {behind}, but this program needs {newest}; run: {migrations}",
    )
    upgrade(db)
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0817'")
        connection.exec_driver_sql("UPDATE schema_compatibility SET oldest_program = '0816'")
    understood = "the database schema is at revision 0817 and requires a program of revision 0816 or newer"
    expect_line(program, own_process, f"{understood}; this program is at {newest}: install a newer version")
    with db.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
    expect_line(program, own_process, f"the database has no schema; run: {migrations}")


def expect_line(program: list[str], environment: dict[str, str], line: str) -> None:
    ended = run_program(program, environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"{line}\n")


def test_what_this_program_needs_is_the_newest_of_its_migrations(db: Any) -> None:
    assert newest_revision() == schema_state(db).newest


def run_program(arguments: list[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT_ROOT, env={**environment, "PATH": ""}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_what_the_login_may_not_do_is_one_clear_line(cli: Cli, db: Any) -> None:
    role = f"reader_{uuid4().hex}"
    url = db.engine.url.set(drivername="postgresql").update_query_dict({"options": f"-c role={role}"})
    with db.transaction() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role}")
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("DATABASE_URL", url.render_as_string(hide_password=False))
            listed, examined = cli("schedule", "list"), cli("doctor")
    finally:
        with db.transaction() as connection:
            connection.exec_driver_sql(f"DROP ROLE {role}")
    assert (listed.exit_code, listed.stderr) == (
        1,
        "the database login lacks a privilege: permission denied for table schedules; "
        "grant it, or use another login in DATABASE_URL\n",
    )
    assert (
        "FAIL  schema        the database login lacks a privilege: permission denied for table alembic_version"
        in examined.stdout
    )


def test_a_lock_that_somebody_holds_too_long_is_one_clear_line(
    cli: Cli, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(cli)
    get_db_connection().close()
    get_settings.cache_clear()
    get_db_connection.cache_clear()
    get_schedule_repository.cache_clear()
    monkeypatch.setenv("DATABASE_STATEMENT_TIMEOUT_SECONDS", "1")
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT * FROM schedules FOR UPDATE")
        result = cli("schedule", "disable", "example.com")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Postgres took too long: canceling statement due to statement timeout; check DATABASE_"
    )


def test_a_database_without_a_schema_is_one_clear_line(cli: Cli, db: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE schedules CASCADE")
    result = cli("schedule", "list")
    assert (result.exit_code, result.stderr) == (
        1,
        "the database schema is missing or outdated; run: python run_migrations.py\n",
    )


def test_settings_are_shown_without_secrets(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@127.0.0.1:1/db")
    shown = json.loads(cli("settings", "--json").stdout)
    assert shown["DATABASE_URL"] == "postgresql://u:***@127.0.0.1:1/db"
    assert "hunter2" not in cli("settings").stdout


def called(repository: ScheduleRepository) -> set[str]:
    """The addresses of the sites that the schedules call or scan."""
    configs = [record.job_config for record in repository.iter_schedules(ScheduleFilter(tag="demo"))]
    return {(config.get("url") or config["base_url"]).split("/")[2] for config in configs}


def test_dev_fills_an_empty_database_once(
    cli: Cli, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDED_DIR", str(tmp_path))
    monkeypatch.setenv("SCAN_BROWSER", "none")
    get_settings.cache_clear()
    first = cli("dev", "--seconds", "1", "--replicas", "1")
    assert first.exit_code == 0, first.output
    assert "added 6 demo schedules to the empty database" in first.stdout
    assert "note about nightly report: 02:30 does not exist on" in first.stdout
    addresses = called(repository)
    assert len(addresses) == 1
    second = cli("dev", "--seconds", "1", "--replicas", "1")
    assert "6 demo schedules call the demo site at its new address http://127.0.0.1:" in second.stdout
    assert addresses.isdisjoint(called(repository))
    assert repository.count_schedules(ScheduleFilter(tag="demo")) == 6


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"MAX_WORKERS": "many"}, "MAX_WORKERS='many': input should be a valid integer"),
        (
            {"DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/db", "REDIS_HOST": "x"},
            "Postgres at u:***@127.0.0.1:1/db does",
        ),
        (
            {"REDIS_HOST": "x"},
            "REDIS_HOST is set but DATABASE_URL is not; set DATABASE_URL, or unset REDIS_HOST to use",
        ),
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


# --- credentials and other traps in what users write ---


def test_who_saves_a_credential_is_told_so(cli: Cli, tmp_path: Path) -> None:
    config = '{"url": "https://anna:hunter2@example.com/"}'
    said = "note: job_config.url contains a credential"
    added = cli("schedule", "add", "x", "--when", "every 1h", "--job-type", "http_request", "--job-config", config)
    assert (added.exit_code, said in added.stderr) == (0, True), added.output
    assert (
        said
        in cli(
            "schedule", "edit", "x", "--job-config", config.replace("hunter2", "hunter3"), "--set", "enabled=false"
        ).stderr
    )
    (tmp_path / "many.yaml").write_text(
        f"{{domain: y, frequency: daily, time_config: {{hour: 1}}, job_type: http_request, job_config: {config}}}"
    )
    imported = cli("schedule", "import", str(tmp_path / "many.yaml"))
    assert (imported.exit_code, said.replace("note: ", "note: y: ") in imported.stderr) == (0, True), imported.output


@pytest.mark.parametrize("option", ["--time-config={}", "--set=time_config={}", "--job-config={}"])
def test_a_key_that_is_there_twice_is_refused_on_the_command_line(cli: Cli, option: str) -> None:
    timing = [] if "time" in option else ["--time-config", "{}"]
    result = cli(
        "schedule", "add", "example.com", "--frequency", "daily", *timing, option.format('{"hour": 1, "hour": 2}')
    )
    assert (result.exit_code, "duplicate key 'hour'" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("evil", ["\x9b31m", "\x7f", "\u202e", "\u2066", "\u2028"])
def test_json_output_says_nothing_to_a_terminal(cli: Cli, repository: ScheduleRepository, evil: str) -> None:
    config = {"url": "https://example.com/", "body": f"a{evil}ü€😀"}
    repository.create_schedule(**{**VALID, "job_type": "http_request", "job_config": config})
    for command in (["list", "--json"], ["export", "--json"]):
        said = cli("schedule", *command).stdout
        assert evil not in said
        assert "ü€😀" in said
        assert json.dumps(evil)[1:-1] in said
