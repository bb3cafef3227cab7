"""What goes wrong, and when. Each history draws its own mixture of faults, which strike by step until it is healed.

Whether a fault strikes is a function of the seed, its kind, and the step of the task: each can be left out, and a
history can be played with some of them only. What they excuse is written down for the checker as a Disturbance.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tests.proof.records import Disturbance
from tests.proof.simulation.postgres import Deadlock, Server, StepConnection, lost
from tests.proof.simulation.world import EPOCH, Owner, Task, World

# On the line to Postgres, in the server, in a process, on the line to Redis; what people do is in people.py.
LINE = ("late_request", "late_reply", "lost_request", "lost_reply", "half_open", "deadlock", "slow_connect", "cut",
        "cut_off")  # fmt: skip
SERVER = ("pg_stall", "pg_down")
PROCESS = ("crash", "freeze", "late_wake", "drain", "deploy", "skew")
BROKER = ("broker_down", "broker_lost", "message_lost", "message_twice", "message_late")
REDIS = ("redis_down", "redis_flush", "redis_lost", "redis_lie", "redis_slow")
PEOPLE = (
    "flap",
    "retime",
    "reconfigure",
    "late_commit",
    "delete",
    "recreate",
    "manual",
    "retry",
    "backfill",
    "cancel",
    "limit",
    "reroute",
    "purge",
)
KINDS = (*LINE, *SERVER, *PROCESS, *REDIS, *BROKER, *PEOPLE)

IN_THE_MIXTURE = 0.4
RATES = (0.002, 0.01, 0.03)
TYPICAL_SECONDS = (0.0005, 0.002, 0.02)  # of one way to Postgres
SIZES = ((0.001, 0.01), (0.05, 1.2), (1.0, 12.0))
COMMIT_WEIGHT = 4.0  # where most depends on it


@dataclass(frozen=True, slots=True)
class Fault:
    """One that struck. By its key it can be left out of the next play of the same seed."""

    key: str
    kind: str
    at: float  # since the beginning
    text: str

    def __str__(self) -> str:
        return f"{self.at:8.3f}  {self.kind:13} {self.text}"


class Net:
    """Between the replicas and their servers; also who decides whether a fault strikes."""

    def __init__(
        self, world: World, server: Server, kinds: Collection[str], only: Collection[str] | None, heal_at: float
    ) -> None:
        self._world, self._server, self._heal_at, self._only = world, server, heal_at, only
        dice = world.dice
        mixture = [kind for kind in kinds if dice.roll(f"mixture {kind}") < IN_THE_MIXTURE]
        if not mixture and kinds:
            mixture = [dice.one_of("mixture", sorted(kinds))]
        self.rates = {kind: dice.one_of(f"rate {kind}", RATES) for kind in mixture}
        self.typical = dice.one_of("typical", TYPICAL_SECONDS)
        self.faults: list[Fault] = []
        self.disturbances: list[Disturbance] = []
        self.down_until = self.stalled_until = 0.0
        self._walls: dict[str, float] = {}  # by process

    # --- whether ---

    def strikes(self, kind: str, task: Task, share: float = 1.0) -> str | None:
        """The fault's key, if it does."""
        rate = self.rates.get(kind)
        if rate is None or self._world.now >= self._heal_at:
            return None
        key = f"{kind}@{task.name}#{task.steps}"
        if self._world.dice.roll(key) >= rate * share:
            return None
        return key if self._only is None or key in self._only else None

    def wants(self, kind: str, key: str) -> bool:
        """The same for what people do: drawn before, one by one."""
        return kind in self.rates and (self._only is None or key in self._only)

    def note(self, key: str, text: str) -> None:
        world = self._world
        kind = key.partition("@")[0]
        self.faults.append(Fault(key, kind, world.now - EPOCH, text))
        world.counts[f"fault {kind}"] += 1
        world.note(f"FAULT {kind}: {text}")

    def disturb(self, kind: str, until: float, scope: str, **facts: object) -> None:
        values: dict[str, object] = {"kind": kind, "at": self._world.now, "until": until, "scope": scope, **facts}
        self.disturbances.append(Disturbance(**values))  # type: ignore[arg-type]

    def on_line(self, kind: str, task: Task, until: float) -> None:
        """Something about one connection of one replica; only its heart's is a life sign."""
        if task.owner is not None:
            beats = task.name.partition("/")[2] in ("heart", "main")
            self.disturb(kind, until, task.owner.scope, replica=task.owner.name, silences=beats)

    def seconds(self, key: str) -> float:
        """Three sizes: a millisecond, a moment, a while."""
        dice = self._world.dice
        size = 0 if (which := dice.roll(f"{key} size")) < 0.2 else 1 if which < 0.6 else 2
        return dice.between(f"{key} seconds", *SIZES[size])

    # --- the line to Postgres ---

    def connect(self, task: Task) -> None:
        self._travel(task, self._usual(task, "connect"))
        if task.owner is not None and (key := self.strikes("slow_connect", task, 5)):
            self._late(key, task, "connects")
        self._meet_the_server(task)
        self._meet_the_wall(task)

    def request(self, task: Task, session: StepConnection, kind: str) -> None:
        if task.owner is None:
            self._travel(task, self._usual(task, "request"))
            return
        if key := self.strikes("late_request", task):
            self._late(key, task, f"{kind} on its way")
        else:
            self._travel(task, self._usual(task, "request"))
        self._strike_server(task)
        self._meet_the_server(task)
        self._meet_the_wall(task)
        if key := self.strikes("cut", task, 0.2):
            self.note(key, f"all sessions of {task.owner.name}")
            self.disturb("cut", self._world.now + 1.0, task.owner.scope, replica=task.owner.name, silences=True)
            self._cut_all_of(task.owner)
        if key := self.strikes("lost_request", task):
            self._lose(key, task, session, f"{kind} is not executed")
        if not session.is_idle and (key := self.strikes("deadlock", task)):
            self.note(key, f"{task.name}: {kind} is a deadlock's victim")
            session.rollback()
            raise Deadlock("deadlock detected")

    def reply(self, task: Task, session: StepConnection, kind: str) -> None:
        owner, world = task.owner, self._world
        if owner is None:
            return
        weight = COMMIT_WEIGHT if kind == "COMMIT" else 1.0
        if key := self.strikes("lost_reply", task, weight):
            self._lose(key, task, session, f"{kind} is executed")
        if key := self.strikes("half_open", task, weight):
            idle = session.idle_seconds if not session.is_idle else None
            session.half_open_seconds = min(idle or 60.0, world.dice.between(f"{key} server", 0.5, 25.0))
            self.note(
                key, f"{task.name}: {kind} is executed; the server notices {session.half_open_seconds:.1f} s later"
            )
            self.on_line("half_open", task, world.now + session.half_open_seconds)
            raise lost()
        if key := self.strikes("late_reply", task, weight):
            self._late(key, task, f"{kind} answered", on_wire=False)
        elif owner.frozen_until > world.now or world.dice.roll(f"back {task.name}#{task.steps}") < 0.3:
            world.sleep(self._usual(task, "reply"))

    def _cut_all_of(self, owner: Owner) -> None:
        for each in list(self._server.sessions):
            if each.owner is owner:
                self._server.cut(each)

    def _meet_the_wall(self, task: Task) -> None:
        """A worker is cut off from Postgres for a while; the broker and all others are well."""
        world, owner = self._world, task.owner
        if owner is None or owner.scope != "worker":
            return
        if key := self.strikes("cut_off", task, 0.5):
            self._walls[owner.label] = until = world.now + world.dice.between(f"{key} seconds", 1, 12)
            self.note(key, f"{owner.label} for {until - world.now:.1f} s")
            self.disturb("cut_off", until, owner.scope, replica=owner.name, silences=True)
            self._cut_all_of(owner)
        if world.now < self._walls.get(owner.label, 0.0):
            self._travel(task, min(world.dice.between(f"wall {task.name}#{task.steps}", 0.0, 3.0), 3.0))
            raise lost()

    def _usual(self, task: Task, way: str) -> float:
        return self._world.dice.about(f"{way} {task.name}#{task.steps}", self.typical)

    def _travel(self, task: Task, seconds: float) -> None:
        task.on_wire = True
        try:
            self._world.sleep(seconds)
        finally:
            task.on_wire = False

    def _late(self, key: str, task: Task, what: str, on_wire: bool = True) -> None:
        seconds = self.seconds(key)
        self.note(key, f"{task.name}: {what} {seconds:.3f} s late")
        self.on_line(key.partition("@")[0], task, self._world.now + seconds)
        if on_wire:
            self._travel(task, seconds)
        else:
            self._world.sleep(seconds)

    def _lose(self, key: str, task: Task, session: StepConnection, what: str) -> None:
        self.note(key, f"{task.name}: the connection breaks, {what}")
        self.on_line(key.partition("@")[0], task, self._world.now + 1.0)
        self._server.cut(session)
        raise lost()

    def _strike_server(self, task: Task) -> None:
        world = self._world
        if key := self.strikes("pg_stall", task, 0.1):  # a machine that is moved: all wait, nobody is refused
            self.stalled_until = world.now + world.dice.between(f"{key} seconds", 1, 9)
            self.note(key, f"for {self.stalled_until - world.now:.1f} s")
            self.disturb("pg_stall", self.stalled_until, "server")
        if key := self.strikes("pg_down", task, 0.1):
            self.down_until = world.now + world.dice.between(f"{key} seconds", 1, 9)
            self.note(key, f"for {self.down_until - world.now:.1f} s")
            self.disturb("pg_down", self.down_until, "server")
            for session in list(self._server.sessions):
                self._server.cut(session)

    def _meet_the_server(self, task: Task) -> None:
        world = self._world
        while world.now < self.stalled_until:
            more = world.dice.between(f"stall {task.name}#{task.steps}", 0, 0.01)
            self._travel(task, self.stalled_until - world.now + more)
        if world.now < self.down_until:
            raise lost()
