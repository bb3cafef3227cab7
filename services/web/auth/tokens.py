"""Named API tokens: `es_<id>_<secret>`. The table stores the SHA-256 of the secret, which has 256 random bits.

A token is shown once, when it is created. Neither the response nor its timing reveals whether an id exists.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from database.connection import DatabaseConnection
from database.models import ApiToken
from services.errors import InvalidInput, Problem
from services.schedules.spec import plain_text
from services.web.auth.roles import BAD_TOKEN, EXPIRED, REVOKED, Identity, Refusal, Role

FORM = re.compile(r"es_([0-9a-f]{12})_([0-9a-f]{64})")
USED_AGAIN = timedelta(minutes=1)  # resolution of last_used_at
MAX_NAME = 100
NOBODY = hashlib.sha256(secrets.token_bytes()).digest()  # compared in place of the digest of an unknown id


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A row of `api_tokens`, without the digest."""

    token_id: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        expired = self.expires_at is not None and self.expires_at <= datetime.now(UTC)
        return "expired" if expired else "active"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token with its secret, which is known only now."""

    record: TokenRecord
    text: str


_COLUMNS = [getattr(ApiToken, name) for name in TokenRecord.__dataclass_fields__]


class ApiTokens:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def create(self, name: str, role: Role, actor: str, expires_at: datetime | None = None) -> NewToken:
        token_id, secret = secrets.token_hex(6), secrets.token_hex(32)
        values = {
            "token_id": token_id,
            "name": _name(name),
            "role": role,
            "digest": _digest(secret),
            "created_by": plain_text("actor", actor),
            "expires_at": _in_the_future(expires_at),
        }
        try:
            with self._db.transaction() as connection:
                row = connection.execute(insert(ApiToken).values(values).returning(*_COLUMNS)).one()
        except IntegrityError:
            raise InvalidInput(Problem("name", f"a token named {values['name']!r} already exists")) from None
        return NewToken(_to_record(row), f"es_{token_id}_{secret}")

    def list(self) -> list[TokenRecord]:
        """Newest first, including expired and revoked tokens."""
        with self._db.transaction() as connection:
            rows = connection.execute(select(*_COLUMNS).order_by(ApiToken.created_at.desc(), ApiToken.token_id))
            return [_to_record(row) for row in rows]

    def revoke(self, reference: str, actor: str) -> TokenRecord | None:
        """By id, or by the name of one that is not revoked yet; None when there is no such token."""
        named = or_(ApiToken.token_id == plain_text("token", reference), ApiToken.name == reference)
        change = update(ApiToken).where(named, ApiToken.revoked_at.is_(None))
        change = change.values(revoked_at=func.clock_timestamp(), revoked_by=plain_text("actor", actor))
        with self._db.transaction() as connection:
            row = connection.execute(change.returning(*_COLUMNS)).first()
        return _to_record(row) if row else None

    def exist(self) -> bool:
        """Is there an active token?"""
        working = (ApiToken.revoked_at.is_(None), _not_expired())
        with self._db.transaction() as connection:
            return connection.execute(select(ApiToken.token_id).where(*working).limit(1)).first() is not None

    def verify(self, text: str) -> Identity | Refusal:
        """`text` has the form of an API token."""
        token_id, secret = text[3:15], text[16:]
        row = self._read(token_id)
        if not hmac.compare_digest(_digest(secret), bytes(row.digest) if row else NOBODY) or row is None:
            return BAD_TOKEN
        return self._judge(row)

    def look_again(self, token_id: str) -> Identity | Refusal:
        """For a session that was begun with this token."""
        row = self._read(token_id)
        return BAD_TOKEN if row is None else self._judge(row)

    def _judge(self, row: Any) -> Identity | Refusal:
        if row.revoked_at is not None:
            return REVOKED
        if row.is_expired:
            return EXPIRED
        if row.is_fresh_use:
            self._note_use(row.token_id)
        expires_at = None if row.expires_at is None else row.expires_at.timestamp()
        return Identity(f"token:{row.name}", Role(row.role), f"token:{row.token_id}", expires_at)

    def _read(self, token_id: str) -> Any:
        seen = func.clock_timestamp() - USED_AGAIN
        query = select(
            *_COLUMNS,
            ApiToken.digest,
            (~_not_expired()).label("is_expired"),
            or_(ApiToken.last_used_at.is_(None), ApiToken.last_used_at < seen).label("is_fresh_use"),
        )
        with self._db.transaction() as connection:
            row: Any = connection.execute(query.where(ApiToken.token_id == token_id)).first()
        return row

    def _note_use(self, token_id: str) -> None:
        with self._db.transaction() as connection:
            used = update(ApiToken).where(ApiToken.token_id == token_id)
            connection.execute(used.values(last_used_at=func.clock_timestamp()))


def is_api_token(text: str) -> bool:
    return FORM.fullmatch(text) is not None


def _not_expired() -> Any:
    return or_(ApiToken.expires_at.is_(None), ApiToken.expires_at > func.clock_timestamp())


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _to_record(row: Row[Any]) -> TokenRecord:
    return TokenRecord(**{**row._mapping, "role": Role(row.role)})


def _name(name: str) -> str:
    cleaned = name.strip()
    if not 1 <= len(cleaned) <= MAX_NAME or not cleaned.isprintable():
        raise InvalidInput(Problem("name", f"must be 1 to {MAX_NAME} printable characters"))
    return cleaned


def _in_the_future(expires_at: datetime | None) -> datetime | None:
    if expires_at is None:
        return None
    if expires_at.tzinfo is None:
        raise InvalidInput(Problem("expires_at", f"needs a UTC offset, as in {expires_at.isoformat()}+00:00"))
    if expires_at <= datetime.now(UTC):
        raise InvalidInput(Problem("expires_at", f"must be in the future, got {expires_at.isoformat()}"))
    return expires_at
