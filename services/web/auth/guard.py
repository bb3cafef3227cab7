"""Access rules of the routes, checked before the body is read: 401, then 403, then everything else.

A handler declares its rule in its signature (`who: Operator`). A route without a rule is refused at import.
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
    """The minimum role of the caller."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request, _: Annotated[Any, Security(bearer)]) -> Identity:
        identity: Identity = request.state.identity  # set by the guard
        return identity


class Open:
    """No token needed. `limited=False` exempts a route from the rate limit, as probes need."""

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
LogsIn = Annotated[None, Depends(Open(limited=False))]  # the handler limits attempts per token itself

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=KEY_HEADER,
        max_length=255,
        description="Requests with the same key are carried out once. Repeats get the first response for 24 hours.",
    ),
]


def rule_of(route: APIRoute) -> Needs | Open:
    """Raises TypeError for a route without a rule."""
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


# --- authorization ---


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
    """Limit by token before asking Postgres; callers with valid tokens may share the address."""
    _limit(parts, f"proof:{hashlib.sha256(proof.encode('utf-8', 'surrogatepass')).hexdigest()}")


def limit_refused(parts: Parts, request: Request) -> None:
    """A separate bucket for refused callers, so that guessing tokens locks out no valid caller."""
    _limit(parts, f"refused:{address_of(request.scope)}")


def _limit(parts: Parts, caller: str) -> None:
    seconds = math.ceil(parts.limits.seconds_to_wait(caller))
    if seconds:
        raise HttpProblem(TOO_MANY, f"rate limit exceeded; retry in {seconds} s", headers={"Retry-After": str(seconds)})


def _check(request: Request, identity: Identity, role: Role) -> None:
    if not identity.may(role):
        raise HttpProblem(FORBIDDEN, f"this requires the role {role}; the token has {identity.role or 'none'}")
    if identity.by_cookie and request.method not in SAFE_METHODS and not comes_from_our_pages(request.headers):
        raise HttpProblem(FORBIDDEN, "a session cookie is valid only for requests from this site's own pages")


# --- input ---


def _query_of(dependant: Dependant) -> frozenset[str]:
    """The query parameters of a route, including those of its dependencies."""
    own = frozenset(param.alias for param in dependant.query_params)
    return own.union(*(_query_of(inner) for inner in dependant.dependencies))


def _check_query(request: Request, known: frozenset[str]) -> None:
    """Refuse unknown and repeated parameters: a misspelt filter would silently return an unfiltered list.

    Routes without parameters are exempt.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    if known and (strangers := sorted(given.keys() - known)):
        reason = f"is not a parameter of this path (known: {', '.join(sorted(known))})"
        raise InvalidInput(*(Problem(name[:100], reason) for name in strangers[:10]))
    if repeated := sorted(name for name in known if given[name] > 1):
        raise InvalidInput(*(Problem(name, "is given more than once; send a single value") for name in repeated))


async def _read_body(request: Request) -> bytes:
    if request.method in SAFE_METHODS:
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.body()
    except TimeoutError:
        raise HttpProblem(TIMEOUT, f"the body did not arrive within {BODY_SECONDS:g} s") from None
    if body and not _is_json(request.headers.get("content-type", "")):
        raise HttpProblem(NOT_JSON, "send Content-Type: application/json")
    await run_in_threadpool(_check_keys, body)
    return body


def _check_keys(body: bytes) -> None:
    """Refuse duplicate keys. The framework parses the body again and reports every other error."""
    try:
        strict_json.loads(body or b"null")
    except strict_json.DuplicateKey as error:
        raise HttpProblem(BAD_REQUEST, f"the body has the key {error.key!r} twice in one object") from None
    except (ValueError, RecursionError):
        return


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


# --- idempotency ---


async def _once(
    request: Request, key: str, body: bytes, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise HttpProblem(BAD_REQUEST, f"{KEY_HEADER} must be 1 to 255 printable ASCII characters")
    keys, caller = parts_of(request).idempotency, request.state.identity.actor
    target = request.url.path + "?" + request.url.query
    match await run_in_threadpool(keys.begin, caller, key, digest_of(request.method, target, body)):
        case OtherRequest():
            raise HttpProblem(KEY_REUSED, f"{KEY_HEADER} {key!r} was already used for a different request")
        case InProgress():
            detail = "the same request is still being processed; retry to get its response"
            raise HttpProblem(CONFLICT, detail, headers={"Retry-After": "1"})
        case Unknown():
            detail = (
                "the same request was interrupted and may have been carried out; check its effect, "
                "and send it with a new key if it was not"
            )
            raise HttpProblem(CONFLICT, detail)
        case Remembered() as answer:
            return Response(answer.body, answer.status_code, {**answer.headers, REPLAYED: "true"})
        case Begun() as begun:
            return await _remember(request, key, begun, handle)


async def _remember(
    request: Request, key: str, begun: Begun, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Keep the key when the outcome is unknown: Postgres may disconnect right after a commit."""
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
