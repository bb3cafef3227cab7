"""The job type `celery_task`: call one task of a user's own Celery app. Fire and forget.

The execution is a success when the broker has the message; what the task does is the app's own story. The task's id is
the execution's id, and a handler is called once per execution, so one attempt sends one message. The app's broker and
the tasks that may be called come from the environment: services/checks/celery_apps.py says why.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from config import get_settings
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.results import JobFailed, PermanentFailure
from services.checks.celery_apps import APP_NAME, BROKER_URL, variable
from services.job_types.celery_apps.sending import TaskCall, send
from services.jobs.registry import job

DEFAULT_QUEUE = "celery"  # Celery's own default


class CeleryTaskConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    app: str = Field(
        pattern=rf"^{APP_NAME}$", description="the app's name in CELERY_APPS_<NAME>_BROKER_URL, in lower case"
    )
    task: str = Field(
        min_length=1, max_length=255, description="the task's name in its app; CELERY_APPS_<NAME>_TASKS must allow it"
    )
    args: list[Any] = Field(default_factory=list, description="the task's positional arguments")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="the task's keyword arguments")
    queue: str = Field(
        DEFAULT_QUEUE, min_length=1, max_length=255, description="the queue that the app's workers consume"
    )
    expires_seconds: float | None = Field(
        None, gt=0, le=365 * 86_400, description="workers discard the message after this time; unset: never"
    )
    priority: int | None = Field(
        None, ge=0, le=255, description="the message's priority at the broker; unset: the broker's default"
    )


def label_of(app: str) -> str:
    return f"celery_app.{app}"


def _labels(job_config: Mapping[str, Any], profile: Mapping[str, Any] | None) -> tuple[str, ...]:
    return (label_of(CeleryTaskConfig.model_validate(job_config).app),)


def _offers() -> tuple[str, ...]:
    return tuple(label_of(name) for name in get_settings().celery_apps)


@job("celery_task", config_model=CeleryTaskConfig, labels=_labels, offers=_offers)
def celery_task(context: ExecutionContext, config: CeleryTaskConfig) -> Mapping[str, Any]:
    """Send a message that calls a task of your own Celery app; success means that the broker has it."""
    context.check()
    app = get_settings().celery_apps.get(config.app)
    if app is None:
        raise PermanentFailure(f"{variable(config.app, BROKER_URL)} is not set on this replica")
    if refused := app.refusal(config.task):
        raise PermanentFailure(refused)
    for secret in app.secrets:
        context.hide(secret)
    problem = send(app, _call(context, config))
    if problem is not None:
        unknown = "; the message may have been sent nevertheless" if problem.may_be_sent else ""
        raise JobFailed(f"{problem.reason}{unknown}", details={"may_be_sent": problem.may_be_sent})
    return {"task_id": str(context.execution_id), "app": config.app, "task": config.task, "queue": config.queue}


def _call(context: ExecutionContext, config: CeleryTaskConfig) -> TaskCall:
    return TaskCall(
        task_id=str(context.execution_id),
        task=config.task,
        args=config.args,
        kwargs=config.kwargs,
        queue=config.queue,
        headers=_headers(context),
        origin=context.instance_id,
        expires_seconds=config.expires_seconds,
        priority=config.priority,
    )


def _headers(context: ExecutionContext) -> dict[str, str | int]:
    """By which the task recognises a repeated call and refuses a fenced replica; a bound task reads `self.request`."""
    headers: dict[str, str | int] = {
        "idempotency_key": context.idempotency_key,
        "execution_id": str(context.execution_id),
        "scheduled_for": context.scheduled_for_text,
        "attempt": context.attempt,
        "fencing_token": context.fencing_token,
    }
    return headers if context.schedule_id is None else headers | {"schedule_id": str(context.schedule_id)}
