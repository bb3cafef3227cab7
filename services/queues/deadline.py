"""The deadline of the item that the current thread works on, as a context variable: `work(snapshot)` has no extra
parameter."""

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
    """Call it before each slow step: it raises JobTimedOut once the item was given up. Infinite outside a job loop.

    For a fetch: `fetcher.get(url, remaining_seconds=remaining_seconds)`.
    """
    deadline = current.get()
    if deadline is None:
        return math.inf
    left = deadline.at - time.monotonic()
    if left <= 0 or deadline.given_up.is_set():
        raise JobTimedOut("the item has timed out")
    return left
