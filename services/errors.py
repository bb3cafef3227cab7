"""The errors a user can meet, as one tree.

SchedulerError
├── ConfigurationError          the settings, the servers' addresses, or a missing wheel; the message says what to set
├── InvalidInput                refused at the door: every field with its reason
│   └── InvalidSchedule
├── ScheduleNotFound
├── UnknownJobType              a job_type that no handler is registered for
├── BlockedAddress              a job must not call this address; the message says what would allow it
├── RevisionConflict            somebody else changed the schedule first
├── ProfileInUse                a scan profile cannot be deleted while schedules name it
├── SchemaMissing               (database/connection.py) our tables are not there; the message says what to run
└── Unavailable                 Postgres or Redis does not answer right now

Each class builds its message from the facts, so that a log line or a terminal needs nothing else.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID


class SchedulerError(Exception):
    """Base of everything this project raises on purpose."""


class ConfigurationError(SchedulerError):
    """Nothing can work until somebody changes a setting or installs something."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one field of the input."""

    field: str
    reason: str
    stands_for: int = 1  # so many problems; more than one for those that are only counted

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class InvalidInput(SchedulerError):
    """Input that must not reach a table; carries every problem found, not only the first."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


class InvalidSchedule(InvalidInput):
    """A schedule that would be refused, or a row that has to be parked."""


class ScheduleNotFound(SchedulerError):
    def __init__(self, schedule_id: UUID | str) -> None:
        self.schedule_id = schedule_id
        super().__init__(f"there is no schedule {schedule_id}")


class UnknownJobType(SchedulerError):
    def __init__(self, job_type: str, known: Collection[str]) -> None:
        self.job_type = job_type
        super().__init__(f"no job type {job_type!r} is registered (known: {', '.join(sorted(known))})")


class BlockedAddress(SchedulerError):
    def __init__(self, host: str, address: str) -> None:
        self.host, self.address = host, address
        named = address if host == address else f"{host} ({address})"
        super().__init__(
            f"{named} is not a public address; to let jobs call it, add it to FETCH_ALLOWED_NETWORKS "
            "or set FETCH_ALLOW_PRIVATE_ADDRESSES=true"
        )


class RevisionConflict(SchedulerError):
    def __init__(self, schedule_id: UUID, expected: int, actual: int) -> None:
        self.schedule_id, self.expected, self.actual = schedule_id, expected, actual
        super().__init__(
            f"schedule {schedule_id} is at revision {actual}, not {expected}: "
            "somebody changed it meanwhile; load it again and repeat the change"
        )


class ProfileInUse(SchedulerError):
    def __init__(self, profile: str, schedules: Sequence[str]) -> None:
        self.profile, self.schedules = profile, schedules
        some, more = ", ".join(schedules[:5]), len(schedules) - 5
        named = f"{some} and {more} more" if more > 0 else some
        super().__init__(f"profile {profile} is used by {named}; let them use another one first")


class Unavailable(SchedulerError):
    """A server does not answer; the same call may work later."""

    def __init__(self, server: str, where: str, cause: str) -> None:
        self.server, self.where = server, where
        super().__init__(f"{server} at {where} does not answer: {cause}")
