"""Explains in sentences why a fire ran, did not run, or ran late: from the ledger, the timing in effect, the log of
changes and the replicas. Start reading at `Explainer.explain`.
"""

import re
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from config import Settings
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.errors import InvalidInput, InvalidSchedule, Problem, ScheduleNotFound
from services.insight.explain.history import Circumstances, Definition, Held, ScheduleHistory
from services.insight.explain.rows import RowsExplained
from services.insight.explain.words import by_whom, moment
from services.ledger.fires import Policy
from services.ledger.listing import ExecutionRecord
from services.ledger.verdicts import CHANGE_EDGE, Tolerances
from services.triggers import Trigger
from services.triggers.local_time import instant_of, local_clock, wall_seconds_of
from services.wording.commands import as_called_here
from services.wording.durations import duration

SECOND = timedelta(seconds=1)
LOOK_BACK = tuple(timedelta(days=days) for days in (1 / 24, 1, 8, 32, 367, 3670))


class Verdict(StrEnum):
    """The outcome of the moment in question."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # also timed out or abandoned
    RUNNING = "running"
    WAITING = "waiting"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISSED = "missed"
    UPCOMING = "upcoming"
    NOT_A_FIRE = "not_a_fire"
    NOT_YET_VALID = "not_yet_valid"  # a fire of the current timing, which was not in effect then
    DISABLED = "disabled"
    INVALID = "invalid"
    NOT_EXISTING = "not_existing"
    SETTLING = "settling"  # due just now, or changed at the same moment
    FORGOTTEN = "forgotten"  # older than the retained history
    NO_REPLICA = "no_replica"
    UNWATCHED = "unwatched"  # has no row, and no gap scan has checked yet
    UNACCOUNTED = "unaccounted"  # should have a row, but has none


VERDICTS = {
    ExecutionStatus.SUCCESS: Verdict.SUCCEEDED,
    ExecutionStatus.FAILED: Verdict.FAILED,
    ExecutionStatus.TIMED_OUT: Verdict.FAILED,
    ExecutionStatus.ABANDONED: Verdict.FAILED,
    ExecutionStatus.PENDING: Verdict.WAITING,
    ExecutionStatus.CLAIMED: Verdict.WAITING,
    ExecutionStatus.RUNNING: Verdict.RUNNING,
    ExecutionStatus.CANCELLED: Verdict.CANCELLED,
    ExecutionStatus.SKIPPED: Verdict.SKIPPED,
    ExecutionStatus.MISSED: Verdict.MISSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    schedule_id: UUID
    at: datetime
    timezone: str
    verdict: Verdict
    sentences: list[str]
    late_seconds: float | None = None  # if it started
    previous_fire_at: datetime | None = None
    next_fire_at: datetime | None = None
    executions: list[ExecutionRecord] = field(default_factory=list)


class Explainer:
    """Safe to share between threads."""

    def __init__(
        self,
        db: DatabaseConnection,
        policy: Policy,
        tolerances: Tolerances,
        *,
        heartbeat_timeout_seconds: float,
        retention_days: int,
    ) -> None:
        self._history = ScheduleHistory(db, heartbeat_timeout_seconds)
        self._policy, self._tolerances, self._retention = policy, tolerances, timedelta(days=retention_days)

    @classmethod
    def from_settings(cls, db: DatabaseConnection, policy: Policy, settings: Settings) -> "Explainer":
        return cls(
            db,
            policy,
            Tolerances.from_settings(settings),
            heartbeat_timeout_seconds=settings.heartbeat_timeout_seconds,
            retention_days=settings.history_retention_days,
        )

    def explain(self, schedule_id: UUID, at: datetime | None = None) -> Explanation:
        """Without a time, the latest fire. Also works for a deleted schedule."""
        circumstances = self._history.circumstances(schedule_id)
        present = self._history.present(schedule_id)
        instant = self._moment_meant(schedule_id, at, present, circumstances)
        held = self._history.held_at(schedule_id, instant)
        executions = self._history.executions(schedule_id, instant)
        if present is None and held == Held(None) and not executions:
            raise ScheduleNotFound(schedule_id)
        case = _Case(schedule_id, instant, held, present, circumstances, _timezone(held, present))
        if executions:
            return self._with_rows(case, executions)
        if summary := self._history.summary_covering(schedule_id, instant):
            return self._with_rows(case, [summary])
        return self._without_row(case)

    def explain_text(self, schedule_id: UUID, at: str | None) -> Explanation:
        """`at` as typed by a user; without an offset it is in the schedule's time zone."""
        present = self._history.present(schedule_id)
        zone = "UTC" if present is None else present.row.timezone
        if at is None:
            return self.explain(schedule_id)
        meant = parse_moment(at, zone)
        if (after := end_of_gap(at, zone)) is None:
            return self.explain(schedule_id, meant)
        found = self.explain(schedule_id, after)
        gap = (
            f"{at.strip()} does not exist in {zone}: the clocks skip it and go forward to {moment(after, zone)}; "
            "a fire scheduled for a skipped time runs then."
        )
        return replace(found, sentences=[gap, *found.sentences])

    def _moment_meant(
        self, schedule_id: UUID, at: datetime | None, present: Definition | None, circumstances: Circumstances
    ) -> datetime:
        if at is None:
            latest = None if present is None else _previous_fire(present, circumstances.now)
            return latest or circumstances.now.replace(microsecond=0)
        if self._history.executions(schedule_id, at):
            return at  # a manual run has its own time, with fractions of a second
        return at.replace(microsecond=0)

    # --- there are rows ---

    def _with_rows(self, case: "_Case", executions: list[ExecutionRecord]) -> Explanation:
        rows = RowsExplained(
            self._history, self._policy, case.definition, executions, case.circumstances, case.timezone
        )
        late_by = rows.late_by
        return case.answer(
            VERDICTS[ExecutionStatus(executions[-1].status)],
            *rows.sentences(),
            executions=executions,
            late_seconds=None if late_by is None else late_by.total_seconds(),
        )

    # --- there are no rows ---

    def _without_row(self, case: "_Case") -> Explanation:
        if case.at > case.circumstances.now:
            return self._future(case)
        definition, change = case.held.definition, case.held.change
        if definition is None:
            if change is not None:
                return case.answer(Verdict.NOT_EXISTING, f"The schedule had been deleted{case.by(change, 'deleted')}.")
            return case.answer(
                Verdict.NOT_EXISTING, f"The schedule did not exist yet{case.by(case.held.ended_by, 'created')}."
            )
        return self._judge(case, definition) or self._unaccounted(case, definition)

    def _judge(self, case: "_Case", definition: Definition) -> Explanation | None:
        """The verdict by the definition in effect at that moment; None when it should have fired."""
        if not definition.row.enabled:
            change = self._history.change_of(case.schedule_id, "enabled", case.at)
            off = f"The schedule was disabled{case.by(change, 'disabled')}"
            note = definition.row.disabled_note
            return case.answer(Verdict.DISABLED, f"{off}." if note is None else f"{off}: {note}")
        try:
            trigger = definition.trigger
        except InvalidSchedule as error:
            return case.answer(
                Verdict.INVALID, f"The schedule is invalid and parked: {error}{case.by(case.held.change)}."
            )
        if definition.fires_at(case.at):
            return None
        if case.present and case.present.fires_at(case.at) and case.at <= case.present.row.effective_from:
            return self._not_yet_valid(case, trigger)
        return case.not_a_fire(definition, trigger)

    def _not_yet_valid(self, case: "_Case", trigger: Trigger) -> Explanation:
        assert case.present is not None  # noqa: S101 - the caller has looked
        since = case.present.row.effective_from
        change = self._history.change_of(case.schedule_id, "effective_from", case.circumstances.now)
        return case.answer(
            Verdict.NOT_YET_VALID,
            f"It is a fire of the current timing, in effect since {moment(since, case.timezone)}{case.by(change)}.",
            f"The timing at that moment was: {trigger.describe()}. Fires from before a change are never caught up.",
        )

    def _unaccounted(self, case: "_Case", definition: Definition) -> Explanation:
        now, due_at = case.circumstances.now, case.at + definition.spread
        if due_at > now:
            wait = f"Its spread delays it by {duration(definition.spread)}"
            return case.answer(Verdict.UPCOMING, f"{wait}; it will run at {moment(due_at, case.timezone)}.")
        if self._has_its_chance(case.circumstances, due_at):
            return case.answer(Verdict.SETTLING, "It became due a moment ago and may still be claimed; ask again.")
        ended_by = case.held.ended_by
        if ended_by is not None and ended_by.changed_at - due_at <= CHANGE_EDGE:
            return case.answer(Verdict.SETTLING, f"The schedule was changed at the same moment{case.by(ended_by)}.")
        if now - case.at > self._retention:
            days = self._retention.days
            return case.answer(Verdict.FORGOTTEN, f"History is kept for {days} days (HISTORY_RETENTION_DAYS).")
        return self._no_replica(case, due_at)

    def _has_its_chance(self, facts: Circumstances, due_at: datetime) -> bool:
        """Whether a claim or a verification may still follow, or, with a live replica, a gap scan."""
        is_scanned_soon = facts.live_replicas > 0 and not facts.is_watched(due_at)
        return facts.now - due_at < (self._tolerances.vouch if is_scanned_soon else self._tolerances.settle)

    def _no_replica(self, case: "_Case", due_at: datetime) -> Explanation:
        facts = case.circumstances
        if facts.is_watched(due_at):
            advice = as_called_here("`python manage.py audit` lists all such fires; please report them.")
            said = "It was due and has no row, although a gap scan checked that moment."
            return case.answer(Verdict.UNACCOUNTED, f"{said} {advice}")
        rule = f"The next gap scan decides by the catch-up policy {self._own(case).catchup!r}."
        if facts.live_replicas == 0:
            seen = facts.last_heartbeat_at
            last = "" if seen is None else f"; the last heartbeat was at {moment(seen, case.timezone)}"
            return case.answer(Verdict.NO_REPLICA, f"It was due, but no replica is running{last}.", rule)
        if facts.earliest_started_at is not None and facts.earliest_started_at > due_at:
            why = f"the oldest live replica started at {moment(facts.earliest_started_at, case.timezone)}"
            return case.answer(Verdict.NO_REPLICA, f"It was due, but no replica was running: {why}.", rule)
        wait = "The gap scan runs every GAP_SCAN_SECONDS."
        return case.answer(Verdict.UNWATCHED, f"It was due and has no row, but no gap scan checked yet. {wait}", rule)

    def _own(self, case: "_Case") -> Policy:
        return self._policy if case.definition is None else case.definition.policy(self._policy)

    def _future(self, case: "_Case") -> Explanation:
        if case.present is None:
            return case.answer(
                Verdict.NOT_EXISTING,
                f"The schedule was deleted{case.by(case.held.change, 'deleted')}: nothing will run.",
            )
        verdict = self._judge(case, case.present)
        if verdict is not None:
            return verdict
        row = case.present.row
        if row.backoff_after_failures is not None and row.backoff_until is not None and case.at < row.backoff_until:
            until = moment(row.backoff_until, case.timezone)
            return case.answer(
                Verdict.UPCOMING,
                f"It will be skipped unless a run succeeds before: after {row.failures_in_a_row} failures in a row the "
                f"schedule backs off until {until} (backoff_after_failures).",
            )
        said = [f"It will run in {duration(case.at - case.circumstances.now)}."]
        if row.failures_in_a_row > 1:
            said.append(f"The last {row.failures_in_a_row} fires failed.")
        return case.answer(Verdict.UPCOMING, *said)


@dataclass(frozen=True, slots=True)
class _Case:
    """One question with the facts found for it."""

    schedule_id: UUID
    at: datetime
    held: Held
    present: Definition | None
    circumstances: Circumstances
    timezone: str

    @property
    def definition(self) -> Definition | None:
        return self.held.definition or self.present

    def answer(self, verdict: Verdict, *sentences: str, **more: Any) -> Explanation:
        around = _neighbours(self.definition, self.at)
        return Explanation(
            schedule_id=self.schedule_id,
            at=self.at,
            timezone=self.timezone,
            verdict=verdict,
            sentences=[f"{moment(self.at, self.timezone)}: {sentences[0]}", *sentences[1:]],
            previous_fire_at=around[0],
            next_fire_at=around[1],
            **more,
        )

    def not_a_fire(self, definition: Definition, trigger: Trigger) -> Explanation:
        said = [f"It is not a fire of this schedule, which runs {trigger.describe()}."]
        start_at, end_at = definition.row.start_at, definition.row.end_at
        if start_at is not None and self.at < start_at:
            said.append(f"The schedule starts at {moment(start_at, self.timezone)}.")
        if end_at is not None and self.at >= end_at:
            said.append(f"The schedule ended at {moment(end_at, self.timezone)}.")
        names = ("previous", "next")
        for name, fire in zip(names, _neighbours(definition, self.at), strict=True):
            if fire is not None:
                said.append(f"The {name} fire is {moment(fire, self.timezone)}.")
        return self.answer(Verdict.NOT_A_FIRE, *said)

    def by(self, change: Any, verb: str = "changed") -> str:
        return by_whom(change, self.timezone, verb)


def parse_moment(text: str, timezone: str, field: str = "at") -> datetime:
    """ISO 8601. A plus sign that arrived as a space, as in an unencoded query, is restored."""
    mended = re.sub(r" (?=\d\d:?\d\d$)", "+", text.strip()) if text.count(":") > 1 and "T" in text else text.strip()
    try:
        instant = datetime.fromisoformat(mended)
        aware = instant if instant.tzinfo else instant.replace(tzinfo=_zone(timezone))
        if not 1970 < aware.year < 2200:
            raise ValueError("no schedule fires then")
        return aware.astimezone(UTC)
    except ValueError:
        example = "an ISO 8601 timestamp between 1971 and 2199, such as 2027-01-31T02:00"
        raise InvalidInput(Problem(field, f"must be {example}, got {text[:60]!r}")) from None


def end_of_gap(text: str, timezone: str) -> datetime | None:
    """For a wall time that the zone skips: the instant at which the clocks go forward."""
    try:
        local = datetime.fromisoformat(text.strip())
        clock = local_clock(ZoneInfo(timezone).key)
    except (ValueError, OSError, KeyError):
        return None
    if local.tzinfo is not None:
        return None
    wall = wall_seconds_of(local)
    at = clock.first_reaches(wall)
    return None if at + clock.offset_at(at) == wall else instant_of(at)


def _timezone(held: Held, present: Definition | None) -> str:
    definition = held.definition or present
    return "UTC" if definition is None else _zone(definition.row.timezone).key


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # a row written by SQL may contain anything
        return ZoneInfo("UTC")


def _neighbours(definition: Definition | None, at: datetime) -> tuple[datetime | None, datetime | None]:
    if definition is None:
        return None, None
    try:
        return _previous_fire(definition, at), definition.trigger.next_after(at)
    except InvalidSchedule:
        return None, None


def _previous_fire(definition: Definition, before: datetime) -> datetime | None:
    try:
        trigger = definition.trigger
    except InvalidSchedule:
        return None
    for length in LOOK_BACK:
        if fires := deque(trigger.between(before - length, before - SECOND), maxlen=1):
            return fires[0]
    return None
