"""Streaks: failures in a row of each schedule, and the policies pause_after_failures and backoff_after_failures.

Nothing is written on a fire's way. One replica at a time looks every few seconds at what failed, by an index of its
own, and derives the streaks from the history, whoever wrote it: a failure that is read twice counts once.
While two replicas think that it is their turn, the row locks of the schedules put them in order.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row

from database.arrays import instant_array, number_array, uuid_array
from database.connection import LOCK_TIMEOUT_SECONDS, DatabaseConnection
from database.writing import write_as
from services.engine import streaks_sql as sql
from services.engine.loops import Loop
from services.schedules.field_rules import NOTE
from services.telemetry import metrics

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
SOON_SECONDS = 0.2
FIGURES_SECONDS = 60.0
SETTLE_SECONDS = 15.0  # between a failure and a pause for it: those that fail with it shall have ended, too
FRESH = timedelta(minutes=10)  # an older failure pauses nothing: the next one does
LOOK_BACK = timedelta(minutes=15)  # of a replica whose turn it has just become
OVERLAP = timedelta(minutes=1)  # between the time of a row and its commit
BATCH = 100  # schedules in one transaction
RIPE = 10_000  # that are judged at once; a landslide may be all schedules
ASK_AGAIN_SECONDS = 60.0  # whether a landslide goes on: the question reads every schedule
FIRST_BACKOFF, LONGEST_BACKOFF = timedelta(minutes=1), timedelta(hours=1)
MOST_DOUBLINGS = 10
LANDSLIDE_SCHEDULES, LANDSLIDE_SHARE = 5, 0.3
ACTOR = "policy:pause_after_failures"
NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Streak:
    """The streak in the history of one schedule."""

    row: Row[Any]

    @property
    def failures(self) -> int:
        row = self.row
        if row.has_success or (row.walked or 0) < sql.WALKED:
            return int(row.counted)
        return int(max(row.counted, row.failures_in_a_row + row.more))

    @property
    def newest(self) -> datetime | None:
        found: datetime | None = self.row.newest
        return found or (self.row.last_failed_for if self.failures else None)

    @property
    def backoff_until(self) -> datetime | None:
        """From the failed fire on, so that every replica computes the same, at any time."""
        after = self.row.backoff_after_failures
        if after is None or self.newest is None or self.failures < after:
            return None
        return self.newest + backoff(self.failures - after)

    @property
    def pauses(self) -> bool:
        return self.row.pause_after_failures is not None and self.failures >= self.row.pause_after_failures

    @property
    def is_noted(self) -> bool:
        row = self.row
        return (row.failures_in_a_row, row.last_failed_for, row.backoff_until) == (
            self.failures,
            self.newest,
            self.backoff_until,
        )

    @property
    def note(self) -> str:
        error = (self.row.error_message or self.row.status or "").strip().partition("\n")[0]
        times = "a failure" if self.failures == 1 else f"{self.failures} failures in a row"
        text = f"paused by pause_after_failures={self.row.pause_after_failures} after {times}; the last: {error}"
        plain = "".join(each if each.isprintable() else " " for each in " ".join(text.split()))
        return plain if len(plain) <= NOTE.longest else plain[: NOTE.longest - 1] + "…"


def backoff(further: int) -> timedelta:
    """How long a schedule skips its fires, after so many failures beyond those that begin it."""
    factor: int = 2 ** min(further, MOST_DOUBLINGS)
    return min(FIRST_BACKOFF * factor, LONGEST_BACKOFF)


def is_landslide(ended: int, failed: int) -> bool:
    return failed >= LANDSLIDE_SCHEDULES and failed >= LANDSLIDE_SHARE * ended


@dataclass(slots=True)
class _Landslide:
    """Of one job type."""

    asked_at: float
    seen_at: float
    withheld: set[UUID] = field(default_factory=set)  # the schedules that were not paused


class Streaks:
    """`look_if` says how a replica knows that it is its turn."""

    def __init__(
        self,
        db: DatabaseConnection,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._settle, self._monotonic = db, settle_seconds, monotonic
        self._is_mine: Callable[[], bool] = lambda: False
        self._figures_at = float("-inf")
        self._landslides: dict[str, _Landslide] = {}  # by job type
        self._begin()
        self.loop = Loop("streaks", self.tick, LOOK_SECONDS)

    def look_if(self, is_mine: Callable[[], bool]) -> None:
        self._is_mine = is_mine

    def tick(self) -> float | None:
        self._observe()
        self._end_landslides()
        if not self._is_mine():
            self._begin()
            return None
        is_more = self._read()
        is_getting_on = self._count()
        self._pause()
        return SOON_SECONDS if is_more or (is_getting_on and self._due) else None

    def _begin(self) -> None:
        self._since: tuple[datetime, UUID] | None = None
        self._seen: dict[UUID, datetime] = {}  # executions of the last minute
        self._recovered_after = NOBODY
        self._due: dict[UUID, bool] = {}  # schedules to be counted; whether because of a fresh failure
        self._ripe_at: dict[UUID, float] = {}  # those that may be paused, after a while

    # --- what failed, and what succeeded again ---

    def _read(self) -> bool:
        """Says whether there is more to read."""
        with self._db.transaction() as connection:
            now = connection.exec_driver_sql(sql.NOW).scalar_one()
            since, after = self._since or (now - LOOK_BACK, NOBODY)
            page = list(connection.exec_driver_sql(sql.FAILURES, {"since": since, "after": after}))
            failing = connection.exec_driver_sql(sql.RECOVERED, {"after": self._recovered_after}).one()
        for row in page:
            if row.execution_id not in self._seen and row.schedule_id is not None:
                is_fresh = now - row.completed_at < FRESH
                self._due[row.schedule_id] = is_fresh or self._due.get(row.schedule_id, False)
        for schedule_id in failing.recovered:
            self._due.setdefault(schedule_id, False)
        self._recovered_after = failing.last if failing.seen == sql.FAILING_PAGE else NOBODY
        self._seen |= {row.execution_id: row.completed_at for row in page}
        if len(page) == sql.PAGE:
            self._since = page[-1].completed_at, page[-1].execution_id
            return True
        again = now - OVERLAP
        self._since = again, NOBODY
        self._seen = {each: at for each, at in self._seen.items() if at >= again}
        return False

    # --- the count, and the backoff that follows from it ---

    def _count(self) -> bool:
        """Schedules that another session holds go to the end. Says whether any were counted."""
        batch = dict(islice(self._due.items(), BATCH))
        if not batch:
            return False
        streaks, held = self._write(batch, self._note, ACTOR)
        for schedule_id in batch:
            is_fresh = self._due.pop(schedule_id)
            if schedule_id in held:
                self._due[schedule_id] = is_fresh
        for streak in streaks:
            schedule_id = streak.row.schedule_id
            if streak.pauses and batch[schedule_id]:
                self._ripe_at.setdefault(schedule_id, self._monotonic() + self._settle)
        return len(held) < len(batch)

    def _note(self, connection: Connection, streaks: list[Streak]) -> list[Streak]:
        changed = [each for each in streaks if not each.is_noted]
        if changed:
            values = {
                "ids": uuid_array(each.row.schedule_id for each in changed),
                "failures": number_array(each.failures for each in changed),
                "newest": instant_array(each.newest for each in changed),
                "until": instant_array(each.backoff_until for each in changed),
            }
            connection.exec_driver_sql(sql.NOTE, values)
        return streaks

    # --- the pause ---

    def _pause(self) -> None:
        now = self._monotonic()
        ripe = list(islice((each for each, at in self._ripe_at.items() if at <= now), RIPE))
        if not ripe:
            return
        allowed = self._without_landslides(ripe)
        batch = allowed[:BATCH]
        paused, held = self._write(batch, self._switch_off, ACTOR) if batch else ([], set())
        for schedule_id in set(ripe) - set(allowed[BATCH:]):
            if schedule_id in held:
                self._ripe_at[schedule_id] = now + LOOK_SECONDS
            else:
                del self._ripe_at[schedule_id]
        for streak in paused:
            metrics.schedule_paused(streak.row.job_type)
            logger.warning(
                "schedule %s was %s",
                streak.row.label,
                streak.note,
                extra={"event": "schedule_paused", "schedule_id": str(streak.row.schedule_id)},
            )

    def _switch_off(self, connection: Connection, streaks: list[Streak]) -> list[Streak]:
        """It is judged again under the lock: an operator or a success may have come first."""
        off = [each for each in streaks if each.pauses]
        if off:
            values = {
                "ids": uuid_array(each.row.schedule_id for each in off),
                "notes": [each.note for each in off],
                "failures": number_array(each.failures for each in off),
            }
            connection.exec_driver_sql(sql.PAUSE, values)
        return off

    def _without_landslides(self, ripe: list[UUID]) -> list[UUID]:
        """If much of a job type fails at once, the cause is not in its schedules."""
        now = self._monotonic()
        with self._db.transaction() as connection:
            found = connection.exec_driver_sql(sql.JOB_TYPES, {"ids": uuid_array(ripe)})
            job_types = {row.schedule_id: row.job_type for row in found}
            lasting = {each for each, slide in self._landslides.items() if slide.asked_at > now - ASK_AGAIN_SECONDS}
            asked = [each for each, job_type in job_types.items() if job_type not in lasting]
            shares = connection.exec_driver_sql(sql.SHARES, {"ids": uuid_array(asked)}).all() if asked else []
        for share in shares:
            if is_landslide(share.ended, share.failed):
                self._note_landslide(share, now)
                lasting.add(share.job_type)
        for job_type in lasting & set(job_types.values()):
            slide = self._landslides[job_type]
            slide.seen_at = now
            slide.withheld.update(each for each, its in job_types.items() if its == job_type)
            metrics.pauses_withheld(job_type, len(slide.withheld))
        return [each for each, job_type in job_types.items() if job_type not in lasting]

    def _note_landslide(self, share: Row[Any], now: float) -> None:
        if slide := self._landslides.get(share.job_type):
            slide.asked_at = now
            return
        self._landslides[share.job_type] = _Landslide(now, now)
        logger.warning(
            "%d of %d schedules of the job type %s fail at once: pause_after_failures pauses none of them",
            share.failed,
            share.ended,
            share.job_type,
            extra={"event": "pauses_withheld", "job_type": share.job_type},
        )

    def _end_landslides(self) -> None:
        now = self._monotonic()
        for job_type in [each for each, its in self._landslides.items() if its.seen_at < now - FRESH.total_seconds()]:
            del self._landslides[job_type]
            metrics.pauses_withheld(job_type, 0)

    # --- writing ---

    def _write(
        self, ids: Collection[UUID], work: Callable[[Connection, list[Streak]], list[Streak]], actor: str
    ) -> tuple[list[Streak], set[UUID]]:
        """What was done, and the schedules that another session holds."""

        def transaction(connection: Connection) -> tuple[list[Streak], set[UUID]]:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'; {sql.ALONG_THE_INDEX}")
            locked = set(_ids(connection, sql.LOCK, ids))
            missing = set(ids) - locked
            held = set(_ids(connection, sql.PRESENT, missing)) if missing else set()
            rows = connection.exec_driver_sql(sql.COUNT, {"ids": uuid_array(sorted(locked))}) if locked else ()
            return work(connection, [Streak(row) for row in rows]), held

        return write_as(self._db, actor, transaction)

    def _observe(self) -> None:
        """Every replica reports the same."""
        now = self._monotonic()
        if now < self._figures_at:
            return
        self._figures_at = now + FIGURES_SECONDS
        figures = self._db.run_alone(sql.FIGURES, {})[0]
        metrics.observe_streaks(schedules=figures.schedules, longest=figures.longest)


def _ids(connection: Connection, statement: str, ids: Collection[UUID]) -> list[UUID]:
    return list(connection.exec_driver_sql(statement, {"ids": uuid_array(sorted(ids))}).scalars())
