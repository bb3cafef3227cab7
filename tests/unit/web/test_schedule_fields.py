"""What the API documents and the form hints about the fields of a schedule."""

import pytest

from config import Settings
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
        ("max_retries", "0 to 100; default 7 (JOB_MAX_RETRIES)"),
        ("priority", "-1,000 to 1,000; default 0"),
        ("catchup", "default record as missed (JOB_CATCHUP)"),
        ("coalesce", "default each on its own (JOB_COALESCE)"),
        ("pause_after_failures", "1 to 1,000; default never"),
        ("domain", ""),
        ("when", ""),
    ],
)
def test_a_field_of_the_form_names_its_range_and_the_value_of_its_default(field: str, hint: str) -> None:
    settings = Settings(job_max_retries=7, job_catchup="none", job_coalesce=False)
    assert field_hint(field, settings) == hint
