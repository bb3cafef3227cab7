"""Waiting for another thread or process: never a fixed sleep."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

# The limits suit a quiet machine; one that runs four tests at once, or other work, needs longer.
PATIENCE = 2
LONGEST_INTERVAL_SECONDS = 0.2
A_MOMENT_SECONDS = 2.0


def eventually(check: Callable[[], T], timeout_seconds: float = 10.0, interval_seconds: float = 0.02) -> T:
    """Repeat `check` until its result is true, and return it; a failed assert counts as "not yet"."""
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
        interval_seconds = min(1.2 * interval_seconds, LONGEST_INTERVAL_SECONDS)  # long waits poll less often


@contextmanager
def within_a_moment() -> Iterator[None]:
    """For work that takes milliseconds, or minutes when done badly: limits the CPU seconds of this thread."""
    begun_at = time.thread_time()
    yield
    assert time.thread_time() - begun_at < A_MOMENT_SECONDS
