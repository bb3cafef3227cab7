"""`manage.py sync` as its users meet it."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import manage
from config import get_settings
from database.connection import DatabaseConnection, get_db_connection
from services.api_sync.state import SyncState
from services.schedule_repository import get_schedule_repository
from tests.integration.api_sync.looking import of, rows
from tests.support.api_stand_in import ApiStandIn, item, raw, silence, status
from tests.support.terminals import InTerminal
from tests.support.waiting import eventually

Cli = Callable[..., Result]


@pytest.fixture
def cli(own_process: dict[str, str], api: ApiStandIn, no_pauses: None, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("API_URL", api.url.replace("://", "://anna:hunter2@"))
    monkeypatch.setenv("FETCH_ALLOWED_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("REQUEST_TIMEOUT", "20")
    get_settings.cache_clear()

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(manage.app, ["sync", *arguments])
        assert "hunter2" not in result.output + result.stderr
        return result

    return run


def lines(result: Result) -> list[str]:
    """Without the table's own spaces."""
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def report(result: Result) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_a_sync_says_what_it_did(cli: Cli) -> None:
    first = cli()
    assert (first.exit_code, first.stdout, first.stderr) == (0, "10 created\n", "")
    assert cli().stdout == "the API has nothing new\n"


def test_it_is_recorded_who_asked_for_it(cli: Cli) -> None:
    cli()
    ((who,),) = rows(get_db_connection(), "SELECT DISTINCT changed_by FROM schedule_changes")
    assert who.startswith("api-sync (cli:")


def test_skipped_items_are_told_and_are_no_failure(cli: Cli, api: ApiStandIn) -> None:
    api.items[3] = item(3, domain="localhost")
    result = cli()
    assert result.exit_code == 0
    assert lines(result) == [
        "what item schedule how",
        "skipped 4 localhost data.domain: 'localhost' has no dot; a public domain name such as example.com is required",
        "9 created, 1 skipped",
    ]


def test_a_dry_run_shows_the_diff_as_a_table_and_writes_nothing(cli: Cli, api: ApiStandIn) -> None:
    cli()
    repository = get_schedule_repository()
    repository.update_schedule(of(repository, 1).schedule_id, domain="mine.example")
    api.items[2] = item(2, schedule={"frequency": "hourly", "time": {"minute": 5}})
    api.items[3] = {"domain_config_id": "config-3", "data": None}
    del api.items[9]
    api.items.append(item(77))
    before = rows(get_db_connection(), "SELECT schedule_id, revision FROM schedules ORDER BY 1")
    result = cli("--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result) == [
        "what item schedule how",
        "created 10 host000077.example",
        'updated 3 host000002.example frequency: daily → hourly; time_config: {"hour": 2, "minute": 2} → {"minute": 5}',
        "disabled host000009.example",
        "skipped 4 config-3 data: must be an object, got None",
        "local edits kept 2 host000001.example domain: mine.example here, host000001.example in the API",
        "would be: 1 created, 1 updated, 7 unchanged, 1 skipped, 1 disabled, 1 local edits kept",
    ]
    assert rows(get_db_connection(), "SELECT schedule_id, revision FROM schedules ORDER BY 1") == before


def test_a_long_diff_is_cut_for_people_and_whole_for_programs(cli: Cli, api: ApiStandIn) -> None:
    api.items = [item(number) for number in range(30)]
    shown = lines(cli("--dry-run"))
    assert len(shown) == 1 + 20 + 1 + 1
    assert shown[-2] == "created … and 10 more --json lists them all"
    told = report(cli("--dry-run", "--json"))
    assert (told["dry_run"], told["counts"]["created"], len(told["entries"])) == (True, 30, 30)


def test_json_has_the_whole_report(cli: Cli) -> None:
    told = report(cli("--json"))
    assert (told["outcome"], told["items"], told["counts"]["created"], told["dry_run"]) == ("done", 10, 10, False)


def test_refused_removals_are_a_failure_with_the_way_out(cli: Cli, api: ApiStandIn) -> None:
    cli()
    api.items = api.items[:7]
    refused = cli()
    assert refused.exit_code == 1
    assert lines(refused)[-1] == "7 unchanged, 3 not disabled"
    assert refused.stderr.splitlines() == [
        "nothing was disabled: 3 of 10 schedules are missing, more than 20 % (API_SYNC_MAX_REMOVALS_PERCENT)",
        "if these removals are intended: manage.py sync --dry-run, then manage.py sync --allow-removals",
    ]
    allowed = cli("--allow-removals")
    assert (allowed.exit_code, lines(allowed)[-1]) == (0, "7 unchanged, 3 disabled")


def test_local_edits_can_be_overwritten_once(cli: Cli) -> None:
    cli()
    repository = get_schedule_repository()
    repository.update_schedule(of(repository, 1).schedule_id, domain="mine.example")
    assert lines(cli())[-1] == "10 unchanged, 1 local edits kept"
    result = cli("--local-edits", "overwrite")
    assert lines(result)[-1] == "1 updated, 9 unchanged, 1 local edits overwritten"
    assert of(repository, 1).domain == "host000001.example"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(status(404), "it answered 404 Not Found"), (raw(b"<html>"), "it is a page of HTML or XML, not JSON")],
)
@pytest.mark.parametrize("arguments", [(), ("--dry-run",), ("--json",)])
def test_an_api_that_fails_is_one_clear_line(
    cli: Cli, api: ApiStandIn, answer: Any, reason: str, arguments: tuple[str, ...]
) -> None:
    api.script = [answer]
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"the API gave no usable response: GET {api.url}: {reason}\n"


def test_ctrl_c_takes_the_progress_bar_away_and_hands_the_sync_back(
    own_process: dict[str, str], api: ApiStandIn, db: DatabaseConnection
) -> None:
    api.script = [silence]
    environment = {**own_process, "API_URL": api.url, "FETCH_ALLOWED_NETWORKS": "127.0.0.0/8", "REQUEST_TIMEOUT": "300"}
    command = InTerminal(["sync"], environment)
    eventually(lambda: api.requests, 60)
    command.process.send_signal(signal.SIGINT)
    code, output, shown = command.finish()
    assert (code, output) == (130, "")
    assert "calling the API" in shown
    assert "interrupted; changes so far are kept, and the next sync continues" in shown
    assert SyncState(db).read().started_at is None


def test_without_an_address_there_is_nothing_to_sync_from(own_process: dict[str, str]) -> None:
    result = CliRunner().invoke(manage.app, ["sync"])
    assert (result.exit_code, result.stderr) == (2, "API_URL: is not set: there is nothing to sync from\n")


# --- the status ---


def test_before_the_first_sync_the_status_says_so(cli: Cli) -> None:
    result = cli("--status")
    assert (result.exit_code, result.stdout) == (1, "never synced yet\n")


def test_the_status_is_what_came_of_the_last_sync(cli: Cli, api: ApiStandIn) -> None:
    api.items[0] = None
    cli()
    result = cli("--status")
    assert result.exit_code == 0
    told = lines(result)
    assert told[0] == "last sync done"
    assert told[2].startswith("last success 2")
    assert told[3].endswith(": 9 created, 1 skipped")
    assert told[-1] == "skipped 1 None must be an object, got None"
    assert len(api.requests) == 1


def test_the_status_of_a_failure_keeps_the_last_good_answer(cli: Cli, api: ApiStandIn) -> None:
    cli()
    api.script = [status(403)]
    cli()
    result = cli("--status")
    assert result.exit_code == 1
    assert lines(result)[0] == "last sync failed"
    assert lines(result)[2] == f"the API gave no usable response: GET {api.url}: it answered 403 Forbidden"
    assert lines(result)[-1].endswith(": 10 created")
    told = report(cli("--status", "--json"))
    assert (told["last"]["outcome"], told["applied"]["counts"]["created"], told["syncing"]) == ("failed", 10, None)
    assert told["age_seconds"] >= 0


def test_the_status_names_whoever_syncs_right_now(cli: Cli) -> None:
    cli()
    SyncState(get_db_connection()).take("replica-7", 60)
    assert lines(cli("--status"))[0].startswith("replica-7 has been syncing since 2")


@pytest.mark.parametrize("other", ["--dry-run", "--allow-removals"])
def test_the_status_goes_with_nothing_else(cli: Cli, other: str) -> None:
    result = cli("--status", other)
    assert (result.exit_code, result.stderr) == (
        2,
        "--status: cannot be combined with other options: it only shows the last sync\n",
    )
