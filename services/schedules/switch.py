"""Many schedules on or off at once, in the batches of every bulk write."""

from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from services.errors import InvalidInput, Problem
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import Action, Saved
from services.schedules.listing import ScheduleFilter
from services.schedules.spec import ScheduleFields, checked_note


@dataclass(slots=True)
class Switched:
    changed: list[UUID] = field(default_factory=list)
    unchanged: list[UUID] = field(default_factory=list)
    missing: list[UUID] = field(default_factory=list)
    refused: dict[UUID, tuple[Problem, ...]] = field(default_factory=dict)  # broken: it cannot be switched on


def switch_schedules(
    repository: ScheduleRepository,
    schedule_ids: Collection[UUID],
    enabled: bool,
    actor: str,
    note: str | None = None,
) -> Switched:
    """Switching off always works, also for a schedule that is broken otherwise; a note says why."""
    change: ScheduleFields = {"enabled": enabled}
    if note is not None:
        if enabled:
            raise InvalidInput(Problem("note", "says why schedules are switched off; to switch them on, give none"))
        change["disabled_note"] = checked_note(note, "note")
    wanted = sorted(set(schedule_ids))
    known = [record.schedule_id for record in repository.iter_schedules(ScheduleFilter(schedule_ids=wanted))]
    switched = Switched(missing=[schedule_id for schedule_id in wanted if schedule_id not in set(known)])

    def count(saved: Saved) -> None:
        schedule_id = known[saved.index]
        if saved.action is Action.REFUSED:
            switched.refused[schedule_id] = saved.problems
        else:
            (switched.changed if saved.action is Action.UPDATED else switched.unchanged).append(schedule_id)

    items = ({"schedule_id": schedule_id, **change} for schedule_id in known)
    repository.save_schedules(items, actor=actor, on_saved=count)
    if not enabled:
        _switch_off_broken(repository, switched, change, actor)
    return switched


def _switch_off_broken(repository: ScheduleRepository, switched: Switched, change: ScheduleFields, actor: str) -> None:
    for schedule_id in list(switched.refused):
        repository.update_schedule(schedule_id, actor=actor, **change)
        switched.changed.append(schedule_id)
        del switched.refused[schedule_id]
