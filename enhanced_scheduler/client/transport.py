"""One HTTP call to the scheduler's API: sent, repeated where that is safe, and read. Standard library only.

Repeated are GET, and a POST that the server recognises by its Idempotency-Key or that changes nothing the second time.
Any other request is repeated only after 429: the server has not begun it. Others may have been done.
"""

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener
from uuid import UUID, uuid4

Id = UUID | str | int
AGAIN = frozenset({429, 502, 503, 504})
NOT_BEGUN, CONFLICT = 429, 409
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 20.0


class ClientError(Exception):
    """The API did not do what was asked."""


class Unreachable(ClientError):
    """No answer came, or none that is HTTP. A request that is not repeated may have been carried out."""


class ApiError(ClientError):
    """The API refused; `problem` is its application/problem+json."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status, self.problem = status, dict(problem)
        self.fields: dict[str, str] = {each["field"]: each["reason"] for each in problem.get("errors") or ()}
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.fields.items())
        super().__init__(f"{status} {reasons or problem.get('detail') or problem.get('title') or ''}".strip())


class NotFound(ApiError):
    """404: there is no such schedule or execution."""


class Changed(ApiError):
    """412: another caller changed the schedule since the given revision."""


ERRORS: dict[int, type[ApiError]] = {404: NotFound, 412: Changed}


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    may_repeat: bool = False


def path(template: str, *parts: Id) -> str:
    """`/api/v3/schedules/{}` with a name in it, whatever characters the name has."""
    return template.format(*(quote(str(part), safe="") for part in parts))


def key(given: str | None) -> dict[str, str]:
    """A key of its own for each call, so that a repetition is recognised."""
    return {"Idempotency-Key": given or str(uuid4())}


def match(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If-Match": f'"{revision}"'}


class _NoRedirect(HTTPRedirectHandler):
    """The token must not travel to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Transport:
    def __init__(self, url: str, token: str, *, timeout_seconds: float, retries: int) -> None:
        self._url, self._token = url.rstrip("/"), token
        if not self._url.startswith(("http://", "https://")):
            raise ValueError(f"the URL must start with http:// or https://, got {url!r}")
        self._timeout_seconds, self._retries = timeout_seconds, retries
        self._opener = build_opener(_NoRedirect)

    def send(self, call: Call) -> Any:
        """The JSON of the answer; None if it has none."""
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                return self._once(call)
            except HTTPError as error:
                asked = _seconds(error.headers)
                if is_last or not _may_repeat(call, error.code, asked):
                    raise _refusal(error) from None
            except (OSError, HTTPException) as error:  # no connection, a lost one, a timeout, not HTTP
                asked = None
                if is_last or not call.may_repeat:
                    raise Unreachable(f"{call.method} {self._url}{call.path}: {error}") from error
            time.sleep(_pause(attempt) if asked is None else min(asked, LONGEST_PAUSE_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    def _once(self, call: Call) -> Any:
        wanted = {name: _text(value) for name, value in call.query.items() if value is not None}
        url = f"{self._url}{call.path}" + (f"?{urlencode(wanted, doseq=True)}" if wanted else "")
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **call.headers}
        data = None if call.body is None else json.dumps(call.body, default=_text).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = Request(url, data, headers, method=call.method)  # noqa: S310 - the scheme is checked
        with self._opener.open(request, timeout=self._timeout_seconds) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def _may_repeat(call: Call, status: int, asked: float | None) -> bool:
    in_progress = status == CONFLICT and asked is not None  # the first of our own requests, whose answer was lost
    return status == NOT_BEGUN or (call.may_repeat and (status in AGAIN or in_progress))


def _refusal(error: HTTPError) -> ApiError:
    try:
        problem = json.loads(error.read())
    except (OSError, ValueError, HTTPException):
        problem = {}
    found = cast(dict[str, Any], problem) if isinstance(problem, dict) else {}
    return ERRORS.get(error.code, ApiError)(error.code, {"title": str(error.reason), **found})


def _seconds(headers: Message) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None


def _pause(attempt: int) -> float:
    longest = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads the callers, hides nothing


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return [_text(each) for each in value] if isinstance(value, list | tuple) else str(value)
