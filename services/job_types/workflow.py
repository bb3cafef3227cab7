"""`workflow`: one run of a status queue, `{"queue": "deep_scan"}`.

The queues are above this package (services/workflows/) and put themselves in here when they are imported.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.jobs.context import ExecutionContext
from services.jobs.registry import job
from services.jobs.results import PermanentFailure

RunQueue = Callable[[ExecutionContext], Mapping[str, Any]]

_queues: dict[str, RunQueue] = {}


def provide_queue(name: str, run: RunQueue) -> None:
    _queues[name] = run


class WorkflowConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: str = Field(description="the queue's name; `manage.py queues` lists them")

    @field_validator("queue")
    @classmethod
    def _is_known(cls, name: str) -> str:
        """A program that has not loaded the workflows cannot say; the replica that runs it can."""
        if _queues and name not in _queues:
            raise ValueError(_unknown(name))
        return name


@job("workflow", config_model=WorkflowConfig)
def workflow(context: ExecutionContext, config: WorkflowConfig) -> Mapping[str, Any]:
    """Run one status queue: claim its rows, work on them, write what became of them, until it is empty."""
    run = _queues.get(config.queue)
    if run is None:
        raise PermanentFailure(_unknown(config.queue))
    return run(context)


def _unknown(name: str) -> str:
    return f"there is no queue {name!r} (known: {', '.join(sorted(_queues)) or 'none'})"
