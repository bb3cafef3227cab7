"""Writes how items ended: an item's `save` and its new status are one transaction, fenced by its token.

Items that ended together share a transaction. If Postgres refuses it, or another session locks a row, they are written
one by one, so that each failure affects only its own item. If a failure cannot be written, the row goes back to its
queue; if that fails too, the rescue requeues it.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, cast

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from database.backoff import Backoff
from database.connection import DatabaseConnection
from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, sqlstate
from database.writing import again_if_lost
from enhanced_scheduler.containment import Raised, Returned, contained
from services.errors import ConfigurationError, Unavailable
from services.jobs import JobFailed
from services.queues.async_steps import Sessions
from services.queues.dead_letters import bury
from services.queues.outcomes import Claim, Ending, Failure, K, Verdict, failure_of
from services.queues.queue_table import QueueTable
from services.queues.steps import Steps

logger = logging.getLogger(__name__)

LONGEST_BACKOFF_SECONDS = 3600.0

Written = Iterator[tuple[Ending[K], Verdict]]


class WorkerVanished(JobFailed):
    """Of a stale claim; the cause is unknown, so the next attempt needs no backoff."""

    def __init__(self, stale_seconds: float) -> None:
        super().__init__(f"its worker vanished: the claim was older than {stale_seconds:g} s")


class ItemWriter(Generic[K]):
    def __init__(
        self,
        db: DatabaseConnection,
        queue: str,
        table: QueueTable[K],
        steps: Steps[K],
        sessions: Sessions,
        *,
        actor: str,
        max_attempts: int,
        backoff_seconds: float,
    ) -> None:
        self._db, self._queue, self._table, self._steps, self._actor = db, queue, table, cast(Any, steps), actor
        self._sessions = sessions
        self._max_attempts = max_attempts
        self._backoff = Backoff(first_seconds=backoff_seconds, longest_seconds=LONGEST_BACKOFF_SECONDS, jitter=0.1)

    def write(self, endings: Sequence[Ending[K]]) -> Written[K]:
        """A verdict for each item, except for items whose row another session locks at the moment.

        Raises Unavailable, after which the caller may write the rest again, and ConfigurationError, which no further
        attempt can cure.
        """
        done = [ending for ending in endings if isinstance(ending.outcome, Returned)]
        if done:
            yield from self._save(done)
        for ending in endings:
            if isinstance(ending.outcome, Raised):
                if isinstance(ending.outcome.error, ConfigurationError):
                    raise ending.outcome.error
                if verdict := self._fail(ending.claim, ending.outcome.error):
                    yield ending, verdict

    # --- success ---

    def _save(self, endings: Sequence[Ending[K]]) -> Written[K]:
        match contained(lambda: self._save_in_session(endings)):
            case Returned(saved):
                verdicts = saved
            case Raised(Unavailable() | KeyboardInterrupt() as error):
                raise error
            case Raised():
                verdicts = {}
        for ending in endings:
            if verdict := verdicts.get(ending.claim) or self._save_alone(ending):
                yield ending, verdict

    def _save_in_session(self, endings: Sequence[Ending[K]]) -> dict[Claim[K], Verdict]:
        return self._sessions.run(lambda: self._save_together(endings))

    def _save_together(self, endings: Sequence[Ending[K]]) -> dict[Claim[K], Verdict]:
        """The fence comes first: nothing is saved for a row that this run no longer holds."""
        with self._sessions.get_background_session() as session:
            held = self._table.lock_held(session.connection(), [ending.claim for ending in endings], self._actor)
            for ending in endings:
                if ending.claim in held and isinstance(ending.outcome, Returned):
                    self._steps.save(session, ending.claim.key, ending.outcome.value)
            session.flush()
            errors = self._table.complete(session.connection(), held)
            failures = {claim: _failure_by_save(errors[claim.key]) for claim in held if claim.key in errors}
            for claim, failure in failures.items():
                self._tell(session, claim, failure)
        failed = {claim: self._log(claim, failure, Verdict.FAILED) for claim, failure in failures.items()}
        return dict.fromkeys(held, Verdict.SUCCEEDED) | failed

    def _save_alone(self, ending: Ending[K]) -> Verdict | None:
        match contained(lambda: again_if_lost(lambda: self._save_in_session([ending]), DEADLOCKS)):
            case Returned(verdicts):
                return verdicts.get(ending.claim, Verdict.LOST)
            case Raised(Unavailable() | KeyboardInterrupt() | ConfigurationError() as error):
                raise error
            case Raised(error):
                return None if sqlstate(error) == LOCK_TIMEOUT else self._fail(ending.claim, error)

    # --- failure ---

    def _fail(self, claim: Claim[K], error: BaseException) -> Verdict | None:
        failure = failure_of(error)
        verdict = self._verdict(claim, failure)
        delay_seconds = 0.0 if isinstance(error, WorkerVanished) else self._delay_seconds(claim, failure)
        for with_hook in (True, False):
            write = partial(self._write_failure, claim, failure, verdict, delay_seconds, with_hook)
            match contained(partial(self._sessions.run, write)):
                case Returned(held):
                    return self._log(claim, failure, verdict if held else Verdict.LOST)
                case Raised(Unavailable() | KeyboardInterrupt() as ours):
                    raise ours
                case Raised(refusal) if sqlstate(refusal) == LOCK_TIMEOUT:
                    return None
                case Raised(refusal):
                    logger.error(
                        "%s %s: the failure could not be recorded", self._queue, claim.key, exc_info=refusal,
                        extra={"event": "failure_unwritten", "queue": self._queue},
                    )  # fmt: skip
        return self._release(claim, failure)

    def _verdict(self, claim: Claim[K], failure: Failure) -> Verdict:
        if not failure.retryable:
            return Verdict.FAILED
        return Verdict.RETRIED if claim.attempt < self._max_attempts else Verdict.DEAD

    def _write_failure(
        self, claim: Claim[K], failure: Failure, verdict: Verdict, delay_seconds: float, with_hook: bool
    ) -> bool:
        with self._sessions.get_background_session() as session:
            connection = session.connection()
            if verdict is Verdict.RETRIED:
                return self._table.retry(connection, claim, failure.message, delay_seconds)
            if not self._table.fail(connection, claim, failure.message):
                return False
            if verdict is Verdict.DEAD:
                bury(connection, self._queue, claim, failure)
            if with_hook:
                self._tell(session, claim, failure)
            return True

    def _tell(self, session: Session, claim: Claim[K], failure: Failure) -> None:
        if self._steps.on_failed is not None:
            self._steps.on_failed(session, claim.key, failure.message)

    def _release(self, claim: Claim[K], failure: Failure) -> Verdict:
        """Queue the row again rather than leave it in processing for ever."""
        try:
            with self._db.transaction() as connection:
                held = self._table.retry(connection, claim, failure.message, LONGEST_BACKOFF_SECONDS)
            return Verdict.RETRIED if held else Verdict.LOST
        except DBAPIError:
            logger.exception(
                "%s %s could not be handed back; the rescue will requeue it", self._queue, claim.key,
                extra={"event": "item_stranded", "queue": self._queue},
            )  # fmt: skip
            return Verdict.LOST

    def _delay_seconds(self, claim: Claim[K], failure: Failure) -> float:
        return max(min(self._backoff.after(claim.attempt), LONGEST_BACKOFF_SECONDS), failure.retry_after_seconds)

    def _log(self, claim: Claim[K], failure: Failure, verdict: Verdict) -> Verdict:
        logger.log(
            logging.INFO if verdict is Verdict.RETRIED else logging.WARNING,
            "%s %s, attempt %d: %s", self._queue, claim.key, claim.attempt, failure.message,
            extra={"event": f"item_{verdict.value}", "queue": self._queue, "key": str(claim.key)},
        )  # fmt: skip
        return verdict


def _failure_by_save(error: str) -> Failure:
    """For an item whose `save` set the failed status itself."""
    return Failure(error, traceback=None, retryable=False, retry_after_seconds=0.0)
