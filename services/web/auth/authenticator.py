"""Authentication: turns a bearer token, or otherwise the session cookie, into an `Identity`."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from services.web.auth.jwts import JwtVerifier
from services.web.auth.roles import BAD_TOKEN, NO_TOKEN, Identity, Refusal, Role
from services.web.auth.sessions import COOKIE, Sessions
from services.web.auth.tokens import ApiTokens, is_api_token

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_TOKEN_CHARACTERS = 8192


class OneTimeToken:
    """An admin token that is valid until this process exits and is held only in its memory."""

    def __init__(self) -> None:
        self.text = f"once_{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        self.identity = Identity("web:one-time-token", Role.ADMIN, f"once:{digest[:16]}")

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self.text.encode(), text.encode())


class Authenticator:
    """Safe to share between threads. The dashboard uses it too: `identify` takes headers and cookies, not a request."""

    def __init__(
        self, tokens: ApiTokens, jwts: JwtVerifier | None, sessions: Sessions, one_time: OneTimeToken | None = None
    ) -> None:
        self.tokens, self.sessions = tokens, sessions
        self._jwts, self._one_time = jwts, one_time

    def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Identity | Refusal:
        """The Authorization header takes precedence over the cookie."""
        if authorization := headers.get("authorization"):
            scheme, _, token = authorization.partition(" ")
            return self.verify(token.strip()) if scheme.lower() == "bearer" else NO_TOKEN
        if cookie := cookies.get(COOKIE):
            return self._verify_session(cookie)
        return NO_TOKEN

    def verify(self, token: str) -> Identity | Refusal:
        if not token or len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
            return BAD_TOKEN
        if self._one_time is not None and self._one_time.matches(token):
            return self._one_time.identity
        if is_api_token(token):
            return self.tokens.verify(token)
        return BAD_TOKEN if self._jwts is None else self._jwts.verify(token)

    def _verify_session(self, cookie: str) -> Identity | Refusal:
        session = self.sessions.read(cookie)
        if isinstance(session, Refusal):
            return session
        kind, _, key = session.source.partition(":")
        match kind:
            case "token":
                present = self.tokens.look_again(key)
                return present if isinstance(present, Refusal) else _in_session(present, session)
            case "once":
                known = self._one_time is not None and self._one_time.identity.source == session.source
                return session if known else BAD_TOKEN
            case "jwt":
                return session if self._jwts is not None else BAD_TOKEN
            case _:
                return BAD_TOKEN


def comes_from_our_pages(headers: Mapping[str, str]) -> bool:
    """Was a request with a cookie sent by a page of this site? Browsers say so in headers that scripts cannot set."""
    if origin := headers.get("origin"):
        return urlsplit(origin).netloc == headers.get("host")
    return headers.get("sec-fetch-site") == "same-origin"


def _in_session(present: Identity, session: Identity) -> Identity:
    """The token's current identity with the expiry of the session."""
    return Identity(present.actor, present.role, present.source, session.expires_at, by_cookie=True)
