"""How what a handler returns or raises becomes something that Postgres can keep."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from database.models import ExecutionStatus
from enhanced_scheduler.calling import call_handler
from enhanced_scheduler.results import MAX_RESULT_BYTES, MAX_TRACEBACK_CHARACTERS
from services.jobs import ExecutionContext, JobDefinition, JobFailed, JobResult, PermanentFailure
from tests.support.contexts import a_context


def run(handler: Any, context: ExecutionContext | None = None, **definition: Any) -> JobResult:
    context = context or a_context()
    context.begin()
    return call_handler(JobDefinition("test", handler, **definition), context)


def raising(error: BaseException) -> Any:
    def handler(_context: ExecutionContext, _config: Any) -> None:
        raise error

    return handler


def returning(value: object) -> Any:
    return lambda _context, _config: value


def test_a_returned_mapping_is_the_result() -> None:
    result = run(returning({"rows": 3}))
    assert result == JobResult(status=ExecutionStatus.SUCCESS, details={"result": {"rows": 3}})


def test_nothing_returned_is_a_success_without_result() -> None:
    assert run(returning(None)) == JobResult(status=ExecutionStatus.SUCCESS)


def test_a_scan_id_in_the_result_becomes_the_executions_own() -> None:
    scan_id = UUID(int=5)
    for given in (scan_id, str(scan_id)):
        result = run(returning({"scan_id": given}))
        assert result.scan_id == scan_id
        assert result.details == {"result": {"scan_id": str(scan_id)}}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"x": object()}, "object of type object is not JSON serializable"),
        ({"x": float("nan")}, "not JSON compliant"),
        ({("a", "b"): 1}, "keys must be str"),
        ([1, 2], "returned list; it must return a mapping or None"),
        ({"scan_id": "seven"}, "scan_id is not a UUID: 'seven'"),
    ],
)
def test_a_result_that_is_no_json_fails_for_good_with_the_reason(value: object, reason: str) -> None:
    result = run(returning(value))
    assert result.status is ExecutionStatus.FAILED
    assert not result.retryable
    assert reason in str(result.error_message)


def test_a_result_that_contains_itself_fails_for_good() -> None:
    value: dict[str, Any] = {}
    value["x"] = value
    result = run(returning(value))
    assert (result.status, result.retryable) == (ExecutionStatus.FAILED, False)


def test_a_result_nested_too_deeply_fails_for_good() -> None:
    value: dict[str, Any] = {}
    for _ in range(900):
        value = {"x": value}
    result = run(returning(value))
    assert (result.status, result.retryable) == (ExecutionStatus.FAILED, False)


def test_a_huge_result_is_a_success_with_an_excerpt() -> None:
    result = run(returning({"blob": "x" * 1_000_000}))
    kept = result.details["result"]
    assert result.status is ExecutionStatus.SUCCESS
    assert (kept["truncated"], kept["bytes"]) == (True, 1_000_012)
    assert len(json.dumps(kept)) < MAX_RESULT_BYTES


def test_what_postgres_refuses_is_replaced_everywhere() -> None:
    bad = "a\x00b\udfff"
    good = "a\ufffdb\ufffd"
    assert run(returning({bad: [bad]})).details == {"result": {good: [good]}}
    failure = run(raising(JobFailed(bad, details={"x": bad})))
    assert (failure.error_message, failure.error_details) == (good, {"type": "JobFailed", "x": good})
    surprise = run(raising(ValueError(bad)))
    assert surprise.error_details is not None
    for text in (surprise.error_message, *surprise.error_details.values()):
        assert "\x00" not in str(text)
        str(text).encode()


def test_a_planned_failure_says_whether_and_when_to_try_again() -> None:
    result = run(raising(JobFailed("busy", retry_after_seconds=7, details={"code": 1})))
    assert result == JobResult(
        status=ExecutionStatus.FAILED,
        error_message="busy",
        error_details={"type": "JobFailed", "code": 1},
        retryable=True,
        retry_after_seconds=7,
    )


def test_a_permanent_failure_is_not_tried_again() -> None:
    result = run(raising(PermanentFailure("never")))
    assert (result.status, result.retryable, result.error_message) == (ExecutionStatus.FAILED, False, "never")


def test_details_that_are_no_json_do_not_hide_the_failure() -> None:
    result = run(raising(JobFailed("busy", details={"x": object()})))
    assert result.error_message == "busy"
    assert result.retryable
    assert "not JSON serializable" in str(result.error_details)


def test_an_unexpected_exception_is_retryable_and_keeps_its_traceback() -> None:
    result = run(raising(KeyError("domain")))
    assert result.status is ExecutionStatus.FAILED
    assert result.retryable
    assert result.error_message == "KeyError: 'domain'"
    assert result.error_details is not None
    assert result.error_details["type"] == "KeyError"
    assert "in handler" in result.error_details["traceback"]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_traceback_begins_with_the_handler_and_not_with_what_called_it(is_async: bool) -> None:
    async def coroutine(_context: ExecutionContext, _config: object) -> None:
        await asyncio.sleep(0)
        json.loads("no JSON")

    def plain(_context: ExecutionContext, _config: object) -> None:
        json.loads("no JSON")

    details = run(coroutine if is_async else plain).error_details
    assert details is not None
    first, *_, error = [line for line in details["traceback"].splitlines() if not line.startswith("    ")][1:]
    assert (f'File "{__file__}"' in first, error) == (
        True,
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    )
    assert "json/decoder.py" in details["traceback"], "what the handler called is there"


def test_the_traceback_of_a_coroutine_has_no_error_of_ours_in_it() -> None:
    async def coroutine(_context: ExecutionContext, _config: object) -> None:
        raise KeyError("domain")

    details = run(coroutine).error_details
    assert details is not None
    assert "During handling" not in details["traceback"]


def test_long_messages_and_tracebacks_are_cut() -> None:
    result = run(raising(ValueError("x" * 100_000)))
    assert len(str(result.error_message)) == 1024
    assert result.error_details is not None
    assert len(result.error_details["traceback"]) == MAX_TRACEBACK_CHARACTERS
    assert len(str(run(raising(JobFailed("x" * 5000))).error_message)) == 1024


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), Mute()])
def test_nothing_that_a_handler_raises_gets_out(error: BaseException) -> None:
    result = run(raising(error))
    assert result.status is ExecutionStatus.FAILED
    assert result.error_message


def test_a_handler_that_leaves_by_sys_exit_is_named_so() -> None:
    assert run(raising(SystemExit(3))).error_message == "the handler called sys.exit(3)"


def test_a_mapping_that_breaks_while_it_is_read_is_a_failure_of_the_handler() -> None:
    class Broken(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise OSError("lost")

    assert run(returning(Broken())).status is ExecutionStatus.FAILED


def test_a_handler_that_checks_ends_as_it_was_stopped() -> None:
    def handler(context: ExecutionContext, _config: Any) -> None:
        context.check()

    cancelled = a_context()
    cancelled.cancel("asked by anna")
    result = run(handler, cancelled)
    assert (result.status, result.error_message) == (ExecutionStatus.CANCELLED, "cancelled: asked by anna")
    assert not result.retryable
    late = run(handler, a_context(timeout_seconds=0.0))
    assert (late.status, late.retryable) == (ExecutionStatus.TIMED_OUT, True)


def test_a_handler_that_sees_the_flag_and_returns_is_no_success_but_keeps_its_result() -> None:
    def handler(context: ExecutionContext, _config: Any) -> Mapping[str, Any]:
        return {"stopped": context.cancelled}

    context = a_context()
    context.cancel("enough")
    result = run(handler, context)
    assert result.status is ExecutionStatus.CANCELLED
    assert result.details == {"result": {"stopped": True}}


def test_a_handler_that_finished_before_it_looked_is_a_success() -> None:
    context = a_context()
    context.cancel("too late")
    assert run(returning({"done": 1}), context).status is ExecutionStatus.SUCCESS


def test_hidden_values_are_hidden_in_results_errors_and_tracebacks() -> None:
    def returned(context: ExecutionContext, _config: Any) -> Mapping[str, Any]:
        context.hide("pass\nword")
        return {"text": "pass\nword", "nested": [{"repr": "'pass\\nword'"}]}

    def raised(context: ExecutionContext, _config: Any) -> None:
        context.hide("pass\nword")
        raise ValueError("pass\nword")

    def planned(context: ExecutionContext, _config: Any) -> None:
        context.hide("pass\nword")
        raise JobFailed("pass\nword", details={"x": "pass\nword"})

    assert "word" not in str(run(returned).to_wire())
    assert "pass\nword" not in str(run(raised).error_message)
    assert "word" not in str(run(planned).to_wire())


def test_a_result_survives_the_way_out_of_another_process() -> None:
    result = JobResult(status=ExecutionStatus.FAILED, error_message="x", retryable=True, scan_id=UUID(int=3))
    assert JobResult.from_wire(json.loads(json.dumps(result.to_wire()))) == result


class Config(BaseModel):
    count: int


def test_a_configuration_that_is_not_valid_fails_for_good() -> None:
    result = run(returning(None), a_context(job_config={"count": "many"}), config_model=Config)
    assert (result.status, result.retryable) == (ExecutionStatus.FAILED, False)
    assert str(result.error_message).startswith("job_config.count: input should be a valid integer")
