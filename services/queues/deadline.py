"""How long the item that this thread works on may still take. `work(snapshot)` need not pass it on."""

import math
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event

from services.jobs import JobTimedOut


@dataclass(frozen=True, slots=True)
class ItemDeadline:
    at: float  # monotonic
    given_up: Event = field(default_factory=Event)


current: ContextVar[ItemDeadline | None] = ContextVar("item_deadline", default=None)


def remaining_seconds() -> float:
    """Ask it before each slow step; ends the item's work when nobody waits for it any more. Endless outside of a loop.

    For a fetch: `fetcher.get(url, remaining_seconds=remaining_seconds)`.
    """
    deadline = current.get()
    if deadline is None:
        return math.inf
    left = deadline.at - time.monotonic()
    if left <= 0 or deadline.given_up.is_set():
        raise JobTimedOut("the item has timed out")
    return left
