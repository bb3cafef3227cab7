"""What is announced to the broker: due rows of fleet queues, never more messages than rows, again and again."""

import gc
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID, uuid4

import pytest
from redis.connection import AbstractConnection  # noqa: TID251 - what is sent is counted

from database.connection import DatabaseConnection
from services.embedded import Addresses
from services.errors import Unavailable
from services.fleet.broker import WAKE
from services.fleet.messages import Messages
from services.fleet.publisher import Publisher
from services.ledger.outbox import Outbox, announce_next
from tests.support.executions import rows
from tests.support.fleet import messages_at

TIMEOUT = 15.0


@pytest.fixture
def queue() -> str:
    """The broker is shared with other tests."""
    return f"q-{uuid4().hex[:8]}"


@pytest.fixture
def messages(servers: Addresses) -> Iterator[Messages]:
    with closing(messages_at(servers.redis_url)) as opened:
        yield opened


@pytest.fixture
def outbox(db: DatabaseConnection, queue: str) -> Iterator[Outbox]:
    with closing(Outbox(db, [queue], TIMEOUT)) as opened:
        yield opened


def wait_in(db: DatabaseConnection, queue: str, count: int = 1, due: str = "now()", **values: str) -> None:
    columns = {"due_at": due, **values}
    with db.transaction() as connection:
        connection.exec_driver_sql(
            f"""INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, queue, needs,
                                            {", ".join(columns)})
                SELECT gen_random_uuid(), 'job', 'domain', gen_random_uuid(), 'pending', '{queue}', '{{job:noop}}',
                       {", ".join(columns.values())} FROM generate_series(1, {count})"""
        )


def later(db: DatabaseConnection, seconds: int) -> None:
    """As if the rows had been announced so long ago."""
    ago = f"interval '{seconds} s'"
    with db.transaction() as connection:
        connection.exec_driver_sql(
            f"UPDATE job_executions SET published_at = published_at - {ago}, publish_at = publish_at - {ago}"
        )


def pauses(db: DatabaseConnection) -> list[int]:
    return [value for (value,) in rows(db, "extract(epoch FROM publish_at - published_at)::int")]


def test_only_rows_that_are_due_in_a_fleet_queue_are_announced(
    db: DatabaseConnection, outbox: Outbox, messages: Messages, queue: str
) -> None:
    wait_in(db, queue, 2)
    wait_in(db, queue, reason="'limit:site'")
    wait_in(db, queue, due="now() + interval '1 hour'")
    wait_in(db, "default")
    Publisher(outbox, messages).tick()
    assert messages.depth(queue) == 3
    assert outbox.take().ids == []


def test_what_nobody_takes_is_announced_again_after_half_a_minute_and_twice_that_up_to_ten_minutes(
    db: DatabaseConnection, outbox: Outbox, messages: Messages, queue: str
) -> None:
    wait_in(db, queue)
    publisher = Publisher(outbox, messages)
    for pause in (30, 60, 120, 240, 480, 600, 600):
        publisher.tick()
        assert (pauses(db), messages.depth(queue)) == ([pause], 1)
        messages.purge(queue)
        later(db, pause - 1)
        publisher.tick()
        assert messages.depth(queue) == 0
        later(db, 1)


def test_messages_that_lie_in_the_broker_already_count(
    db: DatabaseConnection, outbox: Outbox, messages: Messages, queue: str
) -> None:
    wait_in(db, queue, 4)
    publisher = Publisher(outbox, messages)
    publisher.tick()
    later(db, 30)
    publisher.tick()
    assert (messages.depth(queue), pauses(db)) == (4, [60] * 4)
    wait_in(db, queue, 2)
    publisher.tick()
    assert messages.depth(queue) == 6


def test_each_row_has_its_message_although_workers_take_others_while_they_are_counted(
    db: DatabaseConnection, outbox: Outbox, messages: Messages, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its own it would wait for half a minute."""
    wait_in(db, queue, 4)
    publisher = Publisher(outbox, messages)
    publisher.tick()
    wait_in(db, queue, 2)
    count = Outbox.waiting

    def count_after_two_were_taken(self: Outbox, queue: str, most: int) -> int:
        with messages._channel() as channel, db.transaction() as connection:
            for _ in range(2):
                channel.basic_get(queue, no_ack=True)
            connection.exec_driver_sql(
                """DELETE FROM job_executions WHERE execution_id IN (
                       SELECT execution_id FROM job_executions WHERE published_at IS NOT NULL LIMIT 2)"""
            )
        return count(self, queue, most)

    monkeypatch.setattr(Outbox, "waiting", count_after_two_were_taken)
    publisher.tick()
    assert (len(rows(db, "1")), messages.depth(queue)) == (4, 4)


def test_two_replicas_announce_no_row_twice(db: DatabaseConnection, outbox: Outbox, queue: str) -> None:
    wait_in(db, queue, 10)
    with closing(Outbox(db, [queue], TIMEOUT)) as other, db.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM job_executions ORDER BY execution_id LIMIT 4 FOR UPDATE")
        first, second = outbox.take(5).ids, other.take(5).ids
        assert (len(first), len(second)) == (5, 1)
        assert not set(first) & set(second)


def test_what_the_broker_did_not_get_is_due_again_and_the_circuit_opens(
    db: DatabaseConnection, outbox: Outbox, queue: str
) -> None:
    wait_in(db, queue, 2)
    with closing(messages_at("redis://127.0.0.1:1/0")) as nowhere:
        publisher = Publisher(outbox, nowhere)
        with pytest.raises(Unavailable, match="the Celery broker"):
            nowhere.depth(queue)
        for _ in range(3):
            publisher.tick()
        assert rows(db, "published_at, publish_at") == [(None, None)] * 2
        assert len(outbox.take().ids) == 2
        outbox.put_back([row[0] for row in rows(db, "execution_id")])
        publisher.tick()
    assert rows(db, "published_at") == [(None,)] * 2, "an open circuit asks for nothing"


def test_a_broker_that_accepts_and_never_answers_holds_the_publisher_for_a_second_or_two(
    db: DatabaseConnection, outbox: Outbox, queue: str
) -> None:
    wait_in(db, queue)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        for url in (f"redis://127.0.0.1:{port}/0", f"amqp://127.0.0.1:{port}//"):
            with closing(messages_at("redis://nowhere", url)) as messages:
                began_at = time.monotonic()
                Publisher(outbox, messages).tick()
                assert time.monotonic() - began_at < 8, "a minute with Celery's defaults"
                assert rows(db, "published_at") == [(None,)]


def test_a_connection_to_the_broker_that_is_given_up_is_closed_at_once(messages: Messages, queue: str) -> None:
    """Not when Python gets round to it: each try of a long outage makes one."""
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        messages.depth(queue)
        assert len(os.listdir("/proc/self/fd")) > before
        messages.close()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


def test_many_wakes_are_one_round_trip_to_redis(
    messages: Messages, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages.depth(queue)
    sends: list[None] = []
    original = AbstractConnection.send_packed_command

    def noted(self: AbstractConnection, command: object, check_health: bool = True) -> object:
        sends.append(None)
        return original(self, command, check_health=check_health)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(AbstractConnection, "send_packed_command", noted)
    messages.send(queue, 200)
    assert len(sends) == 1
    assert messages.depth(queue) == 200


def test_a_wake_is_the_message_that_celery_itself_would_send(messages: Messages, queue: str) -> None:
    """Each with an id of its own: Celery tells what it runs apart by it."""
    messages.send(queue, 2)
    messages._app.send_task(WAKE, args=[queue], queue=queue, retry=False, ignore_result=True)
    with messages._channel() as channel:
        got = [channel.basic_get(queue, no_ack=True) for _ in range(3)]
    assert len({each.headers["id"] for each in got}) == 3
    for each in got:
        own = each.headers["id"]
        assert (each.properties["correlation_id"], each.headers["root_id"]) == (own, own)
    of_a_message = ("id", "root_id", "origin")
    plain = [{name: value for name, value in each.headers.items() if name not in of_a_message} for each in got]
    assert plain[0] == plain[1] == plain[2]
    varying = ("correlation_id", "delivery_tag", "reply_to")
    rest = [{name: value for name, value in each.properties.items() if name not in varying} for each in got]
    assert rest[0] == rest[1] == rest[2]
    assert got[0].payload == got[2].payload


def test_nothing_is_announced_while_a_replica_of_the_version_before_lives(
    db: DatabaseConnection, outbox: Outbox, queue: str
) -> None:
    wait_in(db, queue)
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('old', %s)", (uuid4(),)
        )
    assert outbox.take().ids == []
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE scheduler_instances SET kind = 'worker'")
    assert len(outbox.take().ids) == 1


def test_an_end_makes_the_next_row_of_its_schedule_due_for_an_announcement(
    db: DatabaseConnection, outbox: Outbox, queue: str
) -> None:
    wait_in(db, queue, 2)
    outbox.take()
    ((schedule_id,), _) = rows(db, "schedule_id")
    with closing(db.dedicated()) as connection:
        announce_next(connection, UUID(str(schedule_id)))
    assert outbox.take().by_queue == {queue: 1}


def test_an_end_makes_one_row_of_each_of_its_limits_due_for_an_announcement(
    db: DatabaseConnection, outbox: Outbox, queue: str
) -> None:
    for key in ("site", "site", "other"):
        wait_in(db, queue, reason=f"'limit:{key}'")
    outbox.take()
    with closing(db.dedicated()) as connection:
        announce_next(connection, uuid4(), ["site", "unused"])
    assert outbox.take().by_queue == {queue: 1}


def test_places_that_a_replica_frees_announce_as_many_rows(
    db: DatabaseConnection, outbox: Outbox, messages: Messages, queue: str
) -> None:
    for key in ("site", "site", "site", "other"):
        wait_in(db, queue, reason=f"'limit:{key}'")
    wait_in(db, queue)
    publisher = Publisher(outbox, messages)
    publisher.tick()
    assert messages.depth(queue) == 5
    messages.purge(queue)
    (plain,) = [row[0] for row in rows(db, "schedule_id, reason") if row[1] is None]
    publisher.room_is_made([plain], ["site", "site"])
    publisher.tick()
    assert messages.depth(queue) == 3


def test_a_changed_limit_announces_as_many_rows_as_it_has_room_for(
    db: DatabaseConnection, outbox: Outbox, messages: Messages, queue: str
) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES ('site', 0), ('other', 0)")
    for key in ("site", "site", "site", "other"):
        wait_in(db, queue, reason=f"'limit:{key}'")
    publisher = Publisher(outbox, messages)
    publisher.tick()
    messages.purge(queue)
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE limits SET max_running = 2 WHERE name = 'site'")
    publisher.tick()
    assert messages.depth(queue) == 2
    messages.purge(queue)
    publisher.tick()
    assert messages.depth(queue) == 0


def test_due_rows_are_found_by_their_index_however_many_wait_elsewhere(
    db: DatabaseConnection, outbox: Outbox, queue: str
) -> None:
    wait_in(db, "elsewhere", 20_000)
    wait_in(db, queue, 1000, due="now() + interval '1 hour'")
    wait_in(db, queue, 3)
    with db.transaction() as connection:
        connection.exec_driver_sql("ANALYZE job_executions")
        before = connection.exec_driver_sql(READ).scalar_one()
    assert len(outbox.take().ids) == 3
    outbox.close()
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        assert connection.exec_driver_sql(READ).scalar_one() - before < 200


READ = """SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'job_executions'"""
