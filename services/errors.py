"""Every error that a user can encounter, as one tree.

SchedulerError
├── ConfigurationError          the settings, the servers' addresses, or a missing wheel; the message says what to set
├── InvalidInput                input that failed validation: every invalid field with its reason
│   └── InvalidSchedule
├── ScheduleNotFound
├── LimitNotFound
├── ChannelNotFound
├── DeliveryNotFound
├── RuleNotFound                a rule of notifications
├── UnknownJobType              no handler is registered for this job_type
├── BlockedAddress              a job may not call this address; the message says which setting would allow it
├── RevisionConflict            another writer changed the schedule first
├── ProfileInUse                a scan profile cannot be deleted while schedules use it
├── SchemaMissing               (database/connection.py) the tables are missing; the message says what to run
├── FetchFailed                 (fetching/failures.py) an outgoing request failed; says whether to try again
├── SendFailed                  (notifications/channels/sending.py) a notification may not have arrived
├── ScanFailed                  (scanning/failures.py) no page of a domain could be scanned
├── ScanRefused                 (scanning/failures.py) the domain may not be scanned
├── ContactExists               (workflows/contact_store.py) a contact with this address exists
├── PlaceSearchFailed           (workflows/place_search.py) the places API gave no usable response
├── ApiSyncFailed               (api_sync/sync.py) a sync from the external API failed
├── UnusableAnswer              (api_sync/answer.py) the external API's response cannot be read
├── SyncInterrupted             (api_sync/client.py) the replica stopped during a sync
├── LeaseLost                   (api_sync/state.py) another replica took over the sync
├── ClockStands                 (cli/virtual_time/mover.py) the clock of a test waits for work that does not end
├── StartInterrupted            (engine/start_patience.py) the process was told to stop while it started
└── Unavailable                 Postgres or Redis does not answer at the moment

Each class builds its message from the facts, so the message is complete in a log line or a terminal.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID


class SchedulerError(Exception):
    """Base class of every error that this project raises deliberately."""


class ConfigurationError(SchedulerError):
    """The process cannot work until an operator changes a setting or installs a package."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid field of the input, with the reason."""

    field: str
    reason: str
    stands_for: int = 1  # more than one when further problems are only counted

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class InvalidInput(SchedulerError):
    """Input that must not reach a table; holds every problem found, not only the first."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


class InvalidSchedule(InvalidInput):
    """A schedule that is refused, or a row that cannot be loaded."""


class ScheduleNotFound(SchedulerError):
    def __init__(self, schedule_id: UUID | str) -> None:
        self.schedule_id = schedule_id
        super().__init__(f"there is no schedule {schedule_id}")


class LimitNotFound(SchedulerError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no limit {name[:200]}")


class ChannelNotFound(SchedulerError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no channel {name[:200]}")


class DeliveryNotFound(SchedulerError):
    def __init__(self, delivery_id: UUID) -> None:
        self.delivery_id = delivery_id
        super().__init__(f"there is no delivery {delivery_id}")


class RuleNotFound(SchedulerError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no notification rule {name[:200]}")


class UnknownJobType(SchedulerError):
    """`needs`: how to install the optional part that brings it."""

    def __init__(self, job_type: str, known: Collection[str], needs: str | None = None) -> None:
        self.job_type = job_type
        way_out = "" if needs is None else f"; it needs {needs}"
        super().__init__(f"no job type {job_type!r} is registered (known: {', '.join(sorted(known))}){way_out}")


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
            "it was changed in the meantime; load it again and repeat the change"
        )


class ProfileInUse(SchedulerError):
    def __init__(self, profile: str, schedules: Sequence[str]) -> None:
        self.profile, self.schedules = profile, schedules
        some, more = ", ".join(schedules[:5]), len(schedules) - 5
        named = f"{some} and {more} more" if more > 0 else some
        super().__init__(f"profile {profile} is used by {named}; assign another profile to them first")


class Unavailable(SchedulerError):
    """A server does not answer; the same call may succeed later."""

    def __init__(self, server: str, where: str, cause: str) -> None:
        self.server, self.where = server, where
        super().__init__(f"{server} at {where} does not answer: {cause}")
