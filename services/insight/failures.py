"""Failures as people count them: by fire, not by attempt; and equal errors together.

Both come from the newest MOST failed attempts of a window, so a storm of failures costs no more than that.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from database.connection import DatabaseConnection
from services.insight import failures_sql as sql
from services.ledger.fate_sql import Fate

MOST = 5_000
HIDDEN = "\N{HORIZONTAL ELLIPSIS}"
# What differs between two errors of the same kind, the longest first.
DIFFERENCES = re.compile(
    r"""(?x)
    \b[a-z][a-z+.-]*://[^\s'"<>)\],;]+                                    # a URL
    | \b[\w.+-]+@[\w-]+(?:\.[\w-]+)+                                       # an e-mail address
    | \b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b             # a UUID
    | \b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b                                 # an IPv4 address
    | (?<![\w:])\[?(?:[0-9a-fA-F]{1,4}:){2,7}:?[0-9a-fA-F]{0,4}\]?(?![\w:])  # an IPv6 address
    | \b0x[0-9a-fA-F]+\b | \b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b                 # an address in memory, a hash
    | \b(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?\b                              # a host name
    | (?<![A-Za-z_\d])\d+(?:[.,:T-]\d+)*                                   # a number, a time
    """
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt; `fate` is that of its fire, or None if a later attempt of it failed, too."""

    execution_id: UUID
    schedule_id: UUID | None
    label: str
    status: str
    created_at: datetime
    due_at: datetime
    error: str
    fate: str | None


@dataclass(frozen=True, slots=True)
class FireCounts:
    """Fires with a failed attempt, by what became of them."""

    failed: int = 0  # for good
    recovered: int = 0
    retrying: int = 0
    is_complete: bool = True  # False: there were more than MOST failed attempts, and these are the newest

    @property
    def words(self) -> str:
        """ "3 failed for good, 22 recovered by retry"; empty without any."""
        parts = (
            (self.failed, "failed for good"),
            (self.recovered, "recovered by retry"),
            (self.retrying, "being retried"),
        )
        words = ", ".join(f"{number:,} {what}" for number, what in parts if number)
        return words if self.is_complete or not words else f"{words} among the last {MOST:,} failed attempts"


@dataclass(slots=True)
class ErrorGroup:
    """Errors that differ only in ids, numbers, addresses and host names."""

    pattern: str
    example: str  # the newest one
    execution_id: UUID  # of the example
    label: str  # of its schedule
    last_at: datetime
    first_at: datetime
    attempts: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    labels: set[str] = field(default_factory=set)

    @property
    def counts(self) -> FireCounts:
        return _counts(self.fates)

    @property
    def schedules(self) -> int:
        return len(self.labels)

    @property
    def common_text(self) -> str:
        """The longest text that all of them contain, to search for."""
        return max((part.strip() for part in self.pattern.split(HIDDEN)), key=len)


class Failures:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def lately(self, hours: int, schedule_id: UUID | None = None) -> list[Failure]:
        """Newest first, at most MOST."""
        statement = sql.LATELY if schedule_id is None else sql.OF_SCHEDULE
        values = {"hours": hours, "schedule_id": schedule_id, "most": MOST}
        with self._db.transaction() as connection:
            return [Failure(**row._mapping) for row in connection.exec_driver_sql(statement, values)]

    def fates(self, execution_ids: Sequence[UUID]) -> dict[UUID, str | None]:
        """Of those of these executions that failed."""
        if not execution_ids:
            return {}
        with self._db.transaction() as connection:
            rows = connection.exec_driver_sql(sql.FATES, {"ids": list(execution_ids)})
            return {row.execution_id: row.fate for row in rows}

    def counts(self, hours: int, schedule_id: UUID | None = None) -> FireCounts:
        return count_fires(self.lately(hours, schedule_id))


def count_fires(failures: Sequence[Failure]) -> FireCounts:
    fates = Counter(failure.fate for failure in failures if failure.fate)
    return _counts(fates, is_complete=len(failures) < MOST)


def group_errors(failures: Sequence[Failure]) -> list[ErrorGroup]:
    """The most fires that failed for good first. `failures` are newest first."""
    groups: dict[str, ErrorGroup] = {}
    for failure in failures:
        pattern, at = pattern_of(failure.error), failure.created_at
        group = groups.setdefault(
            pattern, ErrorGroup(pattern, failure.error, failure.execution_id, failure.label, at, at)
        )
        group.attempts += 1
        group.first_at = min(group.first_at, at)
        group.last_at = max(group.last_at, at)
        group.labels.add(failure.label)
        if failure.fate:
            group.fates[failure.fate] += 1
    return sorted(groups.values(), key=lambda group: (-group.fates[Fate.FAILED], -group.attempts))


@lru_cache(maxsize=4096)
def pattern_of(error: str) -> str:
    """The error's first line without what differs from case to case."""
    line = error.strip().partition("\n")[0]
    return DIFFERENCES.sub(HIDDEN, line)


def _counts(fates: Counter[str], *, is_complete: bool = True) -> FireCounts:
    return FireCounts(fates[Fate.FAILED], fates[Fate.RECOVERED], fates[Fate.RETRYING], is_complete)
