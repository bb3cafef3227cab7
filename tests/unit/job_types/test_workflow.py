"""The job type `workflow`, and runs that a handler skips with a reason."""

from typing import Any

import pytest

from database.models import ExecutionStatus
from enhanced_scheduler.calling import call_handler
from services.checks.queue_numbers import QueueNumbers
from services.jobs import ExecutionContext, JobDefinition, JobResult, JobSkipped
from services.jobs.registry import default_registry
from services.queues.outcomes import Summary
from services.workflows import queues
from tests.support.contexts import a_context


class StandIn:
    """A queue as far as its job knows one."""

    name = job_id = "mine"

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def run(self, context: ExecutionContext, numbers: QueueNumbers) -> Summary:
        context.log(f"the queue runs with {numbers.given()}")
        return self._summary


def register(monkeypatch: pytest.MonkeyPatch, summary: Summary) -> None:
    monkeypatch.setattr(queues, "_queues", {"mine": StandIn(summary)})


def run(context: ExecutionContext) -> JobResult:
    return call_handler(default_registry.get("workflow"), context)


def test_the_queue_of_the_configuration_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Summary(claimed=3, succeeded=3))
    context = a_context("workflow", job_config={"queue": "mine"})
    result = run(context)
    assert result.status is ExecutionStatus.SUCCESS
    assert result.details is not None
    assert result.details["result"]["claimed"] == 3


def test_the_numbers_of_the_configuration_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Summary())
    numbers = {"concurrency": 8, "run_budget_seconds": 20, "item_timeout_seconds": 1.5, "max_attempts": 5}
    context = a_context("workflow", job_config={"queue": "mine", "isolation": "thread", **numbers})
    assert run(context).status is ExecutionStatus.SUCCESS
    assert context.trace()["log"][0].endswith(f"the queue runs with {numbers}")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ({"concurrency": 0}, "job_config.concurrency: input should be greater than or equal to 1"),
        ({"concurrency": 501}, "job_config.concurrency: input should be less than or equal to 500"),
        ({"run_budget_seconds": 1e300}, "job_config.run_budget_seconds: input should be less than or equal to 2592000"),
        ({"item_timeout_seconds": 0}, "job_config.item_timeout_seconds: input should be greater than 0"),
        ({"item_timeout_seconds": "soon"}, "job_config.item_timeout_seconds: input should be a valid number"),
        ({"max_attempts": 2.5}, "job_config.max_attempts: input should be a valid integer"),
        ({"max_attemps": 2}, "job_config.max_attemps: is not a field of this job"),
    ],
)
def test_a_number_outside_its_limits_is_refused_at_the_door(number: dict[str, Any], reason: str) -> None:
    (problem,) = default_registry.check_config("workflow", {"queue": "deep_scan", **number})
    assert str(problem).startswith(reason)


def test_a_run_that_does_not_begin_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Summary(skipped="paused"))
    result = run(a_context("workflow", job_config={"queue": "mine"}))
    assert (result.status, result.reason) == (ExecutionStatus.SKIPPED, "paused")


def test_an_unknown_queue_is_refused_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Summary())
    (problem,) = default_registry.check_config("workflow", {"queue": "yours"})
    assert str(problem) == "job_config.queue: unknown queue 'yours' (known: mine)"


def test_whoever_asks_for_the_job_type_knows_the_queues_of_the_pipeline() -> None:
    assert default_registry.check_config("workflow", {"queue": "deep_scan"}) == []


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
