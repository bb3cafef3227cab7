"""Whose word counts: the API's, or that of somebody who changed a schedule here. Pure.

Three versions of each field are compared: what the API said when the schedule was last synced, what it says now, and
what the schedule says. Fields that only make sense together are one: frequency and time_config; and with another job
type goes all of its configuration. Keys of `job_config` that the API has no word for are never touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from services.api_sync.items import SCAN_FIELDS
from services.schedules.spec import ScheduleSpec

SCAN_KEYS = frozenset(SCAN_FIELDS.values())
TIMING, JOB_TYPE = "frequency, time_config", "job_type"


class LocalEdits(StrEnum):
    KEEP = "keep"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Edit:
    """A field in which the schedule says something else than the API told it, and something else than it tells now."""

    field: str
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class Merged:
    fields: dict[str, Any]  # what the schedule shall say
    edits: tuple[Edit, ...]  # kept or overwritten, as the policy says


def api_fields(schedule: ScheduleSpec) -> dict[str, Any]:
    """What the API decides about a schedule."""
    return {
        "domain": schedule.domain,
        "frequency": schedule.frequency,
        "time_config": schedule.time_config,
        "job_type": schedule.job_type,
        "job_config": schedule.job_config,
    }


def merge(
    schedule: ScheduleSpec, synced: Mapping[str, Any] | None, wanted: Mapping[str, Any], policy: LocalEdits
) -> Merged:
    """`synced` None: nobody knows what was agreed on, so the API is right."""
    ours, theirs = _parts(api_fields(schedule)), _parts(wanted)
    edits = [] if synced is None else _edits(ours, _parts(synced), theirs)
    kept = {edit.field for edit in edits} if policy is LocalEdits.KEEP else set()
    chosen = {name: ours[name] if name in kept else theirs[name] for name in theirs}
    return Merged(_whole(chosen, schedule, keep_job=JOB_TYPE in kept), tuple(edits))


def _edits(ours: Mapping[str, Any], before: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Edit]:
    found = [Edit(name, ours[name], theirs[name]) for name in theirs if ours[name] not in (before[name], theirs[name])]
    if any(edit.field == JOB_TYPE for edit in found):
        return [edit for edit in found if not edit.field.startswith("job_config.")]
    return found


def _parts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What can be edited independently; a scan's key that is absent is None."""
    return {
        "domain": fields["domain"],
        TIMING: (fields["frequency"], fields["time_config"]),
        JOB_TYPE: fields["job_type"],
        **{f"job_config.{key}": fields["job_config"].get(key) for key in sorted(SCAN_KEYS)},
    }


def _whole(parts: Mapping[str, Any], schedule: ScheduleSpec, *, keep_job: bool) -> dict[str, Any]:
    frequency, time_config = parts[TIMING]
    scan = {key: parts[f"job_config.{key}"] for key in SCAN_KEYS if parts[f"job_config.{key}"] is not None}
    same_job = parts[JOB_TYPE] == schedule.job_type
    others = {key: value for key, value in schedule.job_config.items() if key not in SCAN_KEYS and same_job}
    return {
        "domain": parts["domain"],
        "frequency": frequency,
        "time_config": time_config,
        "job_type": parts[JOB_TYPE],
        "job_config": schedule.job_config if keep_job else {**others, **scan},
    }
