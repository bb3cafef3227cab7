"""The checker of fault runs finds each broken promise in a made-up history, and nothing in a good one."""

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.proof import checker, records
from tests.proof.checker import Bounds, Verdict, judge
from tests.proof.records import Call, Disturbance, History, LimitChange, Row, Stretch, Turn, calls_of

END = 1000.0
TIMING = Stretch(since=5.0, until=35.0, ended=35.0, seconds=10)  # 10, 20, 30
OFF = Stretch(since=35.0, seconds=10, enabled=False)
STARTED = Disturbance(kind="start", at=0.0, until=1.0, scope="replica", replica="other")


def row(fire: float, **facts: Any) -> Row:
    token = int(fire) * 10 + facts.get("attempt", 1)
    usual = {"token": token, "replica": "one", "written": fire, "started": fire + 0.1, "completed": fire + 1}
    return Row(**{"schedule": "a", "fire": fire, **usual, **facts})


def call(fire: float, **facts: Any) -> Call:
    token = int(fire) * 10 + facts.get("attempt", 1)
    usual = {"token": token, "pid": 1, "began": fire + 0.2, "ended": fire + 0.9, "outcome": "ok"}
    return Call(**{"schedule": "a", "fire": fire, **usual, **facts})


ROWS = [row(10.0), row(20.0), row(30.0)]
CALLS = [call(10.0), call(20.0), call(30.0)]


def verdict(
    rows: Sequence[Row] = ROWS,
    calls: Sequence[Call] = CALLS,
    *disturbances: Disturbance,
    stretches: Sequence[Stretch] = (TIMING, OFF),
    turns: Sequence[Turn] = (),
    bounds: Bounds | None = None,
    limits: Sequence[LimitChange] = (),
) -> Verdict:
    in_order = sorted(rows, key=lambda each: (each.schedule, each.fire, each.attempt))
    calls_in_order = sorted(calls, key=lambda each: (each.schedule, each.fire, each.attempt))
    history = History({"a": stretches}, in_order, calls_in_order, [STARTED, *disturbances], {"a": turns}, {}, limits)
    return judge(history, END, bounds or Bounds())


def found(*args: Any, **options: Any) -> dict[str, int]:
    return dict(verdict(*args, **options).found)


def without(fire: float, items: Sequence[Any]) -> list[Any]:
    return [each for each in items if each.fire != fire]


def with_instead(item: Any, items: Sequence[Any]) -> list[Any]:
    return [*without(item.fire, items), item]


def killed(at: float, replica: str = "one", pid: int = 1) -> Disturbance:
    return Disturbance(kind="kill", at=at, until=at + 5, scope="replica", replica=replica, pid=pid, kills=True)


def frozen(at: float, until: float) -> Disturbance:
    return Disturbance(
        kind="freeze", at=at, until=until, scope="replica", replica="one", pid=1, silences=True, freezes=True
    )


ABANDONED = row(30.0, status="abandoned", reason="replica_dead", completed=50.0)
UNFINISHED = call(30.0, ended=None, outcome=None)


def test_a_good_history_breaks_nothing() -> None:
    told = verdict()
    assert told.is_clean
    assert (told.fires, told.calls, told.rows["success"]) == (3, 3, 3)


def test_a_schedule_that_nobody_ever_looked_at_is_unaccounted() -> None:
    assert found([], []) == {"unaccounted": 3}


# --- G1, G2 ---


def test_two_rows_of_one_attempt() -> None:
    assert found([*ROWS, row(20.0)])["two rows"] == 1


def test_two_calls_of_one_attempt_whatever_their_tokens() -> None:
    assert found(ROWS, [*CALLS, call(20.0, began=25.0, ended=25.1)])["called twice"] == 1
    other = found(ROWS, [*CALLS, call(20.0, token=999, began=25.0, ended=25.1)])
    assert (other["called twice"], other["called with a token that was taken back"]) == (1, 1)


def test_a_call_without_a_row() -> None:
    assert found(without(20.0, ROWS)) == {"called without a row": 1, "unaccounted": 1}


def test_a_call_of_what_is_recorded_as_not_run() -> None:
    skipped = row(20.0, status="skipped", reason="overlap", started=None)
    assert found(with_instead(skipped, ROWS)) == {"called though recorded as not run": 1}


# --- G3 ---


def test_a_fire_without_a_row() -> None:
    assert found(without(20.0, ROWS), without(20.0, CALLS)) == {"unaccounted": 1}


@pytest.mark.parametrize("fire", [15.0, 40.0, 5.0])
def test_a_row_for_an_instant_at_which_no_timing_had_a_fire(fire: float) -> None:
    invented = row(fire, status="skipped", reason="changed", started=None)
    assert found([*ROWS, invented]) == {"invented": 1}


def test_a_row_of_the_time_in_which_the_schedule_was_switched_off() -> None:
    timings = [
        Stretch(since=5.0, until=15.0, ended=15.0, seconds=10),
        Stretch(since=15.0, until=25.0, ended=25.0, seconds=10, enabled=False),
        Stretch(since=25.0, until=35.0, ended=35.0, seconds=10),
    ]
    assert found(without(20.0, ROWS), without(20.0, CALLS), stretches=timings) == {}
    off = row(20.0, status="skipped", reason="changed", started=None)
    assert found(with_instead(off, ROWS), without(20.0, CALLS), stretches=timings) == {"invented": 1}


def test_the_fire_at_the_very_instant_of_a_change_belongs_to_what_ended() -> None:
    timings = [
        Stretch(since=5.0, until=20.0, ended=20.0, seconds=10),
        Stretch(since=20.0, until=35.0, ended=35.0, seconds=10, anchor=5.0),
    ]
    assert sorted(fire for each in timings for fire in each.fires(END)) == [10.0, 20.0, 25.0, 35.0]


SUMMARY = row(10.0, status="missed", reason="catchup_cap", started=None, token=None, last=30.0, count=3, written=50.0)


def test_a_summary_accounts_for_what_it_counts() -> None:
    told = verdict([SUMMARY], [])
    assert told.is_clean
    assert told.summarised == 3
    beside_a_run = [replace(SUMMARY, count=2), row(20.0)]
    assert found(beside_a_run, [call(20.0)]) == {}


def test_what_is_in_a_summary_and_then_run() -> None:
    late = row(20.0, written=34.0, started=34.1, completed=35.0)
    told = verdict([replace(SUMMARY, written=33.0), late], [call(20.0, began=34.2, ended=34.9)])
    assert dict(told.found) == {"both in a summary and with a row": 1}
    assert "1 called afterwards" in told.violations[0].text


def test_a_summary_that_covers_more_than_it_counts() -> None:
    assert found([replace(SUMMARY, count=2)], []) == {"covered by a summary that does not count it": 1}


def test_attempts_that_nobody_asked_for_or_that_are_missing() -> None:
    assert found([*ROWS, row(20.0, attempt=2)], [*CALLS, call(20.0, attempt=2, began=22.0, ended=22.1)]) == {
        "an attempt too many": 1
    }
    timing = replace(TIMING, max_retries=1)
    failed, ended = row(20.0, status="failed"), call(20.0, outcome="failed")
    first = with_instead(failed, ROWS), with_instead(ended, CALLS)
    assert found(*first, stretches=[timing, OFF]) == {"an attempt too few": 1}
    second = [*first[0], row(20.0, attempt=2)], [*first[1], call(20.0, attempt=2, began=22.0, ended=22.1)]
    assert found(*second, stretches=[timing, OFF]) == {}
    old_token = [*first[0], row(20.0, attempt=2, token=5)], [*first[1], call(20.0, attempt=2, token=5, began=22.0)]
    assert found(*old_token, stretches=[timing, OFF])["a token that did not rise"] == 1


def turn(before: str, after: str | None, **facts: Any) -> Turn:
    return Turn(**{"schedule": "a", "fire": 20.0, "at": 21.0, "before": before, "after": after, **facts})


def test_a_token_of_one_attempt_that_did_not_rise() -> None:
    good = [
        turn("pending", "claimed", token_after=5),
        turn("claimed", "pending", token_before=5),
        turn("pending", "claimed", token_after=6),
    ]
    assert found(turns=good) == {}
    assert found(turns=[*good, turn("claimed", "claimed", token_before=6, token_after=5)]) == {
        "a token that did not rise": 1
    }
    assert found(turns=[good[0], good[1], turn("pending", "claimed", token_after=5)]) == {
        "a token that did not rise": 1
    }


def test_a_person_may_retry_what_a_schedule_would_not() -> None:
    skipped = row(20.0, status="skipped", reason="overlap", started=None)
    again = row(20.0, attempt=2, cause="manual")
    calls = [*without(20.0, CALLS), call(20.0, attempt=2, began=22.0, ended=22.1)]
    assert found([*with_instead(skipped, ROWS), again], calls) == {}
    by_itself = replace(again, cause="schedule")
    assert found([*with_instead(skipped, ROWS), by_itself], calls) == {"an attempt too many": 1}


def test_what_people_ask_for_is_no_fire_and_is_called_once() -> None:
    wished = row(15.5, cause="manual")
    assert found([*ROWS, wished], [*CALLS, call(15.5)]) == {}
    assert found([*ROWS, wished], [*CALLS, call(15.5), call(15.5, began=17.0, ended=17.1)])["called twice"] == 1
    assert found([*ROWS, replace(wished, status="pending")])["left open"] == 1
    long_ago = row(1.0, cause="backfill", written=15.0, started=15.1, completed=15.9)
    assert found([*ROWS, long_ago], [*CALLS, call(1.0, began=15.2, ended=15.8)]) == {}


def test_no_retry_is_owed_after_a_cancellation() -> None:
    cancelled = row(20.0, status="failed", cancel_requested=True)
    history = with_instead(cancelled, ROWS), with_instead(call(20.0, outcome="failed"), CALLS)
    timings = [replace(TIMING, max_retries=1), OFF]
    assert found(*history, stretches=timings) == {}
    unasked = with_instead(replace(cancelled, cancel_requested=False), ROWS), history[1]
    assert found(*unasked, stretches=timings) == {"an attempt too few": 1}


# --- ends ---


def test_a_row_that_changes_after_its_end() -> None:
    assert found(turns=[turn("running", "success", token_before=5, token_after=5)]) == {}
    for after in ("pending", "failed", None):
        assert found(turns=[turn("success", after)]) == {"an end that changed": 1}


def test_what_a_replica_holds_after_the_end() -> None:
    history = History({"a": (TIMING, OFF)}, ROWS, CALLS, [STARTED], {}, {"one": ["slots: 1", "leases: 2"]})
    assert dict(judge(history, END).found) == {"held after the end": 2}


def test_a_cancelled_execution_was_asked_to_end() -> None:
    cancelled = row(20.0, status="cancelled", cancel_requested=True)
    assert found(with_instead(cancelled, ROWS)) == {}
    assert found(with_instead(replace(cancelled, cancel_requested=False), ROWS)) == {"an end that nobody asked for": 1}


@pytest.mark.parametrize("ended", [{"ended": None, "outcome": None}, {"outcome": "failed"}])
def test_a_success_without_its_end(ended: dict[str, Any]) -> None:
    assert found(ROWS, with_instead(call(30.0, **ended), CALLS))["an end that the handler did not make"] == 1


def test_a_success_that_nobody_called() -> None:
    assert found(ROWS, without(20.0, CALLS)) == {"an end that the handler did not make": 1}


def test_a_failure_that_the_handler_did_not_report() -> None:
    assert found(with_instead(row(20.0, status="failed"), ROWS)) == {"an end that the handler did not make": 1}


def test_a_status_that_nobody_asked_for() -> None:
    assert found(with_instead(row(20.0, status="cancelled"), ROWS)) == {"an end that nobody asked for": 1}


def test_what_did_not_run_says_why() -> None:
    silent = row(20.0, status="skipped", started=None)
    assert found(with_instead(silent, ROWS), without(20.0, CALLS)) == {"not run without a reason": 1}


@pytest.mark.parametrize("status", ["pending", "claimed", "running"])
def test_a_row_that_is_open_after_the_end(status: str) -> None:
    assert found(with_instead(row(20.0, status=status), ROWS), without(20.0, CALLS)) == {"left open": 1}


# --- time ---


def test_an_early_call() -> None:
    assert found(ROWS, with_instead(call(20.0, began=19.9), CALLS)) == {"early": 1}


def test_a_start_after_the_timing_ended() -> None:
    late = row(30.0, started=37.0, completed=38.0)
    ran = call(30.0, began=37.1, ended=37.2)
    assert found(with_instead(late, ROWS), with_instead(ran, CALLS)) == {"started after its timing ended": 1}
    stalled = Disturbance(kind="postgres_stall", at=34.0, until=36.9, scope="server")
    assert found(with_instead(late, ROWS), with_instead(ran, CALLS), stalled) == {}


def test_a_row_that_comes_too_late_although_somebody_was_well() -> None:
    late = row(20.0, written=120.0, status="missed", reason="downtime", started=None)
    history = with_instead(late, ROWS), without(20.0, CALLS)
    assert found(*history) == {"a row too late": 1}
    stalled = Disturbance(kind="postgres_stall", at=25.0, until=95.0, scope="server")
    assert found(*history, stalled) == {}
    held = Disturbance(kind="hold_schedules", at=25.0, until=30.0, scope="schedules", schedules=("a",))
    assert found(*history, held) == {}
    somebody_else = Disturbance(kind="freeze", at=25.0, until=95.0, scope="replica", replica="one", silences=True)
    assert found(*history, somebody_else) == {"a row too late": 1}


# --- G4, G6 ---


def test_a_living_replica_that_is_given_up() -> None:
    history = with_instead(ABANDONED, ROWS), with_instead(UNFINISHED, CALLS)
    assert found(*history) == {"a living one was given up": 1}
    stalled = Disturbance(kind="postgres_stall", at=32.0, until=49.0, scope="server")
    assert found(*history, stalled) == {"a living one was given up": 1}
    blinked = frozen(32.0, 34.0)
    assert found(*history, blinked) == {"a living one was given up": 1}


def test_a_killed_or_silent_replica_may_be_given_up() -> None:
    history = with_instead(ABANDONED, ROWS), with_instead(UNFINISHED, CALLS)
    assert found(*history, killed(35.0)) == {}
    assert found(*history, frozen(31.0, 55.0)) == {}
    assert found(*history, killed(35.0, replica="another")) == {"a living one was given up": 1}
    assert found(*history, frozen(12.0, 25.0)) == {"a living one was given up": 1}, "it has been well since"
    before = killed(12.0)
    assert found(*history, before) == {"a living one was given up": 1}


def test_a_call_after_the_execution_was_given_up() -> None:
    late = call(30.0, began=53.0, ended=53.1)
    history = with_instead(ABANDONED, ROWS), with_instead(late, CALLS)
    heart_was_slow = Disturbance(kind="late_answer", at=31.0, until=49.0, scope="replica", replica="one", silences=True)
    assert found(*history, heart_was_slow) == {"called after it was given up": 1}
    assert found(*history, frozen(30.0, 52.9)) == {}


def test_how_long_after_it_was_given_up_a_call_is_excused_is_a_bound() -> None:
    late = call(30.0, began=50.4, ended=50.5)
    history = with_instead(ABANDONED, ROWS), with_instead(late, CALLS)
    heart_was_slow = Disturbance(kind="late_answer", at=31.0, until=49.0, scope="replica", replica="one", silences=True)
    assert found(*history, heart_was_slow) == {}
    exact = Bounds(given_up=0.0)
    assert found(*history, heart_was_slow, bounds=exact) == {"called after it was given up": 1}


def test_a_replica_without_sessions_may_be_given_up_earlier() -> None:
    history = with_instead(ABANDONED, ROWS), with_instead(UNFINISHED, CALLS)
    cut = Disturbance(kind="cut", at=44.0, until=49.5, scope="replica", replica="one", silences=True)
    assert found(*history, cut) == {"a living one was given up": 1}
    assert found(*history, cut, bounds=Bounds(vanished=4.0)) == {}


def test_a_frozen_replica_whose_sessions_were_cut_looks_dead_and_may_be_given_up_earlier() -> None:
    history = with_instead(ABANDONED, ROWS), with_instead(UNFINISHED, CALLS)
    cut = Disturbance(kind="cut", at=44.0, until=44.1, scope="replica", replica="one")
    assert found(*history, frozen(44.0, 60.0)) == {"a living one was given up": 1}
    assert found(*history, cut) == {"a living one was given up": 1}
    assert found(*history, frozen(44.0, 60.0), cut) == {}
    assert found(*history, frozen(45.5, 60.0), cut) == {"a living one was given up": 1}, "it could connect again"


def test_a_dead_replica_s_claim_that_comes_back_too_late() -> None:
    gone = Disturbance(kind="kill", at=21.0, until=500.0, scope="replica", replica="one", pid=1, kills=True)
    back = turn("claimed", "pending", at=25.0, replica="one", token_before=201)
    assert found(ROWS, CALLS, gone, turns=[back]) == {}
    late = replace(back, at=80.0)
    assert found(ROWS, CALLS, gone, turns=[late]) == {"a takeover too late": 1}
    stalled = Disturbance(kind="postgres_stall", at=25.0, until=60.0, scope="server")
    assert found(ROWS, CALLS, gone, stalled, turns=[late]) == {}
    assert found(turns=[late]) == {}, "somebody handed it back who lives"


def test_more_at_once_than_allowed() -> None:
    long = with_instead(call(10.0, ended=25.0), CALLS)
    assert found(ROWS, long) == {"overlap": 1}
    assert found(ROWS, long, stretches=[replace(TIMING, max_instances=2)]) == {}


def test_what_was_killed_or_given_up_overlaps_with_nothing() -> None:
    given_up = row(10.0, status="abandoned", reason="replica_dead", completed=19.0)
    history = with_instead(given_up, ROWS), with_instead(call(10.0, ended=28.0), CALLS)
    assert found(*history, frozen(10.5, 27.0)) == {}
    dead = with_instead(replace(given_up, completed=26.0), ROWS), with_instead(call(10.0, ended=None), CALLS)
    assert found(*dead, killed(12.0)) == {}
    assert found(*dead, killed(24.0))["overlap"] == 1


def test_a_takeover_that_takes_too_long_although_somebody_was_well() -> None:
    late = replace(ABANDONED, completed=90.0)
    history = with_instead(late, ROWS), with_instead(UNFINISHED, CALLS)
    assert found(*history, killed(31.0)) == {"a takeover too late": 1}
    stalled = Disturbance(kind="postgres_stall", at=35.0, until=60.0, scope="server")
    assert found(*history, killed(31.0), stalled) == {}
    told = verdict(with_instead(ABANDONED, ROWS), with_instead(UNFINISHED, CALLS), killed(31.0))
    assert told.worst_takeover == pytest.approx(19.0)


def test_lateness_is_measured_while_all_is_well() -> None:
    late = with_instead(call(30.0, began=33.0, ended=33.1), CALLS)
    assert verdict(ROWS, late).worst_lateness == pytest.approx(3.0)
    told = verdict(ROWS, late, frozen(28.0, 31.0))
    assert told.worst_lateness == pytest.approx(0.2)
    assert told.undisturbed_calls == 1, "of 10 and 20 only: nothing counts for a while after the start"


# --- reading ---


def test_the_ledger_s_lines_become_calls_in_order(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text(
        "began\tb\t20.0\t1\t7\t100\t20.5\t\n"
        "began\ta\t10.0\t1\t5\t100\t10.5\t\n"
        "began\ta\t10.0\t1\t5\t101\t11.5\t\n"
        "ended\ta\t10.0\t1\t5\t100\t10.9\tok\n"
        "began\ta\t10.0\t1\t5\t100\t12.0\t\n"
    )
    calls = list(calls_of(ledger, tmp_path / "scratch"))
    assert [(each.schedule, each.pid, each.began, each.ended, each.outcome) for each in calls] == [
        ("a", 100, 10.5, 10.9, "ok"),
        ("a", 100, 12.0, None, None),
        ("a", 101, 11.5, None, None),
        ("b", 100, 20.5, None, None),
    ]


def test_a_fault_reads_as_it_was_written() -> None:
    fault = Disturbance(kind="hold", at=1.5, until=2.5, scope="schedules", schedules=("a", "b"), note="x")
    assert Disturbance.from_line(fault.as_line()) == fault


def test_rows_out_of_order_are_refused_instead_of_misjudged() -> None:
    rows = [row(10.0, schedule="b"), row(10.0, schedule="a")]
    with pytest.raises(ValueError, match="not in order"):
        judge(History({}, rows, [], []), END)


def test_a_verdict_can_be_written_as_json() -> None:
    assert json.loads(json.dumps(verdict([], []).as_json()))["found"] == {"unaccounted": 3}


@pytest.mark.parametrize("module", [checker, records])
def test_what_judges_the_product_imports_nothing_of_it(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in names if name.split(".")[0] in ("services", "database", "config")]


# --- limits across schedules ---


def limited(
    *changes: tuple[float, str, int | None], began: float = 10.5, waited_for: str | None = None, **facts: Any
) -> dict[str, int]:
    """Two calls of one key, of two schedules, that overlap if the second one does not wait."""
    rows = [row(10.0, keys=["k:1"]), row(10.0, schedule="b", keys=["k:1"], waited_for=waited_for, **facts)]
    calls = [call(10.0), call(10.0, schedule="b", began=began, ended=began + 1)]
    once = Stretch(since=5.0, until=15.0, seconds=10)
    history = History(
        {"a": [once], "b": [once]}, rows, calls, [STARTED], {}, {},
        [LimitChange(at=at, name=name, most=most) for at, name, most in changes],
    )  # fmt: skip
    return dict(judge(history, END).found)


@pytest.mark.parametrize(
    ("changes", "is_exceeded"),
    [
        ([(0.0, "k:1", 1)], True),
        ([(0.0, "k:1", 2)], False),
        ([(0.0, "k:*", 1)], True),
        ([(0.0, "k:*", 1), (0.0, "k:1", 2)], False),
        ([(0.0, "*", 2), (0.0, "k:*", 1)], True),
        ([(0.0, "other", 1)], False),
        ([(-90.0, "k:1", 1), (-80.0, "k:1", None)], False),
        ([(-90.0, "k:1", None), (-80.0, "k:1", 1)], True),
        ([(-90.0, "k:1", 2), (9.0, "k:1", 1)], False),  # it may have been claimed before
    ],
)
def test_a_limit_is_exceeded_by_calls_of_all_schedules_together(
    changes: list[tuple[float, str, int | None]], is_exceeded: bool
) -> None:
    assert limited(*changes) == ({"a limit exceeded": 1} if is_exceeded else {})


def test_a_row_that_waits_for_a_limit_although_there_is_room() -> None:
    late: dict[str, Any] = {"began": 90.0, "started": 89.9, "completed": 91.0, "waited_for": "k:1", "due": 10.0}
    assert limited((0.0, "k:1", 1), **late) == {"waits for a limit that has room": 1}
    assert limited((-90.0, "k:1", 1), (12.0, "k:1", 0), (80.0, "k:1", 1), **late) == {}
    soon: dict[str, Any] = {"began": 14.0, "started": 13.9, "completed": 15.0, "waited_for": "k:1", "due": 10.0}
    assert limited((0.0, "k:1", 1), **soon) == {}


def test_a_worker_of_the_fleet_that_is_well_excuses_no_missing_row_and_one_that_is_ill_no_late_one() -> None:
    worker = Disturbance(kind="start", at=0.0, until=1.0, scope="worker", replica="worker")
    frozen = Disturbance(kind="freeze", at=0.0, until=900.0, scope="worker", replica="worker")
    late = [row(10.0, written=90.0, started=91.0, completed=92.0), *ROWS[1:]]
    calls = [call(10.0, began=91.0, ended=91.5), *CALLS[1:]]
    assert found(late, calls, worker, frozen)["a row too late"] == 1
    ill = Disturbance(kind="freeze", at=5.0, until=85.0, scope="replica", replica="other")
    assert "a row too late" not in found(late, calls, ill, worker)
