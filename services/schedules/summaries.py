"""What a bulk write did, counted."""

from dataclasses import dataclass, field
from uuid import UUID

from services.errors import Problem
from services.schedules.batch import Action, Saved


@dataclass(slots=True)
class BulkSummary:
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: list[Saved] = field(default_factory=list)

    def count(self, saved: Saved) -> None:
        match saved.action:
            case Action.CREATED:
                self.created += 1
            case Action.UPDATED:
                self.updated += 1
            case Action.UNCHANGED:
                self.unchanged += 1
            case Action.REFUSED:
                self.refused.append(saved)


@dataclass(slots=True)
class Switched:
    """What became of schedules that were switched on or off together."""

    changed: list[UUID] = field(default_factory=list)
    unchanged: list[UUID] = field(default_factory=list)
    missing: list[UUID] = field(default_factory=list)
    refused: dict[UUID, tuple[Problem, ...]] = field(default_factory=dict)  # invalid: it cannot be switched on

    def count(self, schedule_id: UUID, saved: Saved) -> None:
        if saved.action is Action.REFUSED:
            self.refused[schedule_id] = saved.problems
        else:
            (self.changed if saved.action is Action.UPDATED else self.unchanged).append(schedule_id)
