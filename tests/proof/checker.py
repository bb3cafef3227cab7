"""Judges a history from outside: were the promises kept, whatever was done to the replicas?

Imports nothing of the product. Each invariant is a function that yields what breaks it; the words of its findings are
those of the guarantees. One schedule is judged at a time, so memory does not grow with the history. Start reading at
`judge`.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from tests.proof.records import Call, Disturbance, History, LimitChange, Row, Story, Stretch, Turn

T = TypeVar("T", Row, Call, Turn)

OPEN = ("pending", "claimed", "running")
NOT_RUN = ("skipped", "missed")
ENDED = {"success": "ok", "failed": "failed"}
GIVEN_UP = ("abandoned", "cancelled", "timed_out")  # without the handler, which may still be running
RETRIED = ("failed", "abandoned")
RETRIED_BY_PEOPLE = (*RETRIED, "timed_out", "cancelled", "skipped", "missed")
ENDS_SESSIONS = ("cut",)  # kinds of faults that end all sessions of a replica at the server
SHOWN = 50  # findings of each kind that are kept; all are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The product's own promises, in seconds, and what a busy machine may add to them."""

    heartbeat_interval: float = 4.0
    heartbeat_timeout: float = 15.0
    takeover: float = 22.0
    row: float = 40.0  # verify 3 + gap scan 30 + settle 5, and a claim
    early: float = 0.025
    obeyed: float = 1.0  # after the commit of a change nothing of before starts
    given_up: float = 1.0  # from then on nothing of it is called
    slack: float = 5.0
    announced: float = 60.0  # a row that waits for the fleet is announced again, whatever became of its message
    vanished: float | None = None  # so long without a life sign, and without a session, is enough as well
    absence: float = 4.0  # so long frozen and without a session is enough: no replica could tell it from a dead one

    @property
    def silence(self) -> float:
        """Less than this before it was given up, and a replica cannot have been silent for a whole timeout."""
        silence = self.heartbeat_timeout - 2 * self.heartbeat_interval
        return silence if self.vanished is None else min(silence, self.vanished)

    @property
    def recovery(self) -> float:
        """After a fault nobody is expected to rescue before he has been well for a timeout himself."""
        return self.heartbeat_timeout + self.heartbeat_interval


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    schedule: str
    fire: float
    attempt: int
    at: float  # when it happened: which faults were around?
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.schedule} {clock(self.fire)} attempt {self.attempt}: {self.text}"


@dataclass(slots=True)
class Verdict:
    """The findings and the figures."""

    schedules: int = 0
    fires: int = 0  # that were due
    calls: int = 0
    summarised: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    worst_takeover: float = 0.0  # of what was given up although nothing but its replica was ill
    worst_takeover_any: float = 0.0
    worst_lateness: float = 0.0  # of a call while no fault was about
    undisturbed_calls: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.found

    def as_json(self) -> dict[str, Any]:
        """Of the violations the first of each kind, as people read them."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**plain, "violations": [str(violation) for violation in self.violations]}

    def add(self, violation: Violation) -> None:
        self.found[violation.kind] += 1
        if self.found[violation.kind] <= SHOWN:
            self.violations.append(violation)


def judge(history: History, end: float, bounds: Bounds | None = None) -> Verdict:
    """Judge every fire up to `end`; everything must have come to rest since."""
    bounds = bounds or Bounds()
    weather = Weather(history.disturbances, bounds)
    verdict = Verdict()
    limited = Limited(history.limits, weather, bounds)
    for story in history.stories():
        limited.add(story)
        verdict.schedules += 1
        verdict.calls += len(story.calls)
        for row in story.rows:
            verdict.rows[row.status] += 1
            if row.reason is not None:
                verdict.reasons[f"{row.status}: {row.reason}"] += 1
        for violation in _judge(story, end, weather, bounds, verdict):
            verdict.add(violation)
    for violation in (*limited.exceeded(), *limited.passed_over()):
        verdict.add(violation)
    for replica, held in history.holdings.items():
        for what in held:
            verdict.add(Violation("held after the end", replica, end, 0, end, what))
    return verdict


def _judge(story: Story, end: float, weather: "Weather", bounds: Bounds, verdict: Verdict) -> Iterator[Violation]:
    yield from one_row_per_attempt(story)
    yield from one_call_per_attempt(story)
    yield from every_call_has_its_row(story)
    yield from every_fire_is_accounted_for(story, end, verdict)
    yield from summaries_count_what_did_not_run(story, end, verdict)
    yield from attempts_follow_each_other(story)
    yield from tokens_only_rise(story)
    yield from what_has_ended_never_changes(story)
    yield from an_end_is_what_the_handler_said(story)
    yield from nothing_is_left_open(story, end)
    yield from nothing_is_early(story, bounds)
    yield from nothing_starts_after_its_timing_ended(story, weather, bounds)
    yield from only_the_silent_are_given_up(story, weather, bounds)
    yield from nothing_is_called_after_it_was_given_up(story, weather, bounds)
    yield from no_more_at_once_than_allowed(story, weather)
    yield from takeover_is_bounded(story, weather, bounds, verdict)
    yield from claims_of_the_dead_come_back_in_time(story, weather, bounds)
    yield from rows_come_in_time(story, weather, bounds)
    _measure_lateness(story, weather, verdict)


# --- G1, G2: one row, one call ---


def one_row_per_attempt(story: Story) -> Iterator[Violation]:
    for rows in _by_attempt(story.rows).values():
        if len(rows) > 1:
            yield _about(rows[1], "two rows", rows[1].written, f"{len(rows)} rows of one attempt")


def one_call_per_attempt(story: Story) -> Iterator[Violation]:
    for calls in _by_attempt(story.calls).values():
        if len(calls) > 1:
            told = ", ".join(f"token {each.token} pid {each.pid} at {clock(each.began)}" for each in _in_order(calls))
            yield _about(calls[0], "called twice", _in_order(calls)[1].began, told)


def every_call_has_its_row(story: Story) -> Iterator[Violation]:
    rows = _by_attempt(story.rows)
    for call in story.calls:
        own = rows.get((call.fire, call.attempt))
        if not own:
            yield _about(call, "called without a row", call.began, f"token {call.token}, pid {call.pid}")
        elif own[0].status in NOT_RUN and call.outcome != "skipped":
            text = f"called at {clock(call.began)} by pid {call.pid}, its row says {_told(own[0])}"
            yield _about(call, "called though recorded as not run", call.began, text)
        elif call.token != own[0].token:
            text = f"called with token {call.token} at {clock(call.began)}, its row says {_told(own[0])}"
            yield _about(call, "called with a token that was taken back", call.began, text)


# --- G3: nothing lost, nothing invented ---


def every_fire_is_accounted_for(story: Story, end: float, verdict: Verdict) -> Iterator[Violation]:
    expected = _expected(story.stretches, end)
    verdict.fires += len(expected)
    own = {row.fire for row in story.rows if row.attempt == 1}
    summaries = [row for row in story.rows if row.is_summary]
    for fire in sorted(expected - own):
        if not any(row.fire <= fire <= (row.last or 0) for row in summaries):
            yield Violation("unaccounted", story.schedule, fire, 1, fire, "due, and without a row")
    for row in story.rows:
        if row.attempt == 1 and row.is_planned and row.fire not in expected and row.fire <= end:
            yield _about(row, "invented", row.written, f"no timing had a fire then; {_told(row)}")


def summaries_count_what_did_not_run(story: Story, end: float, verdict: Verdict) -> Iterator[Violation]:
    """A summary says how many, not which: what it covers, less what has a row of its own, is what it counts."""
    expected = sorted(_expected(story.stretches, end))
    plain = {row.fire for row in story.rows if row.attempt == 1 and not row.is_summary and row.cause != "manual"}
    began = {call.fire: call.began for call in story.calls}
    for group in _overlapping([row for row in story.rows if row.is_summary]):
        first, last = min(row.fire for row in group), max(row.last or 0 for row in group)
        if last > end:
            continue  # of a schedule that goes on: which fires came then, nobody has computed
        covered = [fire for fire in expected if first <= fire <= last]
        without_row = [fire for fire in covered if fire not in plain]
        told = sum(row.count or 0 for row in group)
        verdict.summarised += told
        text = f"{told} counted from {clock(first)} to {clock(last)}, {len(without_row)} of {len(covered)} have no row"
        written = max(row.written for row in group)
        late = [fire for fire in covered if began.get(fire, 0.0) > written]
        if told > len(without_row):
            text += f"; {len(late)} called afterwards: {', '.join(map(clock, late[:5]))}"
            yield _about(group[0], "both in a summary and with a row", began[late[0]] if late else written, text)
        elif told < len(without_row):
            yield _about(group[0], "covered by a summary that does not count it", written, text)


def attempts_follow_each_other(story: Story) -> Iterator[Violation]:
    retries = max((stretch.max_retries for stretch in story.stretches), default=0)
    was_deleted = _was_deleted(story.stretches)
    rows = {(row.fire, row.attempt): row for row in story.rows}
    for row in story.rows:
        before = rows.get((row.fire, row.attempt - 1))
        after = rows.get((row.fire, row.attempt + 1))
        allowed = RETRIED if row.is_planned else RETRIED_BY_PEOPLE
        if row.attempt > 1 and (before is None or before.status not in allowed):
            yield _about(row, "an attempt too many", row.written, f"after {_told(before) if before else 'none'}")
        if row.attempt > 1 and before and before.token and row.token and before.token >= row.token:
            yield _about(row, "a token that did not rise", row.written, f"{row.token} after {before.token}")
        owes = row.status in RETRIED and row.attempt <= retries and not was_deleted and not row.cancel_requested
        if owes and after is None:
            yield _about(row, "an attempt too few", row.completed or row.written, f"{_told(row)}, {retries} retries")


def tokens_only_rise(story: Story) -> Iterator[Violation]:
    for turns in _by_attempt(story.turns).values():
        highest = 0
        for turn in turns:
            highest = max(highest, turn.token_before or 0)
            if turn.token_after is not None and turn.token_after != turn.token_before and turn.token_after <= highest:
                yield _about(turn, "a token that did not rise", turn.at, f"{turn.token_after} after {highest}")


# --- how it ended ---


def what_has_ended_never_changes(story: Story) -> Iterator[Violation]:
    for turn in story.turns:
        if turn.before not in OPEN:
            text = f"{turn.before} became {turn.after or 'nothing'}"
            yield _about(turn, "an end that changed", turn.at, text)


def an_end_is_what_the_handler_said(story: Story) -> Iterator[Violation]:
    calls = _by_attempt(story.calls)
    for row in story.rows:
        own = [call for call in calls.get((row.fire, row.attempt), ()) if call.token == row.token]
        outcomes = [call.outcome for call in own if call.ended is not None]
        if row.status in ENDED and outcomes != [ENDED[row.status]]:
            text = f"{_told(row)}, but the handler's ends are {outcomes}"
            yield _about(row, "an end that the handler did not make", row.completed or 0, text)
        elif row.status not in (*ENDED, *OPEN, *NOT_RUN, "abandoned") and not row.cancel_requested:
            yield _about(row, "an end that nobody asked for", row.completed or 0, _told(row))
        elif row.status in NOT_RUN and row.reason is None:
            yield _about(row, "not run without a reason", row.completed or 0, _told(row))


def nothing_is_left_open(story: Story, end: float) -> Iterator[Violation]:
    for row in story.rows:
        if row.status in OPEN:
            yield _about(row, "left open", end, _told(row))


# --- when ---


def nothing_is_early(story: Story, bounds: Bounds) -> Iterator[Violation]:
    for call in story.calls:
        if call.began < call.fire - bounds.early:
            yield _about(call, "early", call.began, f"called {call.fire - call.began:.3f} s before its time")


def nothing_starts_after_its_timing_ended(story: Story, weather: "Weather", bounds: Bounds) -> Iterator[Violation]:
    for row in story.rows:
        if row.started is None or row.status in NOT_RUN or not row.is_planned:
            continue
        own = [stretch for stretch in story.stretches if _has(stretch, row.fire)]
        ended = own[-1].ended if own else None
        goes_on = row.attempt > 1 and any(_is_on(stretch, row.started) for stretch in story.stretches)
        if ended is None or goes_on or row.started <= ended + bounds.obeyed:
            continue
        if not weather.strikes_server(ended - 1, row.started):
            text = f"started {row.started - ended:.1f} s after a change that ended its timing was committed"
            yield _about(row, "started after its timing ended", row.started, text)


def rows_come_in_time(story: Story, weather: "Weather", bounds: Bounds) -> Iterator[Violation]:
    """Counted is the time in which at least one replica and the server were well."""
    for row in story.rows:
        if (
            row.attempt > 1
            or not row.is_planned
            or row.is_summary
            or row.written - row.fire <= bounds.row + bounds.slack
        ):
            continue
        late = weather.fit_seconds(row.fire, row.written)
        if late > bounds.row + bounds.slack and not weather.strikes_schedule(story.schedule, row.fire, row.written):
            text = f"its row came {row.written - row.fire:.1f} s late, {late:.1f} s of it in good weather; {_told(row)}"
            yield _about(row, "a row too late", row.written, text)


# --- G4, G6: who is given up, and what runs beside it ---


def only_the_silent_are_given_up(story: Story, weather: "Weather", bounds: Bounds) -> Iterator[Violation]:
    for row in story.rows:
        if row.status != "abandoned" or row.completed is None or row.replica is None:
            continue
        if not weather.excuses(row.replica, row.started or row.written, row.completed):
            silent = weather.silent_seconds(row.replica, row.completed)
            text = f"{row.replica} lived (silent by our doing for {silent:.1f} s just before); {_told(row)}"
            yield _about(row, "a living one was given up", row.completed, text)


def nothing_is_called_after_it_was_given_up(story: Story, weather: "Weather", bounds: Bounds) -> Iterator[Violation]:
    """But for a freeze between the check and the call, which no program can see."""
    rows = {(row.fire, row.attempt): row for row in story.rows}
    for call in story.calls:
        row = rows.get((call.fire, call.attempt))
        if row is None or row.status != "abandoned" or row.completed is None or row.token != call.token:
            continue
        late = call.began - row.completed
        if late > bounds.given_up and not weather.was_frozen(row.replica, row.completed, call.began):
            yield _about(call, "called after it was given up", call.began, f"{late:.1f} s later; {_told(row)}")


def no_more_at_once_than_allowed(story: Story, weather: "Weather") -> Iterator[Violation]:
    """What was given up counts no more from then on, and what was killed has ended."""
    allowed = max((stretch.max_instances for stretch in story.stretches), default=1)
    rows = {(row.fire, row.attempt): row for row in story.rows}
    running: list[tuple[float, Call]] = []
    for call in _in_order(story.calls):
        running = [(until, other) for until, other in running if until > call.began]
        row = rows.get((call.fire, call.attempt))
        until = _counts_until(call, row, weather)
        if until <= call.began:
            continue
        running.append((until, call))
        if len(running) > allowed:
            others = ", ".join(f"{clock(other.fire)}/{other.attempt} until {clock(end)}" for end, other in running[:-1])
            yield _about(call, "overlap", call.began, f"{len(running)} at once, {allowed} allowed; beside {others}")


def _counts_until(call: Call, row: Row | None, weather: "Weather") -> float:
    ends = [end for end in (call.ended, weather.killed_at(call.pid)) if end is not None]
    if row is not None and row.status in GIVEN_UP and row.completed is not None:
        ends.append(row.completed)
    return min(ends, default=float("inf"))


class Limited:
    """Executions whose keys have a limit, of all schedules together."""

    def __init__(self, changes: Sequence[LimitChange], weather: "Weather", bounds: Bounds) -> None:
        self._changes, self._weather, self._bounds = sorted(changes, key=lambda each: each.at), weather, bounds
        self._times = [each.at for each in self._changes]
        self._calls: defaultdict[str, list[tuple[Call, float]]] = defaultdict(list)  # by key, with until when it counts
        self._held: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # the same by the rows themselves
        self._waited: list[tuple[Row, int]] = []

    def add(self, story: Story) -> None:
        if not self._changes:
            return
        rows = {(row.fire, row.attempt): row for row in story.rows}
        for row in story.rows:
            if row.started is not None:
                for key in (*row.keys, row.schedule):
                    self._held[key].append((row.started, row.completed or float("inf")))
            if row.waited_for is not None:
                self._waited.append((row, min((each.max_instances for each in story.stretches), default=1)))
        for call in story.calls:
            own = rows.get((call.fire, call.attempt))
            until = _counts_until(call, own, self._weather)
            for key in own.keys if own is not None and until > call.began else ():
                self._calls[key].append((call, until))

    def exceeded(self) -> Iterator[Violation]:
        """A change counts from the next start on: what was claimed before it may be called a while later."""
        while_claimed = self._bounds.takeover + self._bounds.slack
        for key, calls in sorted(self._calls.items()):
            running: list[float] = []
            for call, until in sorted(calls, key=lambda each: each[0].began):
                running = [*(end for end in running if end > call.began), until]
                allowed = self._most_allowed(key, call.began - while_claimed, call.began)
                if allowed is not None and len(running) > allowed:
                    text = f"{len(running)} of {key} at once, {allowed} allowed"
                    yield _about(call, "a limit exceeded", call.began, text)

    def passed_over(self) -> Iterator[Violation]:
        """Counted is the time in which somebody was well, and every limit and the schedule itself had room."""
        longest = self._bounds.takeover + self._bounds.slack
        if self._weather.has_workers:
            longest += self._bounds.announced
        if self._bounds.row == float("inf"):
            return  # it may wait for a worker
        for row, at_once in self._waited:
            since, until = max(row.due or row.fire, row.written), row.started or row.completed
            if until is None or until - since <= longest:
                continue
            for start, end in self._roomy(row, at_once, since, until):
                fit = self._weather.fit_seconds(start, end)
                if fit > longest and not self._weather.strikes_schedule(row.schedule, start, end):
                    text = (
                        f"its limits had room for {end - start:.1f} s, {fit:.1f} s of it in good weather; {_told(row)}"
                    )
                    yield _about(row, "waits for a limit that has room", start + longest, text)

    def _roomy(self, row: Row, at_once: int, since: float, until: float) -> Iterator[tuple[float, float]]:
        """The stretches of that time in which it could have run."""
        edges = {since, until, *(at for at in self._times if since < at < until)}
        for key in (*row.keys, row.schedule):
            edges |= {edge for span in self._held[key] for edge in span if since < edge < until}
        times = sorted(edges)
        start: float | None = None
        for at, then in pairwise(times):
            middle = (at + then) / 2
            has_room = self._holding(row.schedule, middle) < at_once and all(
                (most := self._in_force(key, middle)) is None or self._holding(key, middle) < most for key in row.keys
            )
            if has_room and start is None:
                start = at
            elif not has_room and start is not None:
                yield start, at
                start = None
        if start is not None:
            yield start, until

    def _holding(self, key: str, at: float) -> int:
        return sum(start <= at < end for start, end in self._held[key])

    def _most_allowed(self, key: str, since: float, until: float) -> int | None:
        found = [self._in_force(key, at) for at in (since, until, *(at for at in self._times if since < at < until))]
        numbers = [each for each in found if each is not None]
        return max(numbers) if len(numbers) == len(found) else None

    def _in_force(self, key: str, at: float) -> int | None:
        """Its own limit, else that of the longest beginning."""
        named: dict[str, int | None] = {}
        for change in self._changes[: bisect_right(self._times, max(at, self._times[0]))]:
            named[change.name] = change.most
        fitting = [
            name
            for name, most in named.items()
            if most is not None and (name == key or (name.endswith("*") and key.startswith(name[:-1])))
        ]
        best = max(fitting, key=lambda name: (name == key, len(name)), default=None)
        return None if best is None else named[best]


def takeover_is_bounded(story: Story, weather: "Weather", bounds: Bounds, verdict: Verdict) -> Iterator[Violation]:
    for row in story.rows:
        if row.status != "abandoned" or row.completed is None or row.replica is None:
            continue
        since = weather.silent_since(row.replica, row.started or row.written, row.completed)
        if since is None:
            continue
        took = row.completed - since
        fit = weather.fit_seconds(since, row.completed)
        verdict.worst_takeover_any = max(verdict.worst_takeover_any, took)
        if weather.strikes_schedule(story.schedule, since, row.completed):
            continue
        if fit > bounds.takeover + bounds.slack:
            text = f"given up {took:.1f} s after its replica fell silent, {fit:.1f} s of it in good weather"
            yield _about(row, "a takeover too late", row.completed, text)
        if fit >= took - 0.001:
            verdict.worst_takeover = max(verdict.worst_takeover, took)


def claims_of_the_dead_come_back_in_time(story: Story, weather: "Weather", bounds: Bounds) -> Iterator[Violation]:
    for turn in story.turns:
        if turn.before != "claimed" or turn.after != "pending" or turn.replica is None:
            continue
        killed = weather.killed_before(turn.replica, turn.at)
        if killed is None or weather.strikes_schedule(story.schedule, killed, turn.at):
            continue
        fit = weather.fit_seconds(killed, turn.at)
        if fit > bounds.takeover + bounds.slack:
            text = (
                f"a claim of {turn.replica} waited {turn.at - killed:.1f} s after its end, {fit:.1f} s in good weather"
            )
            yield _about(turn, "a takeover too late", turn.at, text)


def _measure_lateness(story: Story, weather: "Weather", verdict: Verdict) -> None:
    for call in story.calls:
        if call.attempt == 1 and weather.is_calm(call.fire, call.began):
            verdict.undisturbed_calls += 1
            verdict.worst_lateness = max(verdict.worst_lateness, call.began - call.fire)


# --- what was done to them ---


class Weather:
    """What the faults excuse, and in which time somebody was well enough to keep the bounds."""

    def __init__(self, disturbances: Sequence[Disturbance], bounds: Bounds) -> None:
        self._bounds = bounds
        self._of_replica: defaultdict[str, list[Disturbance]] = defaultdict(list)
        self._killed: dict[int, float] = {}
        self._workers: set[str] = set()  # of the fleet: they write no fire's row and rescue nobody
        for each in disturbances:
            if each.replica is not None:
                self._of_replica[each.replica].append(each)
                if each.scope == "worker":
                    self._workers.add(each.replica)
            if each.kills and each.pid is not None:
                self._killed[each.pid] = each.at
        self._server = merged((each.at, each.until) for each in disturbances if each.scope == "server")
        self._holds = [each for each in disturbances if each.scope == "schedules"]
        rest = bounds.recovery
        ill = [
            merged((each.at, each.until + rest) for each in some)
            for name, some in self._of_replica.items()
            if name not in self._workers
        ]
        self._unfit = merged([*_common(ill), *((start, end + rest) for start, end in self._server)])
        disturbing = (each for each in disturbances if each.scope != "nothing")
        self._any = merged((each.at, each.until + bounds.recovery) for each in disturbing)
        self._unfit_sums = _Sums(self._unfit)
        self._any_sums = _Sums(self._any)
        self._server_sums = _Sums(self._server)

    @property
    def has_workers(self) -> bool:
        return bool(self._workers)

    def excuses(self, replica: str, since: float, until: float) -> bool:
        """Was it killed while it held this, or silent by our doing for long enough?"""
        if any(each.kills and since - 1 <= each.at <= until for each in self._of_replica[replica]):
            return True
        silent = self.silent_seconds(replica, until)
        if self._lost_sessions(replica, until):
            return silent >= min(self._bounds.silence, self._bounds.absence)
        return silent >= self._bounds.silence

    def _lost_sessions(self, replica: str, until: float) -> bool:
        """Did it lose its sessions when it froze, or while it was frozen? To the server it is a dead process."""
        mine = self._of_replica[replica]
        ends = [each.at for each in mine if each.kind in ENDS_SESSIONS]
        freezes = [each for each in mine if each.freezes and each.at <= until <= each.until + self._bounds.obeyed]
        return any(each.at - self._bounds.obeyed <= at <= until for each in freezes for at in ends)

    def silent_seconds(self, replica: str, until: float) -> float:
        """Of the time just before, in which a life sign would have kept it."""
        since = until - self._bounds.recovery - self._bounds.slack
        spans = merged((each.at, each.until) for each in self._of_replica[replica] if each.silences)
        return sum(max(0.0, min(end, until) - max(start, since)) for start, end in spans)

    def silent_since(self, replica: str, since: float, until: float) -> float | None:
        """When the silence began for which it was given up; None where there was none of our doing."""
        killed = [each.at for each in self._of_replica[replica] if each.kills and since - 1 <= each.at <= until]
        spans = merged((each.at, each.until) for each in self._of_replica[replica] if each.silences)
        begun = [start for start, end in spans if start <= until and end >= until - self._bounds.recovery]
        return max([*killed[:1], *begun], default=None) if killed or begun else None

    def was_frozen(self, replica: str | None, since: float, until: float) -> bool:
        mine = self._of_replica[replica] if replica is not None else []
        slack = self._bounds.obeyed
        return any(each.freezes and each.at <= until and each.until >= since - slack for each in mine)

    def killed_before(self, replica: str, until: float) -> float | None:
        """When it was killed last, if it has not come back since."""
        mine = [each for each in self._of_replica[replica] if each.kills and each.at <= until <= each.until]
        return max((each.at for each in mine), default=None)

    def killed_at(self, pid: int) -> float | None:
        return self._killed.get(pid)

    def strikes_server(self, since: float, until: float) -> bool:
        return self._server_sums.between(since, until) > 0

    def strikes_schedule(self, schedule: str, since: float, until: float) -> bool:
        return any(each.at < until and each.until > since and schedule in each.schedules for each in self._holds)

    def fit_seconds(self, since: float, until: float) -> float:
        """How much of that time the server, and at least one replica, had been well for a while."""
        return until - since - self._unfit_sums.between(since, until)

    def is_calm(self, since: float, until: float) -> bool:
        return self._any_sums.between(since, until) == 0


class _Sums:
    """How much of a stretch of time lies in some spans, which are in order and do not touch."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._before = [0.0, *accumulate(end - start for start, end in spans)]

    def between(self, since: float, until: float) -> float:
        return max(0.0, self._until(until) - self._until(since))

    def _until(self, at: float) -> float:
        place = bisect_right(self._starts, at)
        if place == 0:
            return 0.0
        start, end = self._spans[place - 1]
        return self._before[place - 1] + min(at, end) - start


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _common(lists: Sequence[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    """When all were ill at once."""
    if not lists:
        return []
    common = lists[0]
    for other in lists[1:]:
        common = [
            (max(a, c), min(b, d)) for a, b in common for c, d in other if max(a, c) < min(b, d)
        ]  # both are short: hundreds of faults
    return common


# --- small answers ---


def _expected(stretches: Sequence[Stretch], end: float) -> set[float]:
    return {fire for stretch in stretches for fire in stretch.fires(end)}


def _has(stretch: Stretch, fire: float) -> bool:
    if not stretch.enabled or not stretch.since < fire or (stretch.until is not None and fire > stretch.until):
        return False
    return (fire - stretch.anchor) % stretch.seconds == 0


def _is_on(stretch: Stretch, at: float) -> bool:
    return stretch.enabled and stretch.since <= at and (stretch.ended is None or at <= stretch.ended + 1)


def _by_attempt(items: Sequence[T]) -> dict[tuple[float, int], list[T]]:
    found: defaultdict[tuple[float, int], list[T]] = defaultdict(list)
    for item in items:
        found[item.fire, item.attempt].append(item)
    return dict(found)


def _in_order(calls: Iterable[Call]) -> list[Call]:
    return sorted(calls, key=lambda call: call.began)


def _overlapping(summaries: Sequence[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in sorted(summaries, key=lambda row: row.fire):
        if group and row.fire > max(other.last or 0 for other in group):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _was_deleted(stretches: Sequence[Stretch]) -> bool:
    """A change begins the next stretch where it ends one; what ends without that was deleted."""
    begun = {stretch.since for stretch in stretches}
    return any(stretch.until is not None and stretch.until not in begun for stretch in stretches)


def _about(item: Row | Call | Turn, kind: str, at: float, text: str) -> Violation:
    return Violation(kind, item.schedule, item.fire, item.attempt, at, text)


def _told(row: Row) -> str:
    reason = f" ({row.reason})" if row.reason else ""
    ended = f", completed {clock(row.completed)}" if row.completed else ""
    return f"{row.status}{reason} of {row.replica}, token {row.token}{ended}"


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S.%f}"[:-3]
