"""The HTTP endpoints of a replica: /metrics for Prometheus, /healthz and /readyz for orchestrators.

/healthz is liveness: 503 names the loops that make no progress. /readyz is readiness: 503 names the reasons; a mere
degradation is listed among the facts. Clients cannot block the replica: each connection gets its own thread and a few
seconds, and the number of connections is limited.
"""

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast
from urllib.parse import urlsplit

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from database.forks import keep_from_copies
from services.errors import ConfigurationError

logger = logging.getLogger(__name__)

SILENCE_SECONDS = 5.0  # between two bytes of a request
CONNECTION_SECONDS = 10.0  # for the whole request: a client that drips bytes never triggers the other timeout
MAX_CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"

    @classmethod
    def of(cls, code: HTTPStatus, /, **facts: Any) -> "Answer":
        return cls(code, json.dumps(facts, default=str).encode() + b"\n")


class HealthServer:
    """Port 0 disables the server: nothing is bound, and `port` is None."""

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        liveness: Callable[[], Mapping[str, float]],
        readiness: Callable[[], Sequence[str]],
        facts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._host, self._wanted_port = host, port
        self._liveness, self._readiness, self._facts = liveness, readiness, facts
        self._server: _Server | None = None

    @property
    def port(self) -> int | None:
        return self._server.server_port if self._server else None

    def start(self) -> None:
        """Raises ConfigurationError if the port is not available."""
        if self._wanted_port == 0:
            return
        try:
            self._server = _Server(self._host, self._wanted_port, self._answer)
        except OSError as error:
            raise _port_not_available(self._host, self._wanted_port, error) from error
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        logger.info("health and metrics on port %d", self._wanted_port, extra={"event": "health_served"})

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _answer(self, path: str, accept: str | None) -> Answer:
        match path:
            case "/metrics":
                encode, content_type = choose_encoder(accept or "")
                return Answer(HTTPStatus.OK, encode(REGISTRY), content_type)
            case "/healthz":
                return self._alive()
            case "/readyz":
                return self._ready()
            case _:
                return Answer.of(HTTPStatus.NOT_FOUND, error="there are /metrics, /healthz and /readyz")

    def _alive(self) -> Answer:
        stalled = {name: round(seconds, 1) for name, seconds in self._liveness().items()}
        if not stalled:
            return Answer.of(HTTPStatus.OK, status="alive")
        return Answer.of(HTTPStatus.SERVICE_UNAVAILABLE, status="stalled", stalled_seconds=stalled)

    def _ready(self) -> Answer:
        reasons, facts = list(self._readiness()), dict(self._facts())
        if not reasons:
            return Answer.of(HTTPStatus.OK, status="ready", facts=facts)
        return Answer.of(HTTPStatus.SERVICE_UNAVAILABLE, status="not ready", reasons=reasons, facts=facts)


def _port_not_available(host: str, port: int, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"METRICS_PORT={port} is not available on METRICS_HOST={host}: {error.strerror or error}; if another replica "
        "on this machine has it, give each one a METRICS_PORT of its own, or set METRICS_PORT=0 to serve no metrics"
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, answer: Callable[[str, str | None], Answer]) -> None:
        self.answer = answer
        self._since: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        keep_from_copies(self)

    def server_bind(self) -> None:
        """Like HTTPServer's, without its DNS lookup, which can take many seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "replica", self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self._since) < MAX_CONNECTIONS

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._since[request] = time.monotonic()
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._since.pop(request, None)

    def service_actions(self) -> None:
        """Called twice a second: closes connections that take too long."""
        limit = time.monotonic() - CONNECTION_SECONDS
        for request, since in list(self._since.items()):
            if since < limit:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)  # wakes the connection's thread, which closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that disconnects is not worth a log line
            logger.exception("a health request failed", extra={"event": "health_failed"})


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        server = cast(_Server, self.server)
        self._send(server.answer(urlsplit(self.path).path, self.headers.get("Accept")))

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._send(Answer.of(HTTPStatus.METHOD_NOT_ALLOWED, error="only GET and HEAD are served"), Allow="GET, HEAD")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _send(self, answer: Answer, **headers: str) -> None:
        self.send_response(answer.status)
        own = {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            "Cache-Control": "no-store",
        }
        for name, value in {**own, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "enhanced-scheduler"

    def log_message(self, *_: object) -> None:
        """Silent: a probe every second is not worth a log line."""
