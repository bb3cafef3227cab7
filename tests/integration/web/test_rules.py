"""/api/v3/rules over HTTP."""

import pytest

from database.connection import DatabaseConnection
from tests.support.newsroom import Newsroom
from tests.support.web import Web, problem

RULE = {"name": "billing", "channels": ["ops"], "tags": ["billing"]}


@pytest.fixture
def newsroom(db: DatabaseConnection) -> Newsroom:
    found = Newsroom(db)
    found.channel("ops")
    return found


def test_a_rule_is_added_read_changed_tried_and_deleted(web: Web, newsroom: Newsroom) -> None:
    added = web.post("/rules", RULE)
    assert (added.status_code, added.headers["Location"]) == (201, "/api/v3/rules/billing")
    assert (added.json()["events"], added.json()["created_by"]) == (["failed", "recovered"], "token:test-operator")
    assert web.get("/rules/billing").json() == added.json() == web.get("/rules").json()["items"][0]
    changed = web.ask("PATCH", "/rules/billing", "operator", json={"events": ["failing"], "after_failures": 3})
    assert (changed.json()["events"], changed.json()["after_failures"]) == (["failing"], 3)
    newsroom.failed(newsroom.schedule(tags=("billing",)))
    web.ask("PATCH", "/rules/billing", "operator", json={"events": ["failed"], "after_failures": None})
    trial = web.ask("GET", "/rules/billing/trial?hours=1", "operator").json()
    assert [each["message"]["event"] for each in trial["told"]] == ["failed"]
    assert web.ask("DELETE", "/rules/billing", "operator").status_code == 403
    assert web.ask("DELETE", "/rules/billing", "admin").status_code == 204
    assert web.get("/rules/billing").status_code == 404


def test_what_is_wrong_with_a_rule_is_named_field_by_field(web: Web, newsroom: Newsroom) -> None:
    answer = web.post("/rules", {"name": "a b", "channels": [], "events": ["faild"], "colour": "red", "digest": 7})
    assert {error["field"] for error in problem(answer)["errors"]} == {"name", "channels", "events", "colour", "digest"}
    assert web.post("/rules", RULE).status_code == 201
    assert problem(web.post("/rules", RULE))["errors"][0]["reason"] == "rule billing already exists; change it instead"
    assert web.ask("PATCH", "/rules/gone", json={"note": "x"}).status_code == 404
