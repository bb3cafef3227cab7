"""The OpenAPI document shows what is sent and what comes back, and what it shows is allowed by its own schemas."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

import jsonschema_rs
import pytest

from config import Settings
from services.web.app import create_app
from services.web.examples import STORY
from services.web.problems import PROBLEMS

Document = dict[str, Any]


class Shown(NamedTuple):
    operation: str
    status: str
    schema: dict[str, Any]
    examples: list[Any]


@pytest.fixture(scope="module")
def document() -> Document:
    app = create_app(Settings(database_url="postgresql://nowhere/nothing", redis_url="redis://nowhere"))
    found: Document = app.openapi()
    return found


def answers(document: Document) -> Iterator[Shown]:
    """Every media type of every answer that has a body, with its examples or those of its schema."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values():
                    yield Shown(f"{method} {path}", status, content.get("schema"), list(_examples(document, content)))


def _examples(document: Document, content: dict[str, Any]) -> Iterator[Any]:
    if "example" in content:
        yield content["example"]
    elif "examples" in content:
        yield from (example["value"] for example in content["examples"].values())
    else:
        name = content["schema"]["$ref"].rpartition("/")[2]
        yield from document["components"]["schemas"][name].get("examples", [])


def test_every_answer_has_an_example_that_its_schema_allows(document: Document) -> None:
    found = list(answers(document))
    assert len(found) > 300
    assert [(shown.operation, shown.status) for shown in found if not shown.examples] == []
    for shown in found:
        whole = {**shown.schema, "components": document["components"]}
        allowed = jsonschema_rs.validator_for(whole, validate_formats=True)
        for example in shown.examples:
            allowed.validate(example)


def test_every_operation_has_an_answer_for_success_and_for_every_problem(document: Document) -> None:
    without_a_body = {"204", "304"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                assert ("content" in response) is (status not in without_a_body), (method, path, status)
            assert any(status < "300" for status in operation["responses"])


def test_the_example_of_a_problem_is_of_its_status(document: Document) -> None:
    problems = [shown for shown in answers(document) if shown.schema == {"$ref": "#/components/schemas/Problem"}]
    assert {shown.status for shown in problems} >= {"400", "401", "403", "404", "409", "412", "422", "428", "default"}
    for shown in problems:
        assert shown.status in ({str(example["status"]) for example in shown.examples} | {"default"})
    assert all(kind.example for kind in PROBLEMS)


def test_the_title_of_a_problem_is_the_name_that_http_gives_its_status() -> None:
    """422 has two problems, which its name could not tell apart; 413 has a new name since RFC 9110."""
    titles = {kind.code: kind.title for kind in PROBLEMS if kind.status not in (413, 422)}
    assert titles == {kind.code: HTTPStatus(kind.status).phrase for kind in PROBLEMS if kind.code in titles}
    others = [kind.title for kind in PROBLEMS if kind.code not in titles]
    assert others == ["Content Too Large", "Invalid Input", "Idempotency Key Reused"]


def test_the_examples_tell_one_story(document: Document) -> None:
    """What the list of schedules shows is what the execution, the scan and the explanation are about."""
    schemas = document["components"]["schemas"]
    schedule = schemas["SchedulePage"]["examples"][0]["items"][0]
    execution = schemas["ExecutionDetail"]["examples"][0]
    assert execution["schedule_id"] == schedule["schedule_id"] == schemas["ScanDetail"]["examples"][0]["schedule_id"]
    assert execution["execution_id"] == schemas["ExplanationOut"]["examples"][0]["executions"][0]["execution_id"]
    assert execution["scan_id"] == schemas["CookieList"]["examples"][0]["scan_id"]


def test_the_story_has_nothing_that_no_answer_shows(document: Document) -> None:
    fields = {name for schema in document["components"]["schemas"].values() for name in schema.get("properties", ())}
    assert STORY.keys() - fields == set()
