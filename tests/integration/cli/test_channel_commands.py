"""`manage.py channel …` and `manage.py delivery …`, as people type them."""

import json

from database.connection import DatabaseConnection
from services.notifications.channels.webhook import key_of
from tests.integration.cli.test_command_line import Cli
from tests.integration.cli.test_command_line import cli as cli
from tests.support.ledger import Ledger
from tests.support.notifying import Notifying, send_all, sender_of


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_webhook_is_added_shown_changed_and_deleted(cli: Cli) -> None:
    added = cli("channel", "add", "ops", "webhook", "--url", "https://a.example/T00/x-path", "--note", "night shift")
    secret = added.stdout.strip()
    assert len(key_of(secret)) == 32  # alone on stdout, for scripts
    assert "only once" in added.stderr
    listed, shown = cli("channel", "list").stdout, cli("channel", "show", "ops").stdout
    assert "ops webhook unused 0" in words(listed)
    assert "url https://a.example/***" in words(shown)
    edited = cli("channel", "edit", "ops", "--header", "Authorization: Bearer open-sesame", "--json").stdout
    assert json.loads(edited)["config"]["headers"] == {"Authorization": "***"}
    for told in (listed, shown, edited, cli("channel", "list", "--json").stdout, cli("channel", "show", "ops").stdout):
        assert not [hidden for hidden in (secret, "x-path", "open-sesame") if hidden in told]
    assert cli("channel", "disable", "ops").stdout == "ops is disabled\n"
    assert cli("channel", "enable", "ops").stdout == "ops is enabled\n"
    assert cli("channel", "delete", "ops", answer="n").exit_code == 1
    assert cli("channel", "delete", "ops", "--yes").exit_code == 0
    assert cli("channel", "show", "ops").exit_code == 1


def test_a_mail_channel_is_added_with_a_password_of_the_environment(cli: Cli) -> None:
    given = ("channel", "add", "mail", "email", "--host", "smtp.example", "--user", "us", "--from", "us@a.example")
    refused = cli(*given, "--to", "a@b.example", "--password", "plain")
    assert (refused.exit_code, "config.password: must be a reference" in words(refused.stderr)) == (2, True)
    assert "plain" not in refused.output.replace("plaintext", "")
    assert cli(*given, "--to", "a@b.example", "--to", "c@d.example", "--password", "${env:SMTP}").exit_code == 0
    shown = words(cli("channel", "show", "mail").stdout)
    assert 'password ${env:SMTP} from us@a.example to ["a@b.example", "c@d.example"]' in shown
    cli("channel", "edit", "mail", "--unset", "user", "--unset", "password")
    assert "${env:SMTP}" not in cli("channel", "show", "mail").stdout


def test_a_test_says_what_the_other_side_answered(
    cli: Cli, db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.webhook(f"{receiver.url}/hook", "ops")
    waiting = cli("channel", "test", "ops", "--wait", "0")
    assert waiting.exit_code == 1
    assert "no replica is running" in waiting.stderr
    sender = sender_of(db)
    sender.loop.start()
    try:
        assert cli("channel", "test", "ops").stdout == "sent: answered 200\n"
        receiver.answer("/hook", status=503)
        failed = cli("channel", "test", "ops", "--json")
        assert (failed.exit_code, json.loads(failed.stdout)["state"]) == (1, "failed")
    finally:
        sender.loop.stop()
        sender.close()


def test_deliveries_are_listed_shown_and_repeated(
    cli: Cli, db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook", "ops"), text="disk full", facts={"Attempts": "3"})
    receiver.answer("/hook", status=503)
    send_all(sender_of(db))
    (row,) = json.loads(cli("delivery", "list", "--channel", "ops", "--json").stdout)["items"]
    assert (row["state"], row["message"]["title"]) == ("waiting", "nightly-export failed")
    shown = words(cli("delivery", "show", row["delivery_id"]).stdout)
    assert "disk full Attempts: 3" in shown
    assert "failed replica-1 127.0.0.1 answered 503: ok" in shown
    assert cli("delivery", "list", "--state", "failed").stdout == "no delivery\n"
    notifying.run("UPDATE notification_deliveries SET state = 'failed', ended_at = now()")
    assert cli("delivery", "repeat").exit_code == 2
    assert cli("delivery", "repeat", "--failed-of", "ops").stdout == "1 delivery will be sent again\n"
    assert cli("delivery", "repeat", row["delivery_id"]).exit_code == 0
    receiver.answer("/hook", status=200)
    assert send_all(sender_of(db)) == 1
    assert json.loads(cli("delivery", "show", row["delivery_id"], "--json").stdout)["state"] == "sent"
