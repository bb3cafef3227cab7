"""Parts of the simulation that need no server: dice, virtual time, prepared statements, how a failure is made small."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import psycopg2
import pytest

from tests.proof.checker import Verdict
from tests.proof.simulation.dice import Dice
from tests.proof.simulation.figures import Figures
from tests.proof.simulation.net import Fault
from tests.proof.simulation.options import Options, Result
from tests.proof.simulation.prepared import Statements
from tests.proof.simulation.shrinking import Shrinking
from tests.proof.simulation.world import EPOCH, World


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7)
    World.it = None


def test_an_answer_of_the_dice_does_not_depend_on_what_was_asked_before() -> None:
    one, two = Dice(5), Dice(5)
    for number in range(10):
        one.roll(f"something else {number}")
    assert one.roll("this") == two.roll("this")
    assert Dice(6).roll("this") != two.roll("this")


def test_the_dice_are_fair() -> None:
    dice = Dice(1)
    counted = Counter(dice.one_of(f"draw {number}", "abcd") for number in range(4000))
    assert all(900 < counted[letter] < 1100 for letter in "abcd")
    assert sum(dice.about(f"wait {number}", 2.0) for number in range(4000)) / 4000 == pytest.approx(2.0, rel=0.1)


def test_time_passes_only_while_everybody_waits(world: World) -> None:
    seen: list[tuple[str, float]] = []

    def sleeper(name: str, seconds: float) -> None:
        for _ in range(2):
            world.sleep(seconds)
            seen.append((name, world.now - EPOCH))

    world.spawn("slow", None, lambda: sleeper("slow", 3.0))
    world.spawn("quick", None, lambda: sleeper("quick", 1.0))
    world.run(EPOCH + 100)
    assert seen == [("quick", 1.0), ("quick", 2.0), ("slow", 3.0), ("slow", 6.0)]
    assert world.now == EPOCH + 100


def test_a_thread_that_ends_by_an_exception_is_noted(world: World) -> None:
    world.spawn("clumsy", None, lambda: 1 / 0)
    world.run(EPOCH + 1)
    assert "ZeroDivisionError" in world.escaped[0]


class Process:
    name, label, scope, dead, frozen_until, skew = "r1", "r1.1", "replica", False, 0.0, 0.0


def test_a_killed_process_makes_no_further_step_whatever_its_threads_catch(world: World) -> None:
    process, steps = Process(), []

    def stubborn() -> None:
        while True:
            try:
                world.sleep(1.0)
                steps.append(world.now)
            except BaseException:
                if len(steps) > 10:
                    raise
                steps.append(-1.0)
                if steps.count(-1.0) > 3:
                    raise

    world.spawn("stubborn", process, stubborn)
    world.run(EPOCH + 2.5)
    world.kill(process)
    world.run(EPOCH + 50)
    assert steps == [EPOCH + 1, EPOCH + 2, -1.0, -1.0, -1.0, -1.0]


def test_a_frozen_process_gets_no_turn_but_its_request_travels_on(world: World) -> None:
    process, turns = Process(), []

    def thread(on_wire: bool) -> None:
        world.me.on_wire = on_wire
        world.sleep(1.0)
        turns.append((on_wire, world.now - EPOCH))

    world.spawn("thread", process, lambda: thread(False))
    world.spawn("request", process, lambda: thread(True))
    world.run(EPOCH + 0.5)
    process.frozen_until = EPOCH + 9
    world.run(EPOCH + 20)
    assert turns[0] == (True, 1.0)
    assert turns[1][1] == pytest.approx(9.0, abs=0.01)


# --- figures ---


def test_a_statement_is_prepared_with_the_types_that_its_values_have_in_the_text() -> None:
    text = "SELECT * FROM t WHERE a = ANY(%(ids)s::uuid[]) AND b < %(most)s AND c = %(ids)s::text AND d = %(name)s"
    statement = Statements(lambda _sql: None).prepared(text, {"ids": "{}", "most": 1.5, "name": "it"})
    assert statement is not None
    assert statement.preparation("s0") == (
        "PREPARE s0 (uuid[], numeric, text, unknown) AS "
        "SELECT * FROM t WHERE a = ANY($1::uuid[]) AND b < $2 AND c = $3::text AND d = $4"
    )
    assert statement.execution("s0") == "EXECUTE s0 (%(ids)s::uuid[], %(most)s, %(ids)s::text, %(name)s)"


def test_a_statement_that_cannot_be_prepared_is_sent_as_it_is() -> None:
    def refuse(_sql: str) -> None:
        raise psycopg2.ProgrammingError("could not determine data type of parameter $1")

    assert Statements(refuse).prepared("SELECT %(what)s", {"what": None}) is None
    assert Statements(lambda _sql: None).prepared("SELECT %(what)s", {"what": [1, 2]}) is None


def test_the_figures_of_two_processes_become_one() -> None:
    one, two = Figures(), Figures()
    for seed, figures in ((1, one), (2, two)):
        figures.add(replace(play(seed, Options()), counts=Counter({"fault crash": 2, "statements": 400 + seed})))
    both = Figures.from_json(json.loads(json.dumps(one.as_json())))
    both.merge(two)
    assert both.faults() == {"crash": 4}
    assert both.statements == [401, 402]
    assert set(both.failed) == {1, 2}
    both.seconds = 1.0
    assert any("2 histories broke a promise" in line for line in both.told(processes=2))


# --- shrinking ---

NEEDED = {"late_reply@r1/heart#4", "freeze@r2/main#9"}
ALL_FAULTS = [*sorted(NEEDED), *(f"crash@r3/heart#{number}" for number in range(30))]


def play(seed: int, options: Options) -> Result:
    """Is broken by two faults together, on schedule 2, with two replicas or more."""
    struck = [key for key in ALL_FAULTS if options.only is None or key in options.only]
    schedules = tuple(number for number in range(4) if options.schedules is None or number in options.schedules)
    replicas = options.replicas or 3
    is_broken = set(struck) >= NEEDED and 2 in schedules and replicas >= 2
    faults = [Fault(key, key.partition("@")[0], 1.0, "") for key in struck]
    broken = ["called twice: s2"] if is_broken else []
    return Result(seed, options, broken, Verdict(), faults, Counter(), [], "", schedules, replicas, 1.0)


def test_a_failing_history_keeps_only_what_it_needs() -> None:
    small = Shrinking(play)(play(1, Options()))
    assert {fault.key for fault in small.faults} == NEEDED
    assert small.schedules == (2,)
    assert small.replicas == 2
    assert small.violations


def test_shrinking_does_not_trade_one_broken_promise_for_another() -> None:
    def other(seed: int, options: Options) -> Result:
        found = play(seed, options)
        return found if found.violations else replace(found, violations=["unaccounted: s1"])

    assert Shrinking(other)(other(1, Options())).kinds == {"called twice"}


def test_shrinking_ends_after_so_many_plays() -> None:
    played = 0

    def counted(seed: int, options: Options) -> Result:
        nonlocal played
        played += 1
        return play(seed, options)

    Shrinking(counted, most_plays=10)(play(1, Options()))
    assert played == 10
