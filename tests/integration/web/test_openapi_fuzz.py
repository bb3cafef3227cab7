"""Requests made from the OpenAPI document, sensible and not: no answer is a 5xx, and every one is as described."""

from datetime import UTC, datetime
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from database.connection import DatabaseConnection
from services.schedule_repository import ScheduleRepository
from tests.support.schedules import many
from tests.support.web import Web

EXAMPLES = 12  # of each operation
TODAY = datetime.now(UTC).toordinal()  # other requests every day, the same ones when somebody looks for the reason
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture
def api(web: Web, repository: ScheduleRepository, db: DatabaseConnection) -> Any:
    """With something in the tables, so that lists are not empty."""
    repository.save_schedules([{**item, "name": f"n{number}"} for number, item in enumerate(many(5))])
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, error_details)
               SELECT schedule_id, name, domain, domain_config_id, 'failed', '{"a": [1]}' FROM schedules"""
        )
    document = web.get("/api/openapi.json", None).json()
    return schemathesis.openapi.from_dict(document, config=SchemathesisConfig())


def test_no_request_breaks_the_api(web: Web, api: Any) -> None:
    headers = {"Authorization": f"Bearer {web.tokens['admin']}"}
    tried = 0
    for found in api.get_all_operations():
        operation = found.ok()

        @seed(TODAY)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=_requests(operation))
        def ask(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.call_and_validate(base_url=web.url, headers=headers, checks=CHECKS)

        ask()
    assert tried > 300


def _requests(operation: Any) -> strategies.SearchStrategy[Any]:
    """Such as the document allows, and such as it does not."""
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    return strategies.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))
