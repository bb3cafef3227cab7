"""How an exception of an item is read."""

import errno
import socket
from typing import Any

import pytest

from config import Settings
from services.errors import BlockedAddress
from services.fetching import FetchFailed, Limits, fetcher_from
from services.jobs import JobFailed, PermanentFailure
from services.queues.deadline import remaining_seconds
from services.queues.outcomes import ItemTimedOut, Summary, Verdict, failure_of


@pytest.mark.parametrize(
    ("error", "message", "retryable"),
    [
        (JobFailed("busy"), "busy", True),
        (PermanentFailure("gone"), "gone", False),
        (ItemTimedOut(60.0), "did not finish within 60 s", True),
        (ValueError("what?"), "ValueError: what?", True),
        (BlockedAddress("x", "10.0.0.1"), str(BlockedAddress("x", "10.0.0.1")), True),
        (SystemExit(3), "SystemExit: 3", True),
        (PermanentFailure(""), "PermanentFailure", False),
    ],
)
def test_an_error_becomes_a_message_and_a_chance(error: BaseException, message: str, retryable: bool) -> None:
    failure = failure_of(error)
    assert (failure.message, failure.retryable) == (message, retryable)


@pytest.mark.parametrize("facts", [{"retryable": True, "retry_after_seconds": 7.0}, {"retryable": False}])
def test_a_failed_fetch_says_itself_whether_and_when_to_come_back(facts: dict[str, Any]) -> None:
    failure = failure_of(FetchFailed("no answer", **facts))
    assert (failure.message, failure.retryable) == ("no answer", facts["retryable"])
    assert failure.retry_after_seconds == facts.get("retry_after_seconds", 0.0)


@pytest.mark.parametrize(
    ("error", "of_network"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "no name server answers"), True),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), False),
        (OSError(errno.ENETUNREACH, "no route"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False),
    ],
)
def test_a_failed_fetch_says_whether_there_is_a_way_out_at_all(
    monkeypatch: pytest.MonkeyPatch, error: OSError, of_network: bool
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with fetcher_from(Settings(), Limits()) as fetcher, pytest.raises(FetchFailed) as failed:
        fetcher.get("http://bakery.example/")
    assert (failed.value.retryable, failed.value.of_network) == (True, of_network)


def test_what_nobody_planned_keeps_its_traceback() -> None:
    def fail() -> None:
        raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert "def fail" not in (trace := failure_of(caught.value).traceback or "")
    assert 'raise ZeroDivisionError("oops")' in trace
    assert failure_of(JobFailed("planned")).traceback is None


def test_a_traceback_keeps_its_end_when_it_is_long() -> None:
    error = ValueError("x" * 20_000 + " the point")
    trace = failure_of(error).traceback or ""
    assert len(trace) == 16 * 1024
    assert trace.endswith(" the point\n")


def test_a_summary_says_what_happened_and_nothing_else() -> None:
    summary = Summary(claimed=2, seconds=1.23456)
    for verdict in (Verdict.SUCCEEDED, Verdict.DEAD):
        setattr(summary, verdict.value, 1)
    assert summary.as_dict() == {
        "claimed": 2, "succeeded": 1, "retried": 0, "failed": 0, "dead": 1, "lost": 0, "stale": 0,
        "seconds": 1.235, "ended": "empty",
    }  # fmt: skip


def test_outside_of_a_loop_there_is_no_deadline() -> None:
    assert remaining_seconds() == float("inf")
