"""The replica's own web server: metrics and probes, whatever the clients do."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from services.errors import ConfigurationError
from services.telemetry import health
from services.telemetry.health import HealthServer
from tests.support.waiting import eventually


@dataclass
class State:
    """What the replica would say about itself."""

    stalled: dict[str, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=lambda: {"redis_degraded": False, "revision": 7})


def free_port() -> int:
    with socket.socket() as anywhere:
        anywhere.bind(("127.0.0.1", 0))
        return int(anywhere.getsockname()[1])


def serve(state: State, port: int, host: str = "127.0.0.1") -> HealthServer:
    return HealthServer(
        port,
        host=host,
        liveness=lambda: state.stalled,
        readiness=lambda: state.reasons,
        facts=lambda: state.facts,
    )


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def port(state: State) -> Iterator[int]:
    server = serve(state, free_port())
    server.start()
    assert server.port is not None
    yield server.port
    server.stop()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_metrics_are_served_as_prometheus_reads_them(port: int) -> None:
    response, body = ask(port, "/metrics")
    assert (response.status, response.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"process_resident_memory_bytes" in body
    modern, _ = ask(port, "/metrics?x=1", Accept="application/openmetrics-text;version=1.0.0")
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")


def test_a_replica_whose_loops_go_on_is_alive(port: int) -> None:
    response, body = ask(port, "/healthz")
    assert (response.status, json.loads(body)) == (200, {"status": "alive"})


def test_a_loop_that_stands_still_is_named_with_its_seconds(port: int, state: State) -> None:
    state.stalled = {"watcher": 61.234}
    response, body = ask(port, "/healthz")
    assert (response.status, json.loads(body)) == (503, {"status": "stalled", "stalled_seconds": {"watcher": 61.2}})


def test_a_degraded_replica_is_ready_and_says_so(port: int, state: State) -> None:
    state.facts["redis_degraded"] = True
    response, body = ask(port, "/readyz")
    assert response.status == 200
    assert json.loads(body) == {"status": "ready", "facts": {"redis_degraded": True, "revision": 7}}


def test_a_replica_that_does_not_work_says_why(port: int, state: State) -> None:
    state.reasons = ["the clock differs from Postgres by 9.0 s"]
    response, body = ask(port, "/readyz")
    assert response.status == 503
    assert json.loads(body)["reasons"] == ["the clock differs from Postgres by 9.0 s"]


def test_other_paths_and_methods_are_refused(port: int) -> None:
    assert ask(port, "/")[0].status == 404
    assert ask(port, "/metrics/../healthz")[0].status == 404
    refused, _ = ask(port, "/healthz", "POST")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_head_gives_the_headers_alone(port: int) -> None:
    response, body = ask(port, "/healthz", "HEAD")
    assert (response.status, response.headers["Content-Length"], body) == (200, "20", b"")


def test_clients_that_say_nothing_keep_nobody_from_being_answered(port: int) -> None:
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(health.MAX_CONNECTIONS // 2)]
    assert ask(port, "/healthz")[0].status == 200
    for connection in silent:
        connection.close()


def test_a_client_that_dawdles_is_hung_up_on(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTION_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(0.2)

        def hung_up() -> bool:
            try:
                slow.sendall(b"G")  # one byte after the other: never silent for long
                return slow.recv(100) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        eventually(hung_up, 4)
    assert ask(port, "/healthz")[0].status == 200


def test_too_many_connections_are_turned_away_and_the_rest_goes_on(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 0)
    with pytest.raises(ConnectionError):
        ask(port, "/healthz")
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 5)
    assert ask(port, "/healthz")[0].status == 200


def test_a_port_in_use_is_refused_with_the_way_out(port: int, state: State) -> None:
    with pytest.raises(ConfigurationError) as refused:
        serve(state, port).start()
    assert str(refused.value).startswith(f"METRICS_PORT={port} is not available on METRICS_HOST=127.0.0.1: Address")
    assert "give each one a METRICS_PORT of its own, or set METRICS_PORT=0" in str(refused.value)


def test_an_address_that_is_not_ours_is_refused(state: State) -> None:
    with pytest.raises(ConfigurationError, match=r"METRICS_HOST=192\.0\.2\.1"):
        serve(state, free_port(), "192.0.2.1").start()


def test_port_zero_is_off(state: State) -> None:
    server = serve(state, 0)
    server.start()
    assert server.port is None
    server.stop()


def test_a_stopped_server_gives_its_port_back(state: State) -> None:
    port = free_port()
    for _ in range(2):
        server = serve(state, port)
        server.start()
        assert ask(port, "/healthz")[0].status == 200
        server.stop()
        assert server.port is None
