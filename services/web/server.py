"""`manage.py web`: binds the port, prints the address, serves until a signal, drains.

With neither a token nor JWT_SECRET_KEY configured, the API listens on localhost only and prints a token that is valid
until the process exits.
"""

import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from threading import Thread

import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import _TrustedHosts

from config import Settings
from database.connection import DatabaseConnection
from database.schema import require_schema
from services.errors import ConfigurationError, Unavailable
from services.jobs.users import ask_project_again
from services.web.app import create_app
from services.web.auth.authenticator import OneTimeToken
from services.web.auth.tokens import ApiTokens
from services.web.connections import Connections
from services.web.dashboard.mounting import mount_dashboard
from services.wording.commands import as_called_here

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15
DRAIN_SECONDS = 10  # for requests in flight
BACKLOG = 512
FAILED = 1


def serve(settings: Settings, *, with_replica: bool, say: Callable[[str], None]) -> None:
    """Blocks until SIGTERM or SIGINT."""
    _require_schema(settings)
    one_time = one_time_token(settings)
    with closing(_bind(settings.web_host, settings.web_port)) as listener:
        app = create_app(settings, with_replica=with_replica, one_time=one_time)
        mount_dashboard(app, app.state.parts)
        host, port = listener.getsockname()[:2]
        say(f"serving on http://{f'[{host}]' if ':' in host else host}:{port} (documentation: /api/docs)")
        if one_time is not None:
            say("no token is configured; this admin token is valid until the process exits:")
            say(one_time.text)
            say(as_called_here("create a permanent one: python manage.py token create --name me --role admin"))
        _run(app, settings, listener)


def _require_schema(settings: Settings) -> None:
    """Without Postgres the schema cannot be checked; requests then get 503 until it answers."""
    with closing(DatabaseConnection.from_settings(settings)) as db, suppress(Unavailable):
        require_schema(db)


def one_time_token(settings: Settings) -> OneTimeToken | None:
    """None if a token or JWT_SECRET_KEY is configured. Otherwise refuses any bind address but localhost."""
    if settings.jwt_secret_key is not None:
        return None
    with closing(DatabaseConnection.from_settings(settings)) as db:
        if ApiTokens(db).exist():
            return None
    if not is_loopback(settings.web_host):
        raise ConfigurationError(
            f"WEB_HOST={settings.web_host} is reachable from other machines, but no token is configured; create one "
            f"({as_called_here('python manage.py token create --name me --role admin')}), set JWT_SECRET_KEY, or bind "
            "to 127.0.0.1"
        )
    return OneTimeToken()


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"WEB_PORT={port} cannot be bound on WEB_HOST={host}: {error.strerror or error}; use another port (--port)"
        ) from error


def _run(app: FastAPI, settings: Settings, listener: socket.socket) -> None:
    proxies = settings.web_trusted_proxies.strip()
    proxy_hosts = _TrustedHosts(proxies) if proxies else ()
    config = uvicorn.Config(
        app,
        http=Connections(is_proxy=lambda host: host in proxy_hosts).protocol(),
        log_config=None,
        access_log=False,  # RequestContext logs more
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        lifespan="on",
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_OurWords(app))
    signal.signal(signal.SIGHUP, lambda *_: Thread(target=_ask_project_again, args=(settings,), daemon=True).start())
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again after the drain; that is not a failure
    try:
        with suppress(KeyboardInterrupt):
            server = uvicorn.Server(config)
            app.state.parts.streams.end_when(lambda: server.should_exit)
            server.run(sockets=[listener])
    except SystemExit:
        raise app.state.failure or SystemExit(FAILED) from None


def _ask_project_again(settings: Settings) -> None:
    try:
        ask_project_again(settings)
    except ConfigurationError as error:
        logger.warning("the job types stay as they were: %s", error, extra={"event": "project_not_imported"})


class _OurWords(logging.Filter):
    """Gives uvicorn's log lines an event, and drops them after a failed start, which `serve` reports."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__()
        self._app = app

    def filter(self, record: logging.LogRecord) -> bool:
        record.event = "web_server"
        return self._app.state.failure is None
