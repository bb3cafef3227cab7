"""Replicas as processes on a database of the test's own, and servers that a test may break."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.embedded import Addresses, EmbeddedServers
from tests.support.ledger import Ledger
from tests.support.pipeline_stand_ins import PipelineWorld
from tests.support.postgres_proxy import PostgresProxy
from tests.support.replicas import QUICK, Cluster


@pytest.fixture
def cluster(
    db: DatabaseConnection, database_url: str, servers: Addresses, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """No replica runs yet; all that the test starts are gone after it, and none has called a handler again (G1)."""
    environment = {**QUICK, "DATABASE_URL": database_url, "REDIS_URL": servers.redis_url}
    cluster = Cluster(db, environment, tmp_path)
    yield cluster
    cluster.end()
    assert cluster.called_twice() == []
    request.node.user_properties.append(("logs", cluster.logs()))


@dataclass(slots=True)
class Breakable:
    """Servers of the test's own, with a migrated database, for faults that would hurt other tests."""

    servers: EmbeddedServers
    cluster: Cluster


@pytest.fixture
def breakable(tmp_path: Path) -> Iterator[Breakable]:
    options = {"fsync": "off", "full_page_writes": "off"}
    with EmbeddedServers(tmp_path / "servers", postgres_options=options, linger_seconds=0) as servers:
        addresses = servers.addresses
        db = DatabaseConnection(addresses.database_url)
        upgrade(db)
        environment = {**QUICK, "DATABASE_URL": addresses.database_url, "REDIS_URL": addresses.redis_url}
        cluster = Cluster(db, environment, tmp_path)
        yield Breakable(servers, cluster)
        cluster.end()
        db.close()
        assert cluster.called_twice() == []


@pytest.fixture
def proxy(database_url: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(database_url) as proxy:
        yield proxy


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def world() -> Iterator[PipelineWorld]:
    with PipelineWorld() as world:
        yield world


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows what its replicas said."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.when == "call" and report.failed and isinstance(cluster, Cluster):
        report.sections.append(("replicas", cluster.logs()))
