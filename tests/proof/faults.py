"""The faults of a run. Each kind draws what it will do (seeded, in the main thread) and returns how to do it.

Doing it takes place in a thread of its own and ends by itself; what was really done is written into the journal. A kind
that finds its victim taken does nothing. Start reading at `draw`.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg2

from tests.proof import workload
from tests.proof.records import Disturbance
from tests.proof.workload import Schedule, Workload
from tests.proof.world import Replica, World
from tests.support.postgres_proxy import Fault

Strike = Callable[[], None]
STRUCK_SECONDS = 8.0  # that a fault waits for the statement that it strikes

HEARTBEAT = "INSERT INTO scheduler_instances"


class Spot(NamedTuple):
    """A statement on the way of a fire, or beside it, and what its transaction has said before."""

    text: str
    after: str = ""

    def __str__(self) -> str:
        return f"{self.text!r} after {self.after!r}" if self.after else repr(self.text)


# Only the first is said on the connection of a replica's heart. Where an answer matters most is named twice.
SPOTS = (
    Spot(HEARTBEAT),
    Spot("COMMIT", after="WITH asked AS"),  # the claim: is it mine?
    Spot("COMMIT", after="WITH asked AS"),
    Spot("COMMIT", after="WITH ended AS"),
    Spot("COMMIT", after="SET status = 'running'"),
    Spot("COMMIT"),
    Spot("WITH asked AS"),
    Spot("WITH ended AS"),
    Spot("SET status = 'running'"),
    Spot("INSERT INTO job_executions"),
    Spot("schedule_id FOR NO KEY UPDATE"),
    Spot("fires_watched"),
)
IN_TRANSACTION = ("INSERT INTO job_executions", "WITH ended AS", "WITH asked AS", "schedule_id FOR NO KEY UPDATE")
TABLES = ("job_executions", "schedules", "scheduler_instances")
TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name <> 'somebody' AND hashint4(pid) %% 3 <> %s
"""


@dataclass(slots=True)
class Stage:
    """What faults act upon, and how much of it."""

    world: World
    workload: Workload
    rng: random.Random
    strength: float = 1.0  # of all lengths of time
    edited: threading.Lock = field(default_factory=threading.Lock)  # deletes and re-creations, one at a time

    def replica(self) -> Replica:
        return self.rng.choice(self.world.replicas)

    def schedules(self, least: int, most: int) -> list[Schedule]:
        known = list(self.workload.schedules)
        return self.rng.sample(known, min(len(known), self.rng.randint(least, most)))

    def seconds(self, least: float, most: float) -> float:
        return round(self.rng.uniform(least, most) * self.strength, 2)

    def note(self, kind: str, at: float, **facts: Any) -> None:
        self.world.journal.note(Disturbance(kind=kind, at=at, **{"until": time.time(), **facts}))


Kind = Callable[[Stage], Strike]
# After these nobody works for half a minute, and little else can be found.
SELDOM = dict.fromkeys(
    ("kill_everybody", "freeze_everybody", "freeze_and_replace", "postgres_stall", "lock_table", "postgres_restart"),
    0.3,
)
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


def draw(stage: Stage, names: Sequence[str]) -> tuple[str, Strike]:
    (name,) = stage.rng.choices(list(names), [SELDOM.get(name, 1.0) for name in names])
    return name, KINDS[name](stage)


# --- a replica ---


@contextmanager
def taken(*replicas: Replica) -> Iterator[list[Replica]]:
    """Those of them whose process nobody else stops or ends meanwhile."""
    mine = [each for each in replicas if each.in_use.acquire(blocking=False)]
    try:
        yield mine
    finally:
        for each in mine:
            each.in_use.release()


def _restart(stage: Stage, replica: Replica, after_seconds: float) -> None:
    stage.world.sleep(after_seconds)
    stage.world.order(replica)
    replica.started_at = time.time() + 0.2  # until the order is obeyed nobody is it
    stage.world.await_alive(replica)


@kind
def kill(stage: Stage) -> Strike:
    replica, pause = stage.replica(), stage.seconds(0.2, 12)

    def strike() -> None:
        with taken(replica) as mine:
            if mine and replica.runs:
                at, pid = time.time(), replica.pid
                replica.end(signal.SIGKILL)
                _restart(stage, replica, pause)
                stage.note("kill", at, scope="replica", replica=replica.name, pid=pid, kills=True, silences=True)

    return strike


@kind
def kill_everybody(stage: Stage) -> Strike:
    pause = stage.seconds(8, 35)

    def strike() -> None:
        with taken(*stage.world.replicas) as mine:
            at = time.time()
            killed = [(each, each.pid) for each in mine if each.runs]
            for replica, _ in killed:
                replica.end(signal.SIGKILL)
            stage.world.sleep(pause)
            for replica, _ in killed:
                stage.world.order(replica)
                replica.started_at = time.time() + 0.2
            for replica, pid in killed:
                stage.world.await_alive(replica)
                stage.note("kill", at, scope="replica", replica=replica.name, pid=pid, kills=True, silences=True,
                           note="everybody")  # fmt: skip

    return strike


@kind
def drain(stage: Stage) -> Strike:
    replica, pause = stage.replica(), stage.seconds(0.2, 6)

    def strike() -> None:
        with taken(replica) as mine:
            if mine and replica.runs:
                at, pid = time.time(), replica.pid
                code = replica.end(signal.SIGTERM)
                ended_at = time.time()
                _restart(stage, replica, pause)
                who = {"scope": "replica", "replica": replica.name, "pid": pid}
                stage.note("drain", at, **who, silences=True, note=f"exit code {code}")
                stage.note("exit", ended_at, **who, kills=True, until=ended_at)

    return strike


def _freeze(stage: Stage, replicas: Sequence[Replica], seconds: float, kind: str, note: str = "") -> None:
    at = time.time()
    frozen = [each for each in replicas if each.runs]
    for replica in frozen:
        replica.send(signal.SIGSTOP)
    stage.world.sleep(seconds)
    for replica in frozen:
        replica.send(signal.SIGCONT)
        facts = {"scope": "replica", "replica": replica.name, "pid": replica.pid, "note": note}
        stage.note(kind, at, **facts, silences=True, freezes=True)


def _freeze_seconds(stage: Stage) -> float:
    return stage.seconds(*stage.rng.choice(((0.5, 6), (6, 16), (16, 40))))


@kind
def freeze(stage: Stage) -> Strike:
    replica, seconds = stage.replica(), _freeze_seconds(stage)

    def strike() -> None:
        with taken(replica) as mine:
            _freeze(stage, mine, seconds, "freeze")

    return strike


@kind
def freeze_in_transaction(stage: Stage) -> Strike:
    """Stopped while it waits for the answer to a statement of an open transaction: it keeps its locks."""
    replica, seconds, text = stage.replica(), _freeze_seconds(stage), stage.rng.choice(IN_TRANSACTION)

    def strike() -> None:
        with taken(replica) as mine:
            if not mine:
                return
            held = replica.postgres.delay(text)
            if held.struck.wait(STRUCK_SECONDS):
                replica.send(signal.SIGSTOP)
                held.release()
                _freeze(stage, mine, seconds, "freeze_in_transaction", text)
            else:
                held.release()

    return strike


@kind
def freeze_everybody(stage: Stage) -> Strike:
    seconds = stage.seconds(5, 35)

    def strike() -> None:
        with taken(*stage.world.replicas) as mine:
            _freeze(stage, mine, seconds, "freeze_everybody")

    return strike


@kind
def freeze_and_replace(stage: Stage) -> Strike:
    """All are frozen; one is killed and started again, and accounts for the gap; then the others wake up."""
    first, pause, later = stage.replica(), stage.seconds(12, 30), stage.seconds(2, 10)

    def strike() -> None:
        others = [each for each in stage.world.replicas if each is not first]
        with taken(first) as mine, taken(*others) as frozen:
            if not mine or not first.runs:
                return
            at, pid = time.time(), first.pid
            for each in frozen:
                each.send(signal.SIGSTOP)
            first.end(signal.SIGKILL)
            _restart(stage, first, pause)
            stage.note("kill", at, scope="replica", replica=first.name, pid=pid, kills=True, silences=True,
                       note="the others are frozen")  # fmt: skip
            stage.world.sleep(later)
            for each in frozen:
                each.send(signal.SIGCONT)
                stage.note("freeze", at, scope="replica", replica=each.name, pid=each.pid, silences=True, freezes=True,
                           note="until another one had taken over")  # fmt: skip

    return strike


# --- a replica's connections ---


def _on_a_statement(stage: Stage, replica: Replica, spot: Spot, note: str, add: Callable[[], Fault], seconds: float,
                    kind: str) -> Strike:  # fmt: skip
    """A fault that waits for its statement, lasts, and is taken back."""

    def strike() -> None:
        fault = add()
        if fault.struck.wait(STRUCK_SECONDS):
            at = time.time()
            stage.world.sleep(seconds)
            fault.release()
            facts = {"scope": "replica", "replica": replica.name, "pid": replica.pid, "note": note}
            stage.note(kind, at, **facts, silences=spot.text == HEARTBEAT)
        else:
            fault.release()

    return strike


def _delayed(stage: Stage, kind: str, seconds: float, times: int, lasts: float) -> Strike:
    replica, spot = stage.replica(), stage.rng.choice(SPOTS)
    note = f"{times} x {spot} {seconds} s late"

    def add() -> Fault:
        return replica.postgres.delay(spot.text, seconds, after=spot.after, times=times)

    return _on_a_statement(stage, replica, spot, note, add, lasts, kind)


@kind
def late_answer(stage: Stage) -> Strike:
    seconds, times = stage.seconds(*stage.rng.choice(((1, 6), (6, 12)))), stage.rng.randint(1, 2)
    return _delayed(stage, "late_answer", seconds, times, seconds + 0.5)


@kind
def slow_answers(stage: Stage) -> Strike:
    seconds, times = stage.seconds(0.05, 1.2), stage.rng.randint(3, 30)
    return _delayed(stage, "slow_answers", seconds, times, min(10, seconds * times))


@kind
def late_request(stage: Stage) -> Strike:
    """A statement is on its way to Postgres for so long; its transaction stays open meanwhile."""
    replica, spot = stage.replica(), stage.rng.choice(SPOTS)
    seconds = stage.seconds(*stage.rng.choice(((0.05, 1.2), (1, 12))))

    def add() -> Fault:
        return replica.postgres.send_late(spot.text, seconds, after=spot.after)

    return _on_a_statement(stage, replica, spot, f"{spot} {seconds} s late", add, seconds + 0.5, "late_request")


@kind
def lost_answer(stage: Stage) -> Strike:
    replica, spot, times = stage.replica(), stage.rng.choice(SPOTS), stage.rng.randint(1, 3)

    def add() -> Fault:
        return replica.postgres.lose(spot.text, after=spot.after, times=times)

    return _on_a_statement(stage, replica, spot, f"{times} x {spot}", add, 4, "lost_answer")


@kind
def cut_request(stage: Stage) -> Strike:
    replica, spot, times = stage.replica(), stage.rng.choice(SPOTS), stage.rng.randint(1, 3)
    if spot.text == HEARTBEAT:
        times = 1  # three life signs that are never heard are a dead replica

    def add() -> Fault:
        return replica.postgres.cut_at(spot.text, after=spot.after, times=times)

    return _on_a_statement(stage, replica, spot, f"{times} x {spot}", add, 4, "cut_request")


@kind
def unplug_one(stage: Stage) -> Strike:
    """One connection of a replica: nothing comes through, and nobody hears of an end."""
    replica, spot, seconds = stage.replica(), stage.rng.choice(SPOTS), stage.seconds(3, 40)

    def add() -> Fault:
        return replica.postgres.hold(spot.text, after=spot.after)

    return _on_a_statement(stage, replica, spot, f"after {spot}", add, seconds, "unplug_one")


@kind
def unplug(stage: Stage) -> Strike:
    replica, seconds = stage.replica(), stage.seconds(2, 40)

    def strike() -> None:
        with taken(replica) as mine:
            if mine:
                at = time.time()
                replica.postgres.unplug()
                stage.world.sleep(seconds)
                replica.postgres.plug_in()
                stage.note("unplug", at, scope="replica", replica=replica.name, pid=replica.pid, silences=True)

    return strike


@kind
def cut(stage: Stage) -> Strike:
    replica = stage.replica()

    def strike() -> None:
        at = time.time()
        replica.postgres.cut()
        stage.note("cut", at, scope="replica", replica=replica.name, pid=replica.pid)

    return strike


# --- Postgres, for everybody ---


@kind
def postgres_stall(stage: Stage) -> Strike:
    seconds = stage.seconds(5, 40)

    def strike() -> None:
        with stage.world.server_in_use:
            at = time.time()
            stage.world.stall_postgres(seconds)
            stage.note("postgres_stall", at, scope="server")

    return strike


@kind
def lock_table(stage: Stage) -> Strike:
    seconds, table = stage.seconds(3, 40), stage.rng.choice(TABLES)

    def strike() -> None:
        at = time.time()
        with suppress(psycopg2.Error), stage.world.session() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '10s'; BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            stage.world.sleep(seconds)
            cursor.execute("ROLLBACK")
        stage.note("lock_table", at, scope="server", note=table)

    return strike


@kind
def terminate_storm(stage: Stage) -> Strike:
    times, pause, spared = stage.rng.randint(1, 12), stage.seconds(0.1, 1), stage.rng.randrange(-2, 3)

    def strike() -> None:
        at = time.time()
        with suppress(psycopg2.Error), stage.world.session() as connection, connection.cursor() as cursor:
            for _ in range(times):
                cursor.execute(TERMINATE, (spared,))
                stage.world.sleep(pause)
        stage.note("terminate_storm", at, scope="server", note=f"{times} x")

    return strike


@kind
def postgres_restart(stage: Stage) -> Strike:
    def strike() -> None:
        with stage.world.server_in_use:
            at = time.time()
            stage.world.restart_postgres()
            stage.note("postgres_restart", at, scope="server")

    return strike


@kind
def hold_schedules(stage: Stage) -> Strike:
    share, seconds = stage.rng.uniform(0.1, 0.8), stage.seconds(2, 15)
    ids = [each.schedule_id for each in stage.schedules(1, len(stage.workload.schedules)) if stage.rng.random() < share]

    def strike() -> None:
        at = time.time()
        with suppress(psycopg2.Error), stage.world.session() as connection, connection.cursor() as cursor:
            cursor.execute(
                """BEGIN; SELECT FROM schedules WHERE schedule_id = ANY(%s::uuid[]) ORDER BY schedule_id FOR UPDATE""",
                (ids,),
            )
            stage.world.sleep(seconds)
            cursor.execute("ROLLBACK")
        stage.note("hold_schedules", at, scope="schedules", schedules=tuple(ids))

    return strike


@kind
def hold_executions(stage: Stage) -> Strike:
    seconds = stage.seconds(2, 20)

    def strike() -> None:
        at, ids = time.time(), ()
        with suppress(psycopg2.Error), stage.world.session() as connection, connection.cursor() as cursor:
            cursor.execute(
                """BEGIN; SELECT schedule_id::text FROM job_executions WHERE status IN ('claimed', 'running', 'pending')
                          ORDER BY execution_id FOR UPDATE"""
            )
            ids = tuple(schedule_id for (schedule_id,) in cursor.fetchall())
            stage.world.sleep(seconds)
            cursor.execute("ROLLBACK")
        stage.note("hold_executions", at, scope="schedules", schedules=ids)

    return strike


# --- edits ---


@kind
def flap(stage: Stage) -> Strike:
    ids = [each.schedule_id for each in stage.schedules(1, 25)]
    pauses = [stage.seconds(0.02, 2.5) for _ in range(2 * stage.rng.randint(1, 8))]

    def strike() -> None:
        at = time.time()
        with suppress(psycopg2.Error), stage.world.session() as connection:
            for number, pause in enumerate(pauses):
                workload.switch(connection, ids, enabled=number % 2 == 1)
                stage.world.sleep(pause)
        stage.note("flap", at, schedules=tuple(ids), note=f"{len(pauses)} times")

    return strike


@kind
def retime(stage: Stage) -> Strike:
    some, seconds, pause = stage.schedules(1, 25), stage.rng.randint(1, 10), stage.seconds(0.2, 15)

    def strike() -> None:
        at = time.time()
        with suppress(psycopg2.Error), stage.world.session() as connection:
            workload.retime(connection, [each.schedule_id for each in some], seconds)
            stage.world.sleep(pause)
            for each in some:
                workload.retime(connection, [each.schedule_id], each.seconds)
        stage.note("retime", at, schedules=tuple(each.schedule_id for each in some), note=f"to {seconds} s and back")

    return strike


@kind
def delete_and_create(stage: Stage) -> Strike:
    some, pause = stage.schedules(1, 10), stage.rng.choice((0.0, stage.seconds(0.05, 8)))

    def strike() -> None:
        at = time.time()
        with stage.edited, suppress(psycopg2.Error), stage.world.session() as connection:
            workload.delete(connection, [each.schedule_id for each in some])
            stage.world.sleep(pause)
            workload.insert(connection, some)
        stage.note("delete_and_create", at, schedules=tuple(each.schedule_id for each in some))

    return strike


def mend_schedules(stage: Stage) -> None:
    """What an edit that failed half-way left behind: everything is there, on, and timed as at first."""
    with stage.edited, stage.world.session() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT schedule_id::text, enabled, (time_config->>'seconds')::int FROM schedules")
        known = {schedule_id: (enabled, seconds) for schedule_id, enabled, seconds in cursor.fetchall()}
        workload.insert(connection, [each for each in stage.workload.schedules if each.schedule_id not in known])
        off = [schedule_id for schedule_id, (enabled, _) in known.items() if not enabled]
        workload.switch(connection, off, enabled=True)
        for each in stage.workload.schedules:
            if known.get(each.schedule_id, (True, each.seconds))[1] != each.seconds:
                workload.retime(connection, [each.schedule_id], each.seconds)


# --- Redis ---


@kind
def redis_flush(stage: Stage) -> Strike:
    def strike() -> None:
        at = time.time()
        with suppress(OSError):
            stage.world.flush_redis()
        stage.note("redis_flush", at, scope="redis")

    return strike


@kind
def redis_stall(stage: Stage) -> Strike:
    seconds = stage.seconds(0.5, 15)

    def strike() -> None:
        at = time.time()
        stage.world.stall_redis(seconds)
        stage.note("redis_stall", at, scope="redis")

    return strike


@kind
def redis_slow(stage: Stage) -> Strike:
    replica, seconds, delay = stage.replica(), stage.seconds(1, 10), stage.seconds(0.02, 0.6)

    def strike() -> None:
        at = time.time()
        replica.redis.delay_seconds = delay
        stage.world.sleep(seconds)
        replica.redis.delay_seconds = 0
        stage.note("redis_slow", at, scope="redis", note=f"{replica.name}: replies {delay} s late")

    return strike


@kind
def redis_lost_replies(stage: Stage) -> Strike:
    replica, times = stage.replica(), stage.rng.randint(1, 20)

    def strike() -> None:
        at = time.time()
        for command in ("EVALSHA", "EVAL"):
            replica.redis.lost_replies[command] = times
        stage.world.sleep(3)
        replica.redis.lost_replies.clear()
        stage.note("redis_lost_replies", at, scope="redis", note=f"{replica.name}: {times} x")

    return strike


@kind
def redis_away(stage: Stage) -> Strike:
    replica, seconds = stage.replica(), stage.seconds(1, 12)

    def strike() -> None:
        at = time.time()
        replica.redis.refusing = True
        replica.redis.cut()
        stage.world.sleep(seconds)
        replica.redis.refusing = False
        stage.note("redis_away", at, scope="redis", note=replica.name)

    return strike
