"""Replicas and workers on a Redis whose users may do no more than deploy/redis/users.acl says."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config import PROJECT_ROOT
from services.redis_client import RedisClient
from tests.integration.test_redis_client import free_port, start
from tests.support.fleet import Fleet, messages_at, run
from tests.support.replicas import Cluster
from tests.support.rows import count
from tests.support.waiting import eventually

QUEUE = "browser"  # that of the file; whoever has others adds them
JUDGE = "user judge on nopass ~* &* +@all\n"  # sees what was refused


@dataclass(frozen=True, slots=True)
class Restricted:
    port: int

    def url(self, user: str, database: int) -> str:
        return f"redis://{user}:change-this-password@127.0.0.1:{self.port}/{database}"

    def refused(self) -> list[tuple[str, str]]:
        """What the broker's user was refused: the reason, and the command or key.

        But for CLIENT: redis-py asks for notifications of maintenance, which any server may refuse.
        """
        with closing(RedisClient(self.url("judge", 0))) as judge:
            entries: list[dict[str, Any]] = judge.commands.acl_log()
        theirs = [(entry["reason"], entry["object"]) for entry in entries if entry["username"] == "celery"]
        return [refusal for refusal in theirs if refusal != ("command", "client")]


@pytest.fixture
def restricted(tmp_path: Path) -> Iterator[Restricted]:
    rights = tmp_path / "users.acl"
    rights.write_text((PROJECT_ROOT / "deploy/redis/users.acl").read_text() + JUDGE)
    found = Restricted(free_port())
    options = ["--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", "", "--aclfile", str(rights)]
    process = start("--port", str(found.port), *options)
    with closing(RedisClient(found.url("judge", 0))) as client:
        eventually(client.ping)
    yield found
    process.terminate()
    process.wait(10)


def test_the_users_of_users_acl_may_do_what_replicas_and_workers_do(
    cluster: Cluster, fleet: Fleet, restricted: Restricted
) -> None:
    """A killed worker, a warm shutdown and the doctor's question are part of it."""
    fleet.queue = QUEUE
    broker = {"CELERY_BROKER_URL": restricted.url("celery", 1), "REDIS_URL": restricted.url("scheduler", 0)}
    cluster.start(1, **fleet.environment, **broker)
    killed = fleet.start("--concurrency", "1", processes=1, **broker)
    run(cluster, fleet, job_type="sleep", job_config={"seconds": 60})
    eventually(lambda: count(cluster, "status = 'running'") == 1 or restricted.refused(), 30)
    assert restricted.refused() == []
    killed.kill()
    worker = fleet.start("--pool", "threads", "--concurrency", "2", processes=1, **broker)
    run(cluster, fleet)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 30)
    with closing(messages_at(broker["REDIS_URL"], broker["CELERY_BROKER_URL"])) as messages:
        messages.send(QUEUE, 1)
        assert messages.depth(QUEUE) in (0, 1)
        messages.purge(QUEUE)
    assert worker.stop() == 0
    assert restricted.refused() == []


@pytest.mark.parametrize("command", [("FLUSHALL",), ("GET", "lock:schedule:x"), ("CONFIG", "GET", "*"), ("KEYS", "*")])
def test_the_user_of_the_broker_can_do_nothing_else(restricted: Restricted, command: tuple[str, ...]) -> None:
    with (
        closing(RedisClient(restricted.url("celery", 1))) as client,
        pytest.raises(Exception, match=r"(?i)no permissions"),
    ):
        client.commands.execute_command(*command)  # type: ignore[no-untyped-call]
