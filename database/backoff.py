"""Backoff: exponential delays before the next attempt. Pure except for the jitter."""

import random
from dataclasses import dataclass

MOST_DOUBLINGS = 64  # beyond any `longest_seconds`; a float would overflow after a thousand


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff, capped at the longest delay.

    `jitter` is the share by which a delay varies in both directions, so that clients that failed together do not retry
    together. It also applies to the longest delay.
    """

    first_seconds: float
    longest_seconds: float
    jitter: float

    def after(self, failures: int) -> float:
        """The delay in seconds after this many consecutive failures."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, MOST_DOUBLINGS)
        spread = random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - only to get out of each other's way
        return min(doubled, self.longest_seconds) * spread

    def at_least(self, asked_seconds: float | None, failures: int) -> float | None:
        """The delay, but no shorter than the server demands. None if the server demands more than the longest delay."""
        asked = asked_seconds or 0.0
        return None if asked > self.longest_seconds else max(asked, self.after(failures))
