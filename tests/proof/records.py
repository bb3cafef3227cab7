"""What happened, as three outside witnesses tell it: the tables, the ledger that handlers wrote, the list of faults.

Instants are seconds since 1970: everything runs on one machine, so Postgres, the handlers and the run have one clock.
Imports nothing of the product: what judges it must not share its mistakes. Start reading at `History`.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2.extensions import connection as PgConnection

FETCHED = 5000
PLANNED = ("schedule", "catchup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of job_executions."""

    schedule: str
    fire: float
    attempt: int = 1
    cause: str = "schedule"
    status: str = "success"
    reason: str | None = None
    replica: str | None = None
    token: int | None = None
    due: float | None = None
    written: float = 0.0  # when the transaction that made it began
    started: float | None = None
    completed: float | None = None
    last: float | None = None  # of a summary: it speaks for `count` fires from `fire` to here
    count: int | None = None
    cancel_requested: bool = False
    keys: tuple[str, ...] = ()  # that limits count it by
    waited_for: str | None = None  # the last key for which it waited

    @property
    def is_planned(self) -> bool:
        """The schedule wanted it; a person wanted the others."""
        return self.cause in PLANNED

    @property
    def is_summary(self) -> bool:
        return self.reason == "catchup_cap" and self.last is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a handler, as it wrote down itself; `ended` is None for one that never came back."""

    schedule: str
    fire: float
    attempt: int = 1
    token: int
    pid: int = 0
    began: float
    ended: float | None = None
    outcome: str | None = None  # ok, failed; skipped: the handler itself said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One change of a row of job_executions, as a trigger saw it; `after` is None where the row was deleted."""

    schedule: str
    fire: float
    attempt: int = 1
    at: float
    before: str
    after: str | None
    token_before: int | None = None
    token_after: int | None = None
    replica: str | None = None  # that had it before


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The time in which one timing of a schedule was in force: since < t <= until."""

    since: float
    until: float | None = None
    ended: float | None = None  # when the change that ended it was committed: from then on everybody can know
    enabled: bool = True
    seconds: int
    anchor: float = 0.0
    max_instances: int = 1
    max_retries: int = 0

    def fires(self, end: float) -> Iterator[float]:
        """Plain arithmetic: an interval fires at whole steps from its anchor."""
        if not self.enabled:
            return
        until = end if self.until is None else min(self.until, end)
        step = int((max(self.since, self.anchor - 1e-6) - self.anchor) // self.seconds) + 1
        while (at := self.anchor + step * self.seconds) <= until:
            if at > self.since:
                yield at
            step += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """From its commit on a limit allows so many at once; None: there is none of that name."""

    at: float
    name: str  # a key, or with `*` at its end the beginning of keys
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One fault, as whoever made it wrote it down.

    `scope` is what it hits: a replica, a worker of the fleet, the server (everybody), some schedules, redis, or nothing
    (an edit). `silences`
    says that the replica could not say that it lives; `kills`, that the process ended at `at`.
    """

    kind: str
    at: float
    until: float
    scope: str = "nothing"
    replica: str | None = None
    pid: int | None = None
    schedules: tuple[str, ...] = ()
    silences: bool = False
    freezes: bool = False
    kills: bool = False
    note: str = ""

    def as_line(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value not in (None, (), False, "")})

    @classmethod
    def from_line(cls, line: str) -> "Disturbance":
        values: dict[str, Any] = json.loads(line)
        return cls(**{**values, "schedules": tuple(values.get("schedules", ()))})


@dataclass(frozen=True, slots=True)
class Story:
    """Everything about one schedule."""

    schedule: str
    stretches: Sequence[Stretch]
    rows: Sequence[Row]
    calls: Sequence[Call]
    turns: Sequence[Turn] = ()


@dataclass(slots=True)
class History:
    """All stories, one at a time; only what belongs to one schedule is in memory."""

    stretches: Mapping[str, Sequence[Stretch]]
    rows: Iterable[Row]  # ordered by schedule, fire, attempt
    calls: Iterable[Call]  # ordered by schedule, fire, attempt
    disturbances: Sequence[Disturbance] = field(default_factory=list)
    turns: Mapping[str, Sequence[Turn]] = field(default_factory=dict)  # by schedule, in their order, if somebody looked
    holdings: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by replica: what it holds after the end
    limits: Sequence[LimitChange] = ()  # in their order

    def stories(self) -> Iterator[Story]:
        by_schedule = attrgetter("schedule")
        rows = _Groups(groupby(self.rows, by_schedule))
        calls = _Groups(groupby(self.calls, by_schedule))
        waiting = sorted(self.stretches)
        while waiting or rows.key is not None or calls.key is not None:
            schedule = min(key for key in (*waiting[:1], rows.key, calls.key) if key is not None)
            waiting = waiting[1:] if waiting[:1] == [schedule] else waiting
            yield Story(
                schedule,
                self.stretches.get(schedule, ()),
                rows.take(schedule),
                calls.take(schedule),
                self.turns.get(schedule, ()),
            )


class _Groups:
    """The groups of an ordered stream, one look ahead."""

    def __init__(self, groups: Iterator[tuple[str, Iterator[Any]]]) -> None:
        self._groups = groups
        self.key: str | None = None
        self._members: Iterator[Any] = iter(())
        self._advance()

    def take(self, key: str) -> list[Any]:
        if self.key != key:
            return []
        members = list(self._members)
        self._advance()
        return members

    def _advance(self) -> None:
        found = next(self._groups, None)
        before = self.key
        self.key, self._members = found or (None, iter(()))
        if self.key is not None and before is not None and self.key < before:
            raise ValueError(f"the stream is not in order: {self.key} after {before}")


# --- the tables ---

ROWS = """
SELECT schedule_id::text, extract(epoch FROM scheduled_for)::float8, attempt, cause, status, reason, instance_id,
       fencing_token, extract(epoch FROM due_at)::float8, extract(epoch FROM created_at)::float8,
       extract(epoch FROM started_at)::float8, extract(epoch FROM completed_at)::float8,
       CASE WHEN reason = 'catchup_cap' THEN extract(epoch FROM (metadata->>'last')::timestamptz)::float8 END,
       CASE WHEN reason = 'catchup_cap' THEN (metadata->>'count')::int END, cancel_requested_at IS NOT NULL,
       limit_keys, metadata->>'waited_for_limit'
FROM job_executions WHERE schedule_id IS NOT NULL
ORDER BY schedule_id::text COLLATE "C", scheduled_for, attempt
"""

CHANGES = """
SELECT change_id, schedule_id::text, operation, old, new, extract(epoch FROM changed_at)::float8,
       extract(epoch FROM CASE WHEN current_setting('track_commit_timestamp') = 'on'
                               THEN pg_xact_commit_timestamp(xmin) ELSE changed_at END)::float8,
       extract(epoch FROM (new->>'effective_from')::timestamptz)::float8,
       extract(epoch FROM (new->>'start_at')::timestamptz)::float8
FROM schedule_changes WHERE schedule_id IS NOT NULL ORDER BY change_id
"""


def rows_of(connection: PgConnection) -> Iterator[Row]:
    names = ("schedule", "fire", "attempt", "cause", "status", "reason", "replica", "token", "due", "written",
             "started", "completed", "last", "count", "cancel_requested", "keys", "waited_for")  # fmt: skip
    with connection.cursor(name="rows") as cursor:  # in the server, piece by piece
        cursor.itersize = FETCHED
        cursor.execute(ROWS)
        for values in cursor:
            yield Row(**dict(zip(names, values, strict=True)))


def stretches_of(connection: PgConnection, committed_at: Mapping[int, float] | None = None) -> dict[str, list[Stretch]]:
    """How each schedule's timing changed. A change of anything else goes on with the same stretch.

    `committed_at` says it by change, where somebody knows better than the server.
    """
    found: defaultdict[str, list[Stretch]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(CHANGES)
        for change_id, schedule, operation, old, new, changed_at, committed, effective_from, start_at in cursor:
            mine = found[schedule]
            if committed_at is not None:
                committed = committed_at.get(change_id, committed)
            if operation == "update" and old["effective_from"] == new["effective_from"]:
                continue
            if old is not None:
                mine[-1] = _ended(mine[-1], effective_from if new else changed_at, committed)
            if new is not None:
                mine.append(_stretch(new, effective_from, start_at))
    return dict(found)


def _stretch(definition: dict[str, Any], since: float, start_at: float | None) -> Stretch:
    if definition["frequency"] != "interval" or definition["spread_seconds"]:
        raise ValueError(f"only plain intervals can be judged, not {definition['frequency']}")
    return Stretch(
        since=since,
        enabled=definition["enabled"],
        seconds=int(definition["time_config"]["seconds"]),
        anchor=start_at or 0.0,
        max_instances=definition["max_instances"] or 1,
        max_retries=definition["max_retries"] or 0,
    )


def _ended(stretch: Stretch, until: float, ended: float) -> Stretch:
    return Stretch(**{**asdict(stretch), "until": until, "ended": ended})


# --- the ledger ---


def calls_of(ledger: Path, scratch: Path) -> Iterator[Call]:
    """The ledger's lines, put in order by a file of its own: there may be a million of them.

    `began|ended  schedule  fire  attempt  token  pid  instant  outcome`, one write each. A call is one token in one
    process; one that is made twice under one token has two beginnings, and is two calls.
    """
    scratch.unlink(missing_ok=True)
    store = sqlite3.connect(scratch)
    store.execute("PRAGMA journal_mode = OFF")
    store.execute(
        """CREATE TABLE lines (schedule TEXT, fire REAL, attempt INT, token INT, pid INT, at REAL, began INT,
                               outcome TEXT)"""
    )
    with ledger.open() as lines:
        store.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(_line, lines))
    order = "ORDER BY schedule, fire, attempt, token, pid, at"
    lines_in_order = store.execute(f"SELECT schedule, fire, attempt, token, pid, at, began, outcome FROM lines {order}")
    for key, some in groupby(lines_in_order, lambda line: tuple(line[:5])):
        yield from _paired(key, list(some))
    store.close()
    scratch.unlink()


def _line(line: str) -> tuple[object, ...]:
    what, schedule, fire, attempt, token, pid, at, outcome = line.rstrip("\n").split("\t")
    return schedule, float(fire), int(attempt), int(token), int(pid), float(at), int(what == "began"), outcome


def _paired(key: tuple[Any, ...], lines: list[tuple[Any, ...]]) -> Iterator[Call]:
    began = [line[5] for line in lines if line[6]]
    ended = [(line[5], line[7]) for line in lines if not line[6]]
    for place, at in enumerate(began):
        end, outcome = ended[place] if place < len(ended) else (None, None)
        yield Call(
            schedule=key[0], fire=key[1], attempt=key[2], token=key[3], pid=key[4], began=at, ended=end, outcome=outcome
        )


def disturbances_of(path: Path) -> list[Disturbance]:
    return [Disturbance.from_line(line) for line in path.read_text().splitlines()]


def read(database_url: str, ledger: Path, faults: Path, scratch: Path) -> History:
    """The rows are read while the history is judged."""
    connection = psycopg2.connect(database_url)
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    return History(
        stretches=stretches_of(connection),
        rows=rows_of(connection),
        calls=calls_of(ledger, scratch),
        disturbances=disturbances_of(faults),
    )
