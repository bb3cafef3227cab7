"""`manage.py rule …`, as people type it."""

import json

import pytest

from database.connection import DatabaseConnection
from tests.integration.cli.test_command_line import Cli
from tests.integration.cli.test_command_line import cli as cli
from tests.support.newsroom import Newsroom


@pytest.fixture
def newsroom(db: DatabaseConnection) -> Newsroom:
    found = Newsroom(db)
    found.channel("ops")
    found.channel("mail")
    return found


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_rule_is_added_shown_changed_switched_and_deleted(cli: Cli, newsroom: Newsroom) -> None:
    newsroom.schedule("nightly")
    added = cli("rule", "add", "billing", "-c", "ops", "-c", "mail", "-e", "failing", "-e", "late", "--after", "3",
                "--late", "5m", "--tag", "billing", "--schedule", "nightly", "--quiet", "22:00-07:00",
                "--quiet-timezone", "Europe/Berlin", "--note", "for the shift")  # fmt: skip
    assert "added billing: failing, late to ops, mail" in added.stdout
    assert "billing failing, late schedule" in words(cli("rule", "list").stdout)
    shown = words(cli("rule", "show", "billing").stdout)
    assert "failing after 3 failures in a row" in shown
    assert "late by more than 5 min" in shown
    assert "quiet 22:00-07:00 Europe/Berlin" in shown
    edited = cli("rule", "edit", "billing", "--late", "10m", "--schedule", "").stdout
    assert "late_seconds: 300 -> 600" in edited
    assert cli("rule", "edit", "billing", "--late", "10m").stdout.startswith("nothing changed")
    assert cli("rule", "disable", "billing").stdout == "enabled: True -> False\n"
    assert cli("rule", "enable", "billing").stdout == "enabled: False -> True\n"
    assert json.loads(cli("rule", "list", "--json").stdout)["items"][0]["channels"] == ["ops", "mail"]
    assert cli("rule", "delete", "billing", answer="n").exit_code == 1
    assert cli("rule", "delete", "billing", "--yes").exit_code == 0
    assert cli("rule", "show", "billing").exit_code == 1


def test_every_wrong_field_is_named_and_the_right_word_suggested(cli: Cli, newsroom: Newsroom) -> None:
    refused = cli(
        "rule", "add", "a b", "-c", "opps", "-e", "faild", "--quiet-timezone", "europe/berln", "--digest", "dayly"
    )
    assert refused.exit_code == 2
    said = words(refused.stderr)
    for expected in ("name: must be 1 to 63 letters", "did you mean 'failed'?", "did you mean 'Europe/Berlin'?",
                     "did you mean 'daily'?"):  # fmt: skip
        assert expected in said
    refused = cli("rule", "add", "r", "-c", "opps")
    assert "no channel 'opps' exists, did you mean 'ops'?" in words(refused.stderr)
    refused = cli("rule", "add", "r", "-c", "ops", "-e", "late", "-e", "replica_lost", "--tag", "x", "--after", "3")
    said = words(refused.stderr)
    assert "late_seconds: is required for the event late" in said
    assert "after_failures: has no effect without the event failing" in said
    assert "tags: cannot be combined with the event replica_lost" in said


def test_a_dry_run_says_what_a_rule_would_have_told_and_writes_nothing(cli: Cli, newsroom: Newsroom) -> None:
    for number in range(5):
        newsroom.failed(newsroom.schedule(f"job-{number}"), "host name cannot be resolved")
    single = newsroom.schedule("single")
    newsroom.failed(single, "disk full")
    newsroom.ended(single, "success")
    newsroom.rule(name="r")
    tried = cli("rule", "try", "r")
    assert "5 schedules: host name cannot be resolved" in tried.stdout
    assert "single failed: disk full (recovered since)" in tried.stdout
    assert "2 messages from 7 executions" in tried.stdout
    assert newsroom.told() == []
    assert newsroom.run("SELECT FROM notification_incidents") == []
    assert json.loads(cli("rule", "try", "r", "--since", "1h", "--json").stdout)["is_complete"] is True
