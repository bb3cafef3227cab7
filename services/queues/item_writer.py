"""Writes how items ended: the save and the end of an item are one transaction, fenced by its token.

Items that ended together share a transaction. If that is refused they are written one by one, so that each one's
trouble is its own; so is a row that somebody else has locked. A failure that cannot be written gives the row back to
its queue; what even that refuses is left to the rescue.
"""

import logging
import random
from collections.abc import Iterator, Sequence
from typing import Generic

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from database.connection import DatabaseConnection
from services.errors import ConfigurationError, Unavailable
from services.jobs import JobFailed
from services.jobs.containment import Raised, Returned, contained
from services.queues.dead_letters import bury
from services.queues.outcomes import Claimed, Ended, Failure, K, Verdict, failure_of
from services.queues.queue_table import QueueTable
from services.queues.steps import Steps

logger = logging.getLogger(__name__)

LONGEST_BACKOFF_SECONDS = 3600.0
DEADLOCK, LOCKED = "40P01", "55P03"
DEADLOCK_RETRIES = 5

Written = Iterator[tuple[Ended[K], Verdict]]


class WorkerVanished(JobFailed):
    """Of a stale claim; nothing is known about the trouble, so another attempt need not wait."""

    def __init__(self, stale_seconds: float) -> None:
        super().__init__(f"its worker vanished: the claim was older than {stale_seconds:g} s")


class ItemWriter(Generic[K]):
    def __init__(
        self,
        db: DatabaseConnection,
        queue: str,
        table: QueueTable[K],
        steps: Steps[K],
        *,
        actor: str,
        max_attempts: int,
        backoff_seconds: float,
    ) -> None:
        self._db, self._queue, self._table, self._steps, self._actor = db, queue, table, steps, actor
        self._max_attempts, self._backoff_seconds = max_attempts, backoff_seconds

    def write(self, ended: Sequence[Ended[K]]) -> Written[K]:
        """A verdict for each item, except for those that somebody's lock keeps from being written right now.

        Raises Unavailable, after which the rest may be written again, and what no attempt can cure: ConfigurationError.
        """
        done = [item for item in ended if isinstance(item.outcome, Returned)]
        if done:
            yield from self._save(done)
        for item in ended:
            if isinstance(item.outcome, Raised):
                if isinstance(item.outcome.error, ConfigurationError):
                    raise item.outcome.error
                if verdict := self._fail(item.claim, item.outcome.error):
                    yield item, verdict

    # --- success ---

    def _save(self, items: Sequence[Ended[K]]) -> Written[K]:
        match contained(lambda: self._save_together(items)):
            case Returned(saved):
                verdicts = saved
            case Raised(Unavailable() | KeyboardInterrupt() as error):
                raise error
            case Raised():
                verdicts = {}
        for item in items:
            if verdict := verdicts.get(item.claim) or self._save_alone(item):
                yield item, verdict

    def _save_together(self, items: Sequence[Ended[K]]) -> dict[Claimed[K], Verdict]:
        """First the fence: nothing is saved for a row that is not ours any more."""
        with self._db.get_background_session() as session:
            held = self._table.lock_held(session.connection(), [item.claim for item in items], self._actor)
            for item in items:
                if item.claim in held and isinstance(item.outcome, Returned):
                    self._steps.save(session, item.claim.key, item.outcome.value)
            session.flush()
            errors = self._table.complete(session.connection(), held)
            failures = {claim: _chosen(errors[claim.key]) for claim in held if claim.key in errors}
            for claim, failure in failures.items():
                self._tell(session, claim, failure)
        told = {claim: self._told(claim, failure, Verdict.FAILED) for claim, failure in failures.items()}
        return dict.fromkeys(held, Verdict.SUCCEEDED) | told

    def _save_alone(self, item: Ended[K]) -> Verdict | None:
        tries_left = DEADLOCK_RETRIES
        while True:
            match contained(lambda: self._save_together([item])):
                case Returned(verdicts):
                    return verdicts.get(item.claim, Verdict.LOST)
                case Raised(Unavailable() | KeyboardInterrupt() | ConfigurationError() as error):
                    raise error
                case Raised(error) if _code(error) == LOCKED:
                    return None
                case Raised(error) if tries_left == 0 or _code(error) != DEADLOCK:
                    return self._fail(item.claim, error)
            tries_left -= 1  # a deadlock's victim wrote nothing: the same again is safe

    # --- failure ---

    def _fail(self, claim: Claimed[K], error: BaseException) -> Verdict | None:
        failure = failure_of(error)
        verdict = self._verdict(claim, failure)
        delay_seconds = 0.0 if isinstance(error, WorkerVanished) else self._backoff(claim, failure)
        for with_hook in (True, False):
            match contained(lambda hook=with_hook: self._write_failure(claim, failure, verdict, delay_seconds, hook)):  # type: ignore[misc]
                case Returned(held):
                    return self._told(claim, failure, verdict if held else Verdict.LOST)
                case Raised(Unavailable() | KeyboardInterrupt() as ours):
                    raise ours
                case Raised(refusal) if _code(refusal) == LOCKED:
                    return None
                case Raised(refusal):
                    logger.error(
                        "%s %s: the failure could not be recorded", self._queue, claim.key, exc_info=refusal,
                        extra={"event": "failure_unwritten", "queue": self._queue},
                    )  # fmt: skip
        return self._release(claim, failure)

    def _verdict(self, claim: Claimed[K], failure: Failure) -> Verdict:
        if not failure.retryable:
            return Verdict.FAILED
        return Verdict.RETRIED if claim.attempt < self._max_attempts else Verdict.DEAD

    def _write_failure(
        self, claim: Claimed[K], failure: Failure, verdict: Verdict, delay_seconds: float, with_hook: bool
    ) -> bool:
        with self._db.get_background_session() as session:
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

    def _tell(self, session: Session, claim: Claimed[K], failure: Failure) -> None:
        if self._steps.on_failed is not None:
            self._steps.on_failed(session, claim.key, failure.message)

    def _release(self, claim: Claimed[K], failure: Failure) -> Verdict:
        """Better queued once more than for ever in processing."""
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

    def _backoff(self, claim: Claimed[K], failure: Failure) -> float:
        jitter = 1 + 0.2 * (random.random() - 0.5)  # noqa: S311 - items that failed together must not come back in step
        backoff = self._backoff_seconds * 2.0 ** min(claim.attempt - 1, 12) * jitter
        return max(min(backoff, LONGEST_BACKOFF_SECONDS), failure.retry_after_seconds)

    def _told(self, claim: Claimed[K], failure: Failure, verdict: Verdict) -> Verdict:
        logger.log(
            logging.INFO if verdict is Verdict.RETRIED else logging.WARNING,
            "%s %s, attempt %d: %s", self._queue, claim.key, claim.attempt, failure.message,
            extra={"event": f"item_{verdict.value}", "queue": self._queue, "key": str(claim.key)},
        )  # fmt: skip
        return verdict


def _code(error: BaseException) -> str | None:
    return getattr(error.orig, "pgcode", None) if isinstance(error, DBAPIError) else None


def _chosen(error: str) -> Failure:
    """Of an item whose `save` set the failed status itself."""
    return Failure(error, traceback=None, retryable=False, retry_after_seconds=0.0)
