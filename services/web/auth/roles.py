"""Roles, and the identity of a caller."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Each role includes the one before it."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # run, cancel, retry, switch, create and edit schedules
    ADMIN = "admin"  # delete, bulk, tokens, sync

    def includes(self, other: "Role") -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller."""

    actor: str  # what the audit trail says: token:ci, jwt:4711
    role: Role | None  # None: authenticated, but without any permission
    source: str  # the credential behind it, which a session checks again: an API token's id, a JWT's subject …
    expires_at: float | None = None  # seconds since 1970
    by_cookie: bool = False  # browsers send cookies on their own, so the guard checks the origin of the request

    def may(self, role: Role) -> bool:
        return self.role is not None and self.role.includes(role)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why authentication failed. Details about a token are given only if its secret was correct."""

    reason: str


NO_TOKEN = Refusal("send a token: Authorization: Bearer <token>")
BAD_TOKEN = Refusal("the token is not valid")
EXPIRED = Refusal("the token has expired")
REVOKED = Refusal("the token was revoked")
