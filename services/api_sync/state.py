"""The single row of `api_sync_state`: the lease of the running sync, and the result of the last one.

It is a lease, not a lock: it needs no open transaction or session during the API call, works behind a transaction
pooler, and expires when its owner dies. Every transaction of a sync renews it first, so a replica that was frozen
beyond its lease is fenced and writes nothing.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from pydantic import ValidationError
from sqlalchemy import Connection, text

from database.connection import DatabaseConnection
from services.api_sync.report import SyncReport
from services.errors import SchedulerError

# A live owner's lease is respected. A dead owner's lease is taken over at once. Otherwise the sync waits for its
# interval.
TAKE = text(
    """
    INSERT INTO api_sync_state AS state (only_row, lease_token, lease_owner, lease_until, started_at)
    VALUES (true, :token, :owner, clock_timestamp() + make_interval(secs => :seconds), clock_timestamp())
    ON CONFLICT (only_row) DO UPDATE SET
        lease_token = EXCLUDED.lease_token, lease_owner = EXCLUDED.lease_owner, lease_until = EXCLUDED.lease_until,
        started_at = EXCLUDED.started_at
    WHERE (state.lease_token IS NULL OR state.lease_until < clock_timestamp())
      AND (CAST(:interval AS double precision) IS NULL
           OR state.lease_token IS NOT NULL
           OR state.started_at IS NULL
           OR (state.started_at <= clock_timestamp() - make_interval(secs => CAST(:interval AS double precision))
               OR :restarted AND state.last ->> 'outcome' = 'failed')
              AND coalesce(state.not_before <= clock_timestamp(), true))
    RETURNING lease_token
    """
)
RENEW = text(
    """
    UPDATE api_sync_state SET lease_until = clock_timestamp() + make_interval(secs => :seconds)
    WHERE lease_token = :token
    """
)
END = text(
    """
    UPDATE api_sync_state SET
        lease_token = NULL, lease_owner = NULL, lease_until = NULL, last = CAST(:report AS jsonb),
        not_before = clock_timestamp() + make_interval(secs => CAST(:retry_after AS double precision)),
        synced_at = CASE WHEN :good THEN clock_timestamp() ELSE synced_at END,
        applied = CASE WHEN :whole THEN CAST(:report AS jsonb) ELSE applied END,
        rules = CASE WHEN :whole THEN :rules ELSE rules END,
        etag = CASE WHEN :whole THEN :etag ELSE etag END,
        last_modified = CASE WHEN :whole THEN :last_modified ELSE last_modified END
    WHERE lease_token = :token
    """
)
# As if the sync had not started: the next replica that checks may start it.
HAND_BACK = text(
    """
    UPDATE api_sync_state SET lease_token = NULL, lease_owner = NULL, lease_until = NULL, started_at = NULL
    WHERE lease_token = :token
    """
)
READ = text(
    """
    SELECT lease_token IS NOT NULL AND lease_until >= clock_timestamp() AS is_busy,
           lease_token IS NOT NULL AND lease_until < clock_timestamp() AS is_abandoned,
           lease_owner, started_at, not_before, rules, etag, last_modified, synced_at, last, applied,
           CAST(extract(epoch FROM clock_timestamp() - started_at) AS double precision) AS started_seconds_ago,
           CAST(extract(epoch FROM clock_timestamp() - synced_at) AS double precision) AS synced_seconds_ago
    FROM api_sync_state
    """
)


@dataclass(frozen=True, slots=True)
class Validators:
    """Validators for conditional requests (ETag, Last-Modified)."""

    etag: str | None = None
    last_modified: str | None = None

    def __bool__(self) -> bool:
        return bool(self.etag or self.last_modified)


@dataclass(frozen=True, slots=True)
class StoredState:
    is_busy: bool = False
    is_abandoned: bool = False  # the owner died during the sync
    lease_owner: str | None = None
    started_at: datetime | None = None
    started_seconds_ago: float | None = None
    not_before: datetime | None = None
    synced_at: datetime | None = None
    synced_seconds_ago: float | None = None
    rules: str | None = None
    validators: Validators = Validators()
    last: SyncReport | None = None
    applied: SyncReport | None = None


class LeaseLost(SchedulerError):
    def __init__(self) -> None:
        super().__init__("another replica took the sync over, because this one was silent for too long")


class Lease:
    """The right to sync. It must be renewed, and ended with a report or handed back."""

    def __init__(self, db: DatabaseConnection, token: UUID) -> None:
        self._db, self._token = db, token

    def renew(self, connection: Connection, seconds: float) -> None:
        """Also blocks a takeover until the transaction ends. Raises LeaseLost."""
        if connection.execute(RENEW, {"token": self._token, "seconds": seconds}).rowcount != 1:
            raise LeaseLost

    def hold(self, seconds: float) -> None:
        with self._db.transaction() as connection:
            self.renew(connection, seconds)

    def end(
        self,
        report: SyncReport,
        *,
        rules: str | None = None,
        validators: Validators = Validators(),
        retry_after_seconds: float | None = None,
    ) -> None:
        """`rules`: the whole response was applied under these rules. None: the previous response stays the last applied
        one.
        """
        values = {
            "token": self._token,
            "report": json.dumps(report.as_json()),
            "good": report.error is None,
            "whole": rules is not None,
            "rules": rules,
            "etag": validators.etag,
            "last_modified": validators.last_modified,
            "retry_after": retry_after_seconds,
        }
        with self._db.transaction() as connection:
            connection.execute(END, values)

    def hand_back(self) -> None:
        with self._db.transaction() as connection:
            connection.execute(HAND_BACK, {"token": self._token})


class SyncState:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def read(self) -> StoredState:
        with self._db.transaction() as connection:
            row = connection.execute(READ).mappings().first()
        if row is None:
            return StoredState()
        facts: dict[str, Any] = dict(row)
        validators = Validators(facts.pop("etag"), facts.pop("last_modified"))
        reports = {name: _report(facts[name]) for name in ("last", "applied")}
        return StoredState(**{**facts, **reports}, validators=validators)

    def take(
        self, owner: str, seconds: float, *, interval_seconds: float | None = None, restarted: bool = False
    ) -> Lease | None:
        """None: another process is syncing, or the sync is not due yet (with an interval).

        For a process that has just started, a failed sync is due at once.
        """
        token = uuid4()
        values = {"token": token, "owner": owner, "seconds": seconds, "interval": interval_seconds}
        values["restarted"] = restarted
        with self._db.transaction() as connection:
            taken = connection.execute(TAKE, values).first()
        return Lease(self._db, token) if taken else None


def _report(stored: dict[str, Any] | None) -> SyncReport | None:
    """A report of another version may have another form; it is for display only."""
    try:
        return SyncReport.from_json(stored) if stored else None
    except ValidationError:
        return None
