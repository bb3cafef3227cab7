"""Scan profiles: the repository, and `manage.py scan-profile` as its users meet it."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

import manage
from database.connection import DatabaseConnection
from run_migrations import downgrade, upgrade
from services.errors import InvalidInput, ProfileInUse
from services.scanning.profiles import ScanProfiles
from services.schedule_repository import ScheduleRepository
from tests.support.schedules import VALID

Cli = Callable[..., Result]


@pytest.fixture
def profiles(db: DatabaseConnection) -> ScanProfiles:
    return ScanProfiles(db)


@pytest.fixture
def cli(own_process: dict[str, str]) -> Cli:
    return lambda *arguments, answer=None: CliRunner().invoke(manage.app, ["scan-profile", *arguments], input=answer)


def run_sql(db: DatabaseConnection, sql: str, *values: Any) -> list[Any]:
    with db.transaction() as connection:
        result = connection.exec_driver_sql(sql, values)
        return list(result) if result.returns_rows else []


# --- the repository ---


def test_a_profile_is_kept_in_one_spelling(profiles: ScanProfiles) -> None:
    added = profiles.add(" thorough ", {"maxPages": 200, "accept_selector": "#ok"})
    assert (added.name, added.config, added.schedules) == ("thorough", {"max_pages": 200, "accept_selector": "#ok"}, 0)
    for reference in ("thorough", added.profile_id, str(added.profile_id), str(added.profile_id)[:8].upper()):
        assert profiles.find(reference) == added
    assert profiles.get(added.profile_id) == added
    assert profiles.get(uuid4()) is None


def test_an_edit_changes_some_settings_and_takes_others_back(profiles: ScanProfiles) -> None:
    profiles.add("thorough", {"max_pages": 200, "scan_depth": 5, "engine": "browser"})
    before, after = profiles.edit("thorough", changes={"maxPages": 300}, unset=["scanDepth"])
    assert before.config == {"max_pages": 200, "scan_depth": 5, "engine": "browser"}
    assert after.config == {"max_pages": 300, "engine": "browser"}
    assert after.updated_at > before.updated_at


def test_an_edit_without_a_difference_writes_nothing(profiles: ScanProfiles) -> None:
    profiles.add("thorough", {"max_pages": 200})
    before, after = profiles.edit("thorough", changes={"max_pages": 200}, unset=["engine"])
    assert before == after


@pytest.mark.parametrize(
    ("name", "config", "line"),
    [
        ("", {}, "name: must be 1 to 255 printable characters, got ''"),
        ("x" * 256, {}, "name: must be 1 to 255 printable characters"),
        ("a\x00b", {}, "name: must be 1 to 255 printable characters, got 'a\\x00b'"),
        ("taken", {}, "name: another profile has the name 'taken'"),
        ("a", {"max_pages": 0}, "max_pages: "),
        ("a", {"maxPages": "many", "colour": 1}, "max_pages: "),
        ("a", {"colour": 1}, "colour: is not a field of a cookie scan"),
        ("a", {"maxPages": 1, "max_pages": 1}, "config: maxPages and max_pages are the same field"),
    ],
)
def test_a_bad_profile_is_refused_with_its_reason(
    profiles: ScanProfiles, name: str, config: dict[str, Any], line: str
) -> None:
    profiles.add("taken", {})
    with pytest.raises(InvalidInput) as refused:
        profiles.add(name, config)
    assert str(refused.value).startswith(line)
    assert [record.name for record in profiles.list_all()] == ["taken"]


def test_a_name_can_be_changed_but_not_to_one_that_is_taken(profiles: ScanProfiles) -> None:
    profiles.add("one", {})
    profiles.add("two", {})
    with pytest.raises(InvalidInput, match="another profile has the name 'one'"):
        profiles.edit("two", name="one")
    profiles.edit("two", name="three")
    assert [record.name for record in profiles.list_all()] == ["one", "three"]


def test_what_is_no_profile_is_said_so(profiles: ScanProfiles) -> None:
    for reference in ("nobody", "00000000", "a\x00", "\ud800"):
        with pytest.raises(InvalidInput, match="profile: there is no profile"):
            profiles.find(reference)


def test_an_ambiguous_beginning_is_refused(db: DatabaseConnection, profiles: ScanProfiles) -> None:
    for number in (1, 2):
        run_sql(db, "INSERT INTO scan_profiles (profile_id) VALUES (%s)", UUID(int=number))
    with pytest.raises(InvalidInput, match="more than one profile begins like 00000000"):
        profiles.find("00000000")


def test_a_profile_in_use_is_not_deleted(profiles: ScanProfiles, repository: ScheduleRepository) -> None:
    profile = profiles.add("thorough", {})
    made = [
        repository.create_schedule(**{**VALID, "domain": f"{name}.example", "profile_id": profile.profile_id})
        for name in ("a", "b")
    ]
    with pytest.raises(ProfileInUse, match=r"profile thorough is used by a\.example, b\.example; "):
        profiles.delete("thorough")
    assert profiles.find("thorough").schedules == 2
    for schedule_id in made:
        repository.delete_schedule(schedule_id)
    assert profiles.delete("thorough").name == "thorough"
    assert profiles.list_all() == []


@pytest.mark.parametrize("config", ['{"depth": 3}', "[1, 2]", '"text"', "7"])
def test_another_programs_profile_is_shown_with_what_is_wrong_and_can_be_mended(
    db: DatabaseConnection, profiles: ScanProfiles, config: str
) -> None:
    run_sql(db, "INSERT INTO scan_profiles (name, config) VALUES ('odd', %s)", config)
    (found,) = profiles.list_all()
    assert [problem.reason for problem in found.problems] == ["is not a field of a cookie scan"]
    with pytest.raises(InvalidInput, match="is not a field of a cookie scan"):
        profiles.edit("odd", changes={"max_pages": 5})
    _, after = profiles.edit("odd", changes={"max_pages": 5}, unset=[found.problems[0].field])
    assert (after.config, after.problems) == ({"max_pages": 5}, [])


def test_names_that_were_there_twice_become_unique_and_come_back(db: DatabaseConnection) -> None:
    downgrade(db, "0003")
    for name in ("standard", "standard", "standard", "x" * 255, "x" * 255, None, None):
        run_sql(db, "INSERT INTO scan_profiles (name) VALUES (%s)", name)
    upgrade(db)
    names = [row[0] for row in run_sql(db, "SELECT name FROM scan_profiles WHERE name LIKE 's%%' ORDER BY 1")]
    assert [name[: len("standard (")] for name in names] == ["standard", "standard (", "standard ("]
    with pytest.raises(InvalidInput, match="another profile has the name 'standard'"):
        ScanProfiles(db).add("standard", {})
    downgrade(db, "0003")
    assert run_sql(db, "SELECT name, count(*) FROM scan_profiles WHERE length(name) < 200 GROUP BY name") == [
        ("standard", 3)
    ]


# --- the commands ---


def test_a_profile_from_the_command_line(cli: Cli) -> None:
    added = cli("add", "thorough", "--engine", "browser", "--pages", "200", "--page", "/a", "--page", "/b")
    assert (added.exit_code, added.stderr) == (0, "")
    assert added.stdout == (
        "added thorough: engine=browser, max_pages=200, custom_pages=['/a', '/b']\n"
        "use it: manage.py schedule edit SCHEDULE --profile thorough\n"
    )
    edited = cli("edit", "thorough", "--pages", "300", "--name", "deep", "--set", "custom_pages=")
    assert edited.stdout.splitlines() == [
        "name: thorough -> deep",
        "max_pages: 200 -> 300",
        "custom_pages: ['/a', '/b'] -> default",
    ]
    assert "engine=browser, max_pages=300" in cli("list").stdout
    assert "max_pages  300" in cli("show", "deep").stdout
    assert cli("edit", "deep", "--pages", "300").stdout == "nothing changed: the profile already has these values\n"
    assert cli("delete", "deep", answer="n\n").exit_code == 1
    assert cli("delete", "deep", "--yes").stdout == "deleted deep\n"
    assert cli("list").stdout.startswith("no profile exists; add one: ")


def test_every_command_speaks_json(cli: Cli) -> None:
    added = json.loads(cli("add", "thorough", "--pages", "200", "--json").stdout)
    assert added["config"] == {"max_pages": 200}
    assert json.loads(cli("list", "--json").stdout)["items"] == [added]
    assert json.loads(cli("show", "thorough", "--json").stdout) == {"profile": added, "problems": []}
    assert json.loads(cli("edit", "thorough", "--depth", "1", "--json").stdout)["config"]["scan_depth"] == 1
    assert json.loads(cli("delete", "thorough", "--yes", "--json").stdout) == {"deleted": added["profile_id"]}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["add", "a", "--engine", "ftp"], "engine: "),
        (["add", "a", "--pages", "0", "--depth", "-1"], "max_pages: "),
        (["add", "a", "--set", "colour=red"], "colour: is not a field of a cookie scan"),
        (["add", "a", "--pages", "1", "--set", "max_pages=2"], "max_pages: is given twice"),
        (["add", "a", "--set", "max_pages"], "--set: must look like FIELD=VALUE"),
        (["add", "a", "--page", "javascript:alert(1)"], "custom_pages: "),
        (["show", "nobody"], "profile: there is no profile nobody"),
        (["edit", "nobody", "--pages", "1"], "profile: there is no profile nobody"),
        (["edit", "nobody"], "edit: give at least one setting to change; see --help"),
        (["edit", "taken", "--set", "colour="], "colour: is not a field of a cookie scan"),
        (["delete", "nobody", "--yes"], "profile: there is no profile nobody"),
        (["add", "taken"], "name: another profile has the name 'taken'"),
    ],
)
def test_a_command_that_makes_no_sense_says_why(cli: Cli, arguments: list[str], line: str) -> None:
    cli("add", "taken")
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(line)


def test_a_schedule_takes_a_profile_by_its_name(cli: Cli, repository: ScheduleRepository) -> None:
    profile_id = json.loads(cli("add", "thorough", "--json").stdout)["profile_id"]
    made = ["schedule", "add", "example.com", "--when", "daily 02:00", "--name", "nightly", "--profile"]
    assert CliRunner().invoke(manage.app, [*made, "thorough"]).exit_code == 0
    assert str(repository.find_schedule("nightly").profile_id) == profile_id
    assert profile_id in CliRunner().invoke(manage.app, ["schedule", "show", "nightly"]).stdout
    refused = CliRunner().invoke(manage.app, [*made, "nobody"])
    assert (refused.exit_code, refused.stderr) == (2, "profile: there is no profile nobody\n")


def test_deleting_a_profile_in_use_names_its_schedules(cli: Cli, repository: ScheduleRepository) -> None:
    profile_id = json.loads(cli("add", "thorough", "--json").stdout)["profile_id"]
    repository.create_schedule(**{**VALID, "name": "nightly", "profile_id": profile_id})
    result = cli("delete", "thorough", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "profile thorough is used by nightly; assign another profile to them first\n"


@pytest.mark.parametrize("command", ["add", "list", "show", "edit", "delete"])
def test_every_command_explains_itself_with_an_example(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert f"manage.py scan-profile {command}" in result.stdout
    assert "--json" in result.stdout
