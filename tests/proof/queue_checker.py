"""Judges the items of a status queue from outside: was each saved once, by its holder, and does each have an end?

Imports nothing of the product. Four witnesses: a trigger saw every change of the rows, `save` left a line in the
transaction that ends its item, the work wrote down its calls, and the claims were overheard. Start reading at
`judge_items`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.proof.checker import Bounds, Violation, Weather, clock

QUEUED, PROCESSING, COMPLETED, FAILED = "Queued", "Processing", "Completed", "Error"
RELEASED_SECONDS = 3000.0  # so far away is the next attempt of an item whose failure could not be written
TRACE_SECONDS = 0.000_001


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTurn:
    """One change of a row, as a trigger saw it; `before` is None for the row's beginning."""

    item: int
    at: float
    transaction: int
    before: str | None
    after: str
    token_before: str | None = None
    token_after: str | None = None
    attempts_before: int = 0
    attempts_after: int = 0
    due_before: float = 0.0
    due_after: float = 0.0

    @property
    def is_claim(self) -> bool:
        return self.before == QUEUED and self.after == PROCESSING

    @property
    def is_takeover(self) -> bool:
        return self.before == PROCESSING and self.after == PROCESSING

    @property
    def is_release(self) -> bool:
        """Its failure could not be written: it is queued once more, whatever its attempts."""
        return self.after == QUEUED and self.before == PROCESSING and self.due_after - self.at > RELEASED_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemClaim:
    """A claim as the process that made it heard of it, maybe before its commit."""

    item: int
    token: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCall:
    """The work on one item, as it wrote down itself; `ended` is None for work that never came back."""

    item: int
    token: str
    attempt: int
    pid: int
    began: float
    ended: float | None = None
    outcome: str | None = None  # ok, retry, permanent, broken, stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A line that `save` wrote with its session: it is there only if the item's end was committed."""

    item: int
    token: str
    attempt: int
    pid: int
    transaction: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A row after the end."""

    item: int
    status: str
    error: str | None
    attempts: int
    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What the queue promises, and the time in which a rescue has to come."""

    max_attempts: int
    stale_seconds: float
    rescue_seconds: float  # after a claim has become stale


@dataclass(slots=True, kw_only=True)
class QueueStory:
    limits: QueueLimits
    items: Sequence[Item]
    turns: Sequence[ItemTurn]  # in their order
    claims: Sequence[ItemClaim]
    calls: Sequence[ItemCall]
    saved: Sequence[Saved]
    letters: Mapping[int, int]  # item -> attempts, of the open ones
    totals: Mapping[str, int] = field(default_factory=dict)  # as the queue's own row counts them
    undisturbed: bool = False  # no fault struck a replica or Postgres: nothing that was counted can be lost

    def outcome_before(self, turn: ItemTurn) -> str | None:
        """How the work under the claim that this change ended had ended by then: later nobody listens."""
        for call in self.calls:
            if (call.item, call.token) == (turn.item, turn.token_before) and (call.ended or turn.at + 1) <= turn.at:
                return call.outcome
        return None

    def turns_of(self) -> dict[int, list[ItemTurn]]:
        return _by_item(self.turns)


def judge_items(story: QueueStory, weather: Weather, bounds: Bounds, end: float) -> Iterator[Violation]:
    yield from a_claim_is_one_process_s(story)
    yield from a_claim_is_worked_on_once(story)
    yield from a_claim_is_saved_once(story)
    yield from only_the_holder_saves(story)
    yield from every_end_has_its_result(story)
    yield from steps_of_a_row_are_those_of_a_queue(story)
    yield from attempts_are_counted(story)
    yield from only_stale_claims_are_taken_over(story)
    yield from claims_come_back_in_time(story, weather, bounds, end)
    yield from every_item_has_an_end(story, end)
    yield from dead_letters_are_of_the_dead(story, end)
    if story.undisturbed:
        yield from totals_agree(story, end)


# --- one claim, one holder, one save ---


def a_claim_is_one_process_s(story: QueueStory) -> Iterator[Violation]:
    """Also its token is new: a token that comes twice fences nobody off."""
    holders: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for claim in story.claims:
        holders[claim.item, claim.token].add(claim.pid)
    for (item, token), pids in holders.items():
        if len(pids) > 1:
            yield _about(item, "a claim of two processes", 0.0, f"token {token[-4:]}: pids {sorted(pids)}")
    for item, turns in story.turns_of().items():
        seen: set[str] = set()
        for turn in turns:
            if turn.token_after is not None and turn.token_after != turn.token_before:
                if turn.token_after in seen:
                    yield _about(item, "a claim of two processes", turn.at, f"token {turn.token_after[-4:]} came twice")
                seen.add(turn.token_after)


def a_claim_is_worked_on_once(story: QueueStory) -> Iterator[Violation]:
    for (item, token), calls in _by_token(story.calls).items():
        if len(calls) > 1:
            told = ", ".join(f"pid {call.pid} at {clock(call.began)}" for call in calls)
            yield _about(item, "an item worked on twice under one claim", calls[1].began, f"{token[-4:]}: {told}")


def a_claim_is_saved_once(story: QueueStory) -> Iterator[Violation]:
    for (item, token), saved in _by_token(story.saved).items():
        if len(saved) > 1:
            told = ", ".join(f"pid {each.pid} at {clock(each.at)}" for each in saved)
            yield _about(item, "an item saved twice under one claim", saved[1].at, f"{token[-4:]}: {told}")


def only_the_holder_saves(story: QueueStory) -> Iterator[Violation]:
    ends = {(turn.transaction, turn.item): turn for turn in story.turns if turn.after == COMPLETED}
    claimed_by = {(claim.item, claim.token): claim.pid for claim in story.claims}
    for each in story.saved:
        turn = ends.get((each.transaction, each.item))
        if turn is not None and turn.token_before != each.token:
            text = f"pid {each.pid} saved under {each.token[-4:]}, in force was {(turn.token_before or 'none')[-4:]}"
            yield _about(each.item, "an item saved without its claim", each.at, text)
        if claimed_by.get((each.item, each.token)) != each.pid:
            text = f"pid {each.pid} saved under {each.token[-4:]}, which it did not claim"
            yield _about(each.item, "an item saved without its claim", each.at, text)


def every_end_has_its_result(story: QueueStory) -> Iterator[Violation]:
    """Completed is what the work did and `save` saved, in one transaction; failed is what the work said."""
    saved = {(each.transaction, each.item): each for each in story.saved}
    for turn in story.turns:
        if turn.before != PROCESSING or turn.after not in (COMPLETED, FAILED):
            continue
        own, outcome = saved.pop((turn.transaction, turn.item), None), story.outcome_before(turn)
        if turn.after == COMPLETED and (own is None or outcome != "ok"):
            text = f"completed, {'saved' if own else 'not saved'}, and the work says {outcome}"
            yield _about(turn.item, "an item's end that its work did not make", turn.at, text)
        if turn.after == FAILED and outcome != "permanent" and turn.attempts_after < story.limits.max_attempts:
            text = f"failed at attempt {turn.attempts_after}, and the work says {outcome}"
            yield _about(turn.item, "an item's end that its work did not make", turn.at, text)
    for each in saved.values():
        yield _about(each.item, "an item's end that its work did not make", each.at, "saved, and not completed")


# --- its way ---

STEPS = {
    (None, QUEUED): "somebody queues it",
    (QUEUED, PROCESSING): "claim",
    (PROCESSING, PROCESSING): "takeover",
    (PROCESSING, QUEUED): "retry, hand-back",
    (PROCESSING, COMPLETED): "save",
    (PROCESSING, FAILED): "failure",
    (FAILED, QUEUED): "somebody queues it again",
}


def steps_of_a_row_are_those_of_a_queue(story: QueueStory) -> Iterator[Violation]:
    for turn in story.turns:
        claimed = turn.after == PROCESSING
        fits = (turn.before, turn.after) in STEPS and (turn.token_after is not None) == claimed
        if not fits or (claimed and turn.token_after == turn.token_before):
            text = f"{turn.before} became {turn.after}, token {turn.token_before} became {turn.token_after}"
            yield _about(turn.item, "a step that no queue makes", turn.at, text)
        elif turn.is_claim and turn.due_before > turn.at + TRACE_SECONDS:
            text = f"claimed {turn.due_before - turn.at:.3f} s before it was due"
            yield _about(turn.item, "a step that no queue makes", turn.at, text)


def attempts_are_counted(story: QueueStory) -> Iterator[Violation]:
    """A claim counts, its hand-back takes it back, a person's requeue begins anew; nothing else changes them."""
    for item, turns in story.turns_of().items():
        released = 0
        for turn in turns:
            released = 0 if turn.before == FAILED else released + turn.is_release
            more = turn.attempts_after - turn.attempts_before
            allowed = (1,) if turn.is_claim else (0, -1) if turn.after == QUEUED and turn.before == PROCESSING else (0,)
            if turn.before not in (None, FAILED) and more not in allowed:
                text = f"{turn.attempts_before} became {turn.attempts_after} with {turn.before} to {turn.after}"
                yield _about(item, "an item's attempts miscounted", turn.at, text)
            if turn.attempts_after > story.limits.max_attempts + released:
                text = f"attempt {turn.attempts_after} of {story.limits.max_attempts}"
                yield _about(item, "an item's attempt too many", turn.at, text)


def only_stale_claims_are_taken_over(story: QueueStory) -> Iterator[Violation]:
    for item, turns in story.turns_of().items():
        since = 0.0
        for turn in turns:
            if turn.is_takeover and turn.at - since < story.limits.stale_seconds - TRACE_SECONDS:
                text = f"its claim was {turn.at - since:.2f} s old, stale after {story.limits.stale_seconds:g}"
                yield _about(item, "an item taken over too early", turn.at, text)
            if turn.after == PROCESSING:
                since = turn.at


def claims_come_back_in_time(story: QueueStory, weather: Weather, bounds: Bounds, end: float) -> Iterator[Violation]:
    """Counted is the time in which at least one replica and the server were well."""
    bound = story.limits.stale_seconds + story.limits.rescue_seconds + bounds.slack
    for item, turns in story.turns_of().items():
        for turn, after in zip(turns, [*turns[1:], None], strict=True):
            until = end if after is None else after.at
            if turn.after == PROCESSING and (fit := weather.fit_seconds(turn.at, until)) > bound:
                text = f"one claim for {until - turn.at:.1f} s, {fit:.1f} s of it in good weather, {bound:g} allowed"
                yield _about(item, "an item's rescue too late", until, text)


# --- after the end ---


def every_item_has_an_end(story: QueueStory, end: float) -> Iterator[Violation]:
    for item in story.items:
        if item.status == PROCESSING:
            yield _about(item.item, "an item left in processing", end, f"attempt {item.attempts}")
        elif item.status == QUEUED and (item.due <= end or item.error is None):
            yield _about(item.item, "an item without an end", end, f"queued since {clock(item.due)}: {item.error}")
        elif item.status == FAILED and not item.error:
            yield _about(item.item, "an item without an end", end, "failed without a reason")


def dead_letters_are_of_the_dead(story: QueueStory, end: float) -> Iterator[Violation]:
    """A failed item has a letter, unless its work said that no attempt can help; nothing else has one."""
    status = {item.item: item.status for item in story.items}
    last = {turn.item: turn for turn in story.turns if turn.after == FAILED}
    for item in story.items:
        if item.status != FAILED:
            continue
        permanent = story.outcome_before(last[item.item]) == "permanent"
        if permanent and item.item in story.letters:
            yield _about(item.item, "a dead letter that is wrong", end, "its work said that no attempt can help")
        if not permanent and item.item not in story.letters:
            yield _about(item.item, "a dead letter that is wrong", end, "its last attempt failed, and it has none")
    for number in story.letters:
        if status.get(number) != FAILED:
            yield _about(number, "a dead letter that is wrong", end, f"an open one of an item that is {status[number]}")


def totals_agree(story: QueueStory, end: float) -> Iterator[Violation]:
    """Counted by the trigger, and by the queue itself."""
    seen: Counter[str] = Counter()
    for turn in story.turns:
        seen["claimed"] += turn.is_claim
        seen["succeeded"] += turn.after == COMPLETED
        seen["stale"] += turn.is_takeover
    for name in ("claimed", "succeeded", "stale"):
        if story.totals.get(name, 0) != seen[name]:
            text = f"{name}: the queue says {story.totals.get(name, 0)}, the rows say {seen[name]}"
            yield _about(0, "totals of a queue that disagree", end, text)


# --- small answers ---


def _by_item(all_of_them: Sequence[ItemTurn]) -> dict[int, list[ItemTurn]]:
    found: defaultdict[int, list[ItemTurn]] = defaultdict(list)
    for each in all_of_them:
        found[each.item].append(each)
    return dict(found)


S = TypeVar("S", ItemCall, Saved)


def _by_token(all_of_them: Sequence[S]) -> dict[tuple[int, str], list[S]]:
    found: defaultdict[tuple[int, str], list[S]] = defaultdict(list)
    for each in all_of_them:
        found[each.item, each.token].append(each)
    return dict(found)


def _name(item: int) -> str:
    return f"item {item}" if item else "the queue"


def _about(item: int, kind: str, at: float, text: str) -> Violation:
    return Violation(kind, _name(item), at, 0, at, text)
