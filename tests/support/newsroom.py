"""Schedules, executions and rules for tests of the notifier, made by plain SQL, and what was told."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row

from config import Settings
from database.connection import DatabaseConnection
from services.notifications.notifier import Notifier
from services.notifications.rules import RuleRecord, Rules

SCHEDULE = """
INSERT INTO schedules (domain_config_id, domain, frequency, time_config, name, tags, job_type, queue)
VALUES (gen_random_uuid(), 'example.com', 'daily', '{"hour": 2, "minute": 0}', %(name)s, %(tags)s, %(job_type)s,
        %(queue)s)
RETURNING schedule_id
"""
EXECUTION = """
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at, attempt, started_at, completed_at,
    duration_seconds, error_message, reason, scan_id)
SELECT s.schedule_id, coalesce(s.name, s.domain), s.domain, s.domain_config_id, %(status)s, %(at)s, %(at)s, %(attempt)s,
       %(started_at)s, CASE WHEN %(status)s IN ('pending', 'claimed', 'running') THEN NULL ELSE clock_timestamp() END,
       %(duration)s, %(error)s, %(reason)s, %(scan_id)s
FROM schedules AS s WHERE s.schedule_id = %(schedule_id)s
RETURNING execution_id
"""
FORGET_LEASE = "UPDATE notifier SET held_until = '-infinity'"


@dataclass(slots=True)
class Newsroom:
    db: DatabaseConnection
    notifiers: list[Notifier] = field(default_factory=list)
    fires: int = 0

    def notifier(self, name: str = "replica-1", gather_seconds: float = 0.0, **settings: Any) -> Notifier:
        """Sees everything at each tick; tells at once, unless it gathers."""
        made = Notifier(Settings(instance_id=name, **settings), self.db, timedelta(seconds=gather_seconds))
        self.notifiers.append(made)
        return made

    def channel(self, name: str = "ops") -> None:
        self.run(
            "INSERT INTO notification_channels (name, kind, config) VALUES (%(name)s, 'webhook', '{}') "
            "ON CONFLICT DO NOTHING",
            name=name,
        )

    def rule(self, *events: str, name: str = "all", channels: tuple[str, ...] = ("ops",), **more: Any) -> RuleRecord:
        for channel in channels:
            self.channel(channel)
        given = {"name": name, "channels": list(channels), **more}
        return Rules(self.db).add({**given, "events": list(events)} if events else given, "test")

    def schedule(
        self,
        name: str | None = None,
        tags: tuple[str, ...] = (),
        job_type: str = "http_request",
        queue: str | None = None,
    ) -> UUID:
        name = name or f"job-{uuid4().hex[:8]}"
        rows = self.run(SCHEDULE, name=name, tags=list(tags), job_type=job_type, queue=queue)
        found: UUID = rows[0].schedule_id
        return found

    def ended(self, schedule_id: UUID, status: str, connection: Connection | None = None, **more: Any) -> UUID:
        """An execution of the schedule's next fire that ends now."""
        self.fires += 1
        at = more.pop("at", None) or datetime.now(UTC) - timedelta(hours=1) + timedelta(milliseconds=self.fires)
        values = {"attempt": 1, "started_at": at, "duration": 0.1, "error": None, "reason": None, "scan_id": None}
        values |= {"schedule_id": schedule_id, "status": status, "at": at, **more}
        if connection is not None:
            found: UUID = connection.exec_driver_sql(EXECUTION, values).one().execution_id
            return found
        ended: UUID = self.run(EXECUTION, **values)[0].execution_id
        return ended

    def failed(self, schedule_id: UUID, error: str = "connection refused", **more: Any) -> UUID:
        return self.ended(schedule_id, "failed", error=error, **more)

    def told(self) -> list[Row[Any]]:
        """In the order in which it was written."""
        return self.run(
            "SELECT *, message->>'title' AS title, message->>'severity' AS severity FROM notification_deliveries "
            "ORDER BY created_at, delivery_id"
        )

    def events(self) -> list[str]:
        return [row.event for row in self.told()]

    def take_over(self) -> None:
        """As if the lease of the present holder had expired."""
        self.run(FORGET_LEASE)

    def position(self) -> dict[str, Any]:
        found: dict[str, Any] = self.run("SELECT position FROM notifier")[0].position
        return found

    @contextmanager
    def open_transaction(self) -> Iterator[Connection]:
        """Committed at the end of the block."""
        with self.db.engine.begin() as connection:
            yield connection

    def run(self, sql: str, **values: Any) -> list[Row[Any]]:
        with self.db.transaction() as connection:
            found = connection.exec_driver_sql(sql, values)
            return list(found) if found.returns_rows else []


def all_of(notifier: Notifier) -> None:
    """Ticks until nothing is left to look at; each looks at life signs, too."""
    notifier._look_at = 0.0
    while notifier.tick() == 0.0:
        notifier._look_at = 0.0
