"""What people call an execution: its schedule's name, or else what it is about; its `job_id` may be a bare id."""

from typing import Any


def name_of(execution: Any) -> str:
    """Of a row, a record or a handler's context."""
    return str(execution.domain if execution.job_id == str(execution.schedule_id) else execution.job_id)
