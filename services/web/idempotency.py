"""Idempotency keys: a POST is carried out once, and repeats get the stored response for 24 hours.

Only successful responses are stored: a refused request changed nothing, so its key stays free. An interrupted request
(its process or Postgres died) may have been carried out, so its key stays taken without a response. Each caller has its
own keys.
"""

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from database.connection import DatabaseConnection

KEEP_SECONDS = 86_400
# Longer than any handler takes: a request without a response by then was interrupted.
ABANDONED_SECONDS = 300
TIDY_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Begun:
    """This call has to carry out the request."""

    started_at: datetime


@dataclass(frozen=True, slots=True)
class Remembered:
    status_code: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class InProgress:
    pass


@dataclass(frozen=True, slots=True)
class Unknown:
    """Interrupted: the request may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class OtherRequest:
    pass


# The call that inserts the row, or takes over an expired one, carries out the request.
BEGIN = """
INSERT INTO idempotency_keys AS known (caller, key, digest) VALUES (%(caller)s, %(key)s, %(digest)s)
ON CONFLICT (caller, key) DO UPDATE SET
    digest = excluded.digest, started_at = clock_timestamp(), status_code = NULL, headers = NULL, body = NULL
WHERE known.started_at < clock_timestamp() - make_interval(secs => %(keep)s)
RETURNING started_at
"""
READ = """
SELECT digest, status_code, headers, body,
       started_at < clock_timestamp() - make_interval(secs => %(abandoned)s) AS is_abandoned
FROM idempotency_keys WHERE caller = %(caller)s AND key = %(key)s
"""
# started_at proves that no other call has taken over the key.
FINISH = """
UPDATE idempotency_keys SET status_code = %(status)s, headers = %(headers)s::jsonb, body = %(body)s
WHERE caller = %(caller)s AND key = %(key)s AND started_at = %(started_at)s
"""
DROP = "DELETE FROM idempotency_keys WHERE caller = %(caller)s AND key = %(key)s AND started_at = %(started_at)s"
TIDY = "DELETE FROM idempotency_keys WHERE started_at < clock_timestamp() - make_interval(secs => %(keep)s)"


class IdempotencyKeys:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db
        self._tidy_at = 0.0
        self._lock = threading.Lock()

    def begin(self, caller: str, key: str, digest: bytes) -> Begun | Remembered | InProgress | Unknown | OtherRequest:
        self._tidy()
        values = {"caller": caller, "key": key, "digest": digest, "abandoned": ABANDONED_SECONDS, "keep": KEEP_SECONDS}
        while True:
            with self._db.transaction() as connection:
                begun = connection.exec_driver_sql(BEGIN, values).first()
                if begun is not None:
                    return Begun(begun.started_at)
                row = connection.exec_driver_sql(READ, values).first()
            if row is not None:  # None: the other call dropped the key between the two statements
                return _state_of(row, digest)

    def finish(self, caller: str, key: str, begun: Begun, answer: Remembered) -> None:
        values = {"status": answer.status_code, "headers": json.dumps(dict(answer.headers)), "body": answer.body}
        self._run(FINISH, caller=caller, key=key, started_at=begun.started_at, **values)

    def drop(self, caller: str, key: str, begun: Begun) -> None:
        """Nothing was changed, so the key may be used again."""
        self._run(DROP, caller=caller, key=key, started_at=begun.started_at)

    def _tidy(self) -> None:
        with self._lock:
            if time.monotonic() < self._tidy_at:
                return
            self._tidy_at = time.monotonic() + TIDY_SECONDS
        self._run(TIDY, keep=KEEP_SECONDS)

    def _run(self, statement: str, **values: Any) -> None:
        with self._db.transaction() as connection:
            connection.exec_driver_sql(statement, values)


def digest_of(method: str, target: str, body: bytes) -> bytes:
    """Two requests are the same if method, target and body are equal."""
    return hashlib.sha256(b"\n".join((method.encode(), target.encode(), body))).digest()


def _state_of(row: Any, digest: bytes) -> Remembered | InProgress | Unknown | OtherRequest:
    if bytes(row.digest) != digest:
        return OtherRequest()
    if row.status_code is None:
        return Unknown() if row.is_abandoned else InProgress()
    return Remembered(row.status_code, row.headers, bytes(row.body))
