"""What is due, handed out once, by a clock that may jump. APScheduler only sleeps and wakes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from database.clock import DatabaseClock
from services.engine import timer as timer_module
from services.engine.timer import FIRES_PER_SCHEDULE, Entry, Timer
from services.ledger.fires import Fire
from services.triggers import parse_trigger, spread_offset
from tests.support.waiting import eventually

START = datetime(2027, 1, 1, 12, tzinfo=UTC)
EVERY_TEN = parse_trigger("interval", {"seconds": 10})


class Clock:
    def __init__(self) -> None:
        self.at = START.timestamp()

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer(clock: Clock) -> Timer:
    return Timer(lambda fires: None, DatabaseClock(5, clock))


def put(timer: Timer, spread_seconds: int = 0) -> Entry:
    return timer.put(uuid4(), EVERY_TEN, spread_seconds, 0, START)


def seconds(fires: Sequence[Fire]) -> list[float]:
    return [(fire.scheduled_for - START).total_seconds() for fire in fires]


def test_nothing_is_due_before_its_time_and_everything_once_after(timer: Timer, clock: Clock) -> None:
    put(timer)
    clock.at += 9.9
    assert timer.take_due() == []
    clock.at += 0.2
    assert seconds(timer.take_due()) == [10]
    assert timer.take_due() == []


def test_every_fire_of_a_pause_is_handed_out(timer: Timer, clock: Clock) -> None:
    put(timer)
    clock.at += 35
    assert seconds(timer.take_due()) == [10, 20, 30]


def test_after_a_long_sleep_the_gap_scan_has_the_rest(timer: Timer, clock: Clock) -> None:
    put(timer)
    clock.at += 10_000
    assert len(timer.take_due()) == FIRES_PER_SCHEDULE
    assert timer.take_due() == []
    clock.at += 10
    assert seconds(timer.take_due()) == [10_010]


def test_a_clock_that_is_set_back_repeats_nothing(timer: Timer, clock: Clock) -> None:
    put(timer)
    clock.at += 25
    assert seconds(timer.take_due()) == [10, 20]
    clock.at -= 20
    assert timer.take_due() == []
    clock.at += 26
    assert seconds(timer.take_due()) == [30]


def test_spread_moves_the_due_time_and_keeps_the_name(timer: Timer, clock: Clock) -> None:
    offset = spread_offset(put(timer, spread_seconds=8).schedule_id, 8)
    clock.at += 10 + offset.total_seconds() - 0.001
    assert timer.take_due() == []
    clock.at += 0.002
    (fire,) = timer.take_due()
    assert fire.scheduled_for == START + timedelta(seconds=10)
    assert fire.due_at == fire.scheduled_for + offset


def test_a_changed_schedule_fires_by_its_new_timing_only(timer: Timer, clock: Clock) -> None:
    former = put(timer)
    timer.put(former.schedule_id, parse_trigger("interval", {"seconds": 4}), 0, 7, START)
    timer.remove(former)
    clock.at += 11
    fires = timer.take_due()
    assert seconds(fires) == [4, 8]
    assert {fire.priority for fire in fires} == {7}


def test_a_removed_schedule_never_fires(timer: Timer, clock: Clock) -> None:
    timer.remove(put(timer))
    clock.at += 100
    assert timer.take_due() == []
    assert len(timer) == 0


def test_a_schedule_without_further_fires_leaves_by_itself(timer: Timer, clock: Clock) -> None:
    once = parse_trigger("once", {"at": (START + timedelta(seconds=5)).isoformat()})
    timer.put(uuid4(), once, 0, 0, START)
    clock.at += 6
    assert len(timer.take_due()) == 1
    assert len(timer) == 0


def test_many_edits_do_not_grow_the_heap_for_ever(timer: Timer, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_module, "SPARE_ITEMS", 10)
    entries = [put(timer) for _ in range(5)]
    for _ in range(100):
        for entry in entries:
            timer.remove(entry)
        entries = [put(timer) for _ in range(5)]
    assert (len(timer._heap) < 40, len(timer)) == (True, 5)
    clock.at += 10
    assert {fire.schedule_id for fire in timer.take_due()} == {entry.schedule_id for entry in entries}


def test_an_entry_that_is_removed_twice_or_after_its_last_fire_counts_once(timer: Timer, clock: Clock) -> None:
    once = parse_trigger("once", {"at": (START + timedelta(seconds=5)).isoformat()})
    entry, other = timer.put(uuid4(), once, 0, 0, START), put(timer)
    timer.remove(timer.put(uuid4(), once, 0, 0, START + timedelta(minutes=1)))  # it never fires
    clock.at += 6
    timer.take_due()
    timer.remove(entry)
    assert len(timer) == 1
    timer.remove(other)
    timer.remove(other)
    assert len(timer) == 0


def test_the_timer_never_sleeps_longer_than_a_second(timer: Timer, clock: Clock) -> None:
    assert timer.seconds_to_sleep() == 1
    put(timer)
    assert timer.seconds_to_sleep() == 1
    clock.at += 9.75
    assert timer.seconds_to_sleep() == pytest.approx(0.25)


def test_apscheduler_wakes_up_and_hands_over_in_batches() -> None:
    batches: list[list[Fire]] = []
    timer = Timer(lambda fires: batches.append(list(fires)), DatabaseClock(5))
    every_second = parse_trigger("interval", {"seconds": 1})
    now = datetime.now(UTC)
    ids = [uuid4() for _ in range(200)]
    for schedule_id in ids:
        timer.put(schedule_id, every_second, 0, 0, now)
    timer.start()
    eventually(lambda: sum(map(len, batches)) >= 400)
    timer.stop()
    handed = [fire.key for batch in batches for fire in batch]
    assert len(handed) == len(set(handed))
    assert {schedule_id for schedule_id, _ in handed} == set(ids)
    assert max(map(len, batches)) == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_timer_whose_thread_died_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_module, "PATIENCE_SECONDS", 2.5)
    timer = Timer(lambda fires: None, DatabaseClock(5))
    timer.start()
    eventually(lambda: timer.is_live)

    def die() -> list[Fire]:
        raise SystemError("the thread of APScheduler ends with this")

    monkeypatch.setattr(timer, "take_due", die)
    timer.put(uuid4(), parse_trigger("interval", {"seconds": 1}), 0, 0, datetime.now(UTC))
    timer.wake()
    eventually(lambda: not timer.is_live)
    timer.stop()
