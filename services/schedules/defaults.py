"""Defaults of a schedule's fields."""

from collections.abc import Mapping
from typing import Any

from services.schedules.field_rules import REQUIRED
from services.schedules.spec import DEFINITION_FIELDS, ScheduleSpec

DEFAULTS = ScheduleSpec(domain="", frequency="", time_config={})


def whole_definition(given: Mapping[str, Any]) -> dict[str, Any]:
    """A complete definition from the given fields: omitted fields are reset to their defaults."""
    rest = {name: getattr(DEFAULTS, name) for name in DEFINITION_FIELDS if name not in REQUIRED}
    return {**rest, **given}
