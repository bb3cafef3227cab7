"""The job type `workflow`, and runs that a handler skips with a reason."""

from typing import Any

import pytest

from database.models import ExecutionStatus
from services.engine.calling import call_handler
from services.job_types import workflow as module
from services.jobs import ExecutionContext, JobDefinition, JobSkipped
from services.jobs.registry import default_registry
from tests.support.contexts import a_context


@pytest.fixture
def no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_queues", {})


def run(context: ExecutionContext) -> Any:
    return call_handler(default_registry.get("workflow"), context)


def test_the_queue_of_the_configuration_is_run(no_queues: None) -> None:
    module.provide_queue("mine", lambda context: {"claimed": 3, "by": context.job_id})
    result = run(a_context("workflow", job_config={"queue": "mine"}))
    assert (result.status, result.details) == (ExecutionStatus.SUCCESS, {"result": {"claimed": 3, "by": "nightly"}})


def test_an_unknown_queue_is_refused_at_the_door(no_queues: None) -> None:
    module.provide_queue("mine", lambda context: {})
    (problem,) = default_registry.check_config("workflow", {"queue": "yours"})
    assert str(problem) == "job_config.queue: there is no queue 'yours' (known: mine)"


def test_a_program_without_the_workflows_cannot_say_and_accepts(no_queues: None) -> None:
    assert default_registry.check_config("workflow", {"queue": "deep_scan"}) == []
    result = run(a_context("workflow", job_config={"queue": "deep_scan"}))
    assert (result.status, result.retryable) == (ExecutionStatus.FAILED, False)
    assert result.error_message == "there is no queue 'deep_scan' (known: none)"


def test_a_handler_can_skip_its_run_with_a_reason() -> None:
    def handler(context: ExecutionContext, config: Any) -> None:
        context.hide("hunter2")
        raise JobSkipped("circuit_open", details={"since": "hunter2 o'clock"})

    result = call_handler(JobDefinition("x", handler), a_context("x"))
    assert (result.status, result.reason) == (ExecutionStatus.SKIPPED, "circuit_open")
    assert result.details == {"result": {"since": "*** o'clock"}}
    assert (result.retryable, result.error_message) == (False, None)


def test_a_skipped_run_crosses_a_process_boundary() -> None:
    def handler(context: ExecutionContext, config: Any) -> None:
        raise JobSkipped("paused")

    result = call_handler(JobDefinition("x", handler), a_context("x"))
    assert type(result).from_wire(result.to_wire()) == result
