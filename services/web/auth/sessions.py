"""Browser sessions: a signed cookie that names its token, which is checked again on every request.

Sessions are not stored. Logging out clears the cookie; this process also refuses it from then on.
"""

import hashlib
import hmac
import secrets
import time

import jwt

from config import Settings
from services.web.auth.roles import BAD_TOKEN, EXPIRED, Identity, Refusal, Role

COOKIE = "scheduler_session"
AUDIENCE = "enhanced-scheduler-session"
ALGORITHM = "HS256"


class Sessions:
    """Safe to share between threads."""

    def __init__(self, key: bytes, lifetime_seconds: float) -> None:
        self._key, self._lifetime = key, lifetime_seconds
        self._ended: dict[str, float] = {}  # session -> when it would have expired

    @classmethod
    def from_settings(cls, settings: Settings) -> "Sessions":
        return cls(_key(settings), settings.web_session_hours * 3600)

    def begin(self, identity: Identity) -> tuple[str, int]:
        """The cookie's value and its lifetime in seconds, never longer than that of the token."""
        now = time.time()
        expires_at = min(now + self._lifetime, identity.expires_at or float("inf"))
        claims = {
            "aud": AUDIENCE,
            "jti": secrets.token_hex(16),
            "exp": int(expires_at),
            "sub": identity.source,
            "actor": identity.actor,
            "role": identity.role,
        }
        return jwt.encode(claims, self._key, algorithm=ALGORITHM), max(0, int(expires_at - now))

    def read(self, cookie: str) -> Identity | Refusal:
        """The identity that started the session. The caller checks whether its token is still valid."""
        try:
            claims = jwt.decode(
                cookie, self._key, algorithms=[ALGORITHM], audience=AUDIENCE, options={"require": ["exp", "jti", "sub"]}
            )
        except jwt.ExpiredSignatureError:
            return EXPIRED
        except jwt.InvalidTokenError:
            return BAD_TOKEN
        if claims["jti"] in self._ended:
            return EXPIRED
        role = None if claims["role"] is None else Role(claims["role"])
        return Identity(claims["actor"], role, claims["sub"], float(claims["exp"]), by_cookie=True)

    def end(self, cookie: str) -> None:
        """Refuse this cookie from now on, including any copies of it."""
        now = time.time()
        try:
            claims = jwt.decode(cookie, self._key, algorithms=[ALGORITHM], audience=AUDIENCE)
        except jwt.InvalidTokenError:
            return
        self._ended = {name: at for name, at in self._ended.items() if at > now} | {claims["jti"]: claims["exp"]}


def _key(settings: Settings) -> bytes:
    """A derived key: a JWT of the other system must never pass as a session, nor vice versa."""
    for setting in (settings.web_session_secret_key, settings.jwt_secret_key):
        if setting is not None:
            return hmac.digest(setting.get_secret_value().encode(), AUDIENCE.encode(), hashlib.sha256)
    return secrets.token_bytes(32)
