"""Life signs of this replica, and the rescue of executions whose replica gives none any more.

`Heart` says that we live, learns who else does, measures the clock, and compares our rows with our memory. `Rescuer`
ends what dead replicas left: unstarted claims go back to everybody, running ones become `abandoned`, retried where
their schedule allows it. Both have connections of their own: they must not queue behind job traffic.
"""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.connection import DatabaseConnection
from services import metrics
from services.clock import DatabaseClock, awake_or_not
from services.distributed_lock import Coordinator
from services.fires import Claim, Owner, Policy
from services.peers import Peers
from services.recovery_sql import BEAT, CONFIRM, GONE, HAND_BACK_STRANGERS, LOCK_DEAD, OWN_ROWS, PEERS, RESCUE

logger = logging.getLogger(__name__)

# How long before the others give us up that we stop trusting ourselves.
SAFETY_SECONDS = 1.0


class Heart:
    """Beats in a thread of its own; asked by every worker whether this process may still act."""

    def __init__(
        self,
        db: DatabaseConnection,
        owner: Owner,
        clock: DatabaseClock,
        peers: Peers,
        *,
        timeout_seconds: float,
        facts: Callable[[], dict[str, Any]],
        known: Callable[[], dict[UUID, Claim]],
        cancel: Callable[[UUID], object],
    ) -> None:
        self._db, self._connection = db, db.dedicated()
        self._owner, self._clock, self._peers, self._timeout = owner, clock, peers, timeout_seconds
        self._facts, self._known, self._cancel = facts, known, cancel
        self._strangers: set[UUID] = set()
        self._alive_since: float | None = None
        self._last_beat: float | None = None
        self._skewed = False
        self._lock = threading.Lock()

    def beat(self) -> float | None:
        started = awake_or_not()
        self._clock.measure(self._write)
        self._report_skew()
        self._peers.update([row.instance_id for row in self._run(PEERS)])
        self._compare_with_memory(self._run(OWN_ROWS))
        with self._lock:
            if self._last_beat is None or started - self._last_beat > self._timeout:
                self._alive_since = started
            self._last_beat = started  # from before the call: what counts is when the others last saw us
        metrics.clock_skew(self._clock.skew_seconds)
        return None

    @property
    def is_trusted(self) -> bool:
        """May we act on what we own, or have the others given us up meanwhile?"""
        last = self._last_beat
        return last is not None and awake_or_not() - last < self._timeout - SAFETY_SECONDS

    @property
    def connected_seconds(self) -> float:
        """For how long we have been seeing the others' life signs without a break."""
        return awake_or_not() - self._alive_since if self._alive_since is not None and self.is_trusted else 0.0

    def confirms(self, claim: Claim) -> bool:
        """Right before a handler is called: is this execution still ours? Cheap unless this process was frozen."""
        if self.is_trusted:
            return True
        logger.warning(
            "execution %s is checked before it runs: this process was silent for too long",
            claim.execution_id,
            extra={"event": "trust_lost", "execution_id": str(claim.execution_id)},
        )
        with self._db.transaction() as connection:
            values = {"execution_id": claim.execution_id, "token": claim.fencing_token}
            return connection.exec_driver_sql(CONFIRM, values).first() is not None

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

    def _run(self, sql: str, **values: Any) -> list[Row[Any]]:
        identity = {"instance_id": self._owner.instance_id, "incarnation": self._owner.incarnation}
        return self._connection.run(sql, {**identity, "timeout": self._timeout, **values})

    def _compare_with_memory(self, rows: list[Row[Any]]) -> None:
        """Rows under our name that we do not know: the answer to our claim was lost. They were never run."""
        known = self._known()
        strangers = {row.execution_id for row in rows if row.execution_id not in known}
        twice = strangers & self._strangers  # once may be a claim that is just on its way to us
        if twice:
            self._run(HAND_BACK_STRANGERS, execution_ids=list(twice))
            logger.warning(
                "handed back %d executions that got lost on their way here", len(twice), extra={"event": "strangers"}
            )
        self._strangers = strangers - twice
        for row in rows:
            if row.cancel_requested and row.execution_id in known:
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


class Rescuer:
    def __init__(
        self,
        db: DatabaseConnection,
        coordinator: Coordinator,
        policy: Policy,
        heart: Heart,
        *,
        timeout_seconds: float,
        rescued: Callable[[], None],
    ) -> None:
        self._connection = db.dedicated()
        self._coordinator, self._policy, self._heart = coordinator, policy, heart
        self._timeout, self._rescued = timeout_seconds, rescued

    def tick(self) -> float | None:
        # After an outage of our own everybody looks dead: first listen for as long as a life sign may take.
        if self._heart.connected_seconds < self._timeout:
            return None
        while rows := self._rescue():
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
        return None

    def close(self) -> None:
        self._connection.close()

    def _rescue(self) -> list[Row[Any]]:
        with self._connection.transaction():
            dead = self._connection.run(LOCK_DEAD, {"timeout": self._timeout})
            if not dead:
                return []
            values = {
                "execution_ids": [row.execution_id for row in dead],
                "timeout": self._timeout,
                "max_retries": self._policy.max_retries,
            }
            return self._connection.run(RESCUE, values)
