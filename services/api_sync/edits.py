"""Three-way merge of API values and local edits. Pure.

For each field it compares the value at the last sync, the API's present value, and the schedule's present value. Fields
that belong together are merged as one: frequency and time_config; and a new job type replaces its whole configuration.
Keys of `job_config` that the API does not define are never touched.
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
    """Local edit: a field whose value differs from both the last synced and the present value of the API."""

    field: str
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class Merged:
    fields: dict[str, Any]  # the merged value
    edits: tuple[Edit, ...]  # kept or overwritten, by the policy


def api_fields(schedule: ScheduleSpec) -> dict[str, Any]:
    """The fields that the API owns."""
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
    """`synced` is None when the last synced value is unknown; then the API wins."""
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
    """The fields that can be edited independently; an absent key of a scan is None."""
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
