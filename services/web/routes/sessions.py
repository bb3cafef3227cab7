"""/api/v3/session: exchanges a token for a session cookie that scripts cannot read."""

from datetime import UTC, datetime

from fastapi import Request, Response

from services.web.auth.guard import Anybody, LogsIn, Viewer, limit_proof, limit_refused
from services.web.auth.roles import Identity, Refusal, Role
from services.web.auth.sessions import COOKIE
from services.web.parts import Parts
from services.web.problems import FORBIDDEN, UNAUTHENTICATED, HttpProblem
from services.web.routing import API, PartsOf, router
from services.web.schemas.system import LogIn, SessionOut

sessions = router(f"{API}/session", "session")


@sessions.post("")
def log_in(body: LogIn, request: Request, response: Response, parts: PartsOf, everybody: LogsIn) -> SessionOut:
    """Start a session. The cookie is HttpOnly and SameSite=Strict; WEB_SECURE_COOKIE makes it Secure."""
    limit_proof(parts, body.token)
    found = parts.authenticator.verify(body.token)
    if isinstance(found, Refusal):
        limit_refused(parts, request)
        raise HttpProblem(UNAUTHENTICATED, found.reason, headers={"WWW-Authenticate": "Bearer"})
    if found.role is None:
        raise HttpProblem(FORBIDDEN, "the token has no role in this API")
    cookie, seconds = parts.authenticator.sessions.begin(found)
    secure = _is_secure(request, parts)
    response.set_cookie(COOKIE, cookie, max_age=seconds, path="/", httponly=True, samesite="strict", secure=secure)
    return _session_out(found, found.role)


@sessions.get("", summary="Read Session")
def read_session(who: Viewer) -> SessionOut:
    """The caller's identity and role."""
    return _session_out(who, who.role or Role.VIEWER)


@sessions.delete("", status_code=204)
def log_out(request: Request, response: Response, parts: PartsOf, everybody: Anybody) -> None:
    """End the session."""
    if cookie := request.cookies.get(COOKIE):
        parts.authenticator.sessions.end(cookie)
    secure = _is_secure(request, parts)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=secure)


def _is_secure(request: Request, parts: Parts) -> bool:
    chosen = parts.settings.web_secure_cookie
    return request.url.scheme == "https" if chosen is None else chosen


def _session_out(identity: Identity, role: Role) -> SessionOut:
    expires_at = None if identity.expires_at is None else datetime.fromtimestamp(identity.expires_at, UTC)
    return SessionOut(actor=identity.actor, role=role, expires_at=expires_at)
