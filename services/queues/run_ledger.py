"""Counts what a run does: for its summary, for the queue's row in Postgres, for the metrics."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from services.fetching import FetchFailed
from services.jobs import JobFailed
from services.jobs.containment import Raised, Returned
from services.queues.circuit import DID_NOT, WORKED, Breaker
from services.queues.outcomes import Ended, Summary, Verdict
from services.queues.queue_state import QueueState, QueueStates
from services.telemetry import metrics

REPORT_SECONDS = 2.0

# What a verdict says about the world outside; a lost claim says nothing.
OUTCOMES = {
    Verdict.SUCCEEDED: WORKED,
    Verdict.FAILED: WORKED,
    Verdict.RETRIED: DID_NOT,
    Verdict.DEAD: DID_NOT,
    Verdict.LOST: "",
}


def is_about_site(outcome: Returned[Any] | Raised) -> bool:
    """What was planned for is about the site that was asked; the rest is about us, or about the way out."""
    error = outcome.error if isinstance(outcome, Raised) else None
    return isinstance(error, JobFailed) or (isinstance(error, FetchFailed) and not error.of_network)


class RunLedger:
    def __init__(self, states: QueueStates, queue: str, breaker: Breaker, *, own_sites: bool = False) -> None:
        self._states, self._queue, self._breaker, self._own_sites = states, queue, breaker, own_sites
        self._unreported: Counter[str] = Counter()
        self._outcomes = ""
        self._reported_at = self._begun_at = time.monotonic()
        self.summary = Summary()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun_at

    @property
    def is_due(self) -> bool:
        """Trouble is told at once, so that the circuit opens in time; good news can wait."""
        return DID_NOT in self._outcomes or time.monotonic() - self._reported_at > REPORT_SECONDS

    def claimed(self, number: int) -> None:
        self._count("claimed", number)

    def stale(self, verdict: Verdict) -> None:
        self._count("stale", 1)
        if verdict is Verdict.DEAD:
            self._count("dead", 1)

    def settled(self, items: Sequence[tuple[Ended[Any], Verdict]]) -> None:
        for verdict, number in Counter(verdict for _, verdict in items).items():
            self._count(verdict.value, number)
        self._outcomes += "".join(self._outcome(item, verdict) for item, verdict in items)
        metrics.queue_items_took(self._queue, [item.seconds for item, _ in items])

    def report(self, batch_size: int | None = None) -> QueueState:
        """Tell the queue's row; returns what the run has to obey from now on."""
        state = self._states.report(self._queue, self._breaker, self._outcomes, self._unreported, batch_size)
        self._unreported, self._outcomes, self._reported_at = Counter(), "", time.monotonic()
        return state

    def _outcome(self, item: Ended[Any], verdict: Verdict) -> str:
        found = OUTCOMES[verdict]
        return WORKED if found == DID_NOT and self._own_sites and is_about_site(item.outcome) else found

    def _count(self, what: str, number: int) -> None:
        if number:
            setattr(self.summary, what, getattr(self.summary, what) + number)
            self._unreported[what] += number
            metrics.queue_items(self._queue, what, number)
