"""The OpenAPI document: FastAPI's own, with our problems and the role that each operation requires."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from services.web.auth.guard import Needs, rule_of
from services.web.examples import REF, example_of
from services.web.problems import DOCS, INTERNAL, INVALID, MEDIA_TYPE, PROBLEMS, Kind

TITLE = "Enhanced Scheduler"
DESCRIPTION = (
    "Schedules, their executions and the replicas that run them. Errors are `application/problem+json` and name every "
    "wrong field. A POST with an `Idempotency-Key` is carried out once. Times are ISO 8601 in UTC."
)
TAGS = [
    {"name": "schedules", "description": "Which job runs when"},
    {"name": "limits", "description": "How many executions with the same key may run at once"},
    {
        "name": "notifications",
        "description": "Channels, rules, and the deliveries that wait for them, were sent or have failed",
    },
    {"name": "executions", "description": "The outcome of every fire"},
    {"name": "statistics", "description": "Counts and durations, what needs attention, and the forecast"},
    {"name": "replicas", "description": "The processes that run the jobs"},
    {"name": "scans", "description": "Results of cookie scans"},
    {"name": "sync", "description": "Import of schedules from another system's API"},
    {"name": "workflows", "description": "Curation of places, businesses, domains, sitemaps and pages"},
    {"name": "contacts", "description": "Contacts found by the pipeline or added manually"},
    {"name": "queues", "description": "The queues of the workflows: pause, resume, requeue"},
    {"name": "dead-letters", "description": "Workflow items that failed their last attempt, and requeueing them"},
    {"name": "session", "description": "Browser login"},
    {"name": "tokens", "description": "Named API tokens"},
    {"name": "dev-tools", "description": "Available with ENVIRONMENT=development only"},
    {"name": "probes", "description": "Liveness, readiness and metrics, for orchestrators and Prometheus"},
]
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "request_id": {"type": ["string", "null"]},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "reason"],
                "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
    },
}


def operation_id(route: APIRoute) -> str:
    """The name of a generated client's method: that of the handler, which says what it does to what."""
    return route.name


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents it


def guarded_routes(app: FastAPI) -> list[APIRoute]:
    contexts = [context.original_route for context in iter_route_contexts(app.routes)]
    return [route for route in contexts if isinstance(route, APIRoute)]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=TITLE, version=app.version, description=DESCRIPTION, routes=app.routes, tags=TAGS, openapi_version="3.1.0"
    )
    document["components"]["schemas"]["Problem"] = {**PROBLEM_SCHEMA, "examples": [_example(INVALID)]}
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for route in guarded_routes(app):
        for method in route.methods or ():
            if route.include_in_schema:
                operation = document["paths"][route.path_format][method.lower()]
                _describe(operation, route)
                _show_answers(operation, document["components"]["schemas"])
    return document


def _describe(operation: dict[str, Any], route: APIRoute) -> None:
    rule = rule_of(route)
    role = rule.role.value if isinstance(rule, Needs) else "none"
    operation["x-role"] = role
    operation["description"] = f"{operation.get('description', '')}\n\nRole: {role}.".strip()
    responses = operation["responses"]
    responses.pop("422", None)
    for status in _errors_of(operation, isinstance(rule, Needs)):
        responses.setdefault(str(status), {"description": " / ".join(kind.title for kind in _kinds(status))})
    for status, response in responses.items():
        if status >= "400" and "content" not in response:
            response["content"] = _problem(*_kinds(int(status)))
    responses["default"] = {"description": "Any other problem", "content": _problem(INTERNAL)}


def _show_answers(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add an example to the schema of each response; operations may share a schema."""
    for status, response in operation["responses"].items():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        if status < "300" and (name := schema.get("$ref", "").removeprefix(REF)):
            schemas[name].setdefault("examples", [example_of(schema, schemas)])


def _errors_of(operation: dict[str, Any], needs_token: bool) -> list[int]:
    places = {parameter["in"] for parameter in operation.get("parameters", [])}
    names = {parameter["name"].lower() for parameter in operation.get("parameters", [])}
    return [
        *([401, 403, 429] if needs_token else []),
        *([404] if "path" in places else []),
        *([412] if "if-match" in names else []),
        *([409] if "idempotency-key" in names else []),
        *([400, 413, 415] if "requestBody" in operation else []),
        *([422] if places or "requestBody" in operation else []),
    ]


def _kinds(status: int) -> list[Kind]:
    return [kind for kind in PROBLEMS if kind.status == status]


def _problem(*kinds: Kind) -> dict[str, Any]:
    examples = {kind.code: {"summary": kind.title, "value": _example(kind)} for kind in kinds}
    return {MEDIA_TYPE: {"schema": {"$ref": f"{REF}Problem"}, "examples": examples}}


def _example(kind: Kind) -> dict[str, Any]:
    field, _, reason = kind.example.partition(": ")
    return {
        "type": f"{DOCS}#{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": kind.example,
        "instance": "/api/v3/schedules",
        "request_id": "0f5b1c2d",
        **({"errors": [{"field": field, "reason": reason}]} if kind is INVALID else {}),
    }
