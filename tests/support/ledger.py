"""A web server that records every request: the effects of a job, seen from outside.

with Ledger() as ledger:
    ledger.answer("/flaky", status=503, headers={"Retry-After": "7"})
    …
    assert len(ledger.requests("/flaky")) == 1
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # without the query
    target: str  # as sent
    headers: Message  # case-insensitive names
    body: bytes
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0  # before the first byte
    stall_seconds: float = 0.0  # between the headers and the body


class Ledger:
    """Listens on a free port of 127.0.0.1 until it is closed; closing also ends delays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._answers: dict[str, list[Answer]] = {}
        self._closed = threading.Event()
        self.witness: Callable[[Request], None] = lambda request: None  # called with each request, before the response
        self._server = _Server(("127.0.0.1", 0), _handler_for(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def requests(self, path: str | None = None) -> list[Request]:
        with self._lock:
            return [request for request in self._requests if path in (None, request.path)]

    def called_twice(self) -> list[tuple[str, str]]:
        """Attempts at a fire that were called more than once, by the headers of `http_request`."""
        calls = Counter((r.headers["Idempotency-Key"], r.headers["X-Attempt"]) for r in self.requests())
        return [call for call, times in calls.items() if times > 1]

    def answer(self, path: str, *answers: Answer, status: int = 200, **options: object) -> None:
        """Sets the responses of this path; of several, each is sent once and the last one forever."""
        with self._lock:
            self._answers[path] = list(answers) or [Answer(status=status, **options)]  # type: ignore[arg-type]

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self, request: Request) -> Answer:
        with self._lock:
            self._requests.append(request)
            answers = self._answers.get(request.path, [Answer()])
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients that disconnect are part of the tests."""


def _handler_for(ledger: Ledger) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path
            request = Request(str(self.command), path, self.path, self.headers, body, datetime.now(UTC))
            ledger.witness(request)
            answer = ledger._record(request)
            ledger._pause(answer.delay_seconds)
            self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in {"Content-Type": "text/plain; charset=utf-8", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.flush()
            ledger._pause(answer.stall_seconds)
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve

        def log_message(self, *_: object) -> None:
            """Silent: the ledger is the log."""

    return Handler
