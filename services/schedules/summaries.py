"""Summaries of bulk writes."""

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
    """The result of enabling or disabling several schedules."""

    changed: list[UUID] = field(default_factory=list)
    unchanged: list[UUID] = field(default_factory=list)
    missing: list[UUID] = field(default_factory=list)
    refused: dict[UUID, tuple[Problem, ...]] = field(default_factory=dict)  # invalid: cannot be enabled

    def count(self, schedule_id: UUID, saved: Saved) -> None:
        if saved.action is Action.REFUSED:
            self.refused[schedule_id] = saved.problems
        else:
            (self.changed if saved.action is Action.UPDATED else self.unchanged).append(schedule_id)


@dataclass(slots=True)
class Deleted:
    """The result of deleting several schedules."""

    deleted: list[UUID] = field(default_factory=list)
    no_match: list[UUID] = field(default_factory=list)  # changed or deleted meanwhile
    locked: list[UUID] = field(default_factory=list)  # by another session
