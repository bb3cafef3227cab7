"""A schedule whose row this transaction holds, as the statements that lock schedules read it."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.models import Cause
from services.errors import InvalidSchedule
from services.ledger.fires import Claim, Fire, Policy
from services.schedules.spec import ScheduleSpec
from services.triggers import Trigger, spread_offset

SECOND = timedelta(seconds=1)
SPEC_FIELDS = tuple(item.name for item in fields(ScheduleSpec))


@dataclass(frozen=True, slots=True)
class Locked:
    """Ours until the end of the transaction."""

    schedule_id: UUID
    spec: ScheduleSpec
    trigger: Trigger | None  # None: its timing makes no sense
    policy: Policy
    revision: int
    effective_from: datetime
    backoff_until: datetime | None
    now: datetime  # by Postgres' clock

    @classmethod
    def read(cls, row: Row[Any], policy: Policy) -> "Locked":
        """`policy` is that of the settings. Every such statement ends with the definition and the clock."""
        spec = ScheduleSpec(**dict(zip(SPEC_FIELDS, row[-1 - len(SPEC_FIELDS) : -1], strict=True)))
        own = policy.of(spec)
        return cls(
            row.schedule_id, spec, _trigger(spec), own, row.revision, row.effective_from, row.backoff_until, row.now
        )

    def due_at(self, fire: Fire) -> datetime:
        return fire.scheduled_for + spread_offset(self.schedule_id, self.spec.spread_seconds)

    def has_ended(self, instant: datetime) -> bool:
        """Did this come due under a definition before the present one?"""
        return instant <= self.effective_from

    def backs_off(self, instant: datetime) -> bool:
        return (
            self.spec.backoff_after_failures is not None
            and self.backoff_until is not None
            and instant < self.backoff_until
        )

    def fires_at(self, instant: datetime) -> bool:
        return self.trigger is not None and self.trigger.fires_at(instant)

    def next_run(self, fire: Fire) -> datetime | None:
        return self.trigger and self.trigger.next_after(max(fire.scheduled_for, self.now - SECOND))

    def claim(self, row: Row[Any], due_at: datetime, limits: tuple[str, ...], asked_at: float) -> Claim:
        """Of an execution whose row this transaction has just claimed."""
        return Claim(
            execution_id=row.execution_id,
            schedule_id=row.schedule_id,
            scheduled_for=row.scheduled_for,
            due_at=due_at,
            attempt=row.attempt,
            cause=Cause(row.cause),
            fencing_token=row.fencing_token,
            job_id=row.job_id,
            spec=self.spec,
            policy=self.policy,
            revision=self.revision,
            limits=limits,
            has_waited=row.has_waited,
            asked_at=asked_at,
        )


def _trigger(spec: ScheduleSpec) -> Trigger | None:
    try:
        return spec.trigger
    except InvalidSchedule:
        return None
