"""The rescuer: cleans up after dead replicas. Claims that were not started are handed back to all replicas; executions
that were running become `abandoned` and are retried where their schedule allows it.

A replica counts as dead after a timeout without a heartbeat. If its sessions have vanished from the server, as happens
at once when a process is killed, one missed heartbeat is enough.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.clock import awake_or_not
from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.engine.finisher import MadeRoom
from services.engine.heart import Heart
from services.engine.loops import Loop
from services.engine.rescuer_sql import LOCK_DEAD, RESCUE, SESSIONS
from services.ledger.fires import Policy
from services.telemetry import metrics
from services.wording.names import name_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
SECOND_LOOK_SECONDS = 1.0  # while a replica's sessions are absent
LATE_LOOK_SECONDS = 4.0  # between two looks: we were away ourselves, and begin anew
ABSENT_SECONDS = 4.0  # without a session in every look
MAX_RESCUED = 500  # in one transaction


class Sessions:
    """Which replicas' sessions have vanished from the server, and for how long. Used by one thread.

    Only our own observations count. A replica that we never saw with a session, a check that came late, or an own
    session younger than the timeout (the server was restarted, or our sessions are being cut, too) prove nothing.
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
        self._made_room: MadeRoom = lambda schedule_ids, keys: None
        self._sessions = Sessions(heart.pulse.timeout_seconds)
        self._next_at = 0.0

    def tell_fleet(self, made_room: MadeRoom) -> None:
        """As the finisher's."""
        self._made_room = made_room

    @cached_property
    def loop(self) -> Loop:
        return Loop("rescuer", self.tick, self._interval)

    def tick(self) -> float | None:
        """Looks for vanished sessions every second or two, for silent replicas once per interval."""
        now = awake_or_not()
        absent = self._absent_replicas(now)
        # After an outage of our own every replica looks dead: first wait for as long as a heartbeat may take.
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
            for row in rows:
                if row.status == "abandoned":
                    _log_abandoned(row)
            self._rescued()
            self._made_room([row.schedule_id for row in rows], [key for row in rows for key in row.limit_keys])
        return self._sessions.next_look_seconds

    def close(self) -> None:
        self._connection.close()

    def _absent_replicas(self, now: float) -> list[UUID]:
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


def _log_abandoned(row: Row[Any]) -> None:
    """Like the other failures that the finisher logs: an error if no attempt follows."""
    logger.log(
        logging.WARNING if row.is_retried else logging.ERROR,
        "%s at %s: abandoned: %s",
        name_of(row),
        row.scheduled_for,
        row.error_message,
        extra={
            "event": "execution_abandoned",
            "execution_id": str(row.execution_id),
            "schedule_id": str(row.schedule_id),
            "attempt": row.attempt,
        },
    )
