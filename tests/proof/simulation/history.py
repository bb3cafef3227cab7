"""One history: drawn from its seed, played with faults, healed, brought to rest and judged. Start reading at `play`."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from psycopg2.extensions import connection as PgConnection

import config
from database.connection import ENGINE_IDLE_IN_TRANSACTION_SECONDS
from tests.proof import records
from tests.proof.checker import Bounds, Verdict, Weather, judge
from tests.proof.queue_checker import judge_items
from tests.proof.records import Turn
from tests.proof.share_checker import Offer, Route, ShareBounds, ShareStory, Sight, judge_shares
from tests.proof.simulation import queues
from tests.proof.simulation.broker import URL, VirtualBroker
from tests.proof.simulation.fake_redis import VirtualRedis
from tests.proof.simulation.fleet import PLACES, Worker
from tests.proof.simulation.fleet import QUEUE as FLEET
from tests.proof.simulation.handler import Work
from tests.proof.simulation.net import Net
from tests.proof.simulation.options import QUEUE, Options, Result
from tests.proof.simulation.people import FLEET_WAY, INSERT, People, Schedule, Way
from tests.proof.simulation.postgres import Server
from tests.proof.simulation.replica import Process, Replica
from tests.proof.simulation.world import EPOCH, Task, World

LEAST_SCHEDULES, MOST_SCHEDULES = 2, 5
SKEWS = (-1.5, -0.4, 0.4, 1.5, 4.0, -7.0)
LATE_WAKE_SECONDS = ((0.001, 0.01), (0.05, 1.2), (1.0, 3.0))
# Statements of the engine that may wait for another session's lock: not for long (LOCK_TIMEOUT_SECONDS), and anybody
# else who waits at all is a finding.
LONGEST_WAIT_SECONDS = 2.1
MAY_WAIT = {
    "START": "a cancellation, or a rescuer, holds the row",
    "FINISH": "the same",
    "HAND_BACK": "the same",
    "UNSTART": "the same",
    "BEAT": "a worker's CONFIRM writes the same row",
    "CONFIRM": "the heart's BEAT writes the same row",
    "GONE": "the same",
    "FENCE": "the notifier that took the lease from a silent one is writing",
    "GIVE_BACK": "a broken session of the replica's own notifier holds the row",
    "INSERT": "the gap scan of another replica records the fires of the same deleted schedule",
}
# At the very end of a process: by then all of its claims have been handed back.
WAITS_LONGER = {"GIVE_BACK": ENGINE_IDLE_IN_TRANSACTION_SECONDS + 0.1}
OPEN = "SELECT count(*) FROM job_executions WHERE status IN ('pending', 'claimed', 'running')"
NAMELESS = "SELECT count(*) FROM scheduler_instances WHERE session_name = ''"
TURNS = """
SELECT schedule_id::text, extract(epoch FROM scheduled_for)::float8, attempt, extract(epoch FROM at)::float8, before,
       after, token_before, token_after, replica
FROM sim.turns ORDER BY turn
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`quick` is the product's defaults divided by four: their proportions in short histories."""

    settings: dict[str, float]
    bounds: Bounds
    active_seconds: float
    settle_seconds: float
    intervals: tuple[int, ...]


PACES = {
    "quick": Pace(
        settings={
            "heartbeat_interval_seconds": 1, "heartbeat_timeout_seconds": 4, "rescue_interval_seconds": 1.5,
            "verify_after_seconds": 1, "gap_scan_seconds": 6, "lock_timeout": 15, "schedule_check_interval": 30,
            "catchup_max_fires": 3, "shutdown_grace_seconds": 2,
        },
        bounds=Bounds(
            heartbeat_interval=1, heartbeat_timeout=4, takeover=7.5, row=13, given_up=0.0, slack=3.0, vanished=2.0
        ),
        active_seconds=13.5, settle_seconds=60.0, intervals=(1, 1, 2, 3),
    ),
    "usual": Pace(
        settings={"catchup_max_fires": 3, "shutdown_grace_seconds": 5},
        bounds=Bounds(row=43, given_up=0.0, slack=3.0, vanished=4.0),
        active_seconds=45.5, settle_seconds=150.0, intervals=(2, 3, 5, 7),
    ),
}  # fmt: skip
USUAL_SHARE = 0.12
LIMITED_SHARE = 0.35  # of the histories
KEYS = ((), ("key:a",), ("key:b",), ("key:a", "key:b"))
LONG_WORK_SECONDS = 1.0  # with limits, fires that do not coalesce would wait for each other for minutes
SETTLES_LONGER = 4  # with limits or a fleet
FLEET_SHARE = 0.25  # of the histories, in which some schedules run on Celery workers
LATE_JOIN_SHARE = 0.3  # of the histories, in which one replica starts in the middle
DIFFER_SHARE = 0.5  # of the histories without a queue, in which the replicas do not offer the same
LONG_AWAY_SHARE = 0.04  # of the ends of a process: its next one comes later than its buckets are missed
ROUTES: tuple[Way, ...] = ((None, ()), (None, ("gpu",)), ("side", ()), ("side", ("gpu",)))
HOPELESS_GRACE = 4
SIGHT_SECONDS = 1.0  # between two looks at the heartbeats
HOLDERS = """
SELECT holds FROM scheduler_instances WHERE claiming AND heartbeat_at > clock_timestamp() - make_interval(secs => %s)
"""
ROUTE_CHANGES = """
SELECT change_id, schedule_id::text, coalesce(new->>'queue', 'default'),
       ARRAY(SELECT jsonb_array_elements_text(coalesce(nullif(new->'requires', 'null'), '[]')))
FROM schedule_changes WHERE new IS NOT NULL ORDER BY change_id
"""
ALL_BUCKETS = (1 << 1024) - 1
SETTINGS: dict[tuple[object, ...], config.Settings] = {}  # to make them takes longer than a hundred statements


def settings_of(
    url: str, name: str, pace: str, workers: int, copies: int, offer: Offer, *, has_fleet: bool
) -> config.Settings:
    key = (name, pace, workers, copies, offer, has_fleet)
    if key not in SETTINGS:
        given: dict[str, Any] = {
            **PACES[pace].settings, **queues.SETTINGS[pace], "database_url": url, "redis_url": "redis://virtual",
            "instance_id": name, "metrics_port": 0, "max_workers": workers, "timer_copies": copies,
            "job_modules": "tests.proof.simulation.handler", "abilities": ",".join(sorted(offer.labels)),
            "queues": ",".join(sorted(offer.queues)),
        }  # fmt: skip
        if has_fleet:
            given |= {"celery_queues": FLEET, "celery_broker_url": URL}
        SETTINGS[key] = config.Settings(_env_file=None, **given)
    return SETTINGS[key]


def route_of(way: Way) -> Route:
    return Route(since=0.0, queue=way[0] or "default", labels=frozenset(way[1]))


class History:
    def __init__(self, seed: int, options: Options, server: Server, reader: PgConnection) -> None:
        self._options, self._server, self._reader = options, server, reader
        self.world = world = World(seed)
        dice = world.dice
        drawn = "usual" if dice.roll("pace") < USUAL_SHARE else "quick"
        self._pace_name = options.pace or drawn
        self._pace = pace = PACES[self._pace_name]
        self._workers = dice.one_of("workers", (2, 6, 6))
        self._end = EPOCH + pace.active_seconds - 2.0
        self._heal_at = EPOCH + pace.active_seconds
        self._net = Net(world, server, options.faults, options.only, self._heal_at)
        self._redis = VirtualRedis(world, self._net)
        self._broker = VirtualBroker(world, self._net)
        server.line = self._net
        server.begin_history()
        world.is_free, world.strike = server.is_free, self._strike
        Work.now = self._work = Work(
            mean_seconds=dice.one_of("work", (0.05, 0.2, 0.5, 3.0)), failing=dice.one_of("failing", (0.0, 0.0, 0.2))
        )
        self._pids = 0
        self._processes: dict[str, Process] = {}
        self._away: set[str] = set()  # names whose next process is to come
        self._limits = self._draw_limits()
        self._count = options.replicas or dice.one_of("replicas", (2, 3, 3, 4))
        self._copies = dice.one_of("copies", (1, 2, 2))  # with more replicas than copies buckets move
        self._queue = self._draw_queue()
        self._fleet = self._draw_fleet()
        self._offers = self._draw_offers()
        self._served = [way for way in ROUTES if any(each.suits(route_of(way)) for each in self._offers.values())]
        self._served += [FLEET_WAY] if self._fleet else []
        self._schedules = self._draw_schedules()
        self._sights: list[Sight] = []

    # --- what is drawn ---

    def _draw_limits(self) -> dict[str, int]:
        dice = self.world.dice
        if dice.roll("limits") >= LIMITED_SHARE:
            return {}
        drawn = {
            "key:*": dice.one_of("limit of all keys", (None, 1, 2)),
            "key:a": dice.one_of("limit of a key", (1, 2)),
            "job:simulated": dice.one_of("limit of the job type", (None, None, 2, 3)),
        }
        return {name: most for name, most in drawn.items() if most is not None}

    def _draw_schedules(self) -> dict[int, Schedule]:
        more = self.world.dice.roll("schedules") * (MOST_SCHEDULES - LEAST_SCHEDULES + 1)
        count = LEAST_SCHEDULES + int(more)
        kept = self._options.schedules
        return {number: self._schedule(number) for number in range(count) if kept is None or number in kept}

    def _draw_offers(self) -> dict[str, Offer]:
        """The first serves what has no queue and requires nothing, so that most of the work finds a replica."""
        dice = self.world.dice
        names = [f"r{number + 1}" for number in range(self._count)]
        if self._queue is not None or self._limits or self._fleet or dice.roll("replicas differ") >= DIFFER_SHARE:
            return dict.fromkeys(names, Offer())
        return {name: self._offer(name, is_first=name == names[0]) for name in names}

    def _draw_fleet(self) -> dict[str, int]:
        """Workers and their places. None beside a status queue, whose runs may keep the only worker for seconds."""
        dice, wanted = self.world.dice, self._options.fleet
        drawn = dice.roll("a fleet") < FLEET_SHARE if wanted is None else wanted
        if not drawn or self._queue is not None:
            return {}
        return {f"w{n + 1}": dice.one_of(f"places {n}", PLACES) for n in range(dice.one_of("fleet", (1, 2, 2, 3)))}

    @property
    def _differ(self) -> bool:
        return len(set(self._offers.values())) > 1

    def _offer(self, name: str, *, is_first: bool) -> Offer:
        dice = self.world.dice
        served = dice.one_of(
            f"queues {name}", (("default",), ("default", "side"), ("default",) if is_first else ("side",))
        )
        return Offer(queues=frozenset(served), labels=frozenset({"gpu"} if dice.roll(f"gpu {name}") < 0.4 else ()))

    def _schedule(self, number: int) -> Schedule:
        dice = self.world.dice
        way = dice.one_of(f"route {number}", (ROUTES[0], *ROUTES)) if self._differ else ROUTES[0]
        if self._fleet and dice.roll(f"on the fleet {number}") < 0.65:
            way = FLEET_WAY
        hopeless = way not in self._served
        is_slow = bool(self._limits) and self._work.mean_seconds > LONG_WORK_SECONDS
        return Schedule(
            schedule_id=f"00000000-0000-0000-0000-{0x1000 + number:012x}",
            name=f"s{number}",
            seconds=dice.one_of(f"seconds {number}", self._pace.intervals),
            max_instances=dice.one_of(f"instances {number}", (1, 1, 2)),
            coalesce=dice.roll(f"coalesce {number}") < 0.5 or is_slow,
            max_retries=dice.one_of(f"retries {number}", (0, 1, 2)),
            grace_seconds=HOPELESS_GRACE if hopeless else dice.one_of(f"grace {number}", (None, None, 4)),
            catchup=dice.one_of(f"catchup {number}", (None, "none", "all")),
            end=self._end,
            route=way,
            is_hopeless=hopeless,
            limit_keys=dice.one_of(f"keys {number}", KEYS) if self._limits else (),
        )

    def _draw_queue(self) -> queues.QueuePlay | None:
        wanted, kept = self._options.queue, self._options.schedules
        drawn = self.world.dice.roll("a queue") < queues.SHARE if wanted is None else wanted
        if not drawn or (kept is not None and QUEUE not in kept):
            return None
        return queues.QueuePlay(self.world, self._server, self._net, self._pace_name, self._heal_at)

    @property
    def _worker_offers(self) -> dict[str, Offer]:
        return dict.fromkeys(self._fleet, Offer(queues=frozenset({FLEET})))

    @property
    def _is_scarce(self) -> bool:
        """Can one replica alone not run all that may run at once?"""
        at_once = sum(each.max_instances for each in self._schedules.values())
        return at_once + (self._queue.max_instances if self._queue else 0) > self._workers

    # --- the way through ---

    def play(self) -> Result:
        world, pace = self.world, self._pace
        for schedule in self._schedules.values():
            self._server.control.run(INSERT, schedule.as_values())
        if self._queue is not None:
            self._queue.begin()
        self._people = People(
            world, self._server, self._net, self._settings("people"), list(self._schedules.values()), pace.intervals,
            self._end, self._served, self._limits,
        )  # fmt: skip
        self._people.begin()
        self._people.mend(self._heal_at - world.now + HOPELESS_GRACE + self._share_bounds().settled + 2.0)
        self._draw_deployment()
        world.call_at(world.now + SIGHT_SECONDS, self._look)
        world.counts["histories with replicas that differ"] += self._differ
        world.counts["histories with a fleet"] += bool(self._fleet)
        for number in range(self._count):
            self._begin(f"r{number + 1}", self._skew(number), self._starts_after(number))
        for name in self._fleet:
            self._begin(name, 0.0, world.dice.between(f"start {name}", 0, 3))
        violations: list[str] = []
        verdict = Verdict()
        try:
            world.run(self._heal_at)
            while world.now < self._heal_at + pace.settle_seconds * self._patience:
                world.run(world.now + 1.0)
                if self._is_at_rest():
                    break
        except RuntimeError as error:
            violations.append(f"stuck: {error}")
        else:
            verdict = self._judge()
        violations += [str(each) for each in verdict.violations] + self._other_findings()
        self._close()
        return Result(
            world.seed, self._options, violations, verdict, self._net.faults, world.counts, world.lines, world.digest,
            (*self._schedules, *([QUEUE] if self._queue else [])), self._count, world.now - EPOCH,
        )  # fmt: skip

    @property
    def _patience(self) -> int:
        return SETTLES_LONGER if self._limits or self._fleet else 1

    def _starts_after(self, number: int) -> float:
        dice = self.world.dice
        is_late = number > 0 and number == self._count - 1 and dice.roll("late join") < LATE_JOIN_SHARE
        first, last = (3, self._pace.active_seconds / 2) if is_late else (0, 2)
        return dice.between(f"start {number}", first, last)

    def _settings(self, name: str) -> config.Settings:
        offer = self._offers.get(name, Offer())
        url, fleet = self._server.url, bool(self._fleet)
        return settings_of(url, name, self._pace_name, self._workers, self._copies, offer, has_fleet=fleet)

    def _skew(self, number: int) -> float:
        key = f"skew@r{number + 1}"
        if not self._net.wants("skew", key):
            return 0.0
        may_be_far_off = number > 0 and not self._differ  # one that serves each queue has to be able to claim
        skew = self.world.dice.one_of(key, SKEWS if may_be_far_off else SKEWS[:-1])
        self._net.note(key, f"the clock of r{number + 1} is off by {skew:g} s")
        if abs(skew) > 5:
            self._net.disturb("skew", self.world.now + 3600, "replica", replica=f"r{number + 1}")
        return skew

    def _begin(self, name: str, skew: float, delay: float = 0.0) -> None:
        self._away.discard(name)
        self._pids += 1
        kind = Worker if name in self._fleet else Replica
        process = kind(
            self.world, self._server, self._redis, self._settings(name), self._pids, skew, on_exit=self._exited
        )
        if isinstance(process, Worker):
            process.places = self._fleet[name]
        self._processes[name] = process
        self._net.disturb("start", self.world.now + delay + 1.0, process.scope, replica=name, pid=process.pid)
        process.start(delay)

    def _is_at_rest(self) -> bool:
        world = self.world
        if self._away or any(each.frozen_until > world.now or each.holds() for each in self._processes.values()):
            return False
        if any(task.name.startswith("people/") and not task.done for task in world.tasks):
            return False
        if self._server.control.run(OPEN)[0][0]:
            return False
        if self._queue is not None and not self._queue.is_at_rest():
            return False
        return self._unaccounted() == 0

    def _unaccounted(self) -> int:
        verdict = judge(self._read(), self._end, self._pace.bounds)
        return verdict.found["unaccounted"]

    def _close(self) -> None:
        for process in self._processes.values():
            self.world.kill(process)
            self._server.end_all_of(process)
        self.world.end()
        World.it = Work.now = queues.QueuePlay.now = VirtualBroker.now = None

    # --- faults of a process ---

    def _strike(self, task: Task) -> bool:
        """Between any two steps: what lies between them may last no time at all."""
        net, world, replica = self._net, self.world, task.owner
        if not isinstance(replica, Process):
            return False
        if key := net.strikes("crash", task, 0.2):
            net.note(key, f"{replica.label} before {task.name}")
            self._over(replica, "crash", key)
            return True
        if key := net.strikes("freeze", task, 0.2):
            seconds = world.dice.between(f"{key} seconds", 0.3, 12)
            net.note(key, f"{replica.label} for {seconds:.1f} s before {task.name}")
            replica.frozen_until = world.now + seconds
            net.disturb(
                "freeze", replica.frozen_until, replica.scope, replica=replica.name, pid=replica.pid, silences=True,
                freezes=True,
            )  # fmt: skip
            world.delay(task, replica.frozen_until)
            return True
        if key := net.strikes("late_wake", task):
            size = world.dice.one_of(f"{key} size", LATE_WAKE_SECONDS)
            seconds = world.dice.between(f"{key} seconds", *size)
            net.note(key, f"{task.name} by {seconds:.3f} s")
            net.disturb(
                "late_wake", world.now + seconds, replica.scope, replica=replica.name, pid=replica.pid, freezes=True,
                silences=task.name.endswith("/heart"),
            )  # fmt: skip
            world.delay(task, world.now + seconds)
            return True
        if replica.draining_since is None and (key := net.strikes("drain", task, 0.1)):
            net.note(key, f"{replica.label} gets SIGTERM")
            replica.ask_to_stop()
        return False

    def _draw_deployment(self) -> None:
        """All replicas are asked to stop, one soon after the other."""
        dice, key = self.world.dice, "deploy@people#1"
        if not self._net.wants("deploy", key):
            return
        at = dice.between(f"{key} at", 3.0, self._pace.active_seconds - 2.0)
        pause = dice.one_of(f"{key} pause", (0.0, 0.3, 1.0, 3.0))
        for number in range(self._count):
            self.world.call_at(self.world.now + at + number * pause, partial(self._deploy, key, f"r{number + 1}"))

    def _deploy(self, key: str, name: str) -> None:
        replica = self._processes.get(name)
        if replica is None or replica.dead or replica.draining_since is not None:
            return
        self._net.note(key, f"{replica.label} gets SIGTERM")
        replica.ask_to_stop()

    def _exited(self, replica: Process) -> None:
        if replica.dead:
            return
        if replica.draining_since is not None:
            at = replica.draining_since
            facts: dict[str, Any] = {"scope": replica.scope, "replica": replica.name}
            self._net.disturbances.append(records.Disturbance(kind="drain", at=at, until=self.world.now, **facts))
        self.world.note(f"{replica.label} has ended")
        self._over(replica, "exit", f"exit {replica.label}")

    def _over(self, replica: Process, kind: str, key: str) -> None:
        is_long = self.world.dice.roll(f"{key} long away") < LONG_AWAY_SHARE
        seconds = self.world.dice.between(f"{key} restart", *((9, 16) if is_long else (0.5, 9)))
        until = self.world.now + seconds
        facts = {"replica": replica.name, "pid": replica.pid, "kills": True, "silences": True}
        self._net.disturb(kind, until, replica.scope, **facts)
        self._broker.has_died(replica)
        self.world.kill(replica)
        self._server.end_all_of(replica)
        self._away.add(replica.name)
        self.world.call_at(until, lambda: self._begin(replica.name, replica.skew))

    # --- the judgement ---

    def _read(self) -> records.History:
        connection = self._reader
        try:
            stretches: dict[str, Any] = dict(records.stretches_of(connection, self._people.committed))
            rows = list(records.rows_of(connection))
            turns: dict[str, list[Turn]] = {}
            names = ("schedule", "fire", "attempt", "at", "before", "after", "token_before", "token_after", "replica")
            with connection.cursor() as cursor:
                cursor.execute(TURNS)
                for values in cursor:
                    turns.setdefault(values[0], []).append(Turn(**dict(zip(names, values, strict=True))))
        finally:
            connection.rollback()
        calls = sorted(self._work.calls, key=lambda each: (each.schedule, each.fire, each.attempt, each.began))
        holdings = {each.label: held for each in self._processes.values() if not each.dead and (held := each.holds())}
        return records.History(stretches, rows, calls, self._net.disturbances, turns, holdings, self._people.limited)

    def _judge(self) -> Verdict:
        bounds = self._pace.bounds
        if self._is_scarce:
            bounds = replace(bounds, row=float("inf"))
        verdict = judge(self._read(), self._end, bounds)
        for violation in judge_shares(self._share_story(), bounds, self._share_bounds()):
            verdict.add(violation)
        if self._queue is not None:
            story = self._queue.story(bounds, self._is_scarce)
            weather = Weather(self._net.disturbances, bounds)
            for violation in judge_items(story, weather, bounds, self.world.now):
                verdict.add(violation)
        return verdict

    def _look(self) -> None:
        """As people see it: the buckets that no living replica which claims says it holds."""
        world, held = self.world, 0
        for (holds,) in self._server.control.run(HOLDERS, (self._pace.bounds.heartbeat_timeout,)):
            held |= int.from_bytes(bytes(holds), "little")
        self._sights.append(Sight(at=world.now, orphaned=(ALL_BUCKETS & ~held).bit_count()))
        world.call_at(world.now + SIGHT_SECONDS, self._look)

    def _share_story(self) -> ShareStory:
        history = self._read()
        routes: dict[str, list[Route]] = {}
        for change_id, schedule, queue, labels in self._server.control.run(ROUTE_CHANGES):
            since = self._people.committed.get(change_id, EPOCH)
            routes.setdefault(schedule, []).append(Route(since=since, queue=queue, labels=frozenset(labels)))
        return ShareStory(
            rows=list(history.rows), turns=history.turns, routes=routes,
            offers={**self._offers, **self._worker_offers}, sights=self._sights, fleet=frozenset(self._fleet),
            troubled_until=self._broker.last_trouble, disturbances=self._net.disturbances,
            has_room=not self._is_scarce and not self._limits, hopeless={
                each.schedule_id: each.grace_seconds or 0 for each in self._schedules.values() if each.is_hopeless
            },
        )  # fmt: skip

    def _share_bounds(self) -> ShareBounds:
        bounds = self._pace.bounds
        missed = bounds.heartbeat_timeout + 2 * bounds.heartbeat_interval
        return ShareBounds(orphaned=missed, taken=bounds.heartbeat_interval + 3.0,
                           settled=2 * missed, slack=bounds.slack)  # fmt: skip

    def _other_findings(self) -> list[str]:
        found = [f"a thread ended: {text}" for text in self.world.escaped]
        if self._server.control.run(NAMELESS)[0][0]:
            found.append("a heartbeat names no session: nobody is ever missed by them, and the model is wrong")
        waits = [each for each in self._server.waits if not each.task.startswith("people/")]
        of_queues = [queues.finding_about(each) for each in waits if each.kind in queues.MAY_WAIT]
        waits = [each for each in waits if each.kind not in queues.MAY_WAIT]
        found += [f"waits for a lock: {wait}" for wait in waits if wait.kind not in MAY_WAIT]
        found += [
            f"waits too long for a lock: {wait}"
            for wait in waits
            if wait.seconds > WAITS_LONGER.get(wait.kind, LONGEST_WAIT_SECONDS)
        ]
        return found + [each for each in of_queues if each]
