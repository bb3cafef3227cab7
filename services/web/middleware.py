"""Middleware around every request: request id, access log, metrics, security headers and the body size limit."""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.telemetry import logs, metrics
from services.web.problems import INTERNAL, TOO_LARGE, HttpProblem, problem_response

logger = logging.getLogger("services.web.access")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Probes and the files that a page loads are logged at DEBUG.
QUIET = ("/healthz", "/readyz", "/metrics", "/_nicegui")
LEFT = 499  # as in nginx: the client closed the connection before the response

NOBODY_WAITS = "No response returned."  # Starlette's middleware raises this when the client has disconnected

OF_PROGRAMS = ("/api/", "/healthz", "/readyz", "/metrics")
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# By path prefix, the longest match wins; a response with its own policy keeps it.
CONTENT_POLICIES = {
    "/api/": "default-src 'none'; frame-ancestors 'none'",
    # NiceGUI compiles its templates in the browser and styles elements inline; all of it comes from this origin.
    "/": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'",
}


class RequestContext:
    def __init__(self, app: ASGIApp, content_policies: Mapping[str, str] = CONTENT_POLICIES) -> None:
        self._app = app
        self._policies = sorted(content_policies.items(), key=lambda item: -len(item[0]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        logs.context.set({"request_id": request_id})  # each request runs in its own task and context
        answered, caller_left = _Answered(), False

        async def receive_and_notice() -> Message:
            nonlocal caller_left
            message = await receive()
            caller_left = caller_left or message["type"] == "http.disconnect"
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.status, answered.begun = message["status"], True
                self._add_headers(scope, MutableHeaders(scope=message), request_id)
            await send(message)

        try:
            await self._app(scope, receive_and_notice, send_with_headers)
        except Exception as error:
            if caller_left and not answered.begun and str(error) == NOBODY_WAITS:
                answered.status = LEFT
                return
            if not answered.begun:
                failed = problem_response(Request(scope), HttpProblem(INTERNAL, "the request failed unexpectedly"))
                await failed(scope, receive, send_with_headers)
            raise  # the server logs it
        finally:
            _note(scope, answered)

    def _add_headers(self, scope: Scope, headers: MutableHeaders, request_id: str) -> None:
        headers["X-Request-Id"] = request_id
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        path = scope["path"]
        policy = next((text for prefix, text in self._policies if path.startswith(prefix)), None)
        if policy is not None:
            headers.setdefault("Content-Security-Policy", policy)
        if path.startswith("/api/"):
            headers.setdefault("Cache-Control", "no-store")
        if scope["scheme"] == "https":
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")


class HeadAsGet:
    """Serves HEAD as GET, with the same headers. The server drops the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not scope["path"].startswith(OF_PROGRAMS):
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receive, send)
        finally:
            scope["route"] = as_get.get("route")  # for the metrics


class LimitedBody:
    """Body size limit: reading beyond it raises a problem."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HttpProblem(
                    TOO_LARGE, f"the body is larger than {self._max_bytes} bytes", headers={"Connection": "close"}
                )
            return message

        await self._app(scope, receive_limited if scope["type"] == "http" else receive, send)


class _Answered:
    def __init__(self) -> None:
        self.status, self.begun = 500, False
        self.since = time.perf_counter()


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else uuid4().hex


def _note(scope: Scope, answered: _Answered) -> None:
    seconds = time.perf_counter() - answered.since
    route = getattr(scope.get("route"), "path", "unmatched")
    metrics.request_served(method=_method(scope), route=route, status=answered.status, seconds=seconds)
    identity = scope["state"].get("identity")
    facts: dict[str, Any] = {
        "event": "request",
        "method": scope["method"],
        "path": scope["path"],  # without the query, which may contain secrets
        "status": answered.status,
        "duration_ms": round(seconds * 1000, 1),
        "address": address_of(scope),
        "actor": None if identity is None else identity.actor,
    }
    is_quiet = scope["path"].startswith(QUIET) and answered.status < 500
    level = logging.DEBUG if is_quiet else logging.INFO
    logger.log(level, "%s %r %d", scope["method"], scope["path"], answered.status, extra=facts)


def _method(scope: Scope) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return scope["method"] if scope["method"] in known else "other"


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return "unknown" if client is None else str(client[0])
