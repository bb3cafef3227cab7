"""Preview of a definition before it is saved: next fires, description, warnings and other problems."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.errors import InvalidInput, InvalidSchedule, Problem
from services.jobs import JobRegistry, default_registry
from services.jobs.credentials import credential_warnings
from services.schedules.spec import ScheduleSpec, parse_spec
from services.triggers import Trigger

TIMING = frozenset({"frequency", "time_config", "timezone", "start_at", "end_at"})
ANY_DOMAIN = "preview.example"
PREVIEW_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Preview:
    description: str
    timezone: str
    fires: list[datetime]
    warnings: list[str]
    problems: tuple[Problem, ...]  # of fields unrelated to the timing


def preview_definition(
    given: Mapping[str, Any],
    n: int = 5,
    jobs: JobRegistry = default_registry,
    announced: Callable[[], Collection[str]] = tuple,
) -> Preview:
    """Requires only a valid timing; otherwise raises InvalidSchedule with all problems."""
    spec, problems = _readable(given, jobs, announced)
    trigger, now = spec.trigger, datetime.now(UTC)
    warnings = [*trigger.warnings(now), *credential_warnings(spec.job_config)]
    return Preview(trigger.describe(), spec.timezone, next_fires(trigger, n, now), warnings, problems)


def next_fires(trigger: Trigger, n: int, after: datetime) -> list[datetime]:
    """The next n fire times (UTC); fewer if the schedule ends earlier."""
    if not 1 <= n <= PREVIEW_LIMIT:
        raise InvalidInput(Problem("n", f"must be between 1 and {PREVIEW_LIMIT}, got {n}"))
    fires: list[datetime] = []
    while len(fires) < n and (at := trigger.next_after(fires[-1] if fires else after)) is not None:
        fires.append(at)
    return fires


def _readable(
    given: Mapping[str, Any], jobs: JobRegistry, announced: Callable[[], Collection[str]]
) -> tuple[ScheduleSpec, tuple[Problem, ...]]:
    try:
        return parse_spec(given, jobs, announced), ()
    except InvalidSchedule as error:
        if any(problem.field.partition(".")[0] in TIMING for problem in error.problems):
            raise
        timing = {name: value for name, value in given.items() if name in TIMING}
        return parse_spec({"domain": ANY_DOMAIN, **timing}, jobs), error.problems
