"""What the benchmarks say of twice, missing and late comes from here."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from benchmarks.designs import ledger
from benchmarks.designs.ledger import Ledger, Tally
from benchmarks.designs.plan import Plan

ONE, OTHER = uuid4(), uuid4()


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Two schedules, three fires each, the first one five seconds ago."""
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "ledger"))
    ledger._file.cache_clear()
    return Plan(2, datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5), 3)


def call(schedule_id: UUID, plan: Plan, number: int) -> None:
    ledger.noop(schedule_id, plan.at + timedelta(seconds=number))


def tally(plan: Plan, tmp_path: Path) -> Tally:
    return Ledger(tmp_path / "ledger").tally(plan, [ONE, OTHER])


def test_without_a_call_every_fire_is_missing_and_late(plan: Plan, tmp_path: Path) -> None:
    found = tally(plan, tmp_path)
    assert (found.run, found.twice, found.missing, found.later_than(1)) == (0, 0, 6, 6)


def test_the_first_and_the_last_fire_are_missed_like_any_other(plan: Plan, tmp_path: Path) -> None:
    call(ONE, plan, 1)
    for number in range(3):
        call(OTHER, plan, number)
    assert (tally(plan, tmp_path).run, tally(plan, tmp_path).missing) == (4, 2)


def test_each_call_beyond_the_first_counts_as_twice(plan: Plan, tmp_path: Path) -> None:
    for _ in range(3):
        call(ONE, plan, 0)
    found = tally(plan, tmp_path)
    assert (found.run, found.twice) == (1, 2)
    assert found.percentile(99) >= 5


def test_calls_for_other_instants_are_not_counted(plan: Plan, tmp_path: Path) -> None:
    call(ONE, plan, -1)
    call(ONE, plan, 3)
    assert (tally(plan, tmp_path).run, tally(plan, tmp_path).missing) == (0, 6)


def test_an_id_may_be_a_text_as_other_schedulers_have_it(plan: Plan, tmp_path: Path) -> None:
    ledger.noop(str(ONE), plan.at)
    assert tally(plan, tmp_path).run == 1
