"""The job type `workflow`: one run of a status queue, `{"queue": "deep_scan", "concurrency": 8}`."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, field_validator

from services.checks.queue_numbers import QueueNumbers
from services.jobs import ExecutionContext, JobSkipped, job
from services.wording.commands import as_called_here
from services.workflows import queues


class _WhichQueue(BaseModel):
    queue: str = Field(description=as_called_here("the queue's name; `manage.py queues` lists them"))

    @field_validator("queue")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if queues.get(name) is None:
            known = ", ".join(queue.name for queue in queues.all())
            raise ValueError(f"unknown queue {name!r} (known: {known})")
        return name


class WorkflowConfig(QueueNumbers, _WhichQueue):  # pydantic lists the fields of the last base class first
    pass


@job("workflow", config_model=WorkflowConfig)
def workflow(context: ExecutionContext, config: WorkflowConfig) -> Mapping[str, Any]:
    """Run one status queue: claim rows, process them and write their outcome, until the queue is empty."""
    summary = queues.find(config.queue).run(context, numbers=config)
    if summary.skipped is not None:
        raise JobSkipped(summary.skipped, details=summary.as_dict())
    return summary.as_dict()
