"""Waiting for something that another thread or process does: never a fixed sleep."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

# Limits are meant for a quiet machine; one that runs four tests at once, or somebody else's work, needs longer.
PATIENCE = 2
LONGEST_INTERVAL_SECONDS = 0.2
A_MOMENT_SECONDS = 2.0


def eventually(check: Callable[[], T], timeout_seconds: float = 10.0, interval_seconds: float = 0.02) -> T:
    """Repeat `check` until its answer is true, and return that answer; a failed assert in it means "not yet"."""
    deadline = time.monotonic() + PATIENCE * timeout_seconds
    while True:
        failure: AssertionError | None = None
        try:
            if answer := check():
                return answer
        except AssertionError as error:
            failure = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE} x {timeout_seconds} s: {failure or check}") from failure
        time.sleep(interval_seconds)
        interval_seconds = min(1.2 * interval_seconds, LONGEST_INTERVAL_SECONDS)  # who waits long must not ask often


@contextmanager
def within_a_moment() -> Iterator[None]:
    """For work that takes milliseconds, or minutes if it is done badly: seconds of this thread's own CPU."""
    begun_at = time.thread_time()
    yield
    assert time.thread_time() - begun_at < A_MOMENT_SECONDS
