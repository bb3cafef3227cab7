"""The values that are passed between threads: a due fire, its claim, and its ending."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any
from uuid import UUID

from config import Settings
from database.models import Cause, ExecutionStatus
from services.schedules.spec import ScheduleSpec


@dataclass(frozen=True, slots=True)
class Fire:
    """One planned instant of one schedule. Every replica computes the same instant."""

    schedule_id: UUID
    scheduled_for: datetime
    due_at: datetime  # scheduled_for plus the schedule's own spread
    priority: int = 0
    bucket: int = field(default=-1, compare=False)  # of its schedule; decides who tries first, nothing else

    def __hash__(self) -> int:
        return hash((self.schedule_id.int, self.scheduled_for))

    @property
    def key(self) -> tuple[UUID, datetime]:
        return self.schedule_id, self.scheduled_for


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that an execution belongs to; after a restart under the same name it is a different owner."""

    instance_id: str
    incarnation: UUID

    @property
    def session_name(self) -> str:
        """What the process's sessions are called at the server; the others recognise a dead one by their absence."""
        readable = self.instance_id.encode("ascii", "replace").decode()
        return f"{readable[:48]}#{self.incarnation.hex[:12]}"

    def as_values(self) -> dict[str, Any]:
        return {"instance_id": self.instance_id, "incarnation": self.incarnation}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policies of one schedule: its own columns, or the settings where those are NULL."""

    max_instances: int
    coalesce: bool
    misfire_grace_seconds: int
    timeout_seconds: int
    max_retries: int
    retry_backoff_seconds: int
    catchup: str

    @classmethod
    def from_settings(cls, settings: Settings) -> "Policy":
        """What a schedule gets when its own column is NULL."""
        return cls(
            max_instances=settings.job_max_instances,
            coalesce=settings.job_coalesce,
            misfire_grace_seconds=settings.job_misfire_grace_time,
            timeout_seconds=settings.job_timeout_seconds,
            max_retries=settings.job_max_retries,
            retry_backoff_seconds=settings.job_retry_backoff_seconds,
            catchup=settings.job_catchup,
        )

    def of(self, spec: ScheduleSpec) -> "Policy":
        """This policy with what the schedule says itself."""
        own = _POLICIES(spec)
        if own == _NO_POLICIES:
            return self
        named = zip(Policy.__dataclass_fields__, own, strict=True)
        return replace(self, **{name: value for name, value in named if value is not None})


_POLICIES = attrgetter(*Policy.__dataclass_fields__)
_NO_POLICIES = (None,) * len(Policy.__dataclass_fields__)


class Decision(StrEnum):
    """What a claim decided about one fire. Only the first value gives the right to run it."""

    CLAIMED = "claimed"
    EXISTS = "exists"  # another replica has or had it
    LOCKED = "locked"  # another session locks this schedule at the moment: try again
    LATER = "later"  # its row waits: other fires of its schedule go first, or a limit has no room
    EARLY = "early"  # by Postgres' clock it is not due yet
    GONE = "gone"  # deleted, or no longer a fire of the schedule as it is now
    DISABLED = "disabled"
    TOO_OLD = "too_old"  # beyond the horizon that history can fence
    OVERLAP = "overlap"
    MISFIRE = "misfire"
    COALESCED = "coalesced"
    BACKOFF = "backoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run one fire, backed by a committed row with this fencing token."""

    execution_id: UUID
    schedule_id: UUID
    scheduled_for: datetime
    due_at: datetime
    attempt: int
    cause: Cause
    fencing_token: int
    job_id: str
    spec: ScheduleSpec
    policy: Policy
    revision: int
    limits: tuple[str, ...] = ()  # those of its keys that had a limit
    has_waited: bool = False  # for a limit: its lateness says nothing about the replicas
    asked_at: float = 0.0  # by database.clock.awake_or_not, before the call that claimed it

    @property
    def proof(self) -> tuple[UUID, int]:
        """Required by every later write."""
        return self.execution_id, self.fencing_token

    @property
    def name(self) -> str:
        """What people call it."""
        return self.spec.name or self.spec.domain

    @property
    def has_lease(self) -> bool:
        """Only a schedule that runs once at a time has a lease to show in Redis."""
        return self.policy.max_instances == 1


def leases(claims: Iterable[Claim]) -> dict[UUID, int]:
    """Of each schedule the highest token, which is the one that the coordinator holds.

    A result that is refused and that of its retry, which ran here too, may be written together, in any order.
    """
    found: dict[UUID, int] = {}
    for claim in claims:
        if claim.has_lease:
            found[claim.schedule_id] = max(claim.fencing_token, found.get(claim.schedule_id, 0))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one execution ended, as it will be written."""

    claim: Claim
    status: ExecutionStatus
    duration_seconds: float | None = None
    details: Mapping[str, Any] | None = None
    error_message: str | None = None
    error_details: Mapping[str, Any] | None = None
    scan_id: UUID | None = None
    retry_in_seconds: float | None = None  # None: this was the last attempt
    reason: str | None = None  # why it was skipped
