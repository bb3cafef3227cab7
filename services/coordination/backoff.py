"""Backoff: how long to wait before the next try. Pure, but for the jitter."""

import random
from dataclasses import dataclass

MOST_DOUBLINGS = 64  # longer than any `longest_seconds`; a float would overflow after a thousand


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles each time, up to the longest wait.

    `jitter` is the share of a wait by which it may be shorter or longer: who failed together must not return together.
    It also spreads the longest wait.
    """

    first_seconds: float
    longest_seconds: float
    jitter: float

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, MOST_DOUBLINGS)
        spread = random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - only to get out of each other's way
        return min(doubled, self.longest_seconds) * spread

    def at_least(self, asked_seconds: float | None, failures: int) -> float | None:
        """The same, but not sooner than the other side asks for; None: it asks for more than the longest wait."""
        asked = asked_seconds or 0.0
        return None if asked > self.longest_seconds else max(asked, self.after(failures))
