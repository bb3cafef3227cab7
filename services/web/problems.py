"""Errors of the API as application/problem+json (RFC 9457), with every wrong field and the request's id.

`PROBLEMS` lists all of them; the documentation page and the OpenAPI document are built from it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from enhanced_scheduler.model_errors import reason_of
from services.errors import (
    ChannelNotFound,
    DeliveryNotFound,
    InvalidInput,
    LimitNotFound,
    Problem,
    RevisionConflict,
    RuleNotFound,
    ScheduleNotFound,
    Unavailable,
)
from services.web.examples import STORY
from services.wording.refusals import refusal

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/docs"
RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of problem."""

    code: str
    status: int
    title: str
    meaning: str
    example: str = ""  # of a detail


BAD_REQUEST = Kind(
    "bad-request",
    400,
    "Bad Request",
    "The body is not valid JSON, or a header is malformed.",
    "the body is not valid JSON: Expecting property name enclosed in double quotes at character 25",
)
UNAUTHENTICATED = Kind(
    "unauthenticated",
    401,
    "Unauthorized",
    "The token is missing, invalid, expired or revoked.",
    "the token is not valid",
)
FORBIDDEN = Kind(
    "forbidden",
    403,
    "Forbidden",
    "The token is valid, but its role is not sufficient.",
    "this requires the role operator; the token has viewer",
)
NOT_FOUND = Kind(
    "not-found",
    404,
    "Not Found",
    "The id or the path does not exist, or no longer exists.",
    "there is no schedule nightly-exmaple",
)
METHOD = Kind(
    "method-not-allowed",
    405,
    "Method Not Allowed",
    "The Allow header lists the methods of this path.",
    "this path allows GET, POST",
)
TIMEOUT = Kind(
    "request-timeout",
    408,
    "Request Timeout",
    "The body did not arrive in time. Send the whole request at once.",
    "the body did not arrive within 10 s",
)
CONFLICT = Kind(
    "conflict",
    409,
    "Conflict",
    "The current state does not allow the request; the detail says why.",
    "the same request is still being processed; retry to get its response",
)
CHANGED = Kind(
    "revision-conflict",
    412,
    "Precondition Failed",
    "Another caller changed the schedule. Load it again and repeat the change with the new ETag.",
    str(RevisionConflict(UUID(STORY["schedule_id"]), STORY["revision"] - 11, STORY["revision"])),
)
TOO_LARGE = Kind(
    "body-too-large",
    413,
    "Content Too Large",
    "The body is larger than WEB_MAX_BODY_BYTES.",
    "the body is larger than 1048576 bytes",
)
NOT_JSON = Kind(
    "unsupported-media-type",
    415,
    "Unsupported Media Type",
    "The API accepts JSON only. Send Content-Type: application/json.",
    "send Content-Type: application/json",
)
INVALID = Kind(
    "invalid-input",
    422,
    "Invalid Input",
    "`errors` names every wrong field with the reason.",
    "time_config.hour: must be between 0 and 23, got 25",
)
KEY_REUSED = Kind(
    "idempotency-key-reused",
    422,
    "Idempotency Key Reused",
    "The Idempotency-Key was already used for a different request. Use a new key.",
    "Idempotency-Key 'order-17' was already used for a different request",
)
NO_CONDITION = Kind(
    "precondition-required",
    428,
    "Precondition Required",
    "Send If-Match with the ETag that you read.",
    "PUT replaces the whole definition; send If-Match with the ETag that you read",
)
TOO_MANY = Kind(
    "too-many-requests",
    429,
    "Too Many Requests",
    "The caller exceeded its rate limit. Retry-After gives the seconds to wait.",
    "rate limit exceeded; retry in 7 s",
)
INTERNAL = Kind(
    "internal-error",
    500,
    "Internal Server Error",
    "The request failed unexpectedly. The log has the details under the request_id.",
    "the request failed unexpectedly",
)
UPSTREAM = Kind(
    "bad-gateway",
    502,
    "Bad Gateway",
    "The other system gave no usable response. Nothing was changed; the detail gives the reason.",
    "the API gave no usable response: GET https://api.example.com/schedules: not JSON",
)
UNAVAILABLE = Kind(
    "unavailable",
    503,
    "Service Unavailable",
    "Postgres does not answer or refuses the request. The same request may succeed later.",
    "Postgres does not answer",
)

PROBLEMS = (
    BAD_REQUEST, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, METHOD, TIMEOUT, CONFLICT, CHANGED, TOO_LARGE, NOT_JSON,
    INVALID, KEY_REUSED, NO_CONDITION, TOO_MANY, INTERNAL, UPSTREAM, UNAVAILABLE,
)  # fmt: skip
BY_STATUS = {kind.status: kind for kind in reversed(PROBLEMS)}


class HttpProblem(Exception):
    """Raised by a handler, or by the guard in front of it."""

    def __init__(
        self, kind: Kind, detail: str, errors: Sequence[Problem] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors, self.headers = kind, detail, errors, headers or {}


NO_JSON = "the body is not valid JSON"
# What Python's JSON parser raises without a position; FastAPI only reports that there was an error.
UNREADABLE: dict[type[Exception], str] = {
    UnicodeDecodeError: "it is not UTF-8",
    RecursionError: "it is nested too deeply",
    ValueError: f"it contains a number with more than {sys.get_int_max_str_digits():,} digits",
}

REFUSALS = (
    HttpProblem, InvalidInput, RequestValidationError, ScheduleNotFound, LimitNotFound, ChannelNotFound,
    DeliveryNotFound, RuleNotFound, RevisionConflict, HTTPException,
)  # fmt: skip


def problem_response(request: Request, problem: HttpProblem) -> Response:
    body: dict[str, Any] = {
        "type": f"{DOCS}#{problem.kind.code}",
        "title": problem.kind.title,
        "status": problem.kind.status,
        "detail": problem.detail,
        "instance": request.url.path,
        "request_id": getattr(request.state, "request_id", None),
    }
    if problem.errors:
        body["errors"] = [{"field": item.field, "reason": item.reason} for item in problem.errors]
    # ASCII: a caller's text may contain lone surrogates, which UTF-8 cannot encode.
    content = json.dumps(body).encode()
    return Response(content, problem.kind.status, dict(problem.headers), MEDIA_TYPE)


def not_found(what: str) -> HttpProblem:
    return HttpProblem(NOT_FOUND, f"there is no {what}")


def is_refusal(error: Exception) -> bool:
    """Does the error mean that nothing was done?"""
    if isinstance(error, DBAPIError):
        return refusal(error) is not None
    return isinstance(error, REFUSALS)


def install(app: FastAPI) -> None:
    """Turn the exceptions that handlers raise into problems; `RequestContext` handles all others."""
    app.add_exception_handler(HttpProblem, _ours)
    app.add_exception_handler(InvalidInput, _invalid_input)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(ScheduleNotFound, _not_found)
    app.add_exception_handler(LimitNotFound, _not_found)
    app.add_exception_handler(ChannelNotFound, _not_found)
    app.add_exception_handler(DeliveryNotFound, _not_found)
    app.add_exception_handler(RuleNotFound, _not_found)
    app.add_exception_handler(RevisionConflict, _revision_conflict)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_exception_handler(DBAPIError, _refused_by_postgres)
    app.add_exception_handler(HTTPException, _of_the_framework)


# Starlette types handlers for Exception, whatever they are registered for.


def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)  # noqa: S101
    return problem_response(request, error)


def _invalid_input(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidInput)  # noqa: S101
    return problem_response(request, HttpProblem(INVALID, str(error), error.problems))


def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    problems = [Problem(_field(item["loc"]), reason_of(item["msg"])) for item in error.errors()]
    for item in error.errors():
        if item["type"] == "json_invalid":
            where = f"{item['ctx']['error']} at character {item['loc'][-1]}"
            return problem_response(request, HttpProblem(BAD_REQUEST, f"{NO_JSON}: {where}"))
    return problem_response(request, HttpProblem(INVALID, "; ".join(map(str, problems)), problems))


def _not_found(request: Request, error: Exception) -> Response:
    return problem_response(request, HttpProblem(NOT_FOUND, str(error)))


def _revision_conflict(request: Request, error: Exception) -> Response:
    assert isinstance(error, RevisionConflict)  # noqa: S101
    return problem_response(request, HttpProblem(CHANGED, str(error), headers={"ETag": f'"{error.actual}"'}))


def _unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, Unavailable)  # noqa: S101
    detail = f"{error.server} does not answer"  # without its address, which callers must not learn
    return problem_response(request, HttpProblem(UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_SECONDS)}))


def _refused_by_postgres(request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)  # noqa: S101
    if refusal(error) is None:
        raise error
    detail = "the database refuses the request right now; retry later"
    return problem_response(request, HttpProblem(UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_SECONDS)}))


def _of_the_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    if isinstance(error.__cause__, tuple(UNREADABLE)):
        why = next(words for kind, words in UNREADABLE.items() if isinstance(error.__cause__, kind))
        return problem_response(request, HttpProblem(BAD_REQUEST, f"{NO_JSON}: {why}"))
    kind = BY_STATUS.get(error.status_code)
    if kind is None:
        phrase = HTTPStatus(error.status_code).phrase
        kind = Kind(phrase.lower().replace(" ", "-"), error.status_code, phrase, "")
    return problem_response(request, HttpProblem(kind, str(error.detail), headers=error.headers))


def _field(location: Sequence[Any]) -> str:
    """`("query", "limit")` becomes `limit`; a problem with the whole body gets the field `body`."""
    return ".".join(str(part) for part in location[1:]) or str(location[0])
