"""Redis in other shapes than the embedded one: with users, behind Sentinel, behind TLS, not there."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from services.distributed_lock import Answer, Coordinator, DistributedLock
from services.embedded import Addresses
from services.embedded.programs import find_binaries
from services.errors import ConfigurationError, Unavailable
from services.redis_client import RedisClient
from tests.support.certificate import certificate_file, server_tls
from tests.support.tls_door import TlsDoor
from tests.support.waiting import eventually


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def start(*arguments: str) -> "subprocess.Popen[bytes]":
    command = [str(find_binaries().redis), *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A Redis on TCP, with a user besides the default one."""
    port = free_port()
    user = ["--user", "scheduler", "on", ">p@ss/word", "~*", "&*", "+@all"]
    process = start("--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", "", *user)
    with closing(RedisClient(f"redis://127.0.0.1:{port}/0")) as client:
        eventually(client.ping)
    yield port
    process.terminate()
    process.wait(10)


def test_a_user_of_redis_acl_can_be_named_in_the_url(port: int) -> None:
    with closing(RedisClient(f"redis://scheduler:p%40ss%2Fword@127.0.0.1:{port}/0")) as client:
        assert client.ping()
        assert client.commands.acl_whoami() in ("scheduler", b"scheduler")
    with closing(RedisClient(f"redis://scheduler:wrong@127.0.0.1:{port}/0")) as stranger:
        assert stranger.ping() is False


def test_the_master_is_found_through_sentinel(port: int, tmp_path: Path) -> None:
    sentinel_port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {sentinel_port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor mymaster 127.0.0.1 {port} 1\n"
    )
    process = start(str(config), "--sentinel")
    try:
        with closing(RedisClient(f"redis+sentinel://127.0.0.1:{sentinel_port}/mymaster?db=0")) as client:
            eventually(client.ping)
            lock = DistributedLock(client, "replica")
            assert lock.acquire("schedule:x")
            assert lock.release("schedule:x")
    finally:
        process.terminate()
        process.wait(10)


def test_redis_behind_tls_is_used_when_its_certificate_is_trusted(servers: Addresses, tmp_path: Path) -> None:
    trusting = f"ssl_ca_certs={certificate_file(tmp_path)}"
    with (
        TlsDoor(servers.redis_url, server_tls(tmp_path)) as door,
        closing(RedisClient(f"rediss://127.0.0.1:{door.port}/0?{trusting}")) as client,
    ):
        assert client.ping()
        lock = DistributedLock(client, "replica")
        assert lock.acquire(f"behind tls {door.port}")
        assert lock.release(f"behind tls {door.port}")
        assert marks(client) == [Answer.WON]
        assert door.connections >= 1


def test_redis_behind_tls_is_absent_when_nobody_vouches_for_it(
    servers: Addresses, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        TlsDoor(servers.redis_url, server_tls(tmp_path)) as door,
        closing(RedisClient(f"rediss://127.0.0.1:{door.port}/0")) as client,
    ):
        assert client.ping() is False
        assert "certificate verify failed" in caplog.text
        assert marks(client) == [Answer.UNKNOWN]


def test_a_redis_that_speaks_no_tls_is_absent_for_who_wants_it(port: int) -> None:
    with closing(RedisClient(f"rediss://127.0.0.1:{port}/0")) as client:
        assert client.ping() is False
        assert marks(client) == [Answer.UNKNOWN]


def marks(client: RedisClient) -> list[Answer]:
    coordinator = Coordinator(client, owner="replica", lease_seconds=60, mark_seconds=60)
    return coordinator.mark_fires([(uuid4(), datetime.now(UTC))])


@pytest.mark.parametrize("url", ["redis+sentinel://127.0.0.1:26379", "redis+sentinel://127.0.0.1:abc/mymaster"])
def test_a_sentinel_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="REDIS_URL="):
        RedisClient(url)


def test_a_redis_that_is_not_there_is_a_clear_error() -> None:
    client = RedisClient("redis://:hunter2@127.0.0.1:1/0")
    assert client.ping() is False
    with pytest.raises(Unavailable, match=r"Redis at redis://:\*\*\*@127\.0\.0\.1:1/0 does not answer"):
        client.version()
