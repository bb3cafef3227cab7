"""What a fire and a change cost, counted: these numbers are the speed, and must not grow unnoticed."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.engine.timer import Timer
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Ending, Fire
from services.redis_client import RedisClient
from services.schedule_repository import ScheduleRepository
from services.schedule_watcher import ScheduleWatcher
from tests.support.dispatching import dispatching
from tests.support.executions import Make, fire
from tests.support.schedules import many
from tests.support.statements import each_statement
from tests.support.waiting import eventually

BATCH = 200
COPY = """
INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, effective_from)
SELECT gen_random_uuid(), domain || n, job_type, frequency, time_config, effective_from
FROM schedules, generate_series(1, %s) AS n WHERE schedule_id = %s
RETURNING schedule_id
"""

Asked = Counter[str]
Due = Callable[[int], list[Fire]]


@pytest.fixture
def asked(db: DatabaseConnection) -> Iterator[Asked]:
    """How many statements went to Postgres, each of them a round trip."""
    asked: Asked = Counter()

    def note(*_: Any) -> None:
        asked["postgres"] += 1

    with each_statement(db, note):
        yield asked


@pytest.fixture
def redis(servers: Addresses, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisClient]:
    client = RedisClient(servers.redis_url)
    execute: Callable[..., Any] = client.commands.execute_command

    def count(*arguments: Any, **options: Any) -> Any:
        asked["redis"] += 1
        return execute(*arguments, **options)

    monkeypatch.setattr(client.commands, "execute_command", count)
    yield client
    client.close()


@pytest.fixture
def due(db: DatabaseConnection, make: Make) -> Due:
    """Makes schedules that have been firing for an hour, and says what is due of them."""

    def due(count: int) -> list[Fire]:
        example = make()
        with db.transaction() as connection:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            rows = connection.exec_driver_sql(COPY, (count, example)).all()
        return [fire(row.schedule_id) for row in rows]

    return due


def test_a_batch_of_any_size_is_claimed_started_and_ended_in_eight_round_trips(
    store: ExecutionStore, due: Due, asked: Asked
) -> None:
    fires = due(BATCH)
    store.without_row(fires[:1])  # connected
    asked.clear()
    claims = store.claim(fires).claims
    assert (len(claims), asked["postgres"]) == (BATCH, 3)
    started = store.start(claims).started
    assert (len(started), asked["postgres"]) == (BATCH, 5)
    store.finish([Ending(claim=claim, status=ExecutionStatus.SUCCESS) for claim in started])
    assert asked["postgres"] == 8


def test_fires_with_a_worker_need_six(store: ExecutionStore, due: Due, asked: Asked) -> None:
    fires = due(BATCH)
    store.without_row(fires[:1])  # connected
    asked.clear()
    started = store.claim(fires, start=BATCH).started
    store.finish([Ending(claim=claim, status=ExecutionStatus.SUCCESS) for claim in started])
    assert (len(started), asked["postgres"]) == (BATCH, 6)


def test_redis_is_asked_once_for_all_marks_once_for_all_leases_and_once_to_let_go(
    redis: RedisClient, due: Due, asked: Asked
) -> None:
    coordinator = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)
    fires = due(BATCH)
    coordinator.mark_fires([fires[0].key])  # the script is loaded
    leases = {item.schedule_id: number for number, item in enumerate(fires, 1)}
    for use in (
        lambda: coordinator.mark_fires([item.key for item in fires]),
        lambda: coordinator.take_leases(leases),
        lambda: coordinator.release_leases(leases),
    ):
        use()  # each script once
        asked.clear()
        use()
        assert asked["redis"] <= 1


def test_a_burst_shares_its_round_trips(store: ExecutionStore, redis: RedisClient, due: Due, asked: Asked) -> None:
    """Far below one per fire, although the first batches are small: nobody knows yet how quick the jobs are."""
    fires = due(600)
    with dispatching(store, redis, max_workers=5) as parts:
        asked.clear()
        parts.dispatcher.hand_over(fires)

        def work() -> bool:
            parts.dispatcher.tick()
            parts.finisher.tick()
            return len(parts.ran) == 600 and parts.finisher.unwritten == 0

        eventually(work, 30)
    assert asked["postgres"] / 600 < 0.15
    assert asked["redis"] / 600 < 0.05


def test_a_change_costs_two_statements_however_many_schedules_there_are(
    repository: ScheduleRepository, db: DatabaseConnection, asked: Asked
) -> None:
    repository.save_schedules(many(500))
    watcher = ScheduleWatcher(
        db, Timer(lambda fires: None, DatabaseClock(5)), DatabaseClock(5), check_interval_seconds=60, listen=False
    )
    watcher._connect()
    changed = repository.find_schedule("host000007.example")
    repository.update_schedule(changed.schedule_id, priority=7)
    asked.clear()
    watcher.apply_changes()
    assert asked["postgres"] == 2
    (entry,) = (known.entry for bucket in watcher.loaded.held() if (known := bucket.schedules.get(changed.schedule_id)))
    assert entry is not None
    assert entry.priority == 7
    watcher.close()
