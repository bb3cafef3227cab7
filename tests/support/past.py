"""A past for tests of the audit: schedules, changes and executions as if they had been made at some time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from database.connection import DatabaseConnection
from services.schedule_repository import ScheduleRepository
from tests.support.schedules import VALID


@dataclass(slots=True)
class Past:
    """Makes schedules, changes and executions as if they had been made at that time."""

    db: DatabaseConnection
    repository: ScheduleRepository

    def create(self, at: datetime, **definition: Any) -> UUID:
        schedule_id = self.repository.create_schedule(**{**VALID, **definition})
        self._happened(schedule_id, at)
        return schedule_id

    def change(self, at: datetime, schedule_id: UUID, **changes: Any) -> None:
        self.repository.update_schedule(schedule_id, **changes)
        self._happened(schedule_id, at)

    def delete(self, at: datetime, schedule_id: UUID) -> None:
        assert self.repository.delete_schedule(schedule_id)
        self._happened(schedule_id, at)

    def ran(self, schedule_id: UUID, fires: Iterable[datetime], status: str = "success", **more: Any) -> None:
        columns = {"reason": None, "cause": "schedule", "metadata": None, "attempt": 1, "created_at": None, **more}
        for at in fires:
            self.run(
                """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for,
                       due_at, created_at, completed_at, incarnation, instance_id, reason, cause, metadata, attempt)
                   VALUES (%(id)s, 'job', 'example.com', %(id)s, %(status)s, %(at)s, %(at)s,
                       coalesce(%(created_at)s, %(at)s), %(at)s, gen_random_uuid(), 'replica-1', %(reason)s, %(cause)s,
                       %(metadata)s, %(attempt)s)""",
                **{**columns, "id": schedule_id, "status": status, "at": at},
            )

    def run(self, sql: str, **values: Any) -> None:
        with self.db.transaction() as connection:
            connection.exec_driver_sql(sql, values)

    def _happened(self, schedule_id: UUID, at: datetime) -> None:
        self.run(
            """SET LOCAL session_replication_role = replica;  -- without the trigger that writes effective_from
               UPDATE schedules SET effective_from = %(at)s
               WHERE schedule_id = %(id)s AND effective_from > now() - interval '1 day';
               UPDATE schedule_changes SET changed_at = %(at)s WHERE change_id = (
                   SELECT max(change_id) FROM schedule_changes WHERE schedule_id = %(id)s
               )""",
            id=schedule_id,
            at=at,
        )
