"""/api/v3/channels and /api/v3/deliveries over HTTP."""

from uuid import uuid4

from database.connection import DatabaseConnection
from tests.support.ledger import Ledger
from tests.support.notifying import SECRET, Notifying, is_signed, send_all, sender_of
from tests.support.web import Web, problem

HOOK = {"name": "ops", "kind": "webhook", "config": {"url": "https://hooks.example/T00/secret-path"}}


def test_a_channel_is_added_once_shows_its_secret_once_and_hides_it_ever_after(web: Web) -> None:
    once = {"Idempotency-Key": "one"}
    first, again = (web.post("/channels", HOOK, headers=once) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert first.headers["Location"] == "/api/v3/channels/ops"
    secret = first.json()["secret"]
    assert secret.startswith("whsec_")
    found, listed = web.get("/channels/ops"), web.get("/channels")
    assert listed.json()["items"] == [found.json()]
    assert found.json()["config"] == {"url": "https://hooks.example/***", "secret": "***", "headers": {}}
    assert (found.json()["state"], found.json()["created_by"]) == ("unused", "token:test-operator")
    changed = web.ask("PATCH", "/channels/ops", "operator", json={"note": "night shift", "enabled": False})
    assert (changed.json()["note"], changed.json()["state"]) == ("night shift", "disabled")
    for answer in (found, listed, changed):
        assert secret not in answer.text
        assert "secret-path" not in answer.text


def test_what_is_wrong_with_a_channel_is_named_field_by_field(web: Web) -> None:
    answer = web.post("/channels", {"name": "a b", "kind": "pigeon", "config": {}, "colour": "red"})
    assert {error["field"] for error in problem(answer)["errors"]} == {"name", "kind", "colour"}
    answer = web.post("/channels", {"name": "mail", "kind": "email", "config": {"host": "a.example"}})
    assert {error["field"] for error in problem(answer)["errors"]} == {"config.from", "config.to"}
    assert web.get("/channels/gone").status_code == 404
    assert web.ask("PATCH", "/channels/gone", json={"note": "x"}).status_code == 404
    assert web.post("/channels/gone/test").status_code == 404
    assert web.get(f"/deliveries/{uuid4()}").status_code == 404
    assert web.post(f"/deliveries/{uuid4()}/repeat").status_code == 404
    assert web.get("/deliveries?state=odd").status_code == 422


def test_only_administrators_add_apprise_and_delete(web: Web) -> None:
    chat = {"name": "chat", "kind": "apprise", "config": {"url": "json://127.0.0.1:9/"}}
    assert web.post("/channels", chat).status_code == 403
    assert web.post("/channels", chat, "admin").status_code == 201
    change = {"config": {"url": "json://127.0.0.1:8/"}}
    assert web.ask("PATCH", "/channels/chat", "operator", json=change).status_code == 403
    assert web.ask("PATCH", "/channels/chat", "operator", json={"enabled": False}).status_code == 200
    assert web.ask("DELETE", "/channels/chat", "operator").status_code == 403
    assert web.ask("DELETE", "/channels/chat").status_code == 204
    assert web.get("/channels/chat").status_code == 404


def test_a_test_message_is_sent_and_a_failed_delivery_repeated(
    web: Web, db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.webhook(f"{receiver.url}/hook", "ops")
    receiver.answer("/hook", status=500)
    asked = web.post("/channels/ops/test")
    assert (asked.status_code, asked.json()["state"], asked.json()["tries"]) == (202, "waiting", [])
    path = f"/deliveries/{asked.json()['delivery_id']}"
    send_all(sender_of(db))
    failed = web.get(path).json()
    assert (failed["state"], failed["last_error"]) == ("failed", "127.0.0.1 answered 500: ok")
    assert web.get("/deliveries?state=failed&channel=ops&event=test").json()["items"][0]["state"] == "failed"
    assert web.get("/deliveries?state=sent").json()["items"] == []
    receiver.answer("/hook", status=200)
    assert web.post(f"{path}/repeat", role="viewer").status_code == 403
    assert web.post(f"{path}/repeat").json()["repeated_by"] == "token:test-operator"
    send_all(sender_of(db))
    sent = web.get(path)
    assert [attempt["outcome"] for attempt in sent.json()["tries"]] == ["sent", "failed"]
    assert is_signed(receiver.requests("/hook")[-1])
    assert SECRET not in sent.text


def test_all_failed_deliveries_of_a_channel_are_repeated(web: Web, notifying: Notifying) -> None:
    notifying.tell(notifying.webhook("https://a.example/", "ops"), *map(str, range(5)))
    notifying.run("UPDATE notification_deliveries SET state = 'failed', ended_at = now() WHERE subject < '3'")
    assert web.post("/channels/ops/repeat").json() == {"repeated": 3}
    first = web.get("/deliveries?limit=3").json()
    last = web.get(f"/deliveries?limit=3&cursor={first['next_cursor']}").json()
    assert [item["state"] for item in first["items"] + last["items"]] == ["waiting"] * 5
    assert len({item["delivery_id"] for item in first["items"] + last["items"]}) == 5
