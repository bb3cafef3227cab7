"""The heart: writes heartbeats, reads those of the other replicas, measures the clock, and compares rows with memory.

It has its own connection, because a heartbeat must not queue behind job traffic. Right before they call a handler,
workers ask it whether the execution still belongs to this process (`confirms`).
"""

import json
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.clock import DatabaseClock, awake_or_not
from database.connection import DatabaseConnection
from services.engine.heart_sql import BEAT, CONFIRM, GONE, HAND_BACK_STRANGERS, MEMBERS, OWN_ROWS
from services.engine.held_claims import HeldClaims, Proof
from services.engine.loops import Loop
from services.engine.shares.membership import Member
from services.engine.shares.shares import Shares
from services.ledger.fires import Claim, Owner
from services.schedules.buckets import from_bytes
from services.telemetry import metrics

logger = logging.getLogger(__name__)

# How long before the others give us up that we stop trusting ourselves.
SAFETY_SECONDS = 1.0
# Beyond its interval, an older heartbeat no longer proves that no replica has given us up (see MISSED_SECONDS).
FRESH_SECONDS = 0.5
LATE_SECONDS = 1.0  # and a longer gap between two of them, less than MISSED_SECONDS, is no proof for what was before it
SLOW_ANSWER_SECONDS = 1.0
# The other facts are one value.
STREAKS_SINCE = "0032"  # the migration; a replica's heartbeat names the newest that its program knows
IN_COLUMNS = ("revision", "schedules", "running", "claiming", "abilities", "queues", "on_duty", "host", "free_slots")


@dataclass(frozen=True, slots=True)
class Pulse:
    """When a heartbeat is due, and the consequences of missed heartbeats."""

    interval_seconds: float
    timeout_seconds: float
    sees_sessions: bool = True  # False behind a transaction pooler, whose sessions are not the replicas' own

    @property
    def gap_seconds(self) -> float:
        """Between two of our own heartbeats: after a longer gap we cannot tell which replicas are dead.

        The interval is at most a third of the timeout, so no replica can have been silent for the timeout meanwhile.
        """
        return self.timeout_seconds / 2

    @property
    def unnoticed_seconds(self) -> float:
        """Between two of our own heartbeats: in a longer gap the others may have given us up."""
        longest = self.timeout_seconds - SAFETY_SECONDS
        return min(longest, self.interval_seconds + LATE_SECONDS) if self.sees_sessions else longest


class Heart:
    """Beats in its own thread; every worker asks it whether this process may still act.

    A process without `shares` holds no schedules: a worker of the fleet, which never counts as a replica.
    """

    def __init__(
        self,
        db: DatabaseConnection,
        owner: Owner,
        clock: DatabaseClock,
        shares: Shares | None,
        held: HeldClaims,
        pulse: Pulse,
        *,
        facts: Callable[[], dict[str, Any]],
        cancel: Callable[[UUID], object],
    ) -> None:
        self._db, self._connection = db, db.dedicated()
        self.owner, self.pulse = owner, pulse
        self._clock, self._shares, self._held = clock, shares, held
        self._facts, self._cancel = facts, cancel
        self._strangers: set[Proof] = set()
        self._trusted_since: float | None = None
        self._in_time_since: float | None = None
        self._last_beat: float | None = None
        self._skewed = False
        self._elders: tuple[str, ...] = ()
        self._lock = threading.Lock()

    @cached_property
    def loop(self) -> Loop:
        return Loop("heart", self.beat, self.pulse.interval_seconds)

    def beat(self) -> float | None:
        started = awake_or_not()
        self._clock.measure(self._write)
        self._note_beat(started, awake_or_not())
        self._report_skew()
        self._look_for_others()
        self._compare_with_memory(self._run(OWN_ROWS))
        metrics.clock_skew(self._clock.skew_seconds)
        return None

    @property
    def is_trusted(self) -> bool:
        """May we act on what we own, or have the others given us up meanwhile?"""
        last = self._last_beat
        return last is not None and awake_or_not() - last < self.pulse.timeout_seconds - SAFETY_SECONDS

    @property
    def connected_seconds(self) -> float:
        """For how long we have been seeing the others' life signs without a break."""
        since = self._trusted_since
        return awake_or_not() - since if since is not None and self.is_trusted else 0.0

    def confirms(self, claim: Claim) -> bool | None:
        """Right before a handler is called: is this execution still ours? None: unknown at the moment.

        Postgres is not asked while the others must have seen us alive without a gap since before the claim. Otherwise
        Postgres is asked, and the answer counts only if it was quick and we were seen alive since before the question.
        """
        if not self.is_trusted:
            return None
        if self.is_fresh and self._in_time_since is not None and self._in_time_since <= claim.asked_at:
            return True
        asked_at = awake_or_not()
        values = {"execution_id": claim.execution_id, "token": claim.fencing_token, **self._identity}
        rows = self._db.run_alone(CONFIRM, values)  # alone: the next heartbeat writes the same row
        if not rows:
            logger.warning(
                "execution %s is not run: this replica was declared dead in the meantime",
                claim.execution_id,
                extra={"event": "given_up", "execution_id": str(claim.execution_id)},
            )
            return False
        took = awake_or_not() - asked_at
        is_sure = rows[0].free and took < SLOW_ANSWER_SECONDS and self._trusted_without_break_since(asked_at)
        return True if is_sure else None

    def is_sure(self, claim: Claim) -> bool:
        """`confirms` without a question to Postgres, for the event loop, which must not wait."""
        since = self._in_time_since
        return self.is_trusted and self.is_fresh and since is not None and since <= claim.asked_at

    @property
    def is_fresh(self) -> bool:
        """Did the last heartbeat come in time?"""
        last, pulse = self._last_beat, self.pulse
        return last is not None and awake_or_not() - last < pulse.interval_seconds + FRESH_SECONDS

    def _trusted_without_break_since(self, instant: float) -> bool:
        with self._lock:
            return self.is_trusted and self._trusted_since is not None and self._trusted_since <= instant

    def _note_beat(self, started: float, answered: float) -> None:
        """Postgres wrote it somewhere in between: the others may have seen a gap from the last start to this answer."""
        with self._lock:
            gap = math.inf if self._last_beat is None else answered - self._last_beat
            if gap > self.pulse.timeout_seconds - SAFETY_SECONDS:
                self._trusted_since = answered
            if gap > self.pulse.unnoticed_seconds:
                self._in_time_since = answered
            self._last_beat = started

    def _look_for_others(self) -> None:
        """Nobody is taken for dead before we have been alive ourselves for as long as that takes."""
        if self._shares is None:
            return
        known = self._shares.known
        rows = self._run(MEMBERS, known=list(known), late=SAFETY_SECONDS + FRESH_SECONDS)
        self._shares.update(
            [_member(row) for row in rows if row.is_live],
            can_tell=self.connected_seconds >= self.pulse.timeout_seconds,
            now=awake_or_not(),
            gone=known - {row.incarnation for row in rows},
        )
        self._report_elders(self._shares.elders)

    def _report_elders(self, elders: tuple[str, ...]) -> None:
        if elders and elders != self._elders:
            logger.info(
                "replicas of the previous version: %s; they load every schedule until they are replaced",
                ", ".join(elders),
                extra={"event": "elders"},
            )
        self._elders = elders

    def stop(self) -> None:
        """Unregister: the others need not wait for our silence."""
        try:
            self._run(GONE, timeout=self.pulse.timeout_seconds)
        finally:
            self._connection.close()

    def _write(self) -> float:
        facts = self._facts()
        values = {name: facts.pop(name, None) for name in IN_COLUMNS}
        kind, holds = ("worker", None) if self._shares is None else ("replica", self._shares.mask)
        said = {"skew": self._clock.skew_seconds, "facts": json.dumps(facts), "holds": holds, "kind": kind}
        rows = self._run(BEAT, **said, **values)
        return float(rows[0].now)

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "instance_id": self.owner.instance_id,
            "incarnation": self.owner.incarnation,
            "interval": self.pulse.interval_seconds,
            "timeout": self.pulse.timeout_seconds,
            "gap": self.pulse.gap_seconds,
            "sessions": self.pulse.sees_sessions,
        }

    def _run(self, sql: str, **values: Any) -> list[Row[Any]]:
        return self._connection.run(sql, {**self._identity, **values})

    def _compare_with_memory(self, rows: list[Row[Any]]) -> None:
        """Rows under our name that we do not hold: the answer to our claim is late or was lost. They were never run."""
        strangers = self._held.strangers((row.execution_id, row.fencing_token) for row in rows)
        disowned = self._held.disown(strangers & self._strangers)  # once may be a claim that is just on its way to us
        self._strangers = strangers
        if disowned:
            ids, tokens = [proof[0] for proof in disowned], [proof[1] for proof in disowned]
            self._run(HAND_BACK_STRANGERS, execution_ids=ids, tokens=tokens)
            logger.warning(
                "handed back %d executions that were claimed for this replica but never arrived",
                len(disowned),
                extra={"event": "strangers"},
            )
        for row in rows:
            if row.cancel_requested and self._held.holds_execution(row.execution_id):
                self._cancel(row.execution_id)

    def _report_skew(self) -> None:
        skewed = not self._clock.is_trustworthy
        if skewed and not self._skewed:
            logger.error(
                "the local clock differs from Postgres by %.1f s: no fire is claimed until that is fixed (run NTP)",
                self._clock.skew_seconds,
                extra={"event": "clock_skew"},
            )
        if self._skewed and not skewed:
            logger.info("the clock is right again", extra={"event": "clock_ok"})
        self._skewed = skewed


def _member(row: Row[Any]) -> Member:
    return Member(
        instance_id=row.instance_id,
        incarnation=row.incarnation,
        started_at=row.started_at,
        host=row.host,
        claiming=row.claiming,
        on_duty=row.on_duty,
        holds=None if row.holds is None else from_bytes(bytes(row.holds)),
        is_fresh=row.is_fresh,
        free_slots=row.free_slots or 0,
        free_async_slots=row.free_async_slots or 0,
        abilities=frozenset(row.abilities or ()),
        queues=frozenset(row.queues or ()),
        counts_streaks=row.schema >= STREAKS_SINCE,
    )
