"""The circuit breaker of a queue, as a pure value."""

from datetime import UTC, datetime, timedelta

from database.workflow_statuses import CircuitStatus
from services.queues.circuit import Breaker, Circuit, Entry

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BREAKER = Breaker(window=5, failures=3, cool_down_seconds=60)
CLOSED = Circuit(CircuitStatus.CLOSED, NOW)
OPEN = Circuit(CircuitStatus.OPEN, NOW)
HALF_OPEN = Circuit(CircuitStatus.HALF_OPEN, NOW)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_a_few_failures_leave_it_closed() -> None:
    circuit = CLOSED.after("..x.x", later(1), BREAKER)
    assert (circuit.status, circuit.recent) == (CircuitStatus.CLOSED, "..x.x")


def test_only_the_last_items_count() -> None:
    circuit = CLOSED.after("xx", NOW, BREAKER).after("....", NOW, BREAKER).after("xx", NOW, BREAKER)
    assert (circuit.status, circuit.recent) == (CircuitStatus.CLOSED, "...xx")


def test_too_many_failures_open_it() -> None:
    circuit = CLOSED.after("x.x", NOW, BREAKER).after("x", later(5), BREAKER)
    assert circuit == Circuit(CircuitStatus.OPEN, later(5))


def test_an_open_one_skips_runs_until_it_has_cooled_down() -> None:
    assert OPEN.entry(later(59), BREAKER) == (Entry.SKIP, OPEN)
    assert OPEN.entry(later(60), BREAKER) == (Entry.PROBE, Circuit(CircuitStatus.HALF_OPEN, later(60)))


def test_while_one_run_probes_the_others_skip() -> None:
    _, probing = OPEN.entry(later(60), BREAKER)
    assert probing.entry(later(61), BREAKER)[0] is Entry.SKIP


def test_a_probe_that_nobody_reported_about_is_made_again() -> None:
    assert HALF_OPEN.entry(later(60), BREAKER)[0] is Entry.PROBE


def test_a_good_probe_closes_it_and_forgets_the_past() -> None:
    assert HALF_OPEN.after(".", later(1), BREAKER) == Circuit(CircuitStatus.CLOSED, later(1), "")


def test_a_bad_probe_opens_it_for_another_cool_down() -> None:
    circuit = HALF_OPEN.after("x", later(1), BREAKER)
    assert circuit == Circuit(CircuitStatus.OPEN, later(1))
    assert circuit.entry(later(60), BREAKER)[0] is Entry.SKIP


def test_items_that_were_under_way_when_it_opened_change_nothing() -> None:
    assert OPEN.after("....", later(1), BREAKER) == OPEN


def test_without_an_item_to_try_the_next_run_may_probe() -> None:
    assert HALF_OPEN.not_probed(later(1), BREAKER).entry(later(1), BREAKER)[0] is Entry.PROBE
    assert CLOSED.not_probed(later(1), BREAKER) == CLOSED
