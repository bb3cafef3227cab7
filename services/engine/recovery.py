"""Life signs of this replica, and the rescue of executions whose replica gives none any more.

`Heart` says that we live, learns who else does, measures the clock, and compares our rows with our memory. `Rescuer`
ends what dead replicas left: unstarted claims go back to everybody, running ones become `abandoned`, retried where
their schedule allows it. Both have connections of their own: they must not queue behind job traffic.

A replica counts as dead after a timeout of silence. One whose sessions have vanished from the server, as those of a
killed process do at once, counts as dead as soon as it has missed a heartbeat besides.
"""

import json
import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.clock import DatabaseClock, awake_or_not
from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.engine.held_claims import HeldClaims, Proof
from services.engine.peers import Peers
from services.engine.recovery_sql import (
    BEAT,
    CONFIRM,
    GONE,
    HAND_BACK_STRANGERS,
    LOCK_DEAD,
    OWN_ROWS,
    PEERS,
    RESCUE,
    SESSIONS,
)
from services.ledger.fires import Claim, Owner, Policy
from services.telemetry import metrics

logger = logging.getLogger(__name__)

# How long before the others give us up that we stop trusting ourselves.
SAFETY_SECONDS = 1.0
# Beyond its interval, an older heartbeat is no proof any more that nobody has given us up (see MISSED_SECONDS).
FRESH_SECONDS = 0.5
LATE_SECONDS = 1.0  # and a longer gap between two of them, less than MISSED_SECONDS, is no proof for what was before it
SLOW_ANSWER_SECONDS = 1.0
LOOK_SECONDS = 2.0
SECOND_LOOK_SECONDS = 1.0  # while somebody is absent
LATE_LOOK_SECONDS = 4.0  # between two looks: we were away ourselves, and begin anew
ABSENT_SECONDS = 4.0  # without a session in every look
MAX_RESCUED = 500  # in one transaction


@dataclass(frozen=True, slots=True)
class Pulse:
    """When a heartbeat is due, and what the lack of some means."""

    interval_seconds: float
    timeout_seconds: float
    sees_sessions: bool = True  # False behind a transaction pooler, whose sessions are not the replicas' own

    @property
    def gap_seconds(self) -> float:
        """Between two of our own heartbeats: after a longer one we cannot tell who is dead.

        With an interval of at most a third of the timeout nobody else can have been silent for the timeout meanwhile.
        """
        return self.timeout_seconds / 2

    @property
    def unnoticed_seconds(self) -> float:
        """Between two of our own heartbeats: in a longer gap the others may have given us up."""
        longest = self.timeout_seconds - SAFETY_SECONDS
        return min(longest, self.interval_seconds + LATE_SECONDS) if self.sees_sessions else longest


class Heart:
    """Beats in a thread of its own; asked by every worker whether this process may still act."""

    def __init__(
        self,
        db: DatabaseConnection,
        owner: Owner,
        clock: DatabaseClock,
        peers: Peers,
        held: HeldClaims,
        pulse: Pulse,
        *,
        facts: Callable[[], dict[str, Any]],
        cancel: Callable[[UUID], object],
    ) -> None:
        self._db, self._connection = db, db.dedicated()
        self.owner, self.pulse = owner, pulse
        self._clock, self._peers, self._held = clock, peers, held
        self._facts, self._cancel = facts, cancel
        self._strangers: set[Proof] = set()
        self._trusted_since: float | None = None
        self._in_time_since: float | None = None
        self._last_beat: float | None = None
        self._skewed = False
        self._lock = threading.Lock()

    def beat(self) -> float | None:
        started = awake_or_not()
        self._clock.measure(self._write)
        self._note_beat(started, awake_or_not())
        self._report_skew()
        self._peers.update([row.instance_id for row in self._run(PEERS)])
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
        """Right before a handler is called: is this execution still ours? None: nobody can say right now.

        Nobody is asked while the others must have seen us alive without a break since before the claim. Otherwise
        Postgres is asked, and the answer counts only if it was quick and we were seen alive since before the question.
        """
        if not self.is_trusted:
            return None
        if self._is_fresh and self._in_time_since is not None and self._in_time_since <= claim.asked_at:
            return True
        asked_at = awake_or_not()
        values = {"execution_id": claim.execution_id, "token": claim.fencing_token, **self._identity}
        rows = self._db.run_alone(CONFIRM, values)  # alone: the next heartbeat writes the same row
        if not rows:
            logger.warning(
                "execution %s is not run: this replica was given up meanwhile",
                claim.execution_id,
                extra={"event": "given_up", "execution_id": str(claim.execution_id)},
            )
            return False
        took = awake_or_not() - asked_at
        is_sure = rows[0].free and took < SLOW_ANSWER_SECONDS and self._trusted_without_break_since(asked_at)
        return True if is_sure else None

    @property
    def _is_fresh(self) -> bool:
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

    def stop(self) -> None:
        """Unregister: the others need not wait for our silence."""
        try:
            self._run(GONE)
        finally:
            self._connection.close()

    def _write(self) -> float:
        facts = self._facts()
        values = {name: facts.pop(name) for name in ("revision", "schedules", "running", "claiming")}
        rows = self._run(BEAT, skew=self._clock.skew_seconds, facts=json.dumps(facts), **values)
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
                "handed back %d executions that got lost on their way here", len(disowned), extra={"event": "strangers"}
            )
        for row in rows:
            if row.cancel_requested and self._held.holds_execution(row.execution_id):
                self._cancel(row.execution_id)

    def _report_skew(self) -> None:
        skewed = not self._clock.is_trustworthy
        if skewed and not self._skewed:
            logger.error(
                "this machine's clock is %.1f s off Postgres': no fire is claimed until that is mended (run NTP)",
                self._clock.skew_seconds,
                extra={"event": "clock_skew"},
            )
        if self._skewed and not skewed:
            logger.info("the clock is right again", extra={"event": "clock_ok"})
        self._skewed = skewed


class Sessions:
    """Which replicas' sessions have vanished from the server, and for how long. For one thread.

    What counts is what we have seen ourselves: a replica that we never saw with a session, a look that came late, or a
    session of our own that is younger than the timeout (the server was restarted, or ours are being cut, too) prove
    nothing.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._seen: set[UUID] = set()
        self._absent_since: dict[UUID, float] = {}
        self._looked_at: float | None = None

    def look(self, rows: Sequence[Row[Any]], now: float) -> list[UUID]:
        """Takes what SESSIONS answered; returns the incarnations that have been absent for long enough."""
        is_late = self._looked_at is None or now - self._looked_at > LATE_LOOK_SECONDS
        self._looked_at = now
        if is_late or any(row.own_seconds < self._timeout for row in rows):
            self._absent_since.clear()
        listed = {row.incarnation for row in rows}
        present = {row.incarnation for row in rows if row.present}
        self._seen = (self._seen & listed) | present
        self._absent_since = {
            incarnation: self._absent_since.get(incarnation, now) for incarnation in self._seen - present
        }
        return [each for each, since in self._absent_since.items() if now - since >= ABSENT_SECONDS]

    @property
    def next_look_seconds(self) -> float:
        return SECOND_LOOK_SECONDS if self._absent_since else LOOK_SECONDS


class Rescuer:
    def __init__(
        self,
        db: DatabaseConnection,
        coordinator: Coordinator,
        policy: Policy,
        heart: Heart,
        *,
        interval_seconds: float,
        rescued: Callable[[], None],
    ) -> None:
        self._connection = db.dedicated()
        self._coordinator, self._policy, self._heart = coordinator, policy, heart
        self._interval, self._rescued = interval_seconds, rescued
        self._sessions = Sessions(heart.pulse.timeout_seconds)
        self._next_at = 0.0

    def tick(self) -> float | None:
        """Looks for vanished sessions every second or two, for silent replicas once per interval."""
        now = awake_or_not()
        absent = self._absent(now)
        # After an outage of our own everybody looks dead: first listen for as long as a life sign may take.
        if self._heart.connected_seconds < self._heart.pulse.timeout_seconds:
            return self._sessions.next_look_seconds
        if not absent and now < self._next_at:
            return self._sessions.next_look_seconds
        self._next_at = now + self._interval
        while rows := self._rescue(absent):
            self._coordinator.clear_leases({row.schedule_id: row.token for row in rows if row.token is not None})
            abandoned = [row.job_type for row in rows if row.status == "abandoned"]
            handed_back = len(rows) - len(abandoned)
            metrics.rescued(abandoned=abandoned, handed_back=handed_back, retried=rows[0].retried)
            logger.warning(
                "rescued executions of dead replicas: %d abandoned, %d handed back",
                len(abandoned),
                handed_back,
                extra={"event": "rescued", "replicas": sorted({row.instance_id for row in rows})},
            )
            self._rescued()
        return self._sessions.next_look_seconds

    def close(self) -> None:
        self._connection.close()

    def _absent(self, now: float) -> list[UUID]:
        if not self._heart.pulse.sees_sessions:
            return []
        rows = self._connection.run(SESSIONS, {"timeout": self._heart.pulse.timeout_seconds})
        return self._sessions.look(rows, now)

    def _rescue(self, absent: list[UUID]) -> list[Row[Any]]:
        pulse, owner = self._heart.pulse, self._heart.owner
        values = {
            "instance_id": owner.instance_id,
            "incarnation": owner.incarnation,
            "timeout": pulse.timeout_seconds,
            "gap": pulse.gap_seconds,
            "absent": absent,
            "max_retries": self._policy.max_retries,
            "limit": MAX_RESCUED,
        }
        with self._connection.transaction():
            dead = self._connection.run(LOCK_DEAD, values)
            if not dead:
                return []
            return self._connection.run(RESCUE, {**values, "execution_ids": [row.execution_id for row in dead]})
