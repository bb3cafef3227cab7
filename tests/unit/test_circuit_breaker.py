"""The breaker: closed, open with a probe per pause, closed again. Time is the test's."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from services.redis_client import FAILURES_UNTIL_OPEN, CircuitBreaker


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    for _ in range(FAILURES_UNTIL_OPEN):
        breaker.failed()
    return breaker


def test_it_opens_with_the_last_of_some_failures_in_a_row(breaker: CircuitBreaker) -> None:
    assert [breaker.failed() for _ in range(4)] == [False, False, True, False]
    assert breaker.is_open
    assert not breaker.lets_through()


def test_a_success_in_between_starts_the_count_again(breaker: CircuitBreaker) -> None:
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        assert breaker.succeeded() is False
    assert breaker.lets_through()


def test_probes_come_after_pauses_that_double_up_to_five_seconds(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    probed_at = []
    for tenth in range(300):
        clock.seconds = 100 + tenth / 10
        if breaker.lets_through():
            probed_at.append(tenth / 10)
            breaker.failed()
    assert probed_at == [1.0, 3.0, 7.0, 12.0, 17.0, 22.0, 27.0]


def test_one_good_probe_closes_it_and_the_next_pause_is_short_again(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    for _ in range(10):
        clock.seconds += 5
        breaker.lets_through()
        breaker.failed()
    assert breaker.succeeded() is True
    assert breaker.succeeded() is False
    assert breaker.lets_through()
    opened(breaker)
    clock.seconds += 1
    assert breaker.lets_through()


def test_a_probe_that_never_reports_does_not_keep_the_next_from_being_tried(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    opened(breaker)
    clock.seconds += 1
    assert breaker.lets_through()
    clock.seconds += 2
    assert breaker.lets_through()


def test_one_of_many_threads_probes(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    clock.seconds += 1
    with ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(lambda _: breaker.lets_through(), range(200))) == 1


def test_failures_that_come_in_late_do_not_make_the_pause_longer(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker)
    for _ in range(20):
        breaker.failed()
    clock.seconds += 1
    assert breaker.lets_through()
