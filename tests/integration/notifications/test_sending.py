"""How deliveries are claimed, sent and settled; the receivers are real servers on loopback."""

import json
import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest

from database.connection import DatabaseConnection
from services.notifications.deliveries import GIVE_UP_SECONDS, LONGEST_PAUSE_SECONDS
from tests.support.ledger import Answer, Ledger
from tests.support.notifying import Notifying, is_signed, send_all, sender_of
from tests.support.waiting import eventually

HOUR = 3600.0


def test_a_webhook_is_signed_and_says_everything(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    channel = notifying.webhook(f"{receiver.url}/hook", headers={"Authorization": "Bearer open-sesame"})
    notifying.tell(channel, severity="error", text="exit code 1", facts={"Attempts": "3"}, data={"attempt": 3})
    assert send_all(sender_of(db)) == 1
    (request,) = receiver.requests("/hook")
    assert is_signed(request)
    assert not is_signed(request, "whsec_" + "QUFB" * 11)
    assert request.headers["Authorization"] == "Bearer open-sesame"
    sent_at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
    assert abs(datetime.now(UTC) - sent_at) < timedelta(minutes=1)
    (delivery,) = notifying.all()
    assert (delivery.state, delivery.attempts, delivery.last_error) == ("sent", 1, None)
    body = json.loads(request.body)
    assert (body["type"], body["timestamp"]) == ("failed", delivery.created_at.isoformat())
    assert body["data"] == {
        "id": request.headers["webhook-id"], "title": "nightly-export failed", "text": "exit code 1",
        "severity": "error", "event": "failed", "link": None, "facts": {"Attempts": "3"}, "data": {"attempt": 3},
    }  # fmt: skip
    (attempt,) = notifying.deliveries.attempts(delivery.delivery_id)
    assert (attempt.number, attempt.outcome, attempt.answer, attempt.instance_id) == (
        1, "sent", "answered 200", "replica-1",
    )  # fmt: skip


def test_a_lost_reply_means_the_same_message_again_under_the_same_id(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/hook", Answer(delay_seconds=30), Answer())
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    sender = sender_of(db, request_timeout=1)
    assert send_all(sender) == 1
    (delivery,) = notifying.all()
    assert (delivery.state, delivery.last_error) == ("waiting", "POST 127.0.0.1: no response in time")
    notifying.pass_seconds(LONGEST_PAUSE_SECONDS)
    assert send_all(sender) == 1
    first, second = receiver.requests("/hook")
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(delivery.delivery_id)
    assert first.body == second.body
    assert notifying.states() == ["sent"]


def test_a_channel_that_is_down_for_an_hour_costs_few_attempts_and_loses_nothing(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="services.notifications")
    receiver.answer("/hook", status=503)
    channel = notifying.webhook(f"{receiver.url}/hook")
    notifying.tell(channel, *(f"fire-{number}" for number in range(20)))
    sender, steps = sender_of(db), 60
    for _ in range(steps):
        assert send_all(sender) <= 1  # a failing channel is only probed
        notifying.pass_seconds(HOUR / steps)
    assert 8 <= len(receiver.requests("/hook")) <= 20
    record = notifying.channels.find("hook")
    assert (record.state, record.waiting, record.last_error) == ("failing", 20, "127.0.0.1 answered 503: ok")
    receiver.answer("/hook", status=204)
    before = len(receiver.requests("/hook"))
    notifying.pass_seconds(LONGEST_PAUSE_SECONDS * 1.1)
    assert send_all(sender) == 20
    assert set(notifying.states()) == {"sent"}
    assert len({request.headers["webhook-id"] for request in receiver.requests("/hook")[before:]}) == 20
    assert notifying.channels.find("hook").state == "works"
    events = [getattr(record, "event", None) for record in caplog.records]
    assert (events.count("channel_failing"), events.count("channel_recovered")) == (1, 1)  # one line per outage


def test_a_failing_channel_does_not_keep_another_one_waiting(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/down", status=500)
    down = notifying.webhook(f"{receiver.url}/down", "down")
    up = notifying.webhook(f"{receiver.url}/up", "up")
    notifying.tell(down, *map(str, range(50)))
    notifying.tell(up, *map(str, range(50)))
    send_all(sender_of(db))
    assert len(receiver.requests("/up")) == 50
    assert len(receiver.requests("/down")) == 1


def test_one_message_that_the_receiver_never_takes_does_not_stop_the_others(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/hook", Answer(status=400), Answer())
    channel = notifying.webhook(f"{receiver.url}/hook")
    notifying.tell(channel, "poison", "good-1", "good-2")
    sender = sender_of(db)
    assert send_all(sender) == 1
    notifying.pass_seconds(1)
    notifying.run("UPDATE notification_channels SET resume_at = NULL")
    send_all(sender)
    assert [state for state in notifying.states() if state == "sent"] == ["sent", "sent"]


def test_a_receiver_that_asks_for_a_pause_gets_it(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/hook", status=429, headers={"Retry-After": "600"})
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    send_all(sender_of(db))
    resume_at = notifying.channels.find("hook").resume_at
    assert resume_at is not None
    assert 500 < (resume_at - datetime.now(UTC)).total_seconds() <= 600


def test_a_delivery_is_given_up_after_three_days_and_can_be_repeated(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/hook", status=500)
    channel, sender = notifying.webhook(f"{receiver.url}/hook"), sender_of(db)
    notifying.tell(channel, *map(str, range(5)))
    send_all(sender)
    assert notifying.states() == ["waiting"] * 5
    notifying.pass_seconds(GIVE_UP_SECONDS + 60)
    notifying.tell(channel, "new")
    assert send_all(sender) == 1
    assert notifying.states() == ["failed"] * 5 + ["waiting"]
    reasons = {delivery.last_error for delivery in notifying.all()[:5]}
    assert any("not tried: the channel has been failing for more than 3 days" in str(reason) for reason in reasons)
    receiver.answer("/hook", status=200)
    assert notifying.deliveries.repeat_failed(channel, "cli:ann") == 5
    assert send_all(sender) == 6  # at once: a person has asked
    assert set(notifying.states()) == {"sent"}
    assert notifying.all()[0].repeated_by == "cli:ann"


def test_a_fleet_that_slept_for_a_week_tries_before_it_gives_up(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    notifying.pass_seconds(7 * 86_400)
    receiver.answer("/hook", Answer(status=503), Answer())
    sender = sender_of(db)
    send_all(sender)
    assert notifying.states() == ["waiting"]
    notifying.pass_seconds(60)
    send_all(sender)
    assert notifying.states() == ["sent"]


def test_what_a_dead_process_was_sending_is_lost_and_sent_again(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    dead = sender_of(db, instance_id="replica-dead")
    assert dead._claim() is not None  # and then nothing more is heard of it
    sender = sender_of(db)
    assert send_all(sender) == 0  # not while the claim holds
    notifying.pass_seconds(120)
    assert send_all(sender) == 1
    (delivery,) = notifying.all()
    attempts = notifying.deliveries.attempts(delivery.delivery_id)
    assert [(each.instance_id, each.outcome) for each in attempts] == [("replica-1", "sent"), ("replica-dead", "lost")]


def test_a_replica_that_was_frozen_while_it_sent_changes_nothing_when_it_wakes_up(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    frozen = sender_of(db, instance_id="replica-frozen")
    claim = frozen._claim()
    assert claim is not None
    notifying.pass_seconds(120)
    assert send_all(sender_of(db)) == 1
    assert notifying.deliveries.note_failed(claim, "too late", None) is None
    assert notifying.deliveries.note_sent(claim, "too late") == (False, None)
    assert notifying.states() == ["sent"]
    assert notifying.channels.find("hook").state == "works"


def test_replicas_that_send_together_send_each_message_once(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    for name in ("one", "two", "three"):
        notifying.tell(notifying.webhook(f"{receiver.url}/hook", name), *map(str, range(40)))
    senders = [sender_of(db, instance_id=f"replica-{number}") for number in (1, 2)]
    threads = [threading.Thread(target=sender._work) for sender in senders for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for sender in senders:
        send_all(sender)  # a channel that another replica was claiming from is passed over
    ids = [request.headers["webhook-id"] for request in receiver.requests("/hook")]
    assert (len(ids), len(set(ids))) == (120, 120)
    assert set(notifying.states()) == {"sent"}


def test_one_replica_at_a_time_tries_a_failing_channel(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    receiver.answer("/hook", status=500)
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"), *map(str, range(10)))
    first, second = sender_of(db), sender_of(db, instance_id="replica-2")
    send_all(first)
    notifying.pass_seconds(LONGEST_PAUSE_SECONDS)
    assert first._claim() is not None
    assert second._claim() is None


def test_the_loop_sends_what_waits_and_a_stop_leaves_the_rest(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"), *map(str, range(20)))
    sender = sender_of(db)
    sender.tick()
    eventually(lambda: set(notifying.states()) == {"sent"})
    sender.close()
    notifying.tell(notifying.channels.find("hook").channel_id, "later")
    sender.tick()
    sender.close()
    assert notifying.states()[-1] == "waiting"


def test_a_bug_in_the_code_of_a_channel_is_a_failed_attempt(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    with monkeypatch.context() as patch:
        patch.setattr("services.notifications.sender.send", lambda *_: dict[str, str]()["secret-key"])
        assert send_all(sender_of(db)) == 1
    (delivery,) = notifying.all()
    assert (delivery.state, delivery.last_error) == ("waiting", "the channel's own code failed: KeyError")


def test_rows_that_make_no_sense_are_said_and_stop_nothing(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    notifying.tell(notifying.webhook(f"{receiver.url}/hook", "broken"))
    notifying.run("""UPDATE notification_deliveries SET message = '{"facts": 7, "severity": "odd"}'""")
    notifying.run("UPDATE notification_channels SET config = '{}' WHERE name = 'broken'")
    assert send_all(sender_of(db)) == 2
    assert notifying.states() == ["sent", "waiting"]
    broken = notifying.channels.find("broken")
    assert "the channel's configuration is not valid: config.url: is required" in str(broken.last_error)
    assert broken.config == {}


def test_a_disabled_channel_keeps_what_waits_until_it_is_enabled(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    channel, sender = notifying.webhook(f"{receiver.url}/hook"), sender_of(db)
    notifying.channels.edit("hook", {"enabled": False}, "ann")
    notifying.tell(channel)
    assert (sender._deliveries.channels_due(4), send_all(sender)) == (0, 0)
    notifying.channels.edit("hook", {"enabled": True}, "ann")
    assert (sender._deliveries.channels_due(4), send_all(sender)) == (1, 1)


def test_a_deleted_channel_cancels_what_waits_and_keeps_the_history(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    channel, sender = notifying.webhook(f"{receiver.url}/hook"), sender_of(db)
    notifying.tell(channel, "sent")
    send_all(sender)
    notifying.tell(channel, "waiting")
    notifying.channels.delete("hook", "ann")
    assert notifying.states() == ["sent", "cancelled"]
    assert [delivery.channel for delivery in notifying.all()] == [None, None]
    notifying.tell(channel, "late")  # written by a rule that had read the channel before
    assert send_all(sender) == 0
    notifying.deliveries.delete_old(30)
    assert notifying.states()[-1] == "cancelled"


def test_old_deliveries_go_with_their_attempts_and_waiting_ones_stay(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    channel = notifying.webhook(f"{receiver.url}/hook")
    notifying.tell(channel, "old", "new")
    send_all(sender_of(db))
    notifying.tell(channel, "waits")
    aged = "UPDATE notification_deliveries SET created_at = created_at - interval '40 days' WHERE subject <> 'new'"
    notifying.run(aged)
    assert notifying.deliveries.delete_old(30) == 1
    assert sorted(delivery.subject for delivery in notifying.all()) == ["new", "waits"]
    with db.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM notification_attempts").scalar_one() == 1


def test_a_failing_channel_is_tried_at_once_after_its_configuration_was_corrected(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook("http://127.0.0.1:9/hook"))
    sender = sender_of(db)
    send_all(sender)
    assert notifying.channels.find("hook").last_error == "POST 127.0.0.1: the connection was refused"
    notifying.channels.edit("hook", {"config": {"url": f"{receiver.url}/hook"}}, "ann")
    notifying.pass_seconds(6)  # the delivery's own pause
    assert send_all(sender) == 1
    assert is_signed(receiver.requests("/hook")[0])  # the secret stayed
