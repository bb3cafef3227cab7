"""The log of an execution over HTTP: as pages, and as Server-Sent Events that follow it to its end."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.ledger.logs import LogStore
from services.web import event_streams
from tests.integration.web.conftest import StartWeb
from tests.support.logs import a_row, end, say
from tests.support.postgres_proxy import PostgresProxy
from tests.support.waiting import eventually
from tests.support.web import API, Web, problem


@pytest.fixture
def store(db: DatabaseConnection) -> Iterator[LogStore]:
    with closing(LogStore(db)) as store:
        yield store


@pytest.fixture
def running(db: DatabaseConnection) -> UUID:
    return a_row(db, "running")


class Reader:
    """Reads one stream in a thread of its own."""

    def __init__(self, answer: HTTPResponse) -> None:
        self.events: list[tuple[str, str | None, Any]] = []
        self.comments: list[str] = []
        self.has_ended = False
        self.thread = threading.Thread(target=self._read, args=(answer,), daemon=True)
        self.thread.start()

    def _read(self, answer: HTTPResponse) -> None:
        fields: dict[str, str] = {}
        with suppress(OSError, HTTPException):  # the test has left
            while raw := answer.readline():
                line = raw.decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if line.startswith(":"):
                    self.comments.append(line)
                elif line:
                    fields[name] = value
                elif "event" in fields:
                    self.events.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
                    fields = {}
            self.has_ended = True

    def texts(self) -> list[str]:
        return [data["text"] for kind, _, data in self.events if kind == "log"]


@contextmanager
def reading(web: Web, execution_id: UUID, last_event_id: str | None = None) -> Iterator[Reader]:
    headers = {"Authorization": f"Bearer {web.tokens['viewer']}"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    with closing(HTTPConnection(urlsplit(web.url).netloc, timeout=60)) as connection:
        connection.request("GET", f"{API}/executions/{execution_id}/events", headers=headers)
        sock, answer = connection.sock, connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        reader = Reader(answer)
        yield reader
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        reader.thread.join(30)


def test_a_log_is_read_in_pages_while_it_grows(web: Web, store: LogStore, running: UUID) -> None:
    say(store, running, "one", "two", "three", progress=(1, 4))
    first = web.get(f"/executions/{running}/log?limit=2").json()
    assert [line["text"] for line in first["lines"]] == ["one", "two"]
    assert (first["done"], first["total"], first["is_complete"]) == (1, 4, False)
    second = web.get(f"/executions/{running}/log?after={first['next_position']}").json()
    assert [line["text"] for line in second["lines"]] == ["three"]
    nothing = web.get(f"/executions/{running}/log?after={second['next_position']}").json()
    assert (nothing["lines"], nothing["next_position"]) == ([], second["next_position"])


def test_a_stream_shows_lines_progress_and_status_as_they_come_and_ends_after_the_last_line(
    web: Web, db: DatabaseConnection, store: LogStore, running: UUID
) -> None:
    with reading(web, running) as reader:
        eventually(lambda: [kind for kind, _, _ in reader.events] == ["status"])
        say(store, running, "one", progress=(1, 2))
        eventually(lambda: reader.texts() == ["one"])
        assert ("progress", None, {"done": 1, "total": 2}) in reader.events
        end(db, running)
        eventually(lambda: [data["status"] for kind, _, data in reader.events if kind == "status"][-1] == "success")
        say(store, running, "the last\nline", first=2, is_complete=True)
        eventually(lambda: reader.has_ended)
        assert reader.texts() == ["one", "the last\nline"]
        assert reader.events[-1] == ("end", "7-2", {"status": "success"})


def test_a_stream_continues_after_the_last_event_and_tells_a_browser_to_stop_at_the_end(
    web: Web, db: DatabaseConnection, store: LogStore, running: UUID
) -> None:
    say(store, running, "one", "two", is_complete=True)
    end(db, running)
    with reading(web, running, "7-1") as reader:
        eventually(lambda: reader.has_ended)
        assert reader.texts() == ["two"]
    again = web.get(f"/executions/{running}/events", headers={"Last-Event-ID": "7-2"})
    assert (again.status_code, again.content) == (204, b"")
    wrong = web.get(f"/executions/{running}/events", headers={"Last-Event-ID": "yesterday"})
    assert problem(wrong)["status"] == 422


def test_a_silent_stream_is_kept_alive(web: Web, running: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_SECONDS", 0.1)
    with reading(web, running) as reader:
        eventually(lambda: len(reader.comments) >= 2)
        assert set(reader.comments) == {": keep-alive"}


def test_a_stream_survives_an_outage_of_postgres(
    start_web: StartWeb, database_url: str, db: DatabaseConnection, store: LogStore, running: UUID
) -> None:
    with PostgresProxy(database_url) as proxy:
        web = start_web(DATABASE_URL=proxy.url, DATABASE_CONNECT_TIMEOUT_SECONDS="1")
        with reading(web, running) as reader:
            eventually(lambda: reader.events)
            proxy.unplug()
            proxy.cut()
            eventually(lambda: event_streams.OUTAGE.strip() in reader.comments, 30)
            proxy.plug_in()
            say(store, running, "after it", is_complete=True)
            end(db, running)
            eventually(lambda: reader.has_ended, 30)
            assert reader.texts() == ["after it"]


def test_so_many_streams_are_open_at_once_and_a_place_is_free_again_when_its_reader_leaves(
    start_web: StartWeb, running: UUID
) -> None:
    web = start_web(WEB_MAX_EVENT_STREAMS="1")
    streams = web.app.state.parts.streams
    with reading(web, running):
        refused = web.get(f"/executions/{running}/events")
        assert (problem(refused)["status"], refused.headers["Retry-After"]) == (503, "5")
    eventually(lambda: streams.open_streams == 0)
    assert web.get(f"/executions/{uuid4()}/events").status_code == 404
    with reading(web, running):
        assert streams.open_streams == 1


def test_a_reader_that_never_reads_loses_its_place(
    web: Web, store: LogStore, running: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "STUCK_SECONDS", 0.3)
    for batch in range(20):
        say(store, running, *["x" * 4000] * 400, first=1 + 400 * batch)
    streams = web.app.state.parts.streams
    address = urlsplit(web.url)
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect((address.hostname, address.port))
        path = f"{API}/executions/{running}/events"
        silent.sendall(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {web.tokens['viewer']}\r\n\r\n".encode()
        )
        eventually(lambda: streams.open_streams == 1)
        eventually(lambda: streams.open_streams == 0)


def test_a_server_that_stops_does_not_wait_for_its_streams(web: Web, running: UUID) -> None:
    stopping = threading.Event()
    web.app.state.parts.streams.end_when(stopping.is_set)
    with reading(web, running) as reader:
        eventually(lambda: reader.events)
        stopping.set()
        eventually(lambda: reader.has_ended)
        assert "end" not in [kind for kind, _, _ in reader.events]
