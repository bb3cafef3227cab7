"""What a schedule says where nobody says anything else."""

from collections.abc import Mapping
from typing import Any

from services.schedules.spec import DEFINITION_FIELDS, ScheduleSpec

REQUIRED = ("domain", "frequency", "time_config")
DEFAULTS = ScheduleSpec(domain="", frequency="", time_config={})


def whole_definition(given: Mapping[str, Any]) -> dict[str, Any]:
    """Given as everything about a schedule: what is not mentioned goes back to its default."""
    rest = {name: getattr(DEFAULTS, name) for name in DEFINITION_FIELDS if name not in REQUIRED}
    return {**rest, **given}
