"""What the API documents and the form hints about the fields of a schedule."""

import pytest

from services.schedules.field_rules import RULES
from services.web.dashboard.schedule_form import field_hint
from services.web.schemas.schedules import ScheduleDefinition

OF_OTHER_SYSTEMS = {"external_id"}  # follows from domain_config_id


def test_every_field_of_a_schedule_is_documented_with_its_rule() -> None:
    documented = ScheduleDefinition.model_json_schema()["properties"]
    assert documented.keys() == RULES.keys() - OF_OTHER_SYSTEMS
    for name, schema in documented.items():
        assert schema.items() >= RULES[name].schema.items(), name


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("max_retries", "0 to 100, or JOB_MAX_RETRIES"),
        ("priority", "-1,000 to 1,000"),
        ("catchup", "JOB_CATCHUP"),
        ("domain", ""),
        ("when", ""),
    ],
)
def test_a_field_of_the_form_names_its_range_and_its_default(field: str, hint: str) -> None:
    assert field_hint(field) == hint
