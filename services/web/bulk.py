"""One action on many: on chosen schedules or executions, or on all that match a filter. API and dashboard share it.

A call touches at most MOST; `next_after` leads to the rest. A dry run answers the same without doing anything. Nothing
holds many locks for long: a run, a retry or a cancellation is a transaction of its own, deletions come in small
batches that give up on a row which another session has locked. So a call that breaks off has done a part, and what it
did is in the history and the change log, under the caller's name.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import assert_never
from uuid import UUID

from services.errors import InvalidInput, Problem, ScheduleNotFound
from services.job_history import JobHistory, RetryOutcome
from services.ledger.listing import ExecutionFilter
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter

MOST = 1000
WHY_NOT = {
    RetryOutcome.UNKNOWN: "it belongs to no schedule",
    RetryOutcome.NO_SCHEDULE: "its schedule was deleted",
    RetryOutcome.NOT_ENDED: "it has not ended, or its next attempt is already pending",
    RetryOutcome.SUCCEEDED: "it succeeded; to run it again, run its schedule",
}
ENDED = "it has already ended"


class ScheduleAction(StrEnum):
    RUN = "run"
    ENABLE = "enable"
    DISABLE = "disable"
    DELETE = "delete"


class ExecutionAction(StrEnum):
    RETRY = "retry"
    CANCEL = "cancel"


@dataclass(slots=True)
class Done:
    """What became of each; in a dry run, what would become of it."""

    matched: int = 0
    changed: list[UUID] = field(default_factory=list)
    unchanged: list[UUID] = field(default_factory=list)
    missing: list[UUID] = field(default_factory=list)
    refused: dict[UUID, tuple[Problem, ...]] = field(default_factory=dict)
    execution_ids: list[UUID] = field(default_factory=list)  # that wait now: of runs and retries
    next_after: str | None = None

    def refuse(self, which: UUID, field: str, why: str) -> None:
        self.refused[which] = (Problem(field, why),)


class Bulk:
    def __init__(self, repository: ScheduleRepository, history: JobHistory, actor: str) -> None:
        self._repository, self._history, self._actor = repository, history, actor

    # --- schedules ---

    def schedules(
        self,
        action: ScheduleAction,
        where: ScheduleFilter,
        *,
        note: str | None = None,
        dry_run: bool = False,
        expected: int | None = None,
        after: str | None = None,
        limit: int = MOST,
    ) -> Done:
        """In the order of their ids. `expected` is the number that the caller has seen: another one is refused."""
        if note is not None and action not in (ScheduleAction.ENABLE, ScheduleAction.DISABLE):
            raise InvalidInput(Problem("note", "explains why schedules are disabled; omit it"))
        matched = self._repository.count_schedules(where)
        _check_expected(expected, matched)
        page = replace(where, after=None if after is None else _id(after))
        found = list(islice(self._repository.iter_schedules(page), limit + 1))
        done = Done(matched=matched, next_after=str(found[limit - 1].schedule_id) if len(found) > limit else None)
        chosen = found[:limit]
        if where.schedule_ids is not None and after is None:
            known = {record.schedule_id for record in found}
            done.missing = sorted(set(where.schedule_ids) - known) if len(found) <= limit else []
        if dry_run:
            self._foresee(action, chosen, done)
        else:
            self._act(action, chosen, where, note, done)
        return done

    def all_schedules(
        self,
        action: ScheduleAction,
        where: ScheduleFilter,
        *,
        note: str | None = None,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> Done:
        """However many match, step by step."""
        total = self.schedules(action, where, note=note, dry_run=dry_run, expected=expected)
        while total.next_after is not None:
            step = self.schedules(action, where, note=note, dry_run=dry_run, after=total.next_after)
            total.changed += step.changed
            total.unchanged += step.unchanged
            total.missing += step.missing
            total.refused |= step.refused
            total.execution_ids += step.execution_ids
            total.next_after = step.next_after
        return total

    def _foresee(self, action: ScheduleAction, chosen: Collection[ScheduleRecord], done: Done) -> None:
        for record in chosen:
            enabling = action is ScheduleAction.ENABLE
            if action in (ScheduleAction.ENABLE, ScheduleAction.DISABLE) and record.enabled is enabling:
                done.unchanged.append(record.schedule_id)
            elif enabling and record.invalid_reason:
                done.refuse(record.schedule_id, "schedule", record.invalid_reason)
            else:
                done.changed.append(record.schedule_id)

    def _act(
        self,
        action: ScheduleAction,
        chosen: Collection[ScheduleRecord],
        where: ScheduleFilter,
        note: str | None,
        done: Done,
    ) -> None:
        ids = [record.schedule_id for record in chosen]
        match action:
            case ScheduleAction.RUN:
                for schedule_id in ids:
                    self._run(schedule_id, done)
            case ScheduleAction.ENABLE | ScheduleAction.DISABLE:
                enable = action is ScheduleAction.ENABLE
                as_wished = [record.schedule_id for record in chosen if record.enabled is enable]  # keep their reasons
                others = sorted(set(ids) - set(as_wished))
                switched = self._repository.switch_schedules(others, enable, actor=self._actor, note=note)
                done.changed, done.refused = switched.changed, switched.refused
                done.unchanged = sorted([*as_wished, *switched.unchanged])
                done.missing = sorted({*done.missing, *switched.missing})
            case ScheduleAction.DELETE:
                deleted = self._repository.delete_schedules(replace(where, schedule_ids=ids), actor=self._actor)
                done.changed = deleted.deleted
                done.unchanged = deleted.no_match
                for schedule_id in deleted.locked:
                    done.refuse(schedule_id, "schedule", "another session has locked it; try again")
            case _:
                assert_never(action)

    def _run(self, schedule_id: UUID, done: Done) -> None:
        try:
            done.execution_ids.append(self._history.request_run(schedule_id, self._actor))
        except ScheduleNotFound:
            done.missing.append(schedule_id)
        else:
            done.changed.append(schedule_id)

    # --- executions ---

    def executions(
        self,
        action: ExecutionAction,
        where: ExecutionFilter,
        *,
        dry_run: bool = False,
        after: str | None = None,
        limit: int = MOST,
    ) -> Done:
        """Newest first. Whether one can be retried is known only when it is: a dry run tells what matches."""
        page = self._history.list_executions(where, limit, after)
        done = Done(matched=len(page.items), next_after=page.next_cursor)
        if where.execution_ids is not None:
            done.missing = sorted(set(where.execution_ids) - {record.execution_id for record in page.items})
        act: Callable[[UUID, Done], None] = self._retry if action is ExecutionAction.RETRY else self._cancel
        for record in page.items:
            if not dry_run:
                act(record.execution_id, done)
            elif (action is ExecutionAction.CANCEL) is record.is_terminal:
                done.refuse(record.execution_id, "execution", ENDED if record.is_terminal else "it has not ended")
            elif record.status == "success":
                done.refuse(record.execution_id, "execution", WHY_NOT[RetryOutcome.SUCCEEDED])
            else:
                done.changed.append(record.execution_id)
        return done

    def _retry(self, execution_id: UUID, done: Done) -> None:
        retry = self._history.request_retry(execution_id, self._actor)
        if retry.execution_id is None:
            done.refuse(execution_id, "execution", WHY_NOT[retry.outcome])
            return
        done.changed.append(execution_id)
        done.execution_ids.append(retry.execution_id)

    def _cancel(self, execution_id: UUID, done: Done) -> None:
        if self._history.request_cancel(execution_id, self._actor):
            done.changed.append(execution_id)
        else:
            done.refuse(execution_id, "execution", ENDED)


def _check_expected(expected: int | None, matched: int) -> None:
    if expected is not None and expected != matched:
        raise InvalidInput(Problem("expected", f"{matched} match now, not {expected}; look again"))


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(Problem("after", "must be `next_after` of an earlier call")) from None
