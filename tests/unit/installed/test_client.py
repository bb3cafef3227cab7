"""The client of the HTTP API: equal to the OpenAPI document, and what it repeats."""

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from enhanced_scheduler.client import ApiError, AsyncClient, Client, NotFound, Unreachable, transport
from enhanced_scheduler.client.transport import Call
from tests.support import client_methods
from tests.support.client_shapes import document

NAMES = [name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")]
GIVEN: dict[str, Any] = {"revision": 7, "idempotency_key": "K", "since": datetime(2027, 3, 1, tzinfo=UTC)}


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return document()


def test_the_client_is_the_one_that_the_document_describes(openapi: dict[str, Any]) -> None:
    for file, text in client_methods.files(openapi).items():
        assert file.read_text() == text, "python -m tests.support.client_methods"


def test_only_the_browsers_session_the_older_callers_and_streams_have_no_method(openapi: dict[str, Any]) -> None:
    names = {
        each["operationId"]
        for path, methods in openapi["paths"].items()
        for each in methods.values()
        if path.startswith("/api/v3/") and not path.startswith("/api/v3/dev-tools/")
    }
    assert names - set(NAMES) == {"read_session", "log_in", "log_out", "follow_execution"}


def test_every_operation_has_a_short_name_of_its_own(openapi: dict[str, Any]) -> None:
    names = [each["operationId"] for path in openapi["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+){0,4}", name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_method_sends_what_the_document_describes(
    openapi: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((method, path, described),) = (
        (method, path, each)
        for path, methods in openapi["paths"].items()
        for method, each in methods.items()
        if each["operationId"] == name
    )
    sent: list[Call] = []
    page = {"items": [{"name": "a"}], "next_cursor": None, "next_before": None}

    def answer_to(_transport: transport.Transport, call: Call) -> dict[str, Any]:
        sent.append(call)
        return page

    monkeypatch.setattr(transport.Transport, "send", answer_to)
    parameters = list(inspect.signature(getattr(Client, name)).parameters.values())[1:]
    named = {each.name: GIVEN.get(each.name, f"a/{each.name}") for each in parameters}
    answer = getattr(Client("http://127.0.0.1", "token"), name)(**named)
    assert isinstance(answer, dict) or answer is None or list(answer) == page["items"]
    (call,) = sent
    parts = re.sub(r"{(\w+)}", lambda found: f"a%2F{found[1]}", path)
    assert (call.method.lower(), call.path) == (method, parts)
    documented = {(each["in"], each["name"].lower()) for each in described.get("parameters", ())}
    asked = {name for place, name in documented if place == "query"} - {"count"}
    assert set(call.query) == asked
    has_body = "requestBody" in described
    assert (call.body is not None) is has_body
    assert {("header", header.lower()) for header in call.headers} == {
        (place, name) for place, name in documented if place == "header" and name != "if-none-match"
    }
    assert call.may_repeat or method != "get"
    assert len(parameters) == len(documented - {("query", "count"), ("query", "cursor"), ("query", "before"),
                                                ("header", "if-none-match")}) + has_body  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_both_clients_have_the_same_methods(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(client, name)).parameters for client in (Client, AsyncClient))
    assert ours == theirs


class Server(ThreadingHTTPServer):
    """Answers with what the test has laid ready; None: it hangs up without an answer."""

    def __init__(self, *answers: tuple[int, Any] | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.seen = list(answers), list[tuple[str, str, str | None]]()

    @property
    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.server_address[1]}/", "token")


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, self.headers.get("Idempotency-Key")))
        if (answer := self.server.answers.pop(0)) is None:
            self.close_connection = True
            return
        self.send_response(answer[0])
        for header, value in (answer[1].get("headers", {}) if isinstance(answer[1], dict) else {}).items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(json.dumps(answer[1]).encode())

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def serving(*answers: tuple[int, Any] | None) -> Iterator[Server]:
    with Server(*answers) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.001)


def test_a_post_whose_answer_was_lost_is_repeated_under_the_same_key() -> None:
    in_progress = (409, {"headers": {"Retry-After": "0"}})
    with serving(None, in_progress, (202, {"execution_id": "E"})) as server:
        assert server.client.run_schedule("nightly")["execution_id"] == "E"
    keys = {key for _, _, key in server.seen}
    assert (len(server.seen), len(keys)) == (3, 1)
    assert None not in keys


def test_a_change_whose_answer_was_lost_is_not_repeated() -> None:
    with serving(None) as server, pytest.raises(Unreachable):
        server.client.change_schedule("nightly", {"enabled": False}, revision=3)
    assert len(server.seen) == 1


def test_a_conflict_that_says_nothing_of_a_repetition_is_an_error() -> None:
    with serving((409, {"detail": "the name is taken"})) as server, pytest.raises(ApiError, match="the name is taken"):
        server.client.run_schedule("nightly")


def test_a_change_that_was_not_begun_is_repeated() -> None:
    with serving((429, {"headers": {"Retry-After": "0"}}), (200, {"revision": 4})) as server:
        assert server.client.change_schedule("nightly", {"enabled": False})["revision"] == 4


def test_a_list_reads_page_after_page_and_only_as_far_as_it_is_read() -> None:
    pages = [
        (200, {"items": [{"name": "a"}, {"name": "b"}], "next_cursor": "x+y"}),
        (200, {"items": [], "next_cursor": None}),
    ]
    with serving(*pages) as server:
        found = server.client.list_schedules(enabled=True, limit=2)
        assert [next(found)["name"], next(found)["name"]] == ["a", "b"]
        assert len(server.seen) == 1
        assert list(found) == []
    assert [path for _, path, _ in server.seen] == [
        "/api/v3/schedules?enabled=true&limit=2", "/api/v3/schedules?enabled=true&limit=2&cursor=x%2By",
    ]  # fmt: skip


def test_a_refusal_names_every_field() -> None:
    errors = [{"field": "time_config.hour", "reason": "must be between 0 and 23, got 25"}]
    with serving((422, {"title": "x", "errors": errors}), (404, {"detail": "there is none"})) as server:
        with pytest.raises(ApiError, match="422 time_config.hour: must be") as caught:  # noqa: RUF043
            server.client.create_schedule({"domain": "d"})  # type: ignore[typeddict-item]
        assert caught.value.fields == {"time_config.hour": "must be between 0 and 23, got 25"}
        with pytest.raises(NotFound, match="there is none"):
            server.client.read_schedule("x")


def test_the_token_does_not_follow_a_redirect() -> None:
    with serving() as elsewhere, serving((302, {"headers": {"Location": elsewhere.client._transport._url}})) as server:
        with pytest.raises(ApiError, match="302"):
            server.client.read_replicas()
        assert elsewhere.seen == []
