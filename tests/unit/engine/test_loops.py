"""Loops whose ticks fail again and again: what they say, how long they pause, and how they come back."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from services.engine.loops import FAILURES_IN_A_ROW, LONGEST_PAUSE_SECONDS, Loop, Outages
from services.errors import Unavailable

AWAY = Unavailable("Postgres", "here", "gone")


class Ticking:
    """A loop that is ticked by hand, and fails as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.error: Exception | None = None
        self.pauses: list[float] = []
        self.turns = 0
        self.loop = Loop("dispatcher", self._tick, 1.0, on_turn=self._turned, **options)
        monkeypatch.setattr(self.loop._stopping, "wait", self.pauses.append)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop._tick_safely()

    def _tick(self) -> None:
        if self.error is not None:
            raise self.error

    def _turned(self) -> None:
        self.turns += 1


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[..., Ticking]:
    caplog.set_level(logging.INFO)
    return lambda **options: Ticking(monkeypatch, **options)


def test_ticks_that_fail_in_a_row_are_trouble_until_one_works(ticking: Callable[..., Ticking]) -> None:
    failing = ticking()
    failing.error = ValueError("no such column\nLINE 2: ...")
    failing.tick(FAILURES_IN_A_ROW - 1)
    assert (failing.loop.trouble, failing.turns) == (None, 0)
    failing.tick(2)
    assert (failing.loop.trouble, failing.turns) == ("ValueError: no such column", 1)
    failing.error = None
    failing.tick()
    assert (failing.loop.trouble, failing.turns) == (None, 2)


def test_the_traceback_is_logged_once_then_counts_and_one_line_at_the_end(
    ticking: Callable[..., Ticking], caplog: pytest.LogCaptureFixture
) -> None:
    failing = ticking()
    failing.error = ValueError("no such column")
    failing.tick(100)
    failing.error = None
    failing.tick(2)
    assert [record.exc_info is not None for record in caplog.records] == [True] + 7 * [False]
    assert caplog.messages[0] == "dispatcher failed; it continues"
    assert caplog.messages[-2] == "dispatcher failed 64 times in a row and continues: ValueError: no such column"
    assert caplog.messages[-1] == "dispatcher works again, after 100 failures in 0 s"


def test_a_tick_that_had_nothing_to_do_ends_no_row_of_failures(
    ticking: Callable[..., Ticking], caplog: pytest.LogCaptureFixture
) -> None:
    has_claimed = False
    failing = ticking(is_proof=lambda: has_claimed)
    for _ in range(FAILURES_IN_A_ROW):
        failing.error = ValueError("no such column")
        failing.tick()
        failing.error = None
        failing.tick()
    assert (failing.loop.trouble, failing.turns) == ("ValueError: no such column", 1)
    assert [record.exc_info is not None for record in caplog.records] == [True, False]
    has_claimed = True
    failing.tick()
    assert (failing.loop.trouble, failing.turns) == (None, 2)
    assert caplog.messages[-1] == "dispatcher works again, after 3 failures in 0 s"


def test_the_pauses_grow_up_to_a_few_seconds(ticking: Callable[..., Ticking]) -> None:
    failing = ticking()
    failing.error = ValueError("no such column")
    failing.tick(2000)
    assert failing.pauses[:5] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert max(failing.pauses) == LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("error", [ValueError("no such column"), AWAY])
def test_after_its_pause_a_loop_that_failed_ticks_at_once(ticking: Callable[..., Ticking], error: Exception) -> None:
    failing = ticking()
    failing.error = error
    assert (failing.loop._tick_safely(), failing.pauses) == (0.0, [0.5])


def test_an_outage_is_told_once_for_all_loops_once_a_minute_and_when_it_is_over(
    ticking: Callable[..., Ticking], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = Outages()
    first, second = ticking(outages=outages), ticking(outages=outages)
    second.loop.name = "finisher"
    first.error = second.error = AWAY
    now = [0.0]
    monkeypatch.setattr("services.engine.loops.time.monotonic", lambda: now[0])
    for now[0] in (1000.0, 1000.5, 1030.0, 1061.0):
        first.tick()
        second.tick()
    first.error = second.error = None
    first.tick()
    assert len(caplog.messages) == 2
    second.tick()
    assert caplog.messages == [
        "dispatcher waiting: Postgres at here does not answer: gone",
        "dispatcher, finisher waiting for 61 s: Postgres at here does not answer: gone",
        "Postgres answers again after 61.0 s",
    ]
    assert set(first.pauses) == {0.5}, "it is back as soon as the server is"


def test_a_server_that_restarts_is_no_trouble_but_one_that_stays_away_is(
    ticking: Callable[..., Ticking], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, now = ticking(), 1000.0
    waiting.error = AWAY
    monkeypatch.setattr("services.engine.loops.time.monotonic", lambda: now)
    waiting.tick(5)
    assert waiting.loop.trouble is None
    now = 1006.0
    waiting.tick()
    assert waiting.loop.trouble == str(AWAY)
