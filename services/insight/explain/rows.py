"""Explains in sentences, attempt by attempt, why a fire that has rows ended as it did or started late."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import ClassVar

from database.models import Cause, ExecutionStatus
from services.insight.explain.history import Circumstances, Definition, ScheduleHistory
from services.insight.explain.words import moment
from services.insight.limits import key_waited_for
from services.ledger.fires import Policy
from services.ledger.listing import OVERLAP_WITH_THE_GONE, ExecutionRecord
from services.ledger.verdicts import Reason
from services.wording.commands import as_called_here
from services.wording.durations import duration

LATE = timedelta(seconds=5)  # a shorter delay is noise
WORTH_TELLING = timedelta(seconds=1)
SLACK_SECONDS = 3600
OF_QUEUES: dict[str, str] = {
    Reason.PAUSED: "its queue was paused",
    Reason.CIRCUIT_OPEN: "the circuit breaker of its queue is open, because its items kept failing",
}


class RowsExplained:
    """The executions of one fire, first attempt to last."""

    def __init__(
        self,
        history: ScheduleHistory,
        policy: Policy,
        definition: Definition | None,
        executions: list[ExecutionRecord],
        circumstances: Circumstances,
        timezone: str,
    ) -> None:
        self._history, self._policy, self._definition = history, policy, definition
        self._executions, self._circumstances, self._timezone = executions, circumstances, timezone

    @property
    def due_at(self) -> datetime:
        first = self._executions[0]
        spread = self._definition.spread if self._definition else timedelta(0)
        return first.scheduled_for + (timedelta(0) if first.cause == Cause.MANUAL else spread)

    @property
    def late_by(self) -> timedelta | None:
        """The delay between due time and first start; None if it never started, or is a backfill, or had to wait for a
        limit.
        """
        first = next((record for record in self._executions if record.started_at is not None), None)
        if first is None or first.started_at is None or first.cause == Cause.BACKFILL or _key_of(first) is not None:
            return None
        return max(first.started_at - self.due_at, timedelta(0))

    def sentences(self) -> list[str]:
        said = [sentence for record in self._executions for sentence in self._attempt(record)]
        return [*self._lateness(), *said]

    # --- late ---

    def _lateness(self) -> Iterator[str]:
        late_by = self.late_by
        if late_by is None or late_by < LATE:
            return
        first = next(record for record in self._executions if record.started_at is not None)
        when = f"due at {self._at(self.due_at)}, started at {self._at(first.started_at)}"
        yield f"It started {duration(late_by)} late: {when}."
        if first.cause == Cause.CATCHUP:
            yield "No replica claimed it when it was due; it was caught up later by the catch-up policy."
        if first.claimed_at is not None and first.started_at is not None:
            if first.claimed_at - self.due_at >= WORTH_TELLING and first.cause != Cause.CATCHUP:
                after = duration(first.claimed_at - self.due_at)
                yield f"{_kind(first).capitalize()} {first.instance_id} claimed it {after} after it was due."
            if first.started_at - first.claimed_at >= WORTH_TELLING:
                yield f"After the claim it waited {duration(first.started_at - first.claimed_at)} for a free worker."
        running, replicas = self._history.running_at(self.due_at)
        yield f"When it was due, {running} executions were running on {replicas} replicas."

    # --- one attempt ---

    def _attempt(self, record: ExecutionRecord) -> Iterator[str]:
        asked = (record.details or {}).get("requested_by")
        if record.cause == Cause.BACKFILL and asked:
            which = f"Attempt {record.attempt}" if record.attempt > 1 else "It"
            yield f"{which} is a backfill, requested by {asked} at {self._at(record.created_at)}."
        elif len(self._executions) > 1 or record.attempt > 1:
            yield f"Attempt {record.attempt}{f', requested by {asked}' if asked and record.attempt > 1 else ''}:"
        elif record.cause == Cause.MANUAL:
            yield f"It is a manual run, requested by {asked or 'an unknown user'} at {self._at(record.scheduled_for)}."
        yield from self._waited(record)
        yield from self._by_status[ExecutionStatus(record.status)](self, record)

    def _waited(self, record: ExecutionRecord) -> Iterator[str]:
        """For a limit, until it started or was given up; for a worker of the fleet, until it started."""
        until, due_at = record.started_at or record.completed_at, record.due_at or record.scheduled_for
        if until is not None and (key := _key_of(record)) is not None:
            yield f"It waited {duration(round((until - due_at).total_seconds()))} for limit {key}."
        if record.published_at is not None and record.started_at is not None:
            waited, row = duration(record.started_at - due_at), self._definition.row if self._definition else None
            queue = f"the queue {row.queue!r}" if row and row.queue else "its queue"
            yield f"It waited {waited}, announced to the workers of {queue} at {self._at(record.published_at)}."

    def _waiting(self, record: ExecutionRecord) -> Iterator[str]:
        now, due_at = self._circumstances.now, record.due_at or record.scheduled_for
        if self._circumstances.live_replicas == 0:
            yield "It is waiting: no replica is running."
        elif record.reason is not None and (key := _key_of(record)) is not None:
            waits = self._history.limits.waits_in_words(key, (now - due_at).total_seconds())
            yield f"It has been waiting {waits}, since {self._at(due_at)}."
        elif due_at > now:
            yield f"It is waiting until {self._at(due_at)}: the backoff before a retry."
        elif (unmet := self._history.unmet_needs_of(record)) is not None:
            yield f"It has been waiting since {self._at(due_at)}: {unmet.lack}."
        else:
            yield f"It has been waiting for a free slot{self._of_whom(record)} since {self._at(due_at)}."
            yield from self._blocked_by(record, now)

    def _of_whom(self, record: ExecutionRecord) -> str:
        """On which replicas or workers, if the schedule requires certain ones. Old lines of the log have neither."""
        row = self._definition.row if self._definition else None
        queue, requires = (row.queue, row.requires) if row else (None, None)
        asked = [f"serves the queue {queue!r}"] if queue else []
        asked += [f"offers {', '.join(requires)}"] if requires else []
        return f" on a {_kind(record)} that {' and '.join(asked)}" if asked else ""

    def _claimed(self, record: ExecutionRecord) -> Iterator[str]:
        yield f"Replica {record.instance_id} claimed it at {self._at(record.claimed_at)} and is about to start it."

    def _running(self, record: ExecutionRecord) -> Iterator[str]:
        since = "" if record.started_at is None else f" for {duration(self._circumstances.now - record.started_at)}"
        asked = "; its cancellation was requested" if record.cancel_requested_at else ""
        yield f"It has been running{since} on {record.instance_id or 'another program'}{asked}."

    def _success(self, record: ExecutionRecord) -> Iterator[str]:
        yield f"It ran on {record.instance_id or 'another program'} and succeeded{_after(record)}."

    def _failed(self, record: ExecutionRecord) -> Iterator[str]:
        word = {"timed_out": "timed out"}.get(record.status, "failed")
        why = f": {_first_line(record.error_message)}" if record.error_message else ""
        yield f"It ran on {record.instance_id or 'another program'} and {word}{_after(record)}{why}."

    def _abandoned(self, record: ExecutionRecord) -> Iterator[str]:
        yield (
            f"Its replica {record.instance_id} stopped sending heartbeats, so it was abandoned at "
            f"{self._at(record.completed_at)}; anything that {_kind(record)} did afterwards was not recorded."
        )

    def _cancelled(self, record: ExecutionRecord) -> Iterator[str]:
        asked = "" if record.cancel_requested_at is None else f", requested at {self._at(record.cancel_requested_at)}"
        began = (
            f"after it had run for {duration(record.duration_seconds)}"
            if record.duration_seconds
            else "before it started"
        )
        yield f"It was cancelled {began}{asked}."

    def _missed(self, record: ExecutionRecord) -> Iterator[str]:
        found_at = record.completed_at or record.created_at
        match record.reason:
            case Reason.MISFIRE:
                late, grace = duration(found_at - self.due_at), duration(self._own_policy.misfire_grace_seconds)
                yield f"It was found {late} after it was due; the misfire grace is {grace} (misfire_grace_seconds)."
            case Reason.NOBODY_ABLE:
                yield f"Nobody could run it: {record.error_message or 'no living replica had what it needs'}."
                yield as_called_here("Give a replica what it needs; `manage.py doctor` lists what none has.")
            case Reason.LIMIT:
                yield "In that time (FENCE_HORIZON_SECONDS at most) the limit had no room for it."
            case Reason.NO_HANDLER:
                yield f"No replica could run it: {record.error_message or 'none has a handler for its job type'}."
                yield as_called_here(
                    "Load the module of the handler on all replicas (JOB_MODULES); `manage.py doctor` lists them."
                )
            case Reason.DOWNTIME:
                yield f"No replica was running when it was due; a replica noticed this at {self._at(found_at)}."
                yield f"The catch-up policy is {self._own_policy.catchup!r}: this fire is recorded, not run."
            case Reason.CATCHUP_CAP:
                yield from self._summary(record)
            case Reason.CHANGED:
                yield "No replica was running when it was due, and the timing was changed since then."
                yield from self._changed_by(record)
            case reason:
                yield f"It was missed: {reason or 'no reason was recorded'}."

    def _summary(self, record: ExecutionRecord) -> Iterator[str]:
        facts = record.details or {}
        first, last = (datetime.fromisoformat(str(facts[name])) for name in ("first", "last"))
        yield (
            f"No replica was running: {facts.get('count')} fires between {self._at(first)} and {self._at(last)} were "
            "missed and share one row, because they exceed the number that is caught up (CATCHUP_MAX_FIRES)."
        )

    def _skipped(self, record: ExecutionRecord) -> Iterator[str]:
        decided_at = record.completed_at or record.created_at
        match record.reason:
            case Reason.OVERLAP:
                limit = self._own_policy.max_instances
                yield f"It was skipped: at most {limit} of this schedule may run at once (max_instances)."
                yield from self._blocked_by(record, decided_at)
            case Reason.COALESCED:
                yield from self._coalesced(record)
            case Reason.BACKOFF:
                yield from self._backed_off(record)
            case Reason.DISABLED:
                yield "The schedule was disabled before it could start."
                yield from self._changed_by(record)
            case Reason.CHANGED:
                yield "The timing was changed before it could start, and the new timing does not include this fire."
                yield from self._changed_by(record)
            case Reason.DELETED:
                yield "The schedule was deleted before it could start."
                yield from self._changed_by(record)
            case reason:
                yield f"It was skipped: {OF_QUEUES.get(reason or '', reason) or 'no reason was recorded'}."

    def _coalesced(self, record: ExecutionRecord) -> Iterator[str]:
        ran = self._history.coalesced_into(record)
        if ran is None and (waited := self._history.coalesced_behind(record)) is not None:
            yield "An earlier fire of this schedule was still waiting; with coalesce enabled, it runs for both."
            yield f"That fire is {self._at(waited.scheduled_for)} ({waited.status})."
            if (key := _key_of(waited)) is not None:
                yield self._elder_waits(waited, key)
            elif waited.status == ExecutionStatus.PENDING:
                yield from self._waiting(waited)
            return
        yield "It was overdue together with later fires; with coalesce enabled, only the latest one runs."
        if ran is not None:
            yield f"The fire that ran instead is {self._at(ran.scheduled_for)} ({ran.status})."

    def _elder_waits(self, elder: ExecutionRecord, key: str) -> str:
        """For a limit; what the elder waits for, the younger one waits for, too."""
        due_at, began_at = elder.due_at or elder.scheduled_for, elder.started_at or elder.completed_at
        if began_at is not None:
            return f"It waited {duration(round((began_at - due_at).total_seconds()))} for limit {key}."
        waits = self._history.limits.waits_in_words(key, (self._circumstances.now - due_at).total_seconds())
        return f"It has been waiting {waits}, since {self._at(due_at)}."

    def _backed_off(self, record: ExecutionRecord) -> Iterator[str]:
        yield "It was skipped: after several failures in a row the schedule backs off (backoff_after_failures)."
        if (failed := self._history.failed_before(record)) is not None:
            why = f": {_first_line(failed.error_message)}" if failed.error_message else ""
            yield f"The last failure before it was that of {self._at(failed.scheduled_for)}{why}."

    # --- blocking executions ---

    def _blocked_by(self, record: ExecutionRecord, at: datetime) -> Iterator[str]:
        reach = self._own_policy.timeout_seconds + self._own_policy.misfire_grace_seconds + SLACK_SECONDS
        for other in self._history.blockers(record, at, reach):
            one = f"the execution of {self._at(other.scheduled_for)} on {other.instance_id}"
            which = f"Blocked by {one}"
            if other.status == ExecutionStatus.ABANDONED:
                said = OVERLAP_WITH_THE_GONE.capitalize()
                yield f"{said}: {one}, which was abandoned at {self._at(other.completed_at)}."
            elif other.completed_at is None:
                yield f"{which}, which is still running."
            else:
                yield f"{which}, which ran until {self._at(other.completed_at)}."

    def _changed_by(self, record: ExecutionRecord) -> Iterator[str]:
        if record.schedule_id is None:
            return
        change = self._history.last_change(record.schedule_id, (record.completed_at or record.created_at))
        if change is not None:
            yield f"The last change before that was made by {change.changed_by} at {self._at(change.changed_at)}."

    @property
    def _own_policy(self) -> Policy:
        return self._policy if self._definition is None else self._definition.policy(self._policy)

    def _at(self, instant: datetime | None) -> str:
        return "an unknown time" if instant is None else moment(instant, self._timezone)

    _by_status: ClassVar[dict[ExecutionStatus, Callable[["RowsExplained", ExecutionRecord], Iterator[str]]]] = {
        ExecutionStatus.PENDING: _waiting,
        ExecutionStatus.CLAIMED: _claimed,
        ExecutionStatus.RUNNING: _running,
        ExecutionStatus.SUCCESS: _success,
        ExecutionStatus.FAILED: _failed,
        ExecutionStatus.TIMED_OUT: _failed,
        ExecutionStatus.ABANDONED: _abandoned,
        ExecutionStatus.CANCELLED: _cancelled,
        ExecutionStatus.MISSED: _missed,
        ExecutionStatus.SKIPPED: _skipped,
    }


def _key_of(record: ExecutionRecord) -> str | None:
    return key_waited_for(record.reason, record.details)


def _kind(record: ExecutionRecord) -> str:
    """Who takes it. An announced row may also be taken by a replica, if the queue has changed since."""
    return "replica" if record.published_at is None else "worker"


def _after(record: ExecutionRecord) -> str:
    return "" if record.duration_seconds is None else f" after {duration(record.duration_seconds)}"


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].rstrip(".")
