"""Judges what replicas that differ made of their work: who ran what, what waited, and whether buckets were held.

Imports nothing of the product. Beside the tables it has two witnesses: what each replica was started with, and what the
heartbeats said about buckets, looked at once a second. Start reading at `judge_shares`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.proof.checker import Bounds, Violation, Weather, clock, merged
from tests.proof.records import Disturbance, Row, Turn

LIVE = ("claimed", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a schedule needs, since this change of it was committed."""

    since: float
    queue: str = "default"
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a replica was started with."""

    queues: frozenset[str] = frozenset({"default"})
    labels: frozenset[str] = frozenset()

    def suits(self, route: Route) -> bool:
        return route.queue in self.queues and route.labels <= self.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The heartbeats of one moment: how many buckets no living replica that claims held."""

    at: float
    orphaned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBounds:
    orphaned: float  # a bucket without a holder, while some replica has been well for a timeout
    taken: float  # a row that waits for nothing but an able replica, while one is well and has room
    announced: float = 30.0  # the first pause until a row of the fleet is announced again
    settled: float  # after its grace, what nobody is able to run
    obeyed: float = 1.0  # a change of needs is known, and its row is where it belongs
    slack: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStory:
    rows: Sequence[Row]
    turns: Mapping[str, Sequence[Turn]]  # by schedule
    routes: Mapping[str, Sequence[Route]]  # by schedule, in their order
    offers: Mapping[str, Offer]  # by replica
    sights: Sequence[Sight]
    disturbances: Sequence[Disturbance]
    has_room: bool  # each replica could run all that may run at once
    hopeless: Mapping[str, float] = field(default_factory=dict)  # schedules that no replica suits, and their grace
    fleet: frozenset[str] = frozenset()  # those of the offers that are workers: they take nothing before they are woken
    troubled_until: float = 0.0  # messages were lost or late up to then
    _weather: dict[frozenset[str], Weather] = field(default_factory=dict, init=False)

    def in_force(self, schedule: str, since: float, until: float) -> list[Route]:
        """All that were at some time in between."""
        routes = self.routes.get(schedule, ())
        ends = [*(route.since for route in routes[1:]), float("inf")]
        return [route for route, end in zip(routes, ends, strict=True) if route.since <= until and end >= since]

    def able(self, routes: Iterable[Route]) -> frozenset[str]:
        """Replicas that suit each of them."""
        wanted = list(routes)
        return frozenset(name for name, offer in self.offers.items() if all(offer.suits(each) for each in wanted))

    def weather_of(self, names: frozenset[str], bounds: Bounds) -> Weather:
        if names not in self._weather:
            told = [each for each in self.disturbances if each.replica is None or each.replica in names]
            # Here a worker counts as a replica does elsewhere: is one of them well?
            told = [replace(each, scope="replica") if each.scope == "worker" else each for each in told]
            self._weather[names] = Weather(told, bounds)
        return self._weather[names]


def judge_shares(story: ShareStory, bounds: Bounds, own: ShareBounds) -> Iterator[Violation]:
    yield from only_the_able_run(story, own)
    yield from nobody_able_is_true(story, bounds, own)
    yield from what_nobody_can_run_ends_with_its_grace(story, bounds, own)
    yield from an_idle_fleet_takes_what_waits(story, bounds, own)
    if story.has_room:
        yield from an_able_replica_takes_what_waits(story, bounds, own)
    yield from no_bucket_is_without_a_holder_for_long(story, bounds, own)


def only_the_able_run(story: ShareStory, own: ShareBounds) -> Iterator[Violation]:
    for row in story.rows:
        offer = story.offers.get(row.replica or "")
        if row.started is None or offer is None:
            continue
        routes = story.in_force(row.schedule, row.started - own.obeyed, row.started)
        if routes and not any(offer.suits(route) for route in routes):
            text = f"{row.replica} offers {_offered(offer)}, it needs {_needed(routes[-1])}"
            yield _about(row, "run by one that is not able", row.started, text)


def nobody_able_is_true(story: ShareStory, bounds: Bounds, own: ShareBounds) -> Iterator[Violation]:
    """A living replica would have been able, and so had its heartbeat said for a whole timeout."""
    for row in story.rows:
        if row.reason != "nobody_able" or row.completed is None:
            continue
        since = row.completed - bounds.heartbeat_timeout
        able = story.able(story.in_force(row.schedule, since - own.obeyed, row.completed))
        if able and story.weather_of(able, bounds).fit_seconds(since, row.completed) >= bounds.heartbeat_timeout:
            yield _about(row, "missed although a replica was able", row.completed, ", ".join(sorted(able)))


def what_nobody_can_run_ends_with_its_grace(story: ShareStory, bounds: Bounds, own: ShareBounds) -> Iterator[Violation]:
    """A fire and a manual run; retries and catch-up wait for a day."""
    weather = story.weather_of(frozenset(story.offers), bounds)
    for row in story.rows:
        grace = story.hopeless.get(row.schedule)
        ended = min(row.started or float("inf"), row.completed or float("inf"))
        if grace is None or row.attempt > 1 or row.cause not in ("schedule", "manual") or ended == float("inf"):
            continue
        since = (row.due or row.written) + grace
        if since < ended and weather.fit_seconds(since, ended) > own.settled + own.slack:
            text = f"its grace was over at {clock(since)}, it ended at {clock(ended)} ({row.status}, {row.reason})"
            yield _about(row, "waited beyond its grace", ended, text)


def an_able_replica_takes_what_waits(story: ShareStory, bounds: Bounds, own: ShareBounds) -> Iterator[Violation]:
    """Only the time in which its schedule ran nothing else, and an able replica and the server were well."""
    for row, since, until, live in _waits(story):
        yield from _taken_late(story, bounds, own, row, since, until, live)


def an_idle_fleet_takes_what_waits(story: ShareStory, bounds: Bounds, own: ShareBounds) -> Iterator[Violation]:
    """Whatever becomes of messages: pauses double, so the next one is no longer than the trouble, and the first one.

    Only the time in which no worker ran anything, and a worker, a replica and the server were well.
    """
    running = [(row.started, row.completed or float("inf")) for row in story.rows
               if row.started is not None and row.replica in story.fleet]  # fmt: skip
    for row, since, until, live in _waits(story):
        routes = story.in_force(row.schedule, since, until)
        able = story.able(routes[-1:])
        trouble = max(0.0, min(until, story.troubled_until) - since)
        longest = own.announced + trouble + own.taken + own.slack
        if not routes or not able or not able <= story.fleet or row.keys or until - since <= longest:
            continue
        since = max(since, routes[-1].since)
        others = story.weather_of(frozenset(story.offers) - story.fleet, bounds)
        if others.strikes_schedule(row.schedule, since, until):
            continue
        waited = 0.0
        for start, end in _between(merged([*live, *running]), since, until):
            ill = end - start - others.fit_seconds(start, end)
            waited += max(0.0, story.weather_of(able, bounds).fit_seconds(start, end) - ill)
        if waited > longest:
            text = f"from {clock(since)} to {clock(until)}, {waited:.1f} s of it beside an idle fleet"
            yield _about(row, "waited beside an idle fleet", until, text)


def _waits(story: ShareStory) -> Iterator[tuple[Row, float, float, Sequence[tuple[float, float]]]]:
    """Each wait that ended with a claim: its row, from and until when, and the time in which its schedule ran."""
    due = {(row.schedule, row.fire, row.attempt): row for row in story.rows}
    for schedule, turns in story.turns.items():
        live = merged(_live_spans(turns, story.rows, schedule))
        since_turn: dict[tuple[float, int], float] = {}
        for turn in turns:
            key = turn.fire, turn.attempt
            row = due.get((schedule, *key))
            if row is not None and turn.before == "pending" and turn.after in LIVE:
                yield row, max(since_turn.get(key, row.written), min(row.due or 0.0, turn.at)), turn.at, live
            since_turn[key] = turn.at


def _taken_late(
    story: ShareStory,
    bounds: Bounds,
    own: ShareBounds,
    row: Row,
    since: float,
    until: float,
    live: Sequence[tuple[float, float]],
) -> Iterator[Violation]:
    routes = story.in_force(row.schedule, since, until)
    able = story.able(routes[-1:])
    since = max(since, routes[-1].since) if routes else since
    if not able or able <= story.fleet or until - since <= own.taken + own.slack:
        return
    weather = story.weather_of(able, bounds)
    if weather.strikes_schedule(row.schedule, since, until):
        return
    waited = sum(weather.fit_seconds(start, end) for start, end in _between(live, since, until))
    if waited > own.taken + own.slack:
        text = f"from {clock(since)} to {clock(until)}, {waited:.1f} s of it beside {', '.join(sorted(able))}"
        yield _about(row, "waited although a replica was able", until, text)


def no_bucket_is_without_a_holder_for_long(story: ShareStory, bounds: Bounds, own: ShareBounds) -> Iterator[Violation]:
    weather = story.weather_of(frozenset(story.offers) - story.fleet, bounds)  # a worker holds none
    since: float | None = None
    for sight in story.sights:
        if not sight.orphaned:
            since = None
        elif since is None:
            since = sight.at
        elif weather.fit_seconds(since, sight.at) > own.orphaned + own.slack:
            text = f"{sight.orphaned} buckets are held by nobody since {clock(since)}"
            yield Violation("a bucket without a holder", "", since, 0, sight.at, text)
            return


def _live_spans(turns: Sequence[Turn], rows: Sequence[Row], schedule: str) -> Iterator[tuple[float, float]]:
    """When something of this schedule was claimed or ran."""
    began: dict[tuple[float, int], float] = {}
    born_live = {(row.fire, row.attempt): row.written for row in rows if row.schedule == schedule}
    for turn in turns:
        key = turn.fire, turn.attempt
        if turn.before in LIVE:
            yield began.pop(key, born_live.get(key, turn.at)), turn.at
        if turn.after in LIVE:
            began[key] = turn.at
    yield from ((start, float("inf")) for start in began.values())


def _between(spans: Sequence[tuple[float, float]], since: float, until: float) -> Iterator[tuple[float, float]]:
    """What lies between them."""
    at = since
    for start, end in spans:
        if start > at:
            yield at, min(start, until)
        at = max(at, end)
        if at >= until:
            return
    yield at, until


def _about(row: Row, kind: str, at: float, text: str) -> Violation:
    return Violation(kind, row.schedule, row.fire, row.attempt, at, text)


def _offered(offer: Offer) -> str:
    return ", ".join(sorted({*offer.queues, *offer.labels}))


def _needed(route: Route) -> str:
    return ", ".join([route.queue, *sorted(route.labels)])
