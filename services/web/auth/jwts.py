"""JWTs issued by another system: HS256 only; expiry, audience and subject are required."""

from collections.abc import Mapping
from typing import Any

import jwt

from config import Settings
from services.web.auth.roles import BAD_TOKEN, EXPIRED, Identity, Refusal, Role

ALGORITHMS = ["HS256"]  # never the algorithm named in the token
REQUIRED = ["exp", "sub", "aud"]
LEEWAY_SECONDS = 5
MAX_SUBJECT = 200
LATEST = 253_402_300_799  # the end of 9999; larger values are milliseconds by mistake


class JwtVerifier:
    def __init__(
        self,
        secret: str,
        *,
        audience: str = "authenticated",
        issuer: str | None = None,
        role_claim: str = "role",
        default_role: Role | None = None,
    ) -> None:
        self._secret, self._audience, self._issuer = secret, audience, issuer
        self._role_claim, self._default_role = role_claim.split("."), default_role

    @classmethod
    def from_settings(cls, settings: Settings) -> "JwtVerifier | None":
        if settings.jwt_secret_key is None:
            return None
        default = settings.jwt_default_role
        return cls(
            settings.jwt_secret_key.get_secret_value(),
            audience=settings.jwt_audience,
            issuer=settings.jwt_issuer,
            role_claim=settings.jwt_role_claim,
            default_role=None if default == "none" else Role(default),
        )

    def verify(self, text: str) -> Identity | Refusal:
        try:
            claims = jwt.decode(
                text,
                self._secret,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": REQUIRED},
            )
        except jwt.ExpiredSignatureError:
            return EXPIRED
        except (jwt.InvalidTokenError, OverflowError):  # OverflowError: an infinite number
            return BAD_TOKEN
        return self._identify(claims)

    def _identify(self, claims: Mapping[str, Any]) -> Identity | Refusal:
        subject = str(claims["sub"])
        if not 1 <= len(subject) <= MAX_SUBJECT or not subject.isprintable():
            return BAD_TOKEN
        if claims["exp"] > LATEST:
            return BAD_TOKEN
        return Identity(f"jwt:{subject}", self._role(claims), f"jwt:{subject}", float(claims["exp"]))

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        found: Any = claims
        for part in self._role_claim:
            found = found.get(part) if isinstance(found, Mapping) else None
        return Role(found) if isinstance(found, str) and found in list(Role) else self._default_role
