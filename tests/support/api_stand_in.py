"""Stand-in for the external system: a local web server with the documented JSON, ETags, and failures on demand."""

import copy
import hashlib
import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

CONTRACT = Path(__file__).parents[1] / "acceptance" / "contract.md"
# Exactly the response of the public contract.
SEED_ANSWER: dict[str, Any] = json.loads(
    re.findall(r"^```json\n(.*?)^```", CONTRACT.read_text(), re.DOTALL | re.MULTILINE)[0]
)
SEED_ITEM: dict[str, Any] = SEED_ANSWER["data"][0]

Answer = Callable[["Handler"], None]


def item(number: int, **data: Any) -> dict[str, Any]:
    """One of many items; `schedule`, `domain` or any other field of its data may be given."""
    timing = {"frequency": "daily", "time": {"hour": number % 24, "minute": number % 60}}
    return {
        "domain_config_id": f"config-{number}",
        "data": {**SEED_ITEM["data"], "domain": f"host{number:06}.example", "schedule": timing, **data},
    }


def many_items(count: int) -> list[dict[str, Any]]:
    return [item(number) for number in range(count)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        self.server.api.requests.append({name.lower(): value for name, value in self.headers.items()})
        scripted = self.server.api.script.pop(0) if self.server.api.script else None
        with suppress(ConnectionError):
            (scripted or self.server.api.usual)(self)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: "ApiStandIn"

    def handle_error(self, *_: object) -> None: ...


class ApiStandIn:
    """`items` is its data; responses in `script` are sent first, one per request."""

    def __init__(self, items: list[Any] | None = None, *, etag: bool = True, last_modified: str | None = None) -> None:
        self.items: list[Any] = copy.deepcopy(SEED_ANSWER["data"]) if items is None else items
        self.script: list[Answer] = []
        self.requests: list[dict[str, str]] = []  # headers of each request, names in lower case
        self.etag, self.last_modified = etag, last_modified
        self.held = threading.Event()  # set: a request waits in `held_back`
        self.go_on = threading.Event()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.api = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/schedules"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def usual(self, handler: Handler) -> None:
        body = json.dumps({"data": self.items}).encode()
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        validators = {"ETag": etag} if self.etag else {}
        if self.last_modified:
            validators["Last_Modified"] = self.last_modified
        asked = handler.headers
        same_tag = self.etag and asked.get("If-None-Match") == etag
        same_date = self.last_modified and asked.get("If-Modified-Since") == self.last_modified
        if same_tag or (same_date and not self.etag):
            handler.answer(304, b"", **validators)
        else:
            handler.answer(200, body, **validators)

    def held_back(self, handler: Handler) -> None:
        """Responds when `go_on` is set."""
        self.held.set()
        self.go_on.wait(30)
        self.usual(handler)


# --- ways to fail ---


def status(code: int, **headers: str) -> Answer:
    return lambda handler: handler.answer(code, b"{}", **headers)


def raw(body: bytes, content_type: str = "application/json") -> Answer:
    return lambda handler: handler.answer(200, body, Content_Type=content_type)


def redirect(url: str, code: int = 302) -> Answer:
    return lambda handler: handler.answer(code, Location=url)


def silence(handler: Handler) -> None:
    """Accepts the request and never responds."""
    handler.server.api.go_on.wait(30)


def drip(handler: Handler) -> None:
    """Drips one byte now and then, forever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not handler.server.api.go_on.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def endless(handler: Handler) -> None:
    """A body without end."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    while not handler.server.api.go_on.is_set():
        handler.wfile.write(b" " * 65536)


def broken_off(handler: Handler) -> None:
    """Fewer bytes than Content-Length says."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True
