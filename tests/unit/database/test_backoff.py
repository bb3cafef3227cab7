"""How long to wait before the next try."""

import pytest

from database.backoff import Backoff

RETRIES = Backoff(first_seconds=30, longest_seconds=86_400, jitter=0)


def test_waits_double_up_to_the_longest_however_often_it_failed() -> None:
    assert [RETRIES.after(failures) for failures in (1, 2, 3, 30, 10**9)] == [30, 60, 120, 86_400, 86_400]


@pytest.mark.parametrize("failures", [1, 3, 40])
def test_jitter_spreads_every_wait_around_its_length(failures: int) -> None:
    middle = RETRIES.after(failures)
    spread = Backoff(first_seconds=30, longest_seconds=86_400, jitter=0.25)
    waits = [spread.after(failures) for _ in range(200)]
    assert 0.75 * middle <= min(waits) < 0.9 * middle
    assert 1.1 * middle < max(waits) <= 1.25 * middle


def test_the_other_side_may_ask_for_more_patience_but_not_for_more_than_the_longest_wait() -> None:
    asked = [RETRIES.at_least(seconds, 2) for seconds in (None, 0.0, 59.0, 61.0, 86_400.0, 86_401.0)]
    assert asked == [60, 60, 60, 61, 86_400, None]
