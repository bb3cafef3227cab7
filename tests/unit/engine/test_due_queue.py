"""The order in which due fires are tried when there are more of them than slots."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from services.engine.due_queue import DueQueue
from services.ledger.fires import Fire

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


def test_a_fire_is_ready_in_its_very_moment() -> None:
    due = fire(5)
    assert queue_of(due).take(due.due_at.timestamp(), 1) == [due]


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


def test_the_oldest_fire_that_waits_is_known_wherever_it_waits() -> None:
    held, later, ready = fire(1), fire(50), fire(3)
    queue = queue_of(later, ready)
    queue.hold([held], NOW)
    assert queue.oldest_due_at == held.due_at, "of a schedule that another session holds"
    queue.probed(queue.to_probe(NOW + 10, 5), {held.schedule_id}, NOW + 10)
    assert queue.take(NOW + 10, 1) == [held]
    assert queue.oldest_due_at == ready.due_at
    assert queue.take(NOW + 10, 2) == [ready, later]
    assert queue.oldest_due_at is None


def test_it_says_when_to_come_back() -> None:
    queue = queue_of(fire(30), fire(40))
    assert queue.next_at() == START.timestamp() + 30
    queue.put(fire(0), START.timestamp())
    queue.take(START.timestamp() + 35, 1)
    assert queue.next_at() == 0.0, "one is ready and found no room"
    queue.take(NOW, 5)
    assert queue.next_at() is None


# --- schedules that another session holds ---


def held_again_and_again(queue: DueQueue, fires: list[Fire], times: int, now: float) -> float:
    """Tried and found held so often; returns when."""
    for _ in range(times):
        queue.hold(fires, now)
        now += 10
        queue.probed(queue.to_probe(now, 10), {fires[0].schedule_id}, now)
        assert sorted(queue.take(now, 10), key=lambda each: each.scheduled_for) == fires
    return now


def test_a_held_schedule_is_one_entry_however_many_of_its_fires_wait() -> None:
    queue, schedule_id = DueQueue(), uuid4()
    first, second = fire(1, schedule_id=schedule_id), fire(2, schedule_id=schedule_id)
    queue.hold([first], NOW)
    queue.put(second, NOW)
    assert queue.take(NOW, 5) == []
    assert queue.to_probe(NOW + 1, 5) == [], "the first time it is simply tried again"
    assert queue.take(NOW + 1, 5) == [first, second]


def test_a_schedule_that_is_held_twice_in_a_row_is_asked_about_before_it_is_tried_again() -> None:
    queue, waits = DueQueue(), fire(1)
    now = held_again_and_again(queue, [waits], 1, NOW)
    queue.hold([waits], now)
    assert queue.take(now + 10, 5) == []
    assert queue.to_probe(now + 10, 5) == [waits.schedule_id]
    queue.probed([waits.schedule_id], set(), now + 10)
    assert (queue.take(now + 10, 5), queue.held_schedules) == ([], 1)


def test_the_patience_with_a_held_schedule_grows_to_a_limit() -> None:
    queue, waits = DueQueue(), fire(1)
    patience = []
    now = NOW
    for _ in range(12):
        queue.hold([waits], now)
        again_at = queue.next_at()
        assert again_at is not None
        patience.append(again_at - now)
        now = again_at
        queue.probed(queue.to_probe(now, 5), {waits.schedule_id}, now)
        assert queue.take(now, 5) == [waits]
    assert patience[0] < 0.1
    assert patience[4] > 5 * patience[0]
    assert max(patience) <= 2.6


def test_a_schedule_that_was_free_once_begins_anew() -> None:
    queue, waits = DueQueue(), fire(1)
    now = held_again_and_again(queue, [waits], 5, NOW)
    queue.was_free([waits.schedule_id])
    queue.hold([waits], now)
    again_at = queue.next_at()
    assert again_at is not None
    assert again_at - now < 0.1


def test_a_fire_that_is_handed_over_again_while_its_schedule_is_held_waits_once() -> None:
    queue, waits = DueQueue(), fire(1)
    queue.hold([waits], NOW)
    queue.put(waits, NOW)
    queue.hold([waits], NOW)
    queue.to_probe(NOW + 5, 5)
    assert (len(queue), queue.take(NOW + 5, 5), len(queue)) == (1, [waits], 0)
