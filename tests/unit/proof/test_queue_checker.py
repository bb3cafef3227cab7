"""The checker of queues sees what it is there for: each history here breaks one rule, and the sound one breaks none."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.proof.checker import Bounds, Weather
from tests.proof.queue_checker import (
    Item,
    ItemCall,
    ItemClaim,
    ItemTurn,
    QueueLimits,
    QueueStory,
    Saved,
    judge_items,
)

END = 200.0
BEGINNING = ItemTurn(item=1, at=100.0, transaction=1, before=None, after="Queued", due_before=100.0, due_after=100.0)
CLAIM = ItemTurn(
    item=1, at=101.0, transaction=2, before="Queued", after="Processing", token_after="a", attempts_after=1,
    due_before=100.0, due_after=100.0,
)  # fmt: skip
SAVE = ItemTurn(
    item=1, at=103.0, transaction=3, before="Processing", after="Completed", token_before="a", attempts_before=1,
    attempts_after=1,
)  # fmt: skip
FAILURE = replace(SAVE, after="Error")
TAKEOVER = replace(CLAIM, at=107.0, transaction=4, before="Processing", token_before="a", token_after="b",
                   attempts_before=1)  # fmt: skip
RETRY = ItemTurn(
    item=1, at=107.1, transaction=5, before="Processing", after="Queued", token_before="b", attempts_before=1,
    attempts_after=1, due_after=107.1,
)  # fmt: skip
CALL = ItemCall(item=1, token="a", attempt=1, pid=7, began=101.5, ended=102.5, outcome="ok")
RESULT = Saved(item=1, token="a", attempt=1, pid=7, transaction=3, at=103.0)
DONE = Item(item=1, status="Completed", error=None, attempts=1, due=100.0)
SOUND = QueueStory(
    limits=QueueLimits(max_attempts=3, stale_seconds=5.0, rescue_seconds=10.0),
    items=[DONE],
    turns=[BEGINNING, CLAIM, SAVE],
    claims=[ItemClaim(item=1, token="a", attempt=1, pid=7)],
    calls=[CALL],
    saved=[RESULT],
    letters={},
    totals={"claimed": 1, "succeeded": 1, "stale": 0},
    undisturbed=True,
)
QUEUED = replace(DONE, status="Queued", error="as the seed says")
DEAD = replace(DONE, status="Error", error="as the seed says", attempts=3)


def _kinds(story: QueueStory) -> set[str]:
    bounds = Bounds()
    return {each.kind for each in judge_items(story, Weather([], bounds), bounds, END)}


def _turns(*turns: ItemTurn) -> Sequence[ItemTurn]:
    return [BEGINNING, *turns]


def test_a_sound_history_breaks_nothing() -> None:
    assert _kinds(SOUND) == set()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("a claim of two processes", {"claims": [*SOUND.claims, ItemClaim(item=1, token="a", attempt=1, pid=8)]}),
        ("an item worked on twice under one claim", {"calls": [CALL, replace(CALL, pid=8)]}),
        ("an item saved twice under one claim", {"saved": [RESULT, replace(RESULT, transaction=9)]}),
        ("an item saved without its claim", {"saved": [replace(RESULT, pid=8)]}),
        ("an item saved without its claim", {"turns": _turns(CLAIM, replace(SAVE, token_before="b"))}),
        ("an item's end that its work did not make", {"saved": []}),
        ("an item's end that its work did not make", {"calls": [replace(CALL, outcome="retry")]}),
        ("an item's end that its work did not make", {"turns": _turns(CLAIM, FAILURE), "saved": []}),
        (
            "a step that no queue makes",
            {"turns": _turns(CLAIM, SAVE, replace(SAVE, before="Completed", after="Queued"))},
        ),
        ("a step that no queue makes", {"turns": _turns(replace(CLAIM, due_before=102.0), SAVE)}),
        ("an item's attempts miscounted", {"turns": _turns(replace(CLAIM, attempts_after=2), SAVE)}),
        ("an item's attempt too many", {"turns": _turns(replace(CLAIM, attempts_before=3, attempts_after=4), SAVE)}),
        ("an item taken over too early", {"turns": _turns(CLAIM, replace(TAKEOVER, at=105.9), RETRY)}),
        ("an item's rescue too late", {"turns": _turns(CLAIM, replace(TAKEOVER, at=125.0), replace(RETRY, at=125.1))}),
        ("an item left in processing", {"items": [replace(DONE, status="Processing")]}),
        ("an item without an end", {"items": [QUEUED]}),
        ("an item without an end", {"items": [replace(QUEUED, due=END + 60, error=None)]}),
        ("a dead letter that is wrong", {"letters": {1: 3}}),
        ("totals of a queue that disagree", {"totals": {"claimed": 2, "succeeded": 1}}),
    ],
)
def test_a_broken_rule_is_found(kind: str, changes: dict[str, object]) -> None:
    assert kind in _kinds(replace(SOUND, **changes))  # type: ignore[arg-type]


def test_a_failed_item_has_a_letter_unless_its_work_said_that_no_attempt_can_help() -> None:
    turns = _turns(
        replace(CLAIM, attempts_before=2, attempts_after=3), replace(FAILURE, attempts_before=3, attempts_after=3)
    )
    dead = replace(
        SOUND, items=[DEAD], turns=turns, saved=[], calls=[replace(CALL, outcome="retry")], undisturbed=False
    )
    hopeless = replace(dead, calls=[replace(CALL, outcome="permanent")])
    wrong = "a dead letter that is wrong"
    assert (wrong in _kinds(dead), wrong in _kinds(replace(dead, letters={1: 3}))) == (True, False)
    assert (wrong in _kinds(hopeless), wrong in _kinds(replace(hopeless, letters={1: 3}))) == (False, True)


def test_an_item_whose_failure_could_not_be_written_has_one_more_attempt_and_may_wait() -> None:
    last = replace(CLAIM, attempts_before=2, attempts_after=3)
    release = replace(RETRY, token_before="a", attempts_before=3, attempts_after=3, due_after=RETRY.at + 3600)
    waits = replace(QUEUED, attempts=3, due=release.due_after)
    story = replace(SOUND, items=[waits], turns=_turns(last, release), saved=[], undisturbed=False)
    assert _kinds(story) == set()


def test_totals_are_compared_only_where_no_fault_could_lose_a_count() -> None:
    assert _kinds(replace(SOUND, totals={}, undisturbed=False)) == set()
