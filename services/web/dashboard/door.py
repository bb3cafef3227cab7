"""Access control of the dashboard: rate limits for pages, and binding each socket to its page.

NiceGUI accepts a socket from anyone who knows the id of a page. Here a socket must come from our own pages (Origin) and
carry the cookie for which its page was built. Its events count for that page only.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from nicegui import Client, core
from socketio.exceptions import ConnectionRefusedError as Refused
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.errors import Unavailable
from services.web.auth.authenticator import comes_from_our_pages
from services.web.auth.roles import Refusal, Role
from services.web.auth.sessions import COOKIE
from services.web.dashboard import visitor
from services.web.middleware import address_of

FILES, SOCKET = "/_nicegui/", "/_nicegui_ws/"
FOR_ANYBODY = frozenset({"/login", "/logout", ""})  # "" is the page for unknown paths
RELOAD = "Implicit handshake failed"  # NiceGUI's page reloads on this message, and so reaches the login page
POLICY_VIOLATION = 1008


class PageDoor:
    """ASGI middleware in front of NiceGUI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"].startswith(FILES):
            await self._app(scope, receive, send)
        elif scope["path"].startswith(SOCKET):
            await self._socket(scope, receive, send)
        else:
            await self._page(scope, receive, send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if comes_from_our_pages(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})  # closing before accepting means 403
        else:
            await PlainTextResponse("this socket accepts connections from the dashboard's own pages only", 403)(
                scope, receive, send
            )

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = math.ceil(visitor.parts().limits.seconds_to_wait(_caller(Request(scope))))
        app = self._app
        if seconds:
            app = PlainTextResponse(f"Too Many Requests: retry in {seconds} s.", 429, {"Retry-After": str(seconds)})
        await app(scope, receive, send)


def _caller(request: Request) -> str:
    """The actor of a valid session, whose signature cannot be forged; otherwise the address."""
    found = visitor.parts().authenticator.sessions.read(request.cookies.get(COOKIE, ""))
    return f"page:{address_of(request.scope) if isinstance(found, Refusal) else found.actor}"


def guard_sockets() -> None:
    """Replace the socket handlers of NiceGUI; called once per process."""
    events: dict[str, Callable[..., Any]] = core.sio.handlers["/"]
    connect, handshake = events["connect"], events["handshake"]

    async def checked_connect(sid: str, environ: dict[str, Any], _: object = None) -> None:
        if not await _may_connect(environ):
            raise Refused(RELOAD)
        await connect(sid, environ)

    async def checked_handshake(sid: str, said: Any) -> bool:
        """The explicit handshake; usually it is part of connecting."""
        if not isinstance(said, dict) or not await _may_connect(core.sio.get_environ(sid), said.get("client_id")):
            return False
        return bool(await handshake(sid, said))

    core.sio.on("connect", checked_connect)
    core.sio.on("handshake", checked_handshake)
    for name in ("event", "javascript_response", "ack"):
        core.sio.on(name, _of_its_own_page(events[name]))
    core.sio.on("log", lambda _sid, _said: None)  # browsers must not write to our log


def _of_its_own_page(handle: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    def bound(sid: str, said: Any) -> Any:
        if isinstance(said, dict) and said.get("client_id") in core.sio.rooms(sid):
            return handle(sid, said)
        return None

    return bound


async def _may_connect(environ: Mapping[str, Any], client_id: object = None) -> bool:
    """Does the page exist, and does the socket carry its cookie, which is still valid?"""
    asked = client_id or next(iter(parse_qs(environ.get("QUERY_STRING", "")).get("client_id", [])), None)
    client = Client.instances.get(str(asked))
    if client is None:
        return False
    cookie = cookie_parser(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    if cookie != client.request.cookies.get(COOKIE):
        return False
    return client.page.path in FOR_ANYBODY or await run_in_threadpool(_opens_pages, cookie or "")


def _opens_pages(cookie: str) -> bool:
    authenticator = visitor.parts().authenticator
    try:
        found = authenticator.identify({}, {COOKIE: cookie})
    except Unavailable:
        found = authenticator.sessions.read(cookie)  # the page shows the outage; its actions check again
    return not isinstance(found, Refusal) and found.may(Role.VIEWER)
