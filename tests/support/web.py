"""The HTTP API for tests: a real server on a free port of 127.0.0.1, and a token for every role."""

import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

import jwt
import requests
import uvicorn
from fastapi import FastAPI

from config import Settings
from services.web.app import create_app
from services.web.auth.authenticator import OneTimeToken
from services.web.auth.roles import Role
from services.web.auth.tokens import ApiTokens
from services.web.connections import Connections
from tests.support.waiting import eventually

SECRET = "a secret that is long enough for every algorithm that a forger might like to try"
API = "/api/v3"


def a_jwt(secret: str = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """A token of the other system; a claim that is None is omitted."""
    known = {"sub": "4711", "aud": "authenticated", "exp": int(time.time()) + 600, "role": "admin", **claims}
    present = {name: value for name, value in known.items() if value is not None}
    return jwt.encode(present, secret, algorithm=algorithm)


@dataclass
class Web:
    settings: Settings
    with_replica: bool = False
    one_time: OneTimeToken | None = None
    tokens: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.app: FastAPI = create_app(self.settings, with_replica=self.with_replica, one_time=self.one_time)
        parts = self.app.state.parts
        for role in Role:
            self.tokens[role] = ApiTokens(parts.db).create(f"test-{role}", role, "test").text
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            self.app, http=Connections().protocol(), log_config=None, access_log=False, lifespan="on"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started or not self._thread.is_alive(), 60)
        assert self._server.started
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)

    def ask(self, method: str, path: str, role: str | None = "admin", **more: Any) -> requests.Response:
        """With the token of a role, or without a token."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        headers |= more.pop("headers", {})
        target = path if path.startswith(("/api/", "/healthz", "/readyz", "/metrics")) else API + path
        return requests.request(method, self.url + target, headers=headers, timeout=30, **more)

    def get(self, path: str, role: str | None = "viewer", **more: Any) -> requests.Response:
        return self.ask("GET", path, role, **more)

    def post(self, path: str, json: Any = None, role: str | None = "operator", **more: Any) -> requests.Response:
        return self.ask("POST", path, role, json=json, **more)


def problem(answer: requests.Response) -> dict[str, Any]:
    """The problem in a response, after checking its content type."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    body: dict[str, Any] = answer.json()
    assert body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["X-Request-Id"]
    return body
