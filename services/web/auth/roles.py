"""Roles, and the caller that has one."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Each may do what the one before it may, and more."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # run, cancel, retry, switch, create and edit schedules
    ADMIN = "admin"  # delete, bulk, tokens, sync

    def includes(self, other: "Role") -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller that has proven who it is."""

    actor: str  # what the audit trail says: token:ci, jwt:4711
    role: Role | None  # None: known, and allowed nothing
    source: str  # the proof behind it, for a session to look at again: an API token's id, a JWT's subject …
    expires_at: float | None = None  # seconds since 1970
    by_cookie: bool = False  # a browser sends it by itself, so the request's origin has to be looked at

    def may(self, role: Role) -> bool:
        return self.role is not None and self.role.includes(role)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a caller is nobody. Says what is wrong with a token only if its secret was right."""

    reason: str


NO_TOKEN = Refusal("send a token: Authorization: Bearer <token>")
BAD_TOKEN = Refusal("the token is not valid")
EXPIRED = Refusal("the token has expired")
REVOKED = Refusal("the token was revoked")
