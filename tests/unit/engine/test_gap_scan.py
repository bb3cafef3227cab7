"""Which fires a scan looks at, in which pieces, and what becomes of those without a row."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from database.models import Catchup
from services.engine.gap_scan.plan import Gap, Planned, catch_up, record, try_again
from services.engine.gap_scan.walk import PAIRS_PER_PIECE, SCHEDULES_PER_BLOCK, Watched, Window, expected_fires
from services.engine.loaded import Loaded
from services.engine.timer import Entry
from services.ledger.verdicts import HANDED_OVER, Tolerances
from services.triggers import parse_trigger
from tests.support.executions import TOLERANCES

NOW = datetime(2027, 1, 15, 12, 0, 30, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
LIMITS = replace(TOLERANCES, horizon=24 * HOUR, history=90 * 24 * HOUR, window=HOUR, max_fires=10, settle=5 * SECOND)
EVERY_MINUTE = parse_trigger("interval", {"minutes": 1})
EVERY_HOUR = parse_trigger("hourly", {"minute": 0})


def loaded(
    number: int,
    trigger: Any = EVERY_MINUTE,
    valid_for: timedelta = 48 * HOUR,
    spread: timedelta = timedelta(0),
    load: int = 0,
) -> tuple[UUID, Loaded]:
    """One item of what a watcher has loaded."""
    schedule_id = UUID(int=number)
    entry = Entry(schedule_id, trigger, spread, priority=0, due_at=NOW) if trigger else None
    return schedule_id, Loaded(1, NOW - valid_for, entry, load)


def window(since: timedelta, new_load: int = 1, behind: Mapping[UUID, datetime] | None = None) -> Window:
    return Window(NOW - since, NOW, NOW - 30 * 24 * HOUR, new_load, behind or {})


def walked(schedules: dict[UUID, Loaded], within: Window) -> list[tuple[UUID, datetime]]:
    """Every pair that the pieces of all blocks ask for, in their order; each piece is asked for twice."""
    pairs = []
    for block in expected_fires(schedules, within):
        while piece := block.piece():
            assert block.piece() == piece, "nothing moves before the piece was dealt with"
            pairs += list(_pairs(piece.as_values()))
            block.advance(piece)
    return pairs


def _pairs(values: dict[str, list[Any]]) -> Any:
    """As the statement joins them."""
    for part, schedule_id, after, until in zip(
        *(values[name] for name in ("parts", "ids", "after", "until")), strict=True
    ):
        for fire_part, at in zip(values["fire_parts"], values["fires"], strict=True):
            if fire_part == part and after < at <= until:
                yield schedule_id, at


# --- what is looked at ---


def test_every_fire_of_every_schedule_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.engine.gap_scan.walk.PAIRS_PER_PIECE", 70)
    monkeypatch.setattr("services.engine.gap_scan.walk.SCHEDULES_PER_BLOCK", 4)
    triggers = [EVERY_MINUTE, EVERY_HOUR, parse_trigger("interval", {"seconds": 7})]
    schedules = dict(loaded(n, triggers[n % 3]) for n in range(20))
    expected = [
        (schedule_id, at)
        for schedule_id in schedules
        for at in triggers[schedule_id.int % 3].between(NOW - 3 * HOUR, NOW)
    ]
    found = walked(schedules, window(3 * HOUR))
    assert len(found) == len(expected) > 10_000
    assert set(found) == set(expected)


def test_a_piece_is_bounded_however_dense_the_schedules_are() -> None:
    schedules = dict(loaded(n, parse_trigger("interval", {"seconds": 1})) for n in range(100))
    (block,) = expected_fires(schedules, window(24 * HOUR))
    piece = block.piece()
    assert piece is not None
    assert sum(len(part.schedules) * len(fires) for part, fires in piece.taken) <= PAIRS_PER_PIECE


def test_a_block_holds_a_bounded_number_of_schedules() -> None:
    schedules = dict(loaded(n) for n in range(2 * SCHEDULES_PER_BLOCK + 1))
    sizes = [len(block.watched()) for block in expected_fires(schedules, window(MINUTE))]
    assert sizes == [SCHEDULES_PER_BLOCK, SCHEDULES_PER_BLOCK, 1]


def test_schedules_without_a_fire_in_the_window_are_not_asked_about() -> None:
    schedules = dict([loaded(1, EVERY_HOUR), loaded(2, None)])
    assert list(expected_fires(schedules, window(10 * SECOND))) == []


def test_nothing_before_its_timing_is_expected() -> None:
    schedules = dict([loaded(1, valid_for=10 * MINUTE)])
    assert len(walked(schedules, window(3 * HOUR))) == 10


def test_a_fire_is_expected_when_its_spread_is_over() -> None:
    """Due from 11:20:30 to 12:00:30, nominally half an hour earlier."""
    schedules = dict([loaded(1, spread=30 * MINUTE)])
    found = [at for _, at in walked(schedules, window(40 * MINUTE))]
    assert (found[0], found[-1]) == (NOW - 69.5 * MINUTE, NOW - 30.5 * MINUTE)


def test_timing_that_came_after_the_last_scan_is_looked_at_from_its_beginning() -> None:
    schedules = dict([loaded(1, valid_for=HOUR, load=5), loaded(2, valid_for=HOUR, load=4)])
    found = walked(schedules, window(5 * MINUTE, new_load=5))
    assert [sum(key == UUID(int=n) for key, _ in found) for n in (1, 2)] == [60, 5]


def test_a_schedule_that_was_behind_is_looked_at_from_there() -> None:
    schedules = dict(loaded(n) for n in (1, 2))
    found = walked(schedules, window(5 * MINUTE, behind={UUID(int=1): NOW - 2 * HOUR}))
    assert [sum(key == UUID(int=n) for key, _ in found) for n in (1, 2)] == [120, 5]


# --- what becomes of it ---


def gap(*ages: timedelta, spread: timedelta = timedelta(0), limits: Tolerances = LIMITS) -> Gap:
    """Fires without a row that were planned so long ago, oldest first."""
    oldest, *others = (NOW - age for age in ages)
    made = Gap(Watched(UUID(int=1), oldest - SECOND, NOW, spread, revision=1), oldest, limits.held)
    for at in others:
        made.add(at)
    return made


def hours(first: int, last: int) -> list[timedelta]:
    return [n * HOUR for n in range(first, last - 1, -1)]


def caught_up(gap: Gap, rule: Catchup, grace: timedelta = 5 * MINUTE) -> tuple[list[datetime], list[Planned]]:
    rows = catch_up(gap, rule, grace, LIMITS, NOW)
    return [row.scheduled_for for row in rows if row.status == "pending"], [r for r in rows if r.status == "missed"]


def test_the_latest_in_the_window_runs_and_the_others_are_recorded() -> None:
    run, missed = caught_up(gap(*hours(4, 1), 30 * MINUTE), Catchup.ONE)
    assert run == [NOW - 30 * MINUTE]
    assert [(row.scheduled_for, row.reason) for row in missed] == [(NOW - age, "downtime") for age in hours(4, 1)]


def test_what_is_older_than_the_window_never_runs() -> None:
    run, missed = caught_up(gap(*hours(4, 2)), Catchup.ALL)
    assert (run, len(missed)) == ([], 3)


def test_what_came_due_exactly_as_long_ago_as_the_window_or_the_grace_is_long_still_runs() -> None:
    assert caught_up(gap(LIMITS.window), Catchup.ONE)[0] == [NOW - LIMITS.window]
    assert caught_up(gap(5 * MINUTE), Catchup.NONE, grace=5 * MINUTE)[0] == [NOW - 5 * MINUTE]


def test_what_is_merely_late_runs_whatever_the_rule() -> None:
    assert caught_up(gap(HOUR, MINUTE), Catchup.NONE)[0] == [NOW - MINUTE]


def test_the_window_counts_from_the_due_time() -> None:
    assert caught_up(gap(90 * MINUTE, spread=40 * MINUTE), Catchup.ONE)[0] == [NOW - 90 * MINUTE]


def test_beyond_the_cap_one_row_stands_for_all() -> None:
    ages = [n * MINUTE for n in range(60, 0, -1)]
    run, (row,) = caught_up(gap(*ages), Catchup.ALL)
    assert run == [NOW - n * MINUTE for n in range(10, 0, -1)]
    assert (row.reason, row.scheduled_for, row.fires) == ("catchup_cap", NOW - HOUR, 50)
    assert row.details == {"first": NOW - HOUR, "last": NOW - 11 * MINUTE, "count": 50}


@pytest.mark.parametrize("number", [1, 9, 10, 11, 12, 20, 21, HANDED_OVER + 12, 3000])
@pytest.mark.parametrize("rule", list(Catchup))
def test_every_fire_is_run_recorded_or_covered_exactly_once(number: int, rule: Catchup) -> None:
    ages = [n * SECOND for n in range(number, 0, -1)]
    for run, rows in (caught_up(gap(*ages), rule, SECOND / 2), ([], record(gap(*ages), LIMITS)), _tried(gap(*ages))):
        assert len(run) + sum(row.fires for row in rows) == number
        spans = [(row.details or {"first": row.scheduled_for, "last": row.scheduled_for}) for row in rows]
        for age in ages:
            covered = sum(span["first"] <= NOW - age <= span["last"] for span in spans)
            assert covered + run.count(NOW - age) == 1


def _tried(gap: Gap) -> tuple[list[datetime], list[Planned]]:
    fires, rows = try_again(gap, LIMITS, NOW)
    return [fire.scheduled_for for fire in fires], rows


def test_the_dispatcher_gets_the_newest_with_their_due_time_and_no_more_than_it_should_hold() -> None:
    fires, (row,) = try_again(gap(*(n * SECOND for n in range(700, 0, -1)), spread=MINUTE), LIMITS, NOW)
    assert len(fires) == HANDED_OVER
    assert fires[-1].due_at == NOW - SECOND + MINUTE
    assert row.fires == 700 - HANDED_OVER


def test_what_a_claim_would_refuse_as_too_old_is_recorded() -> None:
    fires, rows = try_again(gap(25 * HOUR, 24 * HOUR, 23 * HOUR), LIMITS, NOW)
    assert [fire.scheduled_for for fire in fires] == [NOW - 23 * HOUR]
    assert [row.reason for row in rows] == ["downtime", "downtime"]


def test_a_gap_of_a_whole_day_is_held_in_little_memory() -> None:
    made = gap(*(n * SECOND for n in range(86_400, 0, -1)))
    assert (made.count, made.first) == (86_400, NOW - 24 * HOUR)
    assert len(made.newest) <= 2 * HANDED_OVER
