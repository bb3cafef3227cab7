"""How long a request may take, and how far apart requests keep."""

import threading
import time

import pytest

from services.fetching import Deadline
from services.fetching.pace import MAX_HOSTS, Pace


def never() -> None:
    """Nobody stops us."""


class Stop(BaseException):
    pass


def stop() -> None:
    raise Stop


def test_threads_take_turns_at_one_host() -> None:
    pace = Pace()
    begun_at = time.monotonic()
    threads = [threading.Thread(target=pace.wait, args=("a", 0.05, never)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun_at >= 0.2


def test_another_host_has_a_turn_of_its_own() -> None:
    pace = Pace()
    assert pace.wait("a", 20, stop) < 20
    assert pace.wait("b", 20, stop) < 20


def test_waiting_for_a_turn_can_be_stopped() -> None:
    pace = Pace()
    pace.wait("a", 20, never)
    with pytest.raises(Stop):
        pace.wait("a", 20, stop)


def test_hosts_of_the_past_are_forgotten() -> None:
    pace = Pace()
    for number in range(3 * MAX_HOSTS):
        pace.wait(str(number), 0.0, never)
    assert len(pace._free_at) <= MAX_HOSTS + 1


def test_a_deadline_says_what_is_left_until_nothing_is() -> None:
    assert 0 < Deadline(5.0).left() <= 5
    assert Deadline(None).left() > 3_600
    with pytest.raises(TimeoutError):
        Deadline(0.0).left()


def test_the_nearer_of_two_limits_counts() -> None:
    assert Deadline(100.0, lambda: 7.0).left() == 7
    assert Deadline(5.0, lambda: 100.0).left() <= 5
    with pytest.raises(TimeoutError):
        Deadline(100.0, lambda: 0.0).left()
    with pytest.raises(Stop):
        Deadline(100.0, stop).left()  # type: ignore[arg-type]


def test_the_wait_for_our_own_turn_is_given_back() -> None:
    deadline = Deadline(0.0)
    deadline.extend(100.0)
    assert deadline.left() > 50
