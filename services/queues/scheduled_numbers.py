"""Reads the run limits of the queues from the job_config of every `workflow` schedule."""

from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection

from services.checks.queue_numbers import QueueNumbers

Scheduled = dict[str, dict[UUID, QueueNumbers]]  # queue -> schedule -> its numbers

# Answered from the partial index schedules_workflow_idx, however many other schedules there are.
SCHEDULED = "SELECT schedule_id, job_config FROM schedules WHERE job_type = 'workflow'"


def scheduled_numbers(connection: Connection) -> Scheduled:
    """An invalid job_config is left out here; its runs fail with the reason."""
    found: Scheduled = {}
    for row in connection.exec_driver_sql(SCHEDULED):
        queue = row.job_config.get("queue")
        said = {name: row.job_config.get(name) for name in QueueNumbers.model_fields}
        try:
            found.setdefault(str(queue), {})[row.schedule_id] = QueueNumbers.model_validate(said)
        except ValidationError:
            continue
    return found
