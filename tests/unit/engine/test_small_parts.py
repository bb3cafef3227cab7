"""The small parts of the engine: the clock, the order of replicas, the shape of loops, the log lines, durations."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from database.clock import DatabaseClock
from services.engine.loops import Loop
from services.errors import Unavailable
from services.telemetry.logs import JsonLines, TextLines
from tests.support.waiting import eventually

# --- clock ---


def ticking(*readings: float) -> Iterator[float]:
    yield from readings


def test_the_skew_is_measured_against_the_middle_of_the_round_trip() -> None:
    readings = ticking(100.0, 100.2, 200.0)
    clock = DatabaseClock(5, lambda: next(readings))
    clock.measure(lambda: 90.1)
    assert clock.skew_seconds == pytest.approx(10.0)
    assert not clock.is_trustworthy
    assert clock.timestamp() == pytest.approx(190.0)


def test_a_slow_answer_does_not_replace_a_good_measurement() -> None:
    readings = ticking(100.0, 100.0, 200.0, 220.0)
    clock = DatabaseClock(5, lambda: next(readings))
    clock.measure(lambda: 99.0)
    clock.measure(lambda: 200.0)
    assert clock.skew_seconds == pytest.approx(1.0)


# --- loops ---


@pytest.mark.parametrize("error", [ZeroDivisionError(), Unavailable("Postgres", "here", "gone")])
def test_a_loop_never_dies_of_an_exception(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.engine.loops.AFTER_FAILURE_SECONDS", 0.01)
    ticks = []

    def tick() -> float | None:
        ticks.append(1)
        raise error

    loop = Loop("test", tick, 0.01)
    loop.start()
    eventually(lambda: len(ticks) >= 3)
    assert loop.is_live
    loop.stop()


def test_a_loop_is_woken_at_once_and_stops_when_told() -> None:
    ticked = threading.Event()
    loop = Loop("test", lambda: ticked.set(), 3600)
    loop.start()
    assert ticked.wait(5)
    ticked.clear()
    loop.wake()
    assert ticked.wait(5)
    loop.stop()
    assert not loop.is_live


def test_a_loop_that_hangs_is_not_live() -> None:
    release = threading.Event()

    def hang() -> float | None:
        release.wait(30)
        return None

    loop = Loop("test", hang, 0.01, patience_seconds=0.05)
    loop.start()
    eventually(lambda: not loop.is_live)
    release.set()
    loop.stop()


# --- logs ---


def record(message: str, **facts: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "levelname": "INFO", "name": "test", **facts})


def test_a_json_line_has_its_event_and_its_facts() -> None:
    line = json.loads(JsonLines().format(record("done", event="execution_finished", attempt=2)))
    assert (line["event"], line["attempt"], line["message"], line["level"]) == ("execution_finished", 2, "done", "INFO")


@pytest.mark.parametrize("created", [1_700_000_000.0, 1_700_000_000.000_001, 1_700_000_000.999_999, 1_700_000_001.5])
def test_a_json_line_says_when_to_the_microsecond(created: float) -> None:
    line = json.loads(JsonLines().format(record("done", created=created)))
    said, meant = datetime.fromisoformat(line["at"]), datetime.fromtimestamp(created, UTC)
    assert abs(said - meant) <= timedelta(microseconds=1)


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
@pytest.mark.parametrize(
    "token", ["es_0123456789ab_" + "x" * 20, "once_" + "y" * 20, "eyJ" + "z" * 20, "Bearer " + "a1" * 16]
)
def test_a_token_never_reaches_a_log(formatter: logging.Formatter, token: str) -> None:
    assert token[-16:] not in formatter.format(record(f"refused {token}"))


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_a_password_in_an_address_never_reaches_a_log(formatter: logging.Formatter) -> None:
    line = formatter.format(
        record("no answer from postgresql://user:hunter2@host/db", event="x", url="redis://:hunter2@h")
    )
    assert "hunter2" not in line


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
@pytest.mark.parametrize("name", ["key", "api_key", "X-Amz-Signature", "access_token", "password"])
def test_a_key_in_a_query_never_reaches_a_log(formatter: logging.Formatter, name: str) -> None:
    line = formatter.format(record(f"GET https://api.example/?page=2&{name}=hunter2&more=1", url=f"/x?{name}=hunter2"))
    assert "hunter2" not in line
    assert "page=2" in line


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
@pytest.mark.parametrize("evil", ["\n", "\r", "\x1b[2J", "\x00", "\x9b31m", "\u2028", "\u202e"])
def test_a_log_line_cannot_be_forged(formatter: logging.Formatter, evil: str) -> None:
    forged = f"x{evil}12:00:00.000 INFO    all is well"
    try:
        raise ValueError(forged)
    except ValueError:
        failure = sys.exc_info()
    line = formatter.format(record(forged, path=forged, **{f"a{evil}b": 1}, exc_info=failure))
    first, *more = line.splitlines()
    assert evil not in first
    assert not any(evil.strip() in each for each in more if evil.strip())
    assert all(each.startswith("    ") for each in more)
