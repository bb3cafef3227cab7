"""The order in which due fires are tried when there are more of them than slots."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from services.due_queue import DueQueue
from services.fires import Fire

START = datetime(2027, 1, 1, 12, tzinfo=UTC)
NOW = START.timestamp() + 60


def fire(second: int = 0, *, priority: int = 0, schedule_id: UUID | None = None) -> Fire:
    at = START + timedelta(seconds=second)
    return Fire(schedule_id or uuid4(), at, at, priority)


def queue_of(*fires: Fire) -> DueQueue:
    queue = DueQueue()
    for each in fires:
        queue.put(each, each.due_at.timestamp())
    return queue


def test_the_oldest_fire_comes_first() -> None:
    late, early = fire(2), fire(1)
    queue = queue_of(late, early)
    assert [queue.take(NOW, 1), queue.take(NOW, 1), queue.take(NOW, 1)] == [[early], [late], []]


def test_a_more_urgent_fire_overtakes_those_that_wait_longer() -> None:
    waits, urgent = fire(1), fire(5, priority=10)
    assert queue_of(waits, urgent).take(NOW, 2) == [urgent, waits]


def test_urgency_does_not_bring_a_fire_before_its_moment() -> None:
    waits, urgent = fire(1), fire(5, priority=10)
    assert queue_of(waits, urgent).take(START.timestamp() + 2, 2) == [waits]


def test_all_ready_fires_of_a_schedule_leave_together() -> None:
    schedule_id = uuid4()
    first, second, third = (fire(n, schedule_id=schedule_id) for n in (1, 3, 50))
    other = fire(2)
    queue = queue_of(first, other, second, third)
    assert queue.take(START.timestamp() + 10, 1) == [first, second]
    assert queue.take(NOW, 5) == [other, third]


def test_a_fire_waits_once_until_it_is_taken() -> None:
    twice = fire(1)
    queue = queue_of(twice, twice)
    assert len(queue) == 1
    assert queue.take(NOW, 5) == [twice]
    queue.put(twice, NOW + 1)
    assert len(queue) == 1


def test_it_says_when_to_come_back() -> None:
    queue = queue_of(fire(30), fire(40))
    assert queue.next_at() == START.timestamp() + 30
    queue.put(fire(0), START.timestamp())
    queue.take(START.timestamp() + 35, 1)
    assert queue.next_at() == 0.0, "one is ready and found no room"
    queue.take(NOW, 5)
    assert queue.next_at() is None
