"""The rule of every route, held before anything else of the request is read: 401, then 403, then the rest.

A handler names its rule in its signature (`who: Operator`). A route without one cannot be made.
"""

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from services.checks import strict_json
from services.errors import InvalidInput, Problem
from services.web.auth.authenticator import SAFE_METHODS, comes_from_our_pages
from services.web.auth.roles import Identity, Refusal, Role
from services.web.auth.sessions import COOKIE
from services.web.idempotency import Begun, InProgress, OtherRequest, Remembered, Unknown, digest_of
from services.web.middleware import address_of
from services.web.parts import Parts, parts_of
from services.web.problems import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    KEY_REUSED,
    NOT_JSON,
    TIMEOUT,
    TOO_MANY,
    UNAUTHENTICATED,
    HttpProblem,
    is_refusal,
)

BODY_SECONDS = 10.0
KEY_HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
bearer = HTTPBearer(auto_error=False, description="An API token (`es_…`) or a JWT (HS256).")


class Needs:
    """The least role that a caller must have."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request, _: Annotated[Any, Security(bearer)]) -> Identity:
        identity: Identity = request.state.identity  # the guard has put it there
        return identity


class Open:
    """Everybody may. `limited` is false for what probes ask all the time."""

    role = None

    def __init__(self, limited: bool = True) -> None:
        self.limited = limited

    async def __call__(self) -> None:
        return None


Viewer = Annotated[Identity, Depends(Needs(Role.VIEWER))]
Operator = Annotated[Identity, Depends(Needs(Role.OPERATOR))]
Admin = Annotated[Identity, Depends(Needs(Role.ADMIN))]
Anybody = Annotated[None, Depends(Open())]
Probe = Annotated[None, Depends(Open(limited=False))]
LogsIn = Annotated[None, Depends(Open(limited=False))]  # limits itself, by the token that it is about

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=KEY_HEADER,
        max_length=255,
        description="With the same key the request is done once; the answer is repeated for 24 hours.",
    ),
]


def rule_of(route: APIRoute) -> Needs | Open:
    """Raises TypeError for a route that names none."""
    for dependency in route.dependant.dependencies:
        if isinstance(dependency.call, Needs | Open):
            return dependency.call
    raise TypeError(f"{route.path} has no rule: its handler must name Viewer, Operator, Admin, Anybody or Probe")


class GuardedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, rule = super().get_route_handler(), rule_of(self)
        known = _query_of(self.dependant)
        takes_key = any(param.alias == KEY_HEADER for param in self.dependant.header_params)

        async def guarded(request: Request) -> Response:
            await _admit(request, rule)
            _check_query(request, known)
            body = await _read_body(request)
            key = request.headers.get(KEY_HEADER) if takes_key else None
            return await handle(request) if key is None else await _once(request, key, body, handle)

        return guarded


# --- who may ---


async def _admit(request: Request, rule: Needs | Open) -> None:
    parts = parts_of(request)
    if isinstance(rule, Open):
        if rule.limited:
            _limit(parts, f"address:{address_of(request.scope)}")
        return
    if proof := request.headers.get("authorization") or request.cookies.get(COOKIE):
        limit_proof(parts, proof)
    found = await run_in_threadpool(parts.authenticator.identify, request.headers, request.cookies)
    if isinstance(found, Refusal):
        limit_refused(parts, request)
        challenge = 'Bearer error="invalid_token"' if "authorization" in request.headers else "Bearer"
        raise HttpProblem(UNAUTHENTICATED, found.reason, headers={"WWW-Authenticate": challenge})
    _limit(parts, found.actor)
    request.state.identity = found
    _check(request, found, rule.role)


def limit_proof(parts: Parts, proof: str) -> None:
    """Before Postgres is asked about it; not by the address, which others share who have a good one."""
    _limit(parts, f"proof:{hashlib.sha256(proof.encode('utf-8', 'surrogatepass')).hexdigest()}")


def limit_refused(parts: Parts, request: Request) -> None:
    """A bucket that only the refused use: who guesses locks nobody out."""
    _limit(parts, f"refused:{address_of(request.scope)}")


def _limit(parts: Parts, caller: str) -> None:
    seconds = math.ceil(parts.limits.seconds_to_wait(caller))
    if seconds:
        raise HttpProblem(TOO_MANY, f"try again in {seconds} s", headers={"Retry-After": str(seconds)})


def _check(request: Request, identity: Identity, role: Role) -> None:
    if not identity.may(role):
        raise HttpProblem(FORBIDDEN, f"this needs the role {role}; the token has {identity.role or 'none'}")
    if identity.by_cookie and request.method not in SAFE_METHODS and not comes_from_our_pages(request.headers):
        raise HttpProblem(FORBIDDEN, "a session is good for requests from this site's own pages only")


# --- what they send ---


def _query_of(dependant: Dependant) -> frozenset[str]:
    """The parameters that a route has, those of what it depends on included."""
    own = frozenset(param.alias for param in dependant.query_params)
    return own.union(*(_query_of(inner) for inner in dependant.dependencies))


def _check_query(request: Request, known: frozenset[str]) -> None:
    """A filter with a typo would be none, of one given twice only the last would count: the list would not be what
    somebody thinks. Who has no filters has no typos.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    if known and (strangers := sorted(given.keys() - known)):
        reason = f"is no parameter of this path (known: {', '.join(sorted(known))})"
        raise InvalidInput(*(Problem(name[:100], reason) for name in strangers[:10]))
    if repeated := sorted(name for name in known if given[name] > 1):
        raise InvalidInput(*(Problem(name, "is given more than once; one value counts") for name in repeated))


async def _read_body(request: Request) -> bytes:
    if request.method in SAFE_METHODS:
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.body()
    except TimeoutError:
        raise HttpProblem(TIMEOUT, f"the body took longer than {BODY_SECONDS:g} s") from None
    if body and not _is_json(request.headers.get("content-type", "")):
        raise HttpProblem(NOT_JSON, "send Content-Type: application/json")
    await run_in_threadpool(_check_keys, body)
    return body


def _check_keys(body: bytes) -> None:
    """The framework reads the body once more, and finds words for everything else that is wrong with it."""
    try:
        strict_json.loads(body or b"null")
    except strict_json.DuplicateKey as error:
        raise HttpProblem(BAD_REQUEST, f"the body has the key {error.key!r} twice in one object") from None
    except (ValueError, RecursionError):
        return


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


# --- once ---


async def _once(
    request: Request, key: str, body: bytes, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise HttpProblem(BAD_REQUEST, f"{KEY_HEADER} must be 1 to 255 printable ASCII characters")
    keys, caller = parts_of(request).idempotency, request.state.identity.actor
    target = request.url.path + "?" + request.url.query
    match await run_in_threadpool(keys.begin, caller, key, digest_of(request.method, target, body)):
        case OtherRequest():
            raise HttpProblem(KEY_REUSED, f"{KEY_HEADER} {key!r} was sent with a different request before")
        case InProgress():
            detail = "the same request is being worked on; ask again for its answer"
            raise HttpProblem(CONFLICT, detail, headers={"Retry-After": "1"})
        case Unknown():
            detail = "the same request was cut off, and may have been done; look, and use a new key if it was not"
            raise HttpProblem(CONFLICT, detail)
        case Remembered() as answer:
            return Response(answer.body, answer.status_code, {**answer.headers, REPLAYED: "true"})
        case Begun() as begun:
            return await _remember(request, key, begun, handle)


async def _remember(
    request: Request, key: str, begun: Begun, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """The key stays when nobody knows whether the work was done: Postgres may vanish right after a commit."""
    keys, caller = parts_of(request).idempotency, request.state.identity.actor
    try:
        response = await handle(request)
    except Exception as error:
        if is_refusal(error):
            await run_in_threadpool(keys.drop, caller, key, begun)
        raise
    if 200 <= response.status_code < 300:
        kept = {name: value for name, value in response.headers.items() if name != "content-length"}
        answer = Remembered(response.status_code, kept, bytes(response.body))
        await run_in_threadpool(keys.finish, caller, key, begun, answer)
    else:
        await run_in_threadpool(keys.drop, caller, key, begun)
    return response
