"""A virtual replica: the product's own EnhancedScheduler, wired by itself, on virtual threads, clocks and sessions."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import QueuePool, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

import config
from database.clock import DatabaseClock
from database.connection import POOL_WAIT_SECONDS, DatabaseConnection
from services.engine.parts import Parts
from services.engine.stop_signal import StopSignal
from services.engine.timer import Timer
from services.engine.workplace import Workplace
from services.enhanced_scheduler import EnhancedScheduler
from services.errors import SchedulerError
from tests.proof.simulation.fake_redis import VirtualRedis
from tests.proof.simulation.postgres import Server, StepConnection
from tests.proof.simulation.threads import VirtualEvent, VirtualThread, virtual_threads, wait_in
from tests.proof.simulation.world import Owner, Task, World

POLL_SECONDS = 0.02


class WaitingPool(QueuePool):
    """Who finds all connections in use waits in virtual time."""

    def _do_get(self) -> Any:
        world = World.it
        if world is not None and world.current is not None:
            until = world.now + POOL_WAIT_SECONDS
            while self.checkedin() == 0 and self.checkedout() >= self.size():
                if world.now >= until:
                    raise PoolTimeout("the pool is exhausted")
                world.counts["pool waits"] += 1
                world.sleep(POLL_SECONDS)
        return super()._do_get()


class VirtualDatabase(DatabaseConnection):
    """One per name, kept over histories: to make an engine takes longer than the beginning of a history."""

    kept: ClassVar[dict[tuple[str, int], "VirtualDatabase"]] = {}

    def __init__(self, server: Server, pool_size: int) -> None:
        super().__init__(server.url, pool_size=pool_size)
        self.keeps_plans = False  # the simulation prepares statements itself, for sessions that outlive a history
        self._server = server
        self._owner: Owner | None = None
        self._name, self._idle_seconds = "", 60.0
        event.listen(self.engine, "do_connect", self._open)
        self.engine.pool.__class__ = WaitingPool
        self.engine.connect().close()  # SQLAlchemy asks its questions now, not in a history

    @classmethod
    def of(
        cls, server: Server, owner: Owner | None, settings: config.Settings, pool_size: int = 10,
        application_name: str = "somebody", idle_in_transaction_seconds: float = 60.0,
    ) -> "VirtualDatabase":  # fmt: skip
        key = settings.instance_id, pool_size
        if key not in cls.kept:
            world, World.it = World.it, None
            try:
                cls.kept[key] = cls(server, pool_size)
            finally:
                World.it = world
        db = cls.kept[key]
        db.engine.dispose()
        db._owner, db._name, db._idle_seconds = owner, application_name, idle_in_transaction_seconds
        return db

    def listener(self, *channels: str) -> Any:
        return VirtualListener(self, self._open(), channels, self._owner)

    def _open(self, *_arguments: object) -> StepConnection:
        return self._server.open(self._owner, self._name, self._idle_seconds)

    @property
    def server(self) -> Server:
        return self._server


class VirtualListener:
    def __init__(
        self, db: VirtualDatabase, session: StepConnection, channels: tuple[str, ...], owner: Owner | None
    ) -> None:
        self._db, self._session, self._channels, self.owner = db, session, channels, owner
        self._heard: set[str] = set()
        self._waiting: list[Task] = []
        db.server.listeners.append(self)

    def hear(self, channel: str) -> None:
        world = World.it
        if world is not None and channel in self._channels and not self._session.broken:
            seconds = world.dice.between(f"notified {self._session.application_name} {world.now}", 0.0002, 0.005)
            world.call_at(world.now + seconds, partial(self._arrive, channel))

    def _arrive(self, channel: str) -> None:
        self._heard.add(channel)
        for task in self._waiting:
            if World.it is not None:
                World.it.wake(task)

    def wait(self, seconds: float) -> set[str]:
        if not self._heard and not self._session.broken and seconds > 0:
            wait_in(self._waiting, seconds)
        if self._session.broken:
            raise self._db.lost("the listening session is gone")
        heard, self._heard = self._heard, set()
        return heard

    def close(self) -> None:
        if self in self._db.server.listeners:
            self._db.server.listeners.remove(self)
        self._session.close()


class VirtualTimer(Timer):
    """The heap is the real one; a virtual thread stands for APScheduler's."""

    def __init__(self, hand_over: Callable[..., None], clock: DatabaseClock) -> None:
        super().__init__(hand_over, clock)
        self._give, self._woken, self._stopped = hand_over, VirtualEvent(), False

    def start(self) -> None:
        VirtualThread(self._watch, "timer").start()

    def stop(self) -> None:
        self._stopped = True
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def _watch(self) -> None:
        while not self._stopped:
            self._woken.clear()
            seconds = self.seconds_to_sleep()
            if seconds <= 0:
                self._give(self.take_due())
            else:
                self._woken.wait(seconds)


class VirtualSignal(StopSignal):
    def listen(self) -> None:
        """No signal comes to a virtual process."""


class NoPort:
    def __init__(self, *_arguments: object, **_options: object) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Process:
    """From its start to its end. `on_exit` is called when it ends by itself."""

    scope: str

    def __init__(
        self,
        world: World,
        server: Server,
        redis: VirtualRedis,
        settings: config.Settings,
        pid: int,
        skew: float,
        on_exit: Callable[["Process"], None],
    ) -> None:
        self.name, self.pid, self.skew = settings.instance_id, pid, skew
        self.label = f"{self.name}.{pid}"
        self.dead, self.frozen_until = False, 0.0
        self.draining_since: float | None = None
        self._world, self._server, self._redis, self.settings = world, server, redis, settings
        self._on_exit = on_exit

    def start(self, delay: float = 0.0) -> None:
        self._world.spawn(f"{self.label}/main", self, self._main, delay)

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        raise NotImplementedError

    def holds(self) -> list[str]:
        """Everything has ended: what it still has in memory, it has for ever."""
        raise NotImplementedError

    def parts(self, **own: Any) -> Parts:
        given: dict[str, Any] = {
            "incarnation": lambda: UUID(int=(self.pid << 80) + 0x1234), "redis": lambda _settings: self._redis,
            "database": partial(VirtualDatabase.of, self._server, self),
            "clock": lambda limit: DatabaseClock(limit, local=lambda: self._world.now + self.skew),
            "threads": virtual_threads(),
        }  # fmt: skip
        return Parts(**given, **own)

    def _main(self) -> None:
        try:
            self._live()
        except (SchedulerError, DBAPIError) as error:
            self._world.note(f"{self.name} does not start: {type(error).__name__}")
            self._world.remark(f"  {str(error).splitlines()[0][:200]}")  # its address is another one in each run
        self._world.call_at(self._world.now, lambda: self._on_exit(self))

    def _live(self) -> None:
        raise NotImplementedError


def held_by(place: Workplace) -> list[str]:
    found = {
        "claims": len(place.held), "slots": place.held.in_pool, "runs": len(place.pool.held),
        "leases": len(place.coordinator._held), "results": place.finisher.unwritten,
    }  # fmt: skip
    return [f"{what}: {count}" for what, count in found.items() if count]


class Replica(Process):
    scope = "replica"

    _signal: VirtualSignal | None = None
    scheduler: EnhancedScheduler | None = None

    def ask_to_stop(self) -> None:
        if self._signal is not None:
            self.draining_since = self._world.now
            self._signal.give()

    def holds(self) -> list[str]:
        if self.scheduler is None or not hasattr(self.scheduler, "engine"):
            return []
        return held_by(self.scheduler.engine)

    def _live(self) -> None:
        parts = self.parts(timer=VirtualTimer, health=NoPort, signal=self._make_signal)
        self.scheduler = EnhancedScheduler(settings=self.settings, parts=parts)
        self.scheduler.run()

    def _make_signal(self, threads: Any) -> VirtualSignal:
        self._signal = VirtualSignal(threads)
        return self._signal
