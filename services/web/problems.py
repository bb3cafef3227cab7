"""Every error of the API as application/problem+json (RFC 9457), with the fields that are wrong and the request's id.

`PROBLEMS` is the whole list; the documentation page and the OpenAPI are made from it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from services.errors import InvalidInput, Problem, RevisionConflict, ScheduleNotFound, Unavailable
from services.web.examples import STORY
from services.wording.refusals import refusal

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/docs"
RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of error."""

    code: str
    status: int
    title: str
    meaning: str
    example: str = ""  # of a detail


BAD_REQUEST = Kind(
    "bad-request",
    400,
    "The request cannot be read",
    "The body is not JSON, or a header makes no sense.",
    "the body is not JSON: Expecting property name enclosed in double quotes at character 25",
)
UNAUTHENTICATED = Kind(
    "unauthenticated",
    401,
    "Who are you?",
    "No token, or one that does not work (any more).",
    "the token is not valid",
)
FORBIDDEN = Kind(
    "forbidden",
    403,
    "You may not do that",
    "The token works, but its role does not reach.",
    "this needs the role operator; the token has viewer",
)
NOT_FOUND = Kind(
    "not-found",
    404,
    "There is no such thing",
    "The id or the path does not exist (any more).",
    "there is no schedule nightly-exmaple",
)
METHOD = Kind(
    "method-not-allowed",
    405,
    "This path has other methods",
    "The header Allow names them.",
    "this path has GET, POST",
)
TIMEOUT = Kind(
    "request-timeout",
    408,
    "The body did not arrive in time",
    "Send the whole request at once.",
    "the body took longer than 10 s",
)
CONFLICT = Kind(
    "conflict",
    409,
    "That is not possible right now",
    "The state of the thing forbids it; the detail says why.",
    "the same request is being worked on; ask again for its answer",
)
CHANGED = Kind(
    "revision-conflict",
    412,
    "Somebody else changed it",
    "Load it again and repeat the change with its new ETag.",
    f"schedule {STORY['schedule_id']} is at revision {STORY['revision']}, not 4700: it was changed in the meantime; "
    "load it again and repeat the change",
)
TOO_LARGE = Kind(
    "body-too-large",
    413,
    "The body is too large",
    "WEB_MAX_BODY_BYTES limits it.",
    "at most 1048576 bytes are taken",
)
NOT_JSON = Kind(
    "unsupported-media-type",
    415,
    "Only JSON is understood",
    "Send Content-Type: application/json.",
    "send Content-Type: application/json",
)
INVALID = Kind(
    "invalid-input",
    422,
    "The input is not valid",
    "`errors` names every field that is wrong, with its reason.",
    "time_config.hour: must be between 0 and 23, got 25",
)
KEY_REUSED = Kind(
    "idempotency-key-reused",
    422,
    "This key belongs to another request",
    "Use a new Idempotency-Key for a new request.",
    "Idempotency-Key 'order-17' was sent with a different request before",
)
NO_CONDITION = Kind(
    "precondition-required",
    428,
    "Say which revision you mean",
    "Send If-Match with the ETag that you read.",
    "a replacement overwrites everything: send If-Match with the ETag that you read",
)
TOO_MANY = Kind(
    "too-many-requests",
    429,
    "Slow down",
    "Retry-After says for how many seconds.",
    "try again in 7 s",
)
INTERNAL = Kind(
    "internal-error",
    500,
    "Something went wrong here",
    "The log has more under the request_id.",
    "the request could not be answered",
)
UPSTREAM = Kind(
    "bad-gateway",
    502,
    "The other system gave no usable answer",
    "Nothing was changed; the detail says what it said.",
    "the API gave no usable answer: GET https://api.example.com/schedules: not JSON",
)
UNAVAILABLE = Kind(
    "unavailable",
    503,
    "A server does not answer",
    "Postgres is away or refuses; the same request may work later.",
    "Postgres does not answer",
)

PROBLEMS = (
    BAD_REQUEST, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, METHOD, TIMEOUT, CONFLICT, CHANGED, TOO_LARGE, NOT_JSON,
    INVALID, KEY_REUSED, NO_CONDITION, TOO_MANY, INTERNAL, UPSTREAM, UNAVAILABLE,
)  # fmt: skip
BY_STATUS = {kind.status: kind for kind in reversed(PROBLEMS)}


class HttpProblem(Exception):
    """Raised in a handler or on the way to it."""

    def __init__(
        self, kind: Kind, detail: str, errors: Sequence[Problem] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors, self.headers = kind, detail, errors, headers or {}


NO_JSON = "the body is not JSON"
# What Python's parser raises for a body before it can say where; FastAPI only says that there was an error.
UNREADABLE: dict[type[Exception], str] = {
    UnicodeDecodeError: "it is not UTF-8",
    RecursionError: "it is nested too deeply",
    ValueError: f"it has a number with more than {sys.get_int_max_str_digits():,} digits",
}

REFUSALS = (HttpProblem, InvalidInput, RequestValidationError, ScheduleNotFound, RevisionConflict, HTTPException)


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
    # In ASCII: what a caller sent may contain halves of characters that no UTF-8 can hold.
    content = json.dumps(body).encode()
    return Response(content, problem.kind.status, dict(problem.headers), MEDIA_TYPE)


def not_found(what: str) -> HttpProblem:
    return HttpProblem(NOT_FOUND, f"there is no {what}")


def is_refusal(error: Exception) -> bool:
    """Does this say that nothing was done?"""
    if isinstance(error, DBAPIError):
        return refusal(error) is not None
    return isinstance(error, REFUSALS)


def install(app: FastAPI) -> None:
    """Every exception that may leave a handler becomes a problem; for all others there is `RequestContext`."""
    app.add_exception_handler(HttpProblem, _ours)
    app.add_exception_handler(InvalidInput, _invalid_input)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(ScheduleNotFound, _schedule_not_found)
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
    problems = [Problem(_field(item["loc"]), _reason(item["msg"])) for item in error.errors()]
    for item in error.errors():
        if item["type"] == "json_invalid":
            where = f"{item['ctx']['error']} at character {item['loc'][-1]}"
            return problem_response(request, HttpProblem(BAD_REQUEST, f"{NO_JSON}: {where}"))
    return problem_response(request, HttpProblem(INVALID, "; ".join(map(str, problems)), problems))


def _schedule_not_found(request: Request, error: Exception) -> Response:
    return problem_response(request, HttpProblem(NOT_FOUND, str(error)))


def _revision_conflict(request: Request, error: Exception) -> Response:
    assert isinstance(error, RevisionConflict)  # noqa: S101
    return problem_response(request, HttpProblem(CHANGED, str(error), headers={"ETag": f'"{error.actual}"'}))


def _unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, Unavailable)  # noqa: S101
    detail = f"{error.server} does not answer"  # its address is nobody's business
    return problem_response(request, HttpProblem(UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_SECONDS)}))


def _refused_by_postgres(request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)  # noqa: S101
    if refusal(error) is None:
        raise error
    detail = "the database refuses that right now"
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
    """`("query", "limit")` is the field limit; what is wrong with the body as a whole is called body."""
    return ".".join(str(part) for part in location[1:]) or str(location[0])


def _reason(message: str) -> str:
    said = message.removeprefix("Value error, ")
    return said[:1].lower() + said[1:]
