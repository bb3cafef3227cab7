"""The door to Redis: locks, fire marks and leases, and what becomes of them when Redis lies, forgets or vanishes."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import fakeredis
import pytest

from services import distributed_lock, redis_client
from services.distributed_lock import Answer, Coordinator, DistributedLock
from services.embedded import Addresses, EmbeddedServers
from services.errors import Unavailable
from services.redis_client import RedisClient
from tests.support.redis_proxy import RedisProxy
from tests.support.waiting import eventually

WON, LOST, UNKNOWN = Answer.WON, Answer.LOST, Answer.UNKNOWN
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TIMEOUT_SECONDS = redis_client.TIMEOUT_SECONDS


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy test machine is no slow Redis; the tests about slowness use `hasty_redis`."""
    monkeypatch.setattr(redis_client, "TIMEOUT_SECONDS", 10.0)


@pytest.fixture(params=["redis", "fakeredis"])
def redis(request: pytest.FixtureRequest) -> Iterator[RedisClient]:
    """The contract holds for both: what passes here may be tested elsewhere without a server."""
    if request.param == "redis":
        client = RedisClient(request.getfixturevalue("servers").redis_url)
    else:
        client = RedisClient("redis://nowhere")
        client.commands = fakeredis.FakeRedis()
    yield client
    client.close()


@pytest.fixture
def real_redis(servers: Addresses) -> Iterator[RedisClient]:
    client = RedisClient(servers.redis_url)
    yield client
    client.close()


@pytest.fixture
def proxy(servers: Addresses) -> Iterator[RedisProxy]:
    with RedisProxy(servers.redis_url) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(proxy: RedisProxy) -> Iterator[RedisClient]:
    client = RedisClient(proxy.url)
    yield client
    client.close()


@pytest.fixture
def hasty_redis(proxy: RedisProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisClient]:
    """Behind the proxy, with the time-out of production."""
    monkeypatch.setattr(redis_client, "TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    client = RedisClient(proxy.url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def own_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServers]:
    """For what would hurt other tests."""
    root: Path = tmp_path_factory.mktemp("servers")
    with EmbeddedServers(root, postgres_options={"fsync": "off"}, linger_seconds=0) as servers:
        yield servers


@pytest.fixture
def own_redis(own_servers: EmbeddedServers) -> Iterator[RedisClient]:
    client = RedisClient(own_servers.addresses.redis_url)
    yield client
    client.close()


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def coordinator(redis: RedisClient, owner: str = "a", **options: object) -> Coordinator:
    """Its keys are unique through the schedules' ids, and gone soon after the test."""
    return Coordinator(redis, owner=owner, **{"lease_seconds": 20, "mark_seconds": 20, **options})  # type: ignore[arg-type]


def fires(count: int) -> list[tuple[UUID, datetime]]:
    return [(uuid4(), NOON) for _ in range(count)]


def lease_of(redis: RedisClient, schedule_id: UUID) -> str | None:
    value = redis.commands.get(f"lock:schedule:{schedule_id}")
    assert value is None or isinstance(value, bytes)
    return value.decode() if value else None


def lifetime_seconds(redis: RedisClient, key: str) -> float:
    return float(str(redis.commands.pttl(key))) / 1000


# DistributedLock


def test_a_lock_has_one_holder_until_it_is_released(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    first, second = DistributedLock(redis, "a"), DistributedLock(redis, "b")
    assert first.acquire(name)
    assert not second.acquire(name)
    assert first.release(name)
    assert second.acquire(name)
    assert second.release(name)


def test_a_lock_lies_under_the_documented_key_and_expires(redis: RedisClient) -> None:
    name = f"schedule:{uuid4()}"
    assert DistributedLock(redis, "a").acquire(name, timeout=0.1)
    assert 0 < lifetime_seconds(redis, f"lock:{name}") <= 0.1
    assert eventually(lambda: DistributedLock(redis, "b").acquire(name, timeout=1))


def test_a_lock_is_not_reentrant_and_two_objects_of_one_replica_are_two_holders(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    lock = DistributedLock(redis, "a")
    assert lock.acquire(name, timeout=5)
    assert not lock.acquire(name, timeout=5)
    assert not DistributedLock(redis, "a").acquire(name, timeout=5)
    assert lock.release(name), "the failed second acquire has not made it forget its token"


def test_release_and_extend_leave_a_lock_alone_that_expired_and_is_anothers_now(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    slow, quick = DistributedLock(redis, "a"), DistributedLock(redis, "b")
    assert slow.acquire(name, timeout=0.05, renew=False)
    assert quick.acquire(name, timeout=5, blocking=True)
    assert not slow.extend(name)
    assert not slow.release(name)
    assert quick.release(name)


def test_what_was_never_acquired_cannot_be_released_or_extended(redis: RedisClient) -> None:
    lock, name = DistributedLock(redis, "a"), f"report:{uuid4()}"
    assert not lock.release(name)
    assert not lock.extend(name)


def test_extend_sets_the_lifetime_anew_and_does_not_add_up(redis: RedisClient) -> None:
    lock, name = DistributedLock(redis, "a"), f"report:{uuid4()}"
    lock.acquire(name, timeout=60)
    assert lock.extend(name, timeout=30)
    assert lock.extend(name, timeout=30)
    assert 20 < lifetime_seconds(redis, f"lock:{name}") <= 30
    lock.release(name)


def test_a_blocking_acquire_waits_for_the_release_and_gives_up_in_time(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    first, second = DistributedLock(redis, "a"), DistributedLock(redis, "b")
    first.acquire(name, timeout=5)
    assert not second.acquire(name, blocking=True, wait_timeout=0.1)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(second.acquire, name, timeout=5, blocking=True)
        first.release(name)
        assert waiting.result()
    second.release(name)


def test_another_thread_may_release_a_lock(redis: RedisClient) -> None:
    lock, name = DistributedLock(redis, "a"), f"report:{uuid4()}"
    lock.acquire(name, timeout=5)
    with ThreadPoolExecutor() as threads:
        assert threads.submit(lock.release, name).result()


def test_a_with_block_says_whether_it_has_the_lock_and_releases_it_also_after_an_exception(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    first, second = DistributedLock(redis, "a"), DistributedLock(redis, "b")
    with first.lock(name) as mine:
        assert mine
        assert first.extend(name, timeout=5)
        with second.lock(name) as yours:
            assert not yours
        assert not second.acquire(name), "a block without the lock releases nothing"
    with pytest.raises(RuntimeError, match="job failed"), first.lock(name):
        raise RuntimeError("job failed")
    with second.lock(name) as yours:
        assert yours


def test_a_with_block_that_outlived_its_lock_does_not_release_the_next_one_of_the_same_object(
    redis: RedisClient,
) -> None:
    lock, name = DistributedLock(redis, "a"), f"report:{uuid4()}"
    with lock.lock(name, timeout=0.05, renew=False):
        assert lock.acquire(name, timeout=5, blocking=True)
    assert not DistributedLock(redis, "b").acquire(name)
    assert lock.release(name)


def test_a_lock_without_a_lifetime_is_refused(redis: RedisClient) -> None:
    with pytest.raises(ValueError, match=r"a lifetime must be at least 0\.001 seconds, got 0"):
        DistributedLock(redis, "a").acquire("report", timeout=0)


def test_one_of_many_threads_gets_the_lock(real_redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    shared = DistributedLock(real_redis, "a")
    with ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(lambda _: shared.acquire(name, timeout=5), range(100))) == 1
    assert shared.release(name)


def test_a_lock_takes_redis_and_name_from_the_settings(own_process: dict[str, str]) -> None:
    name = f"report:{uuid4()}"
    with DistributedLock().lock(name, timeout=5) as mine:
        assert mine


def test_a_lock_without_redis_is_unavailable_instead_of_not_acquired() -> None:
    lock = DistributedLock(RedisClient("redis://:hunter2@127.0.0.1:1"), "a")
    with pytest.raises(Unavailable, match=r"Redis at redis://:\*\*\*@127\.0\.0\.1:1 does not answer"):
        lock.acquire("report", blocking=True)
    with pytest.raises(Unavailable):
        lock.extend("report")
    with pytest.raises(Unavailable):
        lock.release("report")


def test_after_an_acquire_whose_reply_was_lost_release_frees_the_lock(
    proxy: RedisProxy, behind_proxy: RedisClient, real_redis: RedisClient
) -> None:
    name = f"report:{uuid4()}"
    lock = DistributedLock(behind_proxy, "a")
    proxy.lost_replies["SET"] = 1
    with pytest.raises(Unavailable):
        lock.acquire(name)
    assert not DistributedLock(real_redis, "b").acquire(name)
    assert lock.release(name)
    assert DistributedLock(real_redis, "b").acquire(name, timeout=1)


def test_work_under_a_lock_does_not_fail_because_redis_went_away_meanwhile(
    proxy: RedisProxy, behind_proxy: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    with DistributedLock(behind_proxy, "a").lock(f"report:{uuid4()}", timeout=5):
        proxy.refusing = True
        proxy.cut()
    assert [getattr(record, "event", None) for record in caplog.records] == ["lock_not_released"]


def test_a_lock_that_is_held_outlives_its_timeout_and_ends_with_its_release(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    first, second = DistributedLock(redis, "a"), DistributedLock(redis, "b")
    assert first.acquire(name, timeout=0.3)
    assert not second.acquire(name, timeout=5, blocking=True, wait_timeout=0.8)
    assert first.holds(name)
    assert first.release(name)
    assert not first.holds(name)
    assert second.acquire(name, timeout=5)
    assert second.release(name)


def test_a_lock_in_a_with_block_is_renewed_too(redis: RedisClient) -> None:
    name = f"report:{uuid4()}"
    with DistributedLock(redis, "a").lock(name, timeout=0.3) as mine:
        assert mine
        assert not DistributedLock(redis, "b").acquire(name, blocking=True, wait_timeout=0.8)
    assert DistributedLock(redis, "b").acquire(name, timeout=1)


def test_a_connection_that_is_closed_during_a_renewal_does_not_end_the_renewing(
    real_redis: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, name = DistributedLock(real_redis, "a"), f"report:{uuid4()}"
    answering = distributed_lock._answering
    closed: list[bool] = []

    @contextmanager
    def close_once(redis: RedisClient) -> Iterator[None]:
        if not closed and threading.current_thread().name == "lock-renewal":
            closed.append(True)
            raise ValueError("I/O operation on closed file.")
        with answering(redis):
            yield

    monkeypatch.setattr(distributed_lock, "_answering", close_once)
    lock.acquire(name, timeout=0.6)
    assert not DistributedLock(real_redis, "b").acquire(name, blocking=True, wait_timeout=1.2)
    assert closed
    lock.release(name)


def test_a_renewal_keeps_the_lifetime_that_extend_has_set(real_redis: RedisClient) -> None:
    lock, name = DistributedLock(real_redis, "a"), f"report:{uuid4()}"
    lock.acquire(name, timeout=0.3)
    lock.extend(name, timeout=30)
    assert not DistributedLock(real_redis, "b").acquire(name, blocking=True, wait_timeout=0.4)
    assert lifetime_seconds(real_redis, f"lock:{name}") > 20
    lock.release(name)


def test_the_thread_that_renews_ends_with_the_last_lock(real_redis: RedisClient) -> None:
    def renewing() -> int:
        return sum(thread.name == "lock-renewal" for thread in threading.enumerate())

    eventually(lambda: renewing() == 0)  # those of other tests' locks
    lock = DistributedLock(real_redis, "a")
    for name in ("one", "two"):
        assert lock.acquire(f"{name}:{id(lock)}", timeout=0.3)
    assert renewing() == 1
    for name in ("one", "two"):
        assert lock.release(f"{name}:{id(lock)}")
    eventually(lambda: renewing() == 0)


def test_a_holder_that_lost_its_lock_is_told(real_redis: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody deleted the key, or Redis was emptied: taking it again could take it from a new holder."""
    lock, name = DistributedLock(real_redis, "a"), f"report:{uuid4()}"
    assert lock.acquire(name, timeout=0.3)
    real_redis.commands.delete(f"lock:{name}")
    eventually(lambda: not lock.holds(name))
    (lost,) = [record for record in caplog.records if vars(record).get("event") == "lock_lost"]
    assert lost.levelname == "WARNING"
    assert name in lost.getMessage()
    assert not lock.release(name)


def test_a_lock_survives_a_redis_that_is_away_for_less_than_its_timeout(
    proxy: RedisProxy, behind_proxy: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock, name = DistributedLock(behind_proxy, "a"), f"report:{uuid4()}"
    assert lock.acquire(name, timeout=6)
    proxy.refusing = True
    proxy.cut()
    eventually(lambda: "lock_not_renewed" in [vars(record).get("event") for record in caplog.records])
    assert lock.holds(name)
    proxy.refusing = False
    assert eventually(lambda: lock.extend(name, timeout=6))
    assert lock.release(name)


def test_without_redis_a_holder_stops_trusting_its_lock_when_it_has_expired(
    proxy: RedisProxy, behind_proxy: RedisClient
) -> None:
    lock = DistributedLock(behind_proxy, "a")
    assert lock.acquire(f"report:{uuid4()}", timeout=0.3)
    (name,) = lock.held
    proxy.refusing = True
    proxy.cut()
    eventually(lambda: not lock.holds(name))


def test_who_takes_and_gives_back_a_lock_is_in_the_log_of_a_debugger(
    real_redis: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "services.distributed_lock")
    name = f"report:{uuid4()}"
    first, second = DistributedLock(real_redis, "a"), DistributedLock(real_redis, "b")
    first.acquire(name)
    second.acquire(name)
    first.release(name)
    said = [(record.levelname, vars(record)["event"], vars(record)["instance_id"]) for record in caplog.records]
    assert said == [("DEBUG", "lock_acquired", "a"), ("DEBUG", "lock_busy", "b"), ("DEBUG", "lock_released", "a")]
    assert all(name in record.getMessage() for record in caplog.records)


def test_leases_that_are_taken_and_released_are_in_the_log_of_a_debugger(
    real_redis: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "services.distributed_lock")
    schedule_id, replica = uuid4(), coordinator(real_redis)
    replica.take_leases({schedule_id: 7})
    replica.release_leases({schedule_id: 7})
    assert [vars(record)["event"] for record in caplog.records] == ["leases_taken", "leases_released"]
    assert all(str(schedule_id) in record.getMessage() for record in caplog.records)


# Fire marks


def test_a_fire_is_won_once_and_lost_by_everybody_else(redis: RedisClient) -> None:
    first, second = coordinator(redis, "a"), coordinator(redis, "b")
    batch = fires(3)
    assert first.mark_fires(batch[:2]) == [WON, WON]
    assert second.mark_fires(batch) == [LOST, LOST, WON]
    assert (first.stats().marks_won, second.stats().marks_won, second.stats().marks_lost) == (2, 1, 2)


def test_every_fire_of_a_schedule_is_marked_for_itself(redis: RedisClient) -> None:
    schedule_id = uuid4()
    batch = [(schedule_id, NOON + timedelta(seconds=n)) for n in range(3)]
    assert coordinator(redis, "a").mark_fires(batch[:1]) == [WON]
    assert coordinator(redis, "b").mark_fires(batch) == [LOST, WON, WON]


def test_the_same_instant_in_another_time_zone_is_the_same_fire(redis: RedisClient) -> None:
    schedule_id = uuid4()
    there = NOON.astimezone(datetime.strptime("+0530", "%z").tzinfo)
    coordinator(redis, "a").mark_fires([(schedule_id, NOON)])
    assert coordinator(redis, "b").mark_fires([(schedule_id, there)]) == [LOST]


def test_a_mark_expires_without_being_prolonged_by_asking_again(redis: RedisClient) -> None:
    marker = coordinator(redis, "a", mark_seconds=60)
    [(schedule_id, _)] = batch = fires(1)
    key = f"fire:{schedule_id.hex}:{int(NOON.timestamp())}"
    marker.mark_fires(batch)
    redis.commands.pexpire(key, 100)
    assert marker.mark_fires(batch) == [WON]
    assert 0 < lifetime_seconds(redis, key) <= 0.1
    assert eventually(lambda: coordinator(redis, "b").mark_fires(batch) == [WON])


def test_a_key_of_another_type_does_not_fail_the_rest_of_the_batch(redis: RedisClient) -> None:
    batch = fires(2)
    key = f"fire:{batch[0][0].hex}:{int(NOON.timestamp())}"
    redis.commands.rpush(key, "not a mark")
    assert coordinator(redis).mark_fires(batch) == [LOST, WON]
    redis.commands.delete(key)


def test_no_fires_are_no_question(redis: RedisClient) -> None:
    assert coordinator(redis).mark_fires([]) == []


def test_replicas_that_race_for_a_thousand_fires_win_each_exactly_once(servers: Addresses) -> None:
    batch = fires(1000)
    start = threading.Barrier(8)

    def race(number: int) -> list[Answer]:
        redis = RedisClient(servers.redis_url)
        replica = coordinator(redis, f"replica-{number}")
        answers: list[Answer] = []
        start.wait()
        for first in range(0, 1000, 10):
            answers += replica.mark_fires(batch[first : first + 10])
        redis.close()
        return answers

    with ThreadPoolExecutor(8) as threads:
        by_replica = list(threads.map(race, range(8)))
    assert all(UNKNOWN not in answers for answers in by_replica)
    assert {answers.count(WON) for answers in zip(*by_replica, strict=True)} == {1}


def test_a_thousand_fires_are_one_round_trip(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    marker = coordinator(behind_proxy)
    marker.check()
    proxy.requests.clear()
    assert marker.mark_fires(fires(1500)) == [WON] * 1500
    assert proxy.requests == {"EVALSHA": 1}


def test_a_huge_batch_does_not_hold_up_redis_for_a_whole_time_out(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    marker = coordinator(behind_proxy)
    marker.check()
    proxy.requests.clear()
    assert len(marker.mark_fires(fires(10_000))) == 10_000
    assert proxy.requests["EVALSHA"] == 5


# Leases


def test_a_lease_names_its_owner_and_token_and_is_deleted_when_it_is_released(redis: RedisClient) -> None:
    replica, schedule_id = coordinator(redis), uuid4()
    replica.take_leases({schedule_id: 7})
    assert lease_of(redis, schedule_id) == "a:7"
    assert 10 < lifetime_seconds(redis, f"lock:schedule:{schedule_id}") <= 20
    replica.release_leases({schedule_id: 7})
    assert lease_of(redis, schedule_id) is None


def test_a_running_schedule_is_locked_for_everybody_who_asks_by_its_name(redis: RedisClient) -> None:
    replica, lock, schedule_id = coordinator(redis), DistributedLock(redis, "b"), uuid4()
    replica.take_leases({schedule_id: 7})
    assert not lock.acquire(f"schedule:{schedule_id}")
    replica.release_leases({schedule_id: 7})
    assert lock.acquire(f"schedule:{schedule_id}", timeout=5)
    replica.take_leases({schedule_id: 8})
    assert lock.release(f"schedule:{schedule_id}"), "a lease does not push out a lock"
    replica.renew()
    assert lease_of(redis, schedule_id) == "a:8"


def test_a_higher_token_replaces_a_lower_one_and_never_the_reverse(redis: RedisClient) -> None:
    old, new, schedule_id = coordinator(redis, "old"), coordinator(redis, "new"), uuid4()
    old.take_leases({schedule_id: 9})
    new.take_leases({schedule_id: 10})  # as a string it would be lower
    assert lease_of(redis, schedule_id) == "new:10"
    old.take_leases({schedule_id: 9})
    old.renew()
    old.release_leases({schedule_id: 9})
    assert lease_of(redis, schedule_id) == "new:10"


def test_release_deletes_only_the_very_lease_that_was_taken(redis: RedisClient) -> None:
    replica, schedule_id = coordinator(redis), uuid4()
    replica.take_leases({schedule_id: 8})
    replica.release_leases({schedule_id: 7})
    assert lease_of(redis, schedule_id) == "a:8"
    redis.commands.delete(f"lock:schedule:{schedule_id}")
    replica.renew()
    assert lease_of(redis, schedule_id) == "a:8"


def test_a_replica_remembers_the_highest_token_of_a_schedule(redis: RedisClient) -> None:
    replica, schedule_id = coordinator(redis), uuid4()
    replica.take_leases({schedule_id: 8})
    replica.take_leases({schedule_id: 7})
    redis.commands.delete(f"lock:schedule:{schedule_id}")
    replica.renew()
    assert lease_of(redis, schedule_id) == "a:8"


def test_renewal_prolongs_every_lease_in_one_round_trip(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    replica = coordinator(behind_proxy)
    leases = {uuid4(): token for token in range(200)}
    replica.take_leases(leases)
    keys = [f"lock:schedule:{schedule_id}" for schedule_id in leases]
    for key in keys:
        behind_proxy.commands.pexpire(key, 5000)
    proxy.requests.clear()
    replica.renew()
    assert proxy.requests == {"EVALSHA": 1}
    assert all(lifetime_seconds(behind_proxy, key) > 5 for key in keys)
    assert (replica.stats().renewals, replica.stats().lost_leases) == (200, 0)
    replica.release_leases(leases)


def test_renewal_takes_an_expired_lease_again(redis: RedisClient) -> None:
    replica, kept, expired = coordinator(redis), uuid4(), uuid4()
    replica.take_leases({kept: 1, expired: 2})
    redis.commands.delete(f"lock:schedule:{expired}")
    replica.renew()
    assert lease_of(redis, expired) == "a:2"
    assert (replica.stats().renewals, replica.stats().lost_leases) == (1, 1)


def test_renewal_does_not_steal_back_an_expired_lease_that_has_a_later_holder(redis: RedisClient) -> None:
    frozen, rescuer, schedule_id = coordinator(redis, "frozen"), coordinator(redis, "rescuer"), uuid4()
    frozen.take_leases({schedule_id: 1})
    redis.commands.delete(f"lock:schedule:{schedule_id}")
    rescuer.take_leases({schedule_id: 2})
    frozen.renew()
    assert lease_of(redis, schedule_id) == "rescuer:2"
    assert frozen.stats().lost_leases == 1


def test_a_lease_that_is_released_during_a_renewal_does_not_come_back(
    proxy: RedisProxy, behind_proxy: RedisClient, real_redis: RedisClient
) -> None:
    replica, schedule_id = coordinator(behind_proxy), uuid4()
    replica.take_leases({schedule_id: 1})
    overtaken = proxy.gates["EVALSHA"] = threading.Event()
    with ThreadPoolExecutor() as threads:
        renewal = threads.submit(replica.renew)
        eventually(lambda: not proxy.gates)
        replica.release_leases({schedule_id: 1})
        assert lease_of(real_redis, schedule_id) is None
        overtaken.set()
        renewal.result()
    assert replica.stats().lost_leases == 1, "the renewal came second, and took it again"
    assert lease_of(real_redis, schedule_id) is None


def test_rescue_clears_the_lease_of_a_dead_owner_and_not_the_one_of_its_successor(redis: RedisClient) -> None:
    dead, alive, rescuer = coordinator(redis, "dead"), coordinator(redis, "alive"), coordinator(redis, "rescuer")
    abandoned, taken_over, locked = uuid4(), uuid4(), uuid4()
    dead.take_leases({abandoned: 1, taken_over: 2})
    alive.take_leases({taken_over: 3})
    lock = DistributedLock(redis, "operator")
    lock.acquire(f"schedule:{locked}", timeout=5)
    rescuer.clear_leases({abandoned: 1, taken_over: 2, locked: 99})
    assert lease_of(redis, abandoned) is None
    assert lease_of(redis, taken_over) == "alive:3"
    assert lock.release(f"schedule:{locked}")


# Redis lies, forgets, vanishes


def test_a_fire_whose_reply_was_lost_is_unknown_and_then_won_by_the_same_owner(
    proxy: RedisProxy, behind_proxy: RedisClient, real_redis: RedisClient
) -> None:
    marker, batch = coordinator(behind_proxy, "a"), fires(100)
    marker.check()
    proxy.lost_replies["EVALSHA"] = 1
    assert marker.mark_fires(batch) == [UNKNOWN] * 100
    assert coordinator(real_redis, "b").mark_fires(batch) == [LOST] * 100, "the marks were set"
    assert marker.mark_fires(batch) == [WON] * 100
    assert not marker.degraded


def test_a_slow_redis_is_unknown_long_before_it_answers(proxy: RedisProxy, hasty_redis: RedisClient) -> None:
    marker = coordinator(hasty_redis)
    marker.check()
    proxy.delay_seconds = 4
    started = time.monotonic()
    assert marker.mark_fires(fires(1)) == [UNKNOWN]
    assert time.monotonic() - started < 2
    assert "Timeout" in str(marker.last_error)


def test_a_late_reply_is_not_taken_for_the_answer_to_the_next_question(
    proxy: RedisProxy, hasty_redis: RedisClient, real_redis: RedisClient
) -> None:
    marker, lost, won = coordinator(hasty_redis, "a"), fires(1), fires(1)
    coordinator(real_redis, "b").mark_fires(lost)
    marker.check()
    proxy.delay_seconds = 0.4
    assert marker.mark_fires(lost) == [UNKNOWN]
    proxy.delay_seconds = 0
    assert marker.mark_fires(won) == [WON]


def test_an_absent_redis_is_left_alone_but_for_a_probe_now_and_then_and_comes_back_by_itself(
    proxy: RedisProxy, behind_proxy: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    marker, batch = coordinator(behind_proxy, now=clock), fires(2)
    proxy.refusing = True
    for _ in range(50):
        assert marker.mark_fires(batch) == [UNKNOWN, UNKNOWN]
    assert marker.degraded
    assert proxy.connections == 3
    for _ in range(60):
        clock.seconds += 1
        marker.mark_fires(batch)
    assert proxy.connections - 3 == pytest.approx(60 / 5, abs=3), "pauses of 1, 2, 4, 5, 5, … seconds"
    assert (marker.stats().failures, marker.stats().marks_unknown) == (proxy.connections, 220)

    proxy.refusing = False
    clock.seconds += 5
    assert marker.mark_fires(batch) == [WON, WON]
    assert (marker.degraded, marker.last_error) == (False, None)
    assert [getattr(record, "event", None) for record in caplog.records] == ["redis_degraded", "redis_recovered"]


def test_only_one_thread_probes(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    clock = Clock()
    marker = coordinator(behind_proxy, now=clock)
    proxy.refusing = True
    for _ in range(3):
        marker.mark_fires(fires(1))
    before, clock.seconds = proxy.connections, clock.seconds + 1
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda _: marker.mark_fires(fires(1)), range(100)))
    assert proxy.connections - before == 1


def test_failures_that_come_in_together_make_the_first_pause_no_longer(
    proxy: RedisProxy, behind_proxy: RedisClient
) -> None:
    clock = Clock()
    marker = coordinator(behind_proxy, now=clock)
    proxy.refusing = True
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda _: marker.mark_fires(fires(1)), range(20)))
    assert marker.degraded
    proxy.refusing, clock.seconds = False, clock.seconds + 1
    assert marker.mark_fires(fires(1)) == [WON]


def test_single_failures_among_successes_do_not_degrade(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    marker = coordinator(behind_proxy)
    for _ in range(4):
        assert marker.check()
        proxy.lost_replies["EVALSHA"] = 2
        assert marker.mark_fires(fires(1)) == marker.mark_fires(fires(1)) == [UNKNOWN]
    assert not marker.degraded
    assert marker.stats().failures == 8


def test_a_check_asks_although_the_breaker_is_open_and_closes_it(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    marker = coordinator(behind_proxy, now=Clock())
    proxy.refusing = True
    assert [marker.check() for _ in range(4)] == [False] * 4
    assert marker.degraded
    proxy.refusing = False
    assert marker.mark_fires(fires(1)) == [UNKNOWN]
    assert marker.check()
    assert marker.mark_fires(fires(1)) == [WON]


def test_an_idle_replica_notices_through_its_renewals_that_redis_is_away_and_back(
    proxy: RedisProxy, behind_proxy: RedisClient
) -> None:
    replica = coordinator(behind_proxy)
    proxy.refusing = True
    for _ in range(3):
        replica.renew()
    assert replica.degraded
    proxy.refusing = False
    replica.renew()
    assert not replica.degraded


def test_an_idle_replica_notices_soon_that_redis_is_away(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    clock = Clock()
    replica = coordinator(behind_proxy, now=clock)
    replica.watch()
    proxy.refusing = True
    for _ in range(5):
        clock.seconds += 1
        replica.watch()
    assert replica.degraded


def test_watching_asks_no_redis_that_has_just_answered(proxy: RedisProxy, behind_proxy: RedisClient) -> None:
    clock = Clock()
    replica = coordinator(behind_proxy, now=clock)
    for _ in range(5):
        clock.seconds += 1
        replica.mark_fires(fires(1))
        replica.watch()
    assert proxy.requests["EVALSHA"] == 5


def test_an_outage_is_told_once_then_every_minute_and_when_it_is_over(
    proxy: RedisProxy, behind_proxy: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    replica = coordinator(behind_proxy, now=clock)
    proxy.refusing = True
    for _ in range(150):
        clock.seconds += 1
        replica.watch()
    proxy.refusing = False
    replica.watch()
    events = [getattr(record, "event", None) for record in caplog.records]
    assert events == ["redis_degraded", "redis_still_degraded", "redis_still_degraded", "redis_recovered"]
    assert "has been failing for 2 min" in caplog.messages[2]
    assert "works again after 2 min 2" in caplog.messages[3]


def test_leases_that_were_taken_and_released_without_redis_are_put_right_by_the_next_renewal(
    proxy: RedisProxy, behind_proxy: RedisClient
) -> None:
    replica, running, finished = coordinator(behind_proxy), uuid4(), uuid4()
    proxy.refusing = True
    replica.take_leases({running: 1, finished: 2})
    replica.release_leases({finished: 2})
    proxy.refusing = False
    replica.renew()
    assert lease_of(behind_proxy, running) == "a:1"
    assert lease_of(behind_proxy, finished) is None


@pytest.mark.parametrize(
    "reply",
    [
        "LOADING Redis is loading the dataset in memory",
        "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOPERM this user has no permissions to run the 'evalsha' command",
    ],
)
def test_an_error_instead_of_an_answer_is_unknown(proxy: RedisProxy, behind_proxy: RedisClient, reply: str) -> None:
    proxy.forged_replies["EVALSHA"] = f"-{reply}\r\n".encode()
    _every_call_is_unknown(coordinator(behind_proxy))


def test_a_redis_without_memory_is_unknown_also_to_the_check(own_redis: RedisClient) -> None:
    marker = coordinator(own_redis)
    assert marker.check()
    own_redis.commands.config_set("maxmemory-policy", "noeviction")
    own_redis.commands.config_set("maxmemory", 1)
    _every_call_is_unknown(marker)
    own_redis.commands.config_set("maxmemory", 0)
    assert marker.check()


def test_a_read_only_replica_is_unknown_also_to_the_check(own_redis: RedisClient) -> None:
    marker = coordinator(own_redis)
    own_redis.commands.replicaof("127.0.0.1", 1)
    _every_call_is_unknown(marker)
    own_redis.commands.replicaof("NO", "ONE")
    assert marker.check()


def test_a_redis_that_wants_a_password_is_unknown(own_servers: EmbeddedServers, own_redis: RedisClient) -> None:
    own_redis.commands.config_set("requirepass", "hunter2")
    stranger = RedisClient(own_servers.addresses.redis_url)
    _every_call_is_unknown(coordinator(stranger))
    stranger.close()
    own_redis.commands.config_set("requirepass", "")


def _every_call_is_unknown(replica: Coordinator) -> None:
    """Unknown, degraded, and no exception out of any method."""
    schedule_id = uuid4()
    assert replica.mark_fires(fires(2)) == [UNKNOWN, UNKNOWN]
    replica.take_leases({schedule_id: 1})
    replica.renew()
    assert replica.degraded
    assert replica.last_error
    assert not replica.check()
    assert replica.mark_fires(fires(1)) == [UNKNOWN]
    replica.clear_leases({schedule_id: 1})
    replica.release_leases({schedule_id: 1})


def test_an_emptied_redis_gets_its_leases_and_scripts_back(own_redis: RedisClient) -> None:
    replica, leases = coordinator(own_redis), {uuid4(): 1, uuid4(): 2}
    replica.take_leases(leases)
    own_redis.commands.flushall()
    own_redis.commands.script_flush()
    replica.renew()
    assert [lease_of(own_redis, schedule_id) for schedule_id in leases] == ["a:1", "a:2"]
    assert (replica.stats().lost_leases, replica.stats().failures) == (2, 0)
    own_redis.commands.script_flush()
    assert replica.mark_fires(fires(1)) == [WON]


def test_a_restarted_redis_is_used_again(own_servers: EmbeddedServers, own_redis: RedisClient) -> None:
    clock = Clock()
    replica, schedule_id = coordinator(own_redis, now=clock), uuid4()
    replica.take_leases({schedule_id: 1})
    own_servers.stop_redis()
    _every_call_is_unknown(replica)
    replica.take_leases({schedule_id: 2})
    own_servers.start_redis()
    clock.seconds += 5
    replica.renew()
    assert lease_of(own_redis, schedule_id) == "a:2"
    assert replica.mark_fires(fires(1)) == [WON]
    assert not replica.degraded
