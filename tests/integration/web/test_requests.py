"""What holds for every request: problems, ids, logs, headers, limits, documentation."""

import asyncio
import base64
import json
import logging
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from database.connection import DatabaseConnection
from services.errors import Unavailable
from services.job_history import JobHistory
from services.telemetry.logs import JsonLines
from services.web.auth.roles import BAD_TOKEN, Refusal
from services.web.auth.tokens import ApiTokens
from services.web.middleware import RequestContext
from tests.integration.web.conftest import StartWeb
from tests.support.schedules import VALID
from tests.support.waiting import eventually
from tests.support.web import Web, a_jwt, problem


class Lines(logging.Handler):
    """Collects log lines as a collector would get them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Any:
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


# --- problems ---


def test_what_does_not_exist_is_a_problem(web: Web) -> None:
    assert problem(web.get("/nothing"))["type"] == "/api/docs#not-found"
    assert problem(web.ask("DELETE", "/replicas"))["status"] == 405


def test_a_body_must_be_json(web: Web) -> None:
    text = web.ask("POST", "/schedules", data="domain=x", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert problem(text)["status"] == 415
    assert problem(web.ask("POST", "/schedules", data=b"{}"))["status"] == 415
    for broken in ("{", '"\ud800', "[" * 100_000, b"\xff", "1" * 5000):
        data = broken.encode("utf-8", "surrogatepass") if isinstance(broken, str) else broken
        answer = web.ask("POST", "/schedules", data=data, headers={"Content-Type": "application/json"})
        assert problem(answer)["status"] in (400, 422), broken[:20]


def test_halves_of_characters_are_answered_too(web: Web) -> None:
    for body in ('{"\\ud800": 1}', '{"domain": "\\udfff"}', '{"time_config": {"\\ud800": 1}}', '"\\ud800"'):
        answer = web.ask("POST", "/schedules", data=body, headers={"Content-Type": "application/json"})
        assert problem(answer)["status"] == 422, body


def test_a_body_that_is_too_large_is_refused(start_web: StartWeb) -> None:
    web = start_web(WEB_MAX_BODY_BYTES="2048")
    assert problem(web.post("/schedules", {"domain": "x" * 3000}))["status"] == 413
    chunks = iter([b"x" * 1500, b"x" * 1500])
    streamed = web.ask("POST", "/schedules", data=chunks, headers={"Content-Type": "application/json"})
    assert problem(streamed)["status"] == 413
    assert web.post("/schedules", VALID).status_code == 201


def test_a_body_that_does_not_come_is_not_waited_for(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.auth.guard.BODY_SECONDS", 0.2)
    host, port = web.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as slow:
        token = web.tokens["admin"]
        slow.sendall(
            f"POST /api/v3/schedules HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
        )
        assert slow.recv(64).startswith(b"HTTP/1.1 408")


def test_without_postgres_the_answer_is_503_and_says_when_to_come_back(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise Unavailable("Postgres", "user@secret-host/db", "connection refused")

    monkeypatch.setattr(JobHistory, "list_executions", away)
    answer = web.get("/executions")
    assert (problem(answer)["status"], answer.headers["Retry-After"]) == (503, "5")
    assert "secret-host" not in answer.text


def test_a_statement_that_takes_too_long_is_no_mistake_of_ours(web: Web, db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("ALTER TABLE job_executions RENAME TO hidden")
    assert problem(web.get("/executions"))["status"] == 503  # an old schema
    assert "hidden" not in web.get("/executions").text


def test_a_mistake_of_ours_is_a_problem_without_details_and_a_line_with_them(
    web: Web, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("the inner truth")

    monkeypatch.setattr(JobHistory, "list_executions", broken)
    answer = web.get("/executions", headers={"X-Request-Id": "abc"})
    assert (problem(answer)["status"], problem(answer)["request_id"], "inner truth" in answer.text) == (
        500,
        "abc",
        False,
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    (line,) = eventually(lambda: [line for line in log.lines if "inner truth" in line.get("exception", "")])
    assert line["request_id"] == "abc"


# --- ids, logs, headers ---


def test_the_id_of_a_request_is_in_its_answer_and_in_every_line_about_it(web: Web, log: Lines) -> None:
    answer = web.post("/schedules", VALID, headers={"X-Request-Id": "my-id.1"})
    assert answer.headers["X-Request-Id"] == "my-id.1"
    (line,) = eventually(lambda: log.of("request"))
    assert (line["request_id"], line["method"], line["path"]) == ("my-id.1", "POST", "/api/v3/schedules")
    assert (line["status"], line["actor"], line["address"]) == (201, "token:test-operator", "127.0.0.1")
    assert line["duration_ms"] > 0


def test_an_id_that_could_forge_a_log_is_replaced(web: Web) -> None:
    for given in ("a b", "x" * 65, "é", ""):
        made = web.get("/replicas", headers={"X-Request-Id": given.encode("latin-1")}).headers["X-Request-Id"]
        assert len(made) == 32


def test_a_caller_that_left_is_no_mistake_of_ours(log: Lines) -> None:
    """As Starlette's own middleware, around the pages, meets a browser that has gone on to another page."""

    async def answers_nobody(_: Any, receive: Any, __: Any) -> None:
        await receive()
        raise RuntimeError("No response returned.")

    async def left() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "GET", "path": "/schedules", "scheme": "http", "headers": []}
    asyncio.run(RequestContext(answers_nobody)(scope, left, send))
    assert [line["status"] for line in log.of("request")] == [499]


def test_no_secret_is_in_any_line(web: Web, log: Lines) -> None:
    token, foreign = web.tokens["admin"], a_jwt()
    web.get("/replicas", None, headers={"Authorization": f"Bearer {foreign}"})
    web.get("/replicas", "admin", params={"token": token})
    web.get(f"/schedules/{token}", "admin")
    web.post("/session", {"token": token}, None)
    web.post("/session", {"tokn": token}, None)
    web.get("/replicas", "admin", params={"password": "of-another-system"})
    made = web.post("/tokens", {"name": "ci", "role": "viewer"}, "admin").json()["token"]
    eventually(lambda: len(log.of("request")) == 7)
    said = json.dumps([line for line in log.lines if not line["logger"].startswith("urllib3")])  # that is the caller
    for secret in (token, foreign, made, "of-another-system"):
        assert secret not in said
        assert secret.rpartition("_")[2].rpartition(".")[2] not in said


def test_an_answer_never_repeats_a_token(web: Web) -> None:
    token = web.tokens["admin"]
    for answer in (
        web.post("/session", {"tokn": token}, None),
        web.post("/session", {"token": [token]}, None),
        web.get("/replicas", None, headers={"Authorization": f"Bearer {token}x"}),
    ):
        assert token not in answer.text


def test_every_answer_carries_the_security_headers(web: Web) -> None:
    for answer in (web.get("/replicas"), web.get("/replicas", None), web.get("/nothing"), web.get("/healthz", None)):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    api = web.get("/replicas").headers
    assert api["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert api["Cache-Control"] == "no-store"
    assert "Strict-Transport-Security" not in api


def test_no_other_site_may_read_an_answer(web: Web) -> None:
    assert "Access-Control-Allow-Origin" not in web.get("/replicas", headers={"Origin": "https://app.example"}).headers


def test_a_site_that_is_named_may_read_answers(start_web: StartWeb) -> None:
    origin = {"Origin": "https://app.example"}
    named = start_web(WEB_CORS_ORIGINS="https://app.example, https://two.example")
    answer = named.get("/replicas", headers=origin)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    asked = {**origin, "Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "If-Match"}
    before = requests.options(f"{named.url}/api/v3/schedules/x", headers=asked, timeout=30)
    assert (before.status_code, "PATCH" in before.headers["Access-Control-Allow-Methods"]) == (200, True)
    stranger = named.get("/replicas", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in stranger.headers


# --- limits ---


def test_a_caller_that_asks_too_often_is_slowed_down_and_no_other(start_web: StartWeb) -> None:
    web = start_web(WEB_RATE_LIMIT_PER_MINUTE="5")
    answers = [web.get("/replicas") for _ in range(12)]
    assert [answer.status_code for answer in answers[:5]] == [200] * 5
    refused = next(answer for answer in answers[5:] if answer.status_code == 429)
    assert problem(refused)["type"] == "/api/docs#too-many-requests"
    assert 1 <= int(refused.headers["Retry-After"]) <= 12
    assert web.get("/replicas", "admin").status_code == 200


def test_who_has_no_token_is_counted_by_address(start_web: StartWeb) -> None:
    web = start_web(WEB_RATE_LIMIT_PER_MINUTE="5")
    statuses = {web.get("/replicas", None).status_code for _ in range(12)}
    assert statuses == {401, 429}
    assert web.get("/replicas").status_code == 200
    assert {web.get("/healthz", None).status_code for _ in range(20)} == {200}


def test_who_guesses_tokens_locks_nobody_out_who_logs_in_from_the_same_address(start_web: StartWeb) -> None:
    web = start_web(WEB_RATE_LIMIT_PER_MINUTE="5")
    for number in range(12):
        guess = f"es_{number:012x}_{'0' * 64}"
        web.get("/replicas", None, headers={"Authorization": f"Bearer {guess}"})
        web.post("/session", {"token": guess}, None)
    refused = web.post("/session", {"token": "es_another"}, None)
    assert refused.status_code == 429
    assert web.post("/session", {"token": web.tokens["viewer"]}, None).status_code == 200
    assert web.get("/replicas").status_code == 200


def test_who_repeats_a_bad_token_is_slowed_down_before_postgres_is_asked_about_it(
    start_web: StartWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = start_web(WEB_RATE_LIMIT_PER_MINUTE="5")
    asked: list[str] = []

    def verify(_: ApiTokens, text: str) -> Refusal:
        asked.append(text)
        return BAD_TOKEN

    monkeypatch.setattr(ApiTokens, "verify", verify)
    headers = {"Authorization": f"Bearer es_{'0' * 12}_{'0' * 64}"}
    statuses = [web.get("/replicas", None, headers=headers).status_code for _ in range(30)]
    assert set(statuses) == {401, 429}
    assert len(asked) < len(statuses)


# --- probes and documentation ---


def test_the_probes_say_how_this_process_is(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    assert web.get("/healthz", None).json() == {"status": "alive", "stalled_seconds": {}}
    assert web.get("/readyz", None).json() == {"status": "ready", "reasons": []}
    monkeypatch.setattr("database.connection.DatabaseConnection.ping", lambda _: False)
    answer = web.get("/readyz", None)
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["Postgres does not answer"])


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/api/docs", "/schedules", "/executions"])
def test_who_wants_no_body_gets_the_same_headers(web: Web, path: str) -> None:
    whole, head = web.get(path), web.ask("HEAD", path, "viewer")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"] == whole.headers["Content-Type"]
    assert "Content-Length" in head.headers


def test_a_request_without_a_body_needs_the_same_role_and_is_counted_by_its_route(web: Web) -> None:
    assert web.ask("HEAD", "/schedules/nobody", "viewer").status_code == 404
    assert web.ask("HEAD", "/tokens", "viewer").status_code == 403
    assert web.ask("HEAD", "/schedules", None).status_code == 401
    counted = 'method="HEAD",route="/api/v3/schedules/{schedule}",status="404"'
    assert counted in web.get("/metrics", None).text


# --- what cannot be read ---


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"domain": "example.com",}', "the body is not valid JSON: "),
        (b"\xff", "the body is not valid JSON: it is not UTF-8"),
        (b"[" * 100_000, "the body is not valid JSON: it is nested too deeply"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "the body is not valid JSON: it contains a number with more than "),
    ],
)
def test_what_is_no_json_is_said_with_the_place_or_the_reason(web: Web, body: bytes, said: str) -> None:
    answer = web.ask("POST", "/schedules", "operator", data=body, headers={"Content-Type": "application/json"})
    found = problem(answer)
    assert (found["status"], found["detail"][: len(said)]) == (400, said)


def test_where_the_json_ends_to_be_json_is_said(web: Web) -> None:
    body = b'{"domain": "example.com",}'
    answer = web.ask("POST", "/schedules", "operator", data=body, headers={"Content-Type": "application/json"})
    assert re.search(r"character 2[45]\b", problem(answer)["detail"])


def test_a_parameter_that_is_given_twice_is_refused(web: Web) -> None:
    found = problem(web.get("/executions?status=failed&status=timed_out"))
    assert found["errors"] == [{"field": "status", "reason": "is given more than once; send a single value"}]


@pytest.mark.parametrize("path", ["/executions", "/scans", "/dead-letters"])
def test_a_time_without_an_offset_is_refused_by_every_list(web: Web, path: str) -> None:
    found = problem(web.get(f"{path}?since=2027-01-01T00:00"))
    assert found["errors"] == [{"field": "since", "reason": "needs a UTC offset, as in 2027-01-01T00:00:00+00:00"}]


def test_dead_letters_are_not_requeued_by_a_time_without_an_offset(web: Web) -> None:
    found = problem(web.post("/dead-letters/requeue", {"queue": "deep_scan", "since": "2027-01-01T00:00"}))
    assert [error["field"] for error in found["errors"]] == ["since"]


def test_a_source_that_no_schedule_can_have_is_refused(web: Web) -> None:
    found = problem(web.get("/schedules?source=manul"))
    assert found["errors"] == [{"field": "source", "reason": "must be one of manual, api, system, got 'manul'"}]


def test_an_etag_of_something_else_is_named(web: Web) -> None:
    made = web.post("/schedules", VALID).json()
    answer = web.ask("PATCH", f"/schedules/{made['schedule_id']}", json={"priority": 1}, headers={"If-Match": '"abc"'})
    found = problem(answer)
    assert found["status"] == 412
    assert '"abc"' in found["detail"]
    assert answer.headers["ETag"] == f'"{made["revision"]}"'


def test_the_metrics_count_requests_by_route_and_not_by_path(web: Web) -> None:
    web.get("/schedules/nobody")
    web.get("/nothing/at/all")
    text = web.get("/metrics", None).text
    assert 'route="/api/v3/schedules/{schedule}",status="404"' in text
    assert 'route="unmatched",status="404"' in text
    assert "nobody" not in text


def test_a_process_without_a_replica_says_nothing_about_one(web: Web) -> None:
    """Prometheus asks it too: scheduler_claiming 0 would be an alert for ever."""
    web.get("/replicas")
    text = web.get("/metrics", None).text
    named = set(re.findall(r"^# TYPE (scheduler_\w+)", text, re.MULTILINE))
    assert named == {"scheduler_http_requests_total", "scheduler_http_request_seconds"}
    assert "process_cpu_seconds_total" in text


def test_the_documentation_is_one_page_that_asks_nobody_else(web: Web) -> None:
    page = web.get("/api/docs", None)
    assert page.headers["Content-Type"].startswith("text/html")
    assert "<script" not in page.text
    assert not re.search(r"<(?:script|img|link|iframe)|@import|url\(|(?:src|href)=\"?(?:\w+:)?//", page.text)
    assert "style-src 'sha256-" in page.headers["Content-Security-Policy"]
    for words in ("/api/v3/schedules/{schedule}/explain", 'id="revision-conflict"', "Europe/Berlin"):
        assert words in page.text


def test_the_openapi_says_what_is_needed(web: Web) -> None:
    document = web.get("/api/openapi.json", None).json()
    create = document["paths"]["/api/v3/schedules"]["post"]
    assert (create["x-role"], create["security"]) == ("operator", [{"HTTPBearer": []}])
    assert {"201", "401", "403", "409", "415", "422", "429", "default"} <= create["responses"].keys()
    assert "security" not in document["paths"]["/healthz"]["get"]
    assert all(operation["tags"] for path in document["paths"].values() for operation in path.values())
    examples = document["components"]["schemas"]["NewSchedule"]["examples"]
    assert web.post("/schedules", examples[0]).status_code == 201


def test_requests_do_not_wait_for_each_other(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Barrier(4)

    def together(*_: Any) -> None:
        inside.wait(20)  # breaks, and is a 500, unless all four are in here at once
        raise Unavailable("Postgres", "", "")

    monkeypatch.setattr(JobHistory, "get_execution_statistics", together)
    with ThreadPoolExecutor(4) as callers:
        statuses = list(callers.map(lambda _: web.get("/statistics").status_code, range(4)))
    assert statuses == [503] * 4


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/schedules?sort=next_run", ["next_run"]),
        ("/executions", ["created"]),
        ("/scans", []),
        ("/contacts", []),
    ],
    ids=["schedules", "executions", "scans", "contacts"],
)
def test_a_forged_cursor_with_an_instant_that_postgres_does_not_know_is_refused(
    web: Web, path: str, place: list[str]
) -> None:
    for at in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        forged = json.dumps([*place, at, "3f2a90c1-0000-4000-8000-000000000001"])
        answer = web.get(path, params={"cursor": base64.urlsafe_b64encode(forged.encode()).decode()})
        assert [error["field"] for error in problem(answer)["errors"]] == ["cursor"]


def test_every_body_that_can_be_sent_has_an_example(web: Web) -> None:
    document = web.get("/api/openapi.json", None).json()
    schemas = document["components"]["schemas"]
    bodies = {
        body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for path in document["paths"].values()
        for operation in path.values()
        if (body := operation.get("requestBody")) and "$ref" in body["content"]["application/json"]["schema"]
    }
    assert len(bodies) > 5
    assert sorted(name for name in bodies if '"example' not in json.dumps(schemas[name])) == []


# --- bodies that mean two things, or too much ---


@pytest.mark.parametrize("body", ['{"hour": 1, "hour": 2}', '{"a": [{"hour": 1}, {"hour": 1, "hour": 1}]}'])
def test_a_key_that_is_there_twice_is_refused(web: Web, body: str) -> None:
    answer = web.ask("POST", "/schedules/preview", data=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem(answer)["detail"]) == (400, "the body has the key 'hour' twice in one object")


def test_a_preview_names_twenty_problems_and_costs_little_whatever_it_is_asked(web: Web) -> None:
    body = {**VALID, **{f"enable{number}": 1 for number in range(50_000)}}
    begun = time.process_time()
    found = problem(web.post("/schedules", body))["errors"]
    shown = web.post("/schedules/preview", body, "viewer").json()["problems"]
    assert time.process_time() - begun < 5  # of both sides; before, half a minute
    assert (len(found), found[0]["field"], found[-1]["reason"]) == (20, "enable0", "49981 more problems")
    assert shown == found
