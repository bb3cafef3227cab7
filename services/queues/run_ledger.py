"""Counts the items of a run, for its summary, the queue's row in Postgres and the metrics."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from enhanced_scheduler.containment import Outcome, Raised
from services.fetching import FetchFailed
from services.jobs import JobFailed
from services.queues.circuit import DID_NOT, WORKED, Breaker
from services.queues.outcomes import Ending, Summary, Verdict
from services.queues.queue_state import QueueState, QueueStates
from services.telemetry import metrics

REPORT_SECONDS = 2.0

# The circuit breaker's mark of each verdict; a lost claim has none.
MARKS = {
    Verdict.SUCCEEDED: WORKED,
    Verdict.FAILED: WORKED,
    Verdict.RETRIED: DID_NOT,
    Verdict.DEAD: DID_NOT,
    Verdict.LOST: "",
}


def is_about_site(outcome: Outcome[Any]) -> bool:
    """True if the failure concerns the site that was called, not our own code or network."""
    error = outcome.error if isinstance(outcome, Raised) else None
    return isinstance(error, JobFailed) or (isinstance(error, FetchFailed) and not error.of_network)


class RunLedger:
    def __init__(self, states: QueueStates, queue: str, breaker: Breaker, *, own_sites: bool = False) -> None:
        self._states, self._queue, self._breaker, self._own_sites = states, queue, breaker, own_sites
        self._unreported: Counter[str] = Counter()
        self._marks = ""
        self._reported_at = self._begun_at = time.monotonic()
        self.summary = Summary()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun_at

    @property
    def is_due(self) -> bool:
        """A failure is reported at once, so that the circuit opens in time; successes can wait."""
        return DID_NOT in self._marks or time.monotonic() - self._reported_at > REPORT_SECONDS

    def claimed(self, number: int) -> None:
        self._count("claimed", number)

    def stale(self, verdict: Verdict) -> None:
        self._count("stale", 1)
        if verdict is Verdict.DEAD:
            self._count("dead", 1)

    def settled(self, endings: Sequence[tuple[Ending[Any], Verdict]]) -> None:
        for verdict, number in Counter(verdict for _, verdict in endings).items():
            self._count(verdict.value, number)
        self._marks += "".join(self._mark(ending, verdict) for ending, verdict in endings)
        metrics.queue_items_took(self._queue, [ending.seconds for ending, _ in endings])

    def report(self, batch_size: int | None = None) -> QueueState:
        """Write to the queue's row; returns the state that the run must obey from now on."""
        state = self._states.report(self._queue, self._breaker, self._marks, self._unreported, batch_size)
        self._unreported, self._marks, self._reported_at = Counter(), "", time.monotonic()
        return state

    def _mark(self, ending: Ending[Any], verdict: Verdict) -> str:
        found = MARKS[verdict]
        return WORKED if found == DID_NOT and self._own_sites and is_about_site(ending.outcome) else found

    def _count(self, what: str, number: int) -> None:
        if number:
            setattr(self.summary, what, getattr(self.summary, what) + number)
            self._unreported[what] += number
            metrics.queue_items(self._queue, what, number)
