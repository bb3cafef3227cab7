"""Kinds of channels: mail over a real SMTP server, apprise, what a configuration may say, and what is never shown."""

import json
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from database.connection import DatabaseConnection
from enhanced_scheduler import extras
from services.errors import ChannelNotFound, InvalidInput
from services.notifications.channels import email, webhook
from services.notifications.deliveries import LONGEST_PAUSE_SECONDS
from tests.support.certificate import certificate_file, server_tls
from tests.support.ledger import Ledger
from tests.support.mail import MailServer
from tests.support.notifying import SECRET, Notifying, is_signed, send_all, sender_of

PASSWORD = "correct horse battery staple"


def test_a_mail_arrives_with_everything_a_person_needs(
    db: DatabaseConnection, notifying: Notifying, mails: MailServer
) -> None:
    to = ["ops@a.example", "ann@b.example"]
    channel = notifying.email(mails.port, to=to, **{"from": "Zeitplan Büro <us@a.example>"})
    facts, link = {"Attempts": "3", "Since": "13:13"}, "https://scheduler.example/executions/1"
    notifying.tell(channel, title="nightly-export: größer als erlaubt", text="disk full", facts=facts, link=link)
    assert send_all(sender_of(db)) == 1
    (mail,) = mails.received
    assert mails.recipients == [to]
    assert mail["Subject"] == "nightly-export: größer als erlaubt"
    assert mail["From"] == "Zeitplan Büro <us@a.example>"
    assert mail["Auto-Submitted"] == "auto-generated"
    body = str(mail.get_content())
    assert body.split() == ["disk", "full", "Attempts:", "3", "Since:", "13:13", link]
    (delivery,) = notifying.all()
    assert mail["Message-ID"] == f"<{delivery.delivery_id}@a.example>"
    assert notifying.deliveries.attempts(delivery.delivery_id)[0].answer == "accepted for 2 of 2"


def test_a_mail_that_is_sent_again_has_the_same_id(
    db: DatabaseConnection, notifying: Notifying, mails: MailServer
) -> None:
    notifying.tell(notifying.email(mails.port))
    send_all(sender_of(db))
    notifying.deliveries.repeat(notifying.all()[0].delivery_id, "ann")
    send_all(sender_of(db))
    first, second = mails.received
    assert first["Message-ID"] == second["Message-ID"]


def test_some_refused_recipients_are_named_and_all_refused_is_a_failure(
    db: DatabaseConnection, notifying: Notifying, mails: MailServer
) -> None:
    mails.refuse["gone@a.example"] = "550 no such user"
    notifying.tell(notifying.email(mails.port, "some", to=["ops@a.example", "gone@a.example"]))
    notifying.tell(notifying.email(mails.port, "none", to=["gone@a.example"]))
    send_all(sender_of(db))
    some, none = notifying.all()
    assert notifying.deliveries.attempts(some.delivery_id)[0].answer == (
        "accepted for 1 of 2; refused: gone@a.example (550 no such user)"
    )
    assert (none.state, none.last_error) == (
        "waiting",
        f"SMTP at 127.0.0.1:{mails.port} refused every recipient: gone@a.example (550 no such user)",
    )


def test_a_mail_server_that_says_no_is_quoted(db: DatabaseConnection, notifying: Notifying, mails: MailServer) -> None:
    mails.answer = "554 rejected as spam"
    notifying.tell(notifying.email(mails.port))
    send_all(sender_of(db))
    assert notifying.all()[0].last_error == f"SMTP at 127.0.0.1:{mails.port} answered 554 rejected as spam"


def test_a_login_uses_tls_a_checked_certificate_and_a_password_of_the_environment(
    db: DatabaseConnection, notifying: Notifying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MailServer(tls=server_tls(tmp_path), login=("us", PASSWORD)) as mails:
        secure: dict[str, Any] = {"security": "starttls", "user": "us", "password": "${env:SMTP_PASSWORD}"}
        notifying.tell(notifying.email(mails.port, **secure))
        settings = {"job_secrets": "SMTP_PASSWORD@127.0.0.1"}
        send_all(sender_of(db, {"SMTP_PASSWORD": PASSWORD}, **settings))
        assert "the certificate is not trusted" in str(notifying.all()[0].last_error)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate_file(tmp_path)))
        for password in ("wrong password", PASSWORD):
            notifying.pass_seconds(LONGEST_PAUSE_SECONDS * 2)
            send_all(sender_of(db, {"SMTP_PASSWORD": password}, **settings))
        assert len(mails.received) == 1
    attempts = notifying.deliveries.attempts(notifying.all()[0].delivery_id)
    assert [attempt.outcome for attempt in attempts] == ["sent", "failed", "failed"]
    assert "answered 535" in str(attempts[1].answer)


def test_a_mail_server_that_sends_a_byte_now_and_then_is_left_in_time(
    db: DatabaseConnection, notifying: Notifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email, "SEND_SECONDS", 2.0)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection:
                while not over.wait(0.2):
                    try:
                        connection.send(b"2")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        notifying.tell(notifying.email(listener.getsockname()[1]))
        begun_at = time.monotonic()
        send_all(sender_of(db))
        assert time.monotonic() - begun_at < 20
        over.set()
        thread.join()
    assert "no response in time" in str(notifying.all()[0].last_error)


def test_private_addresses_need_a_setting_for_hooks_and_mail_servers(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger, mails: MailServer
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    notifying.tell(notifying.email(mails.port))
    send_all(sender_of(db, fetch_allow_private_addresses=False))
    assert receiver.requests() == []
    assert mails.received == []
    for delivery in notifying.all():
        assert "FETCH_ALLOWED_NETWORKS" in str(delivery.last_error)


def test_a_redirect_is_not_followed(db: DatabaseConnection, notifying: Notifying, receiver: Ledger) -> None:
    receiver.answer("/hook", status=307, headers={"Location": "/other"})
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    send_all(sender_of(db))
    assert [request.path for request in receiver.requests()] == ["/hook"]
    assert "answered 307" in str(notifying.all()[0].last_error)


def test_apprise_calls_its_services_in_a_process_of_its_own(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    place = receiver.url.removeprefix("http://")
    config = {"url": f"json://someone:hunter22@{place}/${{env:TOPIC}}"}
    channel = notifying.channels.add({"name": "chat", "kind": "apprise", "config": config}, "ann").record
    assert channel.config == {"url": "json://***"}
    notifying.tell(channel.channel_id, text="disk full", severity="error")
    receiver.answer("/secret-topic", status=500)
    sender = sender_of(db, {"TOPIC": "secret-topic"}, job_secrets="TOPIC@json")
    send_all(sender)
    failed = str(notifying.all()[0].last_error)
    assert failed.startswith("json rejected it:")
    assert not [secret for secret in ("hunter22", "secret-topic") if secret in failed]
    receiver.answer("/secret-topic", status=200)
    notifying.pass_seconds(LONGEST_PAUSE_SECONDS)
    send_all(sender)
    assert notifying.states() == ["sent"]
    body = json.loads(receiver.requests("/secret-topic")[-1].body)
    assert (body["title"], body["message"], body["type"]) == ("nightly-export failed", "disk full", "failure")


def test_an_apprise_url_that_it_does_not_understand_is_refused_before_it_is_stored(notifying: Notifying) -> None:
    for url, reason in (
        ("slack://x", "does not understand"), ("no url", "must begin with the name of a service"),
        ("dbus://", "must begin"), ("syslog://localhost", "reaches only this machine"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=reason):
            notifying.channels.add({"name": "chat", "kind": "apprise", "config": {"url": url}}, "ann")
    with pytest.raises(ChannelNotFound):
        notifying.channels.find("chat")


def test_without_apprise_the_error_says_how_to_install_it(
    db: DatabaseConnection, notifying: Notifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"name": "chat", "kind": "apprise", "config": {"url": "json://127.0.0.1:9/"}}
    notifying.tell(notifying.channels.add(given, "ann").record.channel_id)
    monkeypatch.setitem(extras.MODULES, "apprise", ("apprise_is_not_here",))
    send_all(sender_of(db))
    words = "needs `pip install -r requirements-apprise.txt`"
    assert words in str(notifying.all()[0].last_error)
    with pytest.raises(InvalidInput, match="needs `pip install"):
        notifying.channels.add({**given, "name": "chat2"}, "ann")


def test_a_new_secret_is_made_and_returned_once(db: DatabaseConnection, notifying: Notifying, receiver: Ledger) -> None:
    given = {"name": "hook", "kind": "webhook", "config": {"url": f"{receiver.url}/hook"}}
    added = notifying.channels.add(given, "ann")
    assert added.secret is not None
    assert added.secret not in repr(added)
    assert len(webhook.key_of(added.secret)) == 32
    notifying.tell(added.record.channel_id)
    send_all(sender_of(db))
    assert is_signed(receiver.requests("/hook")[0], added.secret)
    assert notifying.channels.find("hook").config["secret"] == "***"


def test_secrets_are_in_no_record_no_log_and_no_answer(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    secrets = ("T00/B00/path-secret", "header-secret", "query-secret", "env-secret", SECRET)
    echo = " ".join(secrets).encode()  # a receiver that repeats what it was sent
    receiver.answer("/T00/B00/path-secret", status=400, body=echo)
    notifying.tell(
        notifying.webhook(
            f"{receiver.url}/T00/B00/path-secret?key=query-secret",
            headers={"X-Key": "header-secret", "X-More": "Bearer ${env:KEY}"},
        )
    )
    send_all(sender_of(db, {"KEY": "env-secret"}, job_secrets="KEY@127.0.0.1"))
    assert receiver.requests()[0].headers["X-More"] == "Bearer env-secret"
    (delivery,) = notifying.all()
    record = notifying.channels.find("hook")
    said = [repr(record), repr(delivery), repr(notifying.deliveries.attempts(delivery.delivery_id)), caplog.text]
    assert "answered 400" in str(record.last_error)
    assert [secret for secret in secrets for text in said if secret in text] == []
    assert record.config["url"] == f"{receiver.url}/***"


@pytest.mark.parametrize(
    ("secrets", "allowed", "reason"),
    [
        ({"KEY": "x" * 9}, "", "JOB_SECRETS does not list the environment variable KEY"),
        ({"KEY": "x" * 9}, "KEY@other.example", "JOB_SECRETS allows KEY for other.example only"),
        ({}, "KEY", "the environment variable KEY is not set"),
    ],
)
def test_a_secret_of_the_environment_goes_only_where_job_secrets_allows(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger, secrets: dict[str, str], allowed: str, reason: str
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook", headers={"X-Key": "${env:KEY}"}))
    send_all(sender_of(db, secrets, job_secrets=allowed))
    assert receiver.requests() == []
    assert reason in str(notifying.all()[0].last_error)


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("webhook", {"url": "ftp://a.example"}, "config.url"),
        ("webhook", {"url": "https://${env:HOST}/x"}, "config.url"),
        ("webhook", {"url": "https://a.example", "secret": "whsec_short"}, "config.secret"),
        ("webhook", {"url": "https://a.example", "headers": {"webhook-id": "x"}}, "config.headers"),
        ("webhook", {"url": "https://a.example", "headers": {"Host": "b.example"}}, "config.headers"),
        ("webhook", {"url": "https://a.example", "headers": {"X": "a\nb"}}, "config.headers"),
        ("webhook", {"url": "https://a.example/***"}, "config"),
        ("webhook", {"url": "https://a.example", "colour": "red"}, "config.colour"),
        ("email", {"host": "a.example", "from": "a@b.example", "to": []}, "config.to"),
        ("email", {"host": "a.example", "from": "a@b.example", "to": ["a@b.example\nBcc: x@y.example"]}, "config.to"),
        ("email", {"host": "a.example", "from": "A\r\nBcc: x <a@b.example>", "to": ["a@b.example"]}, "config.from"),
        ("email", {"host": "a.example", "from": "a@b.example", "to": ["a@b.example"], "user": "a",
                   "password": "plain"}, "config.password"),
        ("email", {"host": "a.example", "from": "a@b.example", "to": ["a@b.example"], "user": "a"}, "config"),
        ("email", {"host": "a.example", "from": "a@b.example", "to": ["a@b.example"], "user": "a",
                   "password": "${env:X}", "security": "none"}, "config"),
        ("pigeon", {}, "kind"),
        ("webhook", [], "config"),
    ],
)  # fmt: skip
def test_what_a_configuration_may_not_say(notifying: Notifying, kind: str, config: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        notifying.channels.add({"name": "new", "kind": kind, "config": config}, "ann")
    assert [problem.field.split(".")[:2] for problem in refused.value.problems] == [field.split(".")]


def test_a_channel_has_one_name_and_names_are_plain(notifying: Notifying) -> None:
    notifying.webhook("https://a.example/hook")
    with pytest.raises(InvalidInput, match="channel hook already exists"):
        notifying.webhook("https://a.example/hook")
    for name in ("", "-x", "a/b", "a b", "x" * 64, 7):
        with pytest.raises(InvalidInput, match="name: must be 1 to 63"):
            notifying.webhook("https://a.example/hook", name)  # type: ignore[arg-type]


def test_an_edit_changes_the_fields_that_are_given(notifying: Notifying) -> None:
    notifying.webhook("https://a.example/hook", headers={"X-A": "1"})
    before, after = notifying.channels.edit("hook", {"config": {"headers": None}, "note": "ops"}, "ann")
    assert (before.config["headers"], after.config["headers"]) == ({"X-A": "***"}, {})
    assert (after.note, after.updated_by, after.config["secret"]) == ("ops", "ann", "***")
    with pytest.raises(InvalidInput, match="stands for a secret"):
        notifying.channels.edit("hook", {"config": {"secret": "***"}}, "ann")
    with pytest.raises(InvalidInput, match="cannot be changed"):
        notifying.channels.edit("hook", {"kind": "email"}, "ann")


def test_a_test_goes_before_everything_that_waits_and_is_tried_once(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/hook", status=500)
    channel, sender = notifying.webhook(f"{receiver.url}/hook"), sender_of(db)
    notifying.tell(channel, *map(str, range(10)))
    send_all(sender)
    test = notifying.channels.send_test("hook", "ann")
    assert send_all(sender) == 1
    found = notifying.deliveries.find(test)
    assert (found.event, found.state, found.attempts) == ("test", "failed", 1)
    receiver.answer("/hook", status=200)
    test = notifying.channels.send_test("hook", "ann")
    assert send_all(sender) == 10  # it works again: the others follow, but for the one that has failed itself
    assert notifying.deliveries.find(test).state == "sent"
    notifying.channels.edit("hook", {"enabled": False}, "ann")
    with pytest.raises(InvalidInput, match="hook is disabled"):
        notifying.channels.send_test("hook", "ann")


def test_what_a_job_wrote_is_text_in_every_service_and_never_markup(
    db: DatabaseConnection, notifying: Notifying, mails: MailServer
) -> None:
    url = f"mailto://127.0.0.1:{mails.port}?mode=insecure&format=html&from=us@a.example&to=ops@a.example"
    channel = notifying.channels.add({"name": "chat", "kind": "apprise", "config": {"url": url}}, "ann").record
    notifying.tell(channel.channel_id, text="<img src=https://evil.example/pixel> <class 'KeyError'>")
    send_all(sender_of(db))
    assert notifying.states() == ["sent"], notifying.all()[0].last_error
    (mail,) = mails.received
    html = [part.get_content() for part in mail.walk() if part.get_content_type() == "text/html"]
    assert html
    assert not [text for text in html if "<img" in text or "<class" in text]


def test_hidden_values_do_not_follow_a_webhook_to_another_host(notifying: Notifying) -> None:
    notifying.webhook(
        "https://hooks.example.com/x", headers={"Authorization": "Bearer hunter22", "X-Env": "${env:KEY}"}
    )
    with pytest.raises(InvalidInput, match=r"config\.headers: Authorization was stored for hooks\.example\.com"):
        notifying.channels.edit("hook", {"config": {"url": "https://evil.example/x"}}, "operator")
    with pytest.raises(InvalidInput, match=r"config\.headers: Authorization was stored"):
        notifying.channels.edit("hook", {"config": {"url": "http://hooks.example.com/x"}}, "operator")
    notifying.channels.edit("hook", {"config": {"url": "https://hooks.example.com/other"}}, "operator")
    given = {"url": "https://new.example.com/x", "headers": {"Authorization": "Bearer another"}}
    notifying.channels.edit("hook", {"config": given}, "operator")
    notifying.channels.edit("hook", {"config": {"url": "https://third.example.com/x", "headers": None}}, "operator")


def test_the_value_of_a_header_that_cannot_be_sent_is_refused_before_it_is_stored(notifying: Notifying) -> None:
    for value in ("grüße €", " leading", "a\x01b"):
        with pytest.raises(InvalidInput, match=r"config\.headers: the value of X-Note must be"):
            notifying.webhook("https://hooks.example.com/x", headers={"X-Note": value})


def test_a_secret_that_is_no_header_is_said_without_being_shown(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook", headers={"X-Key": "${env:KEY}"}))
    send_all(sender_of(db, {"KEY": "hunter22\r\nX-Evil: 1"}, job_secrets="KEY"))
    assert receiver.requests() == []
    assert str(notifying.all()[0].last_error).startswith("header X-Key: its value must be one line of ASCII")
    assert "hunter22" not in str(notifying.all()[0].last_error)


def test_a_field_that_is_to_be_removed_has_to_exist(notifying: Notifying) -> None:
    notifying.webhook("https://hooks.example.com/x")
    with pytest.raises(InvalidInput, match=r"config\.frobnicate: is no field of kind webhook \(known: url"):
        notifying.channels.edit("hook", {"config": {"frobnicate": None}}, "ann")
