"""Redis for a history: fakeredis with the product's own Lua; its keys expire by virtual time."""

from collections.abc import Callable, Sequence
from typing import Any

import fakeredis
from redis import ConnectionError as RedisGone
from redis import TimeoutError as RedisTimeout

from services.redis_client import TIMEOUT_SECONDS
from tests.proof.simulation.net import Net
from tests.proof.simulation.world import World


class VirtualRedis:
    """Stands for the RedisClient of every replica: one server."""

    where = "virtual"

    def __init__(self, world: World, net: Net) -> None:
        self._world, self._net = world, net
        self._client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
        self._down_until = 0.0

    @property
    def commands(self) -> "VirtualRedis":
        return self

    def close(self) -> None:
        """The server stays."""

    def register_script(self, text: str) -> Callable[..., Any]:
        script = self._client.register_script(text)
        return lambda keys, args: self._call(script, keys, args)

    def leases(self) -> list[str]:
        return sorted(key.decode() for key in self._by_its_own_clock(lambda: self._client.keys("lock:schedule:*")))

    def _call(self, script: Callable[..., Any], keys: Sequence[str], args: Sequence[str | int]) -> Any:
        world, net, task = self._world, self._net, self._world.me
        world.counts["redis calls"] += 1
        world.sleep(world.dice.about(f"redis {task.name}#{task.steps}", net.typical / 2))
        if key := net.strikes("redis_down", task, 0.3):
            self._down_until = world.now + world.dice.between(f"{key} seconds", 1, 8)
            net.note(key, f"for {self._down_until - world.now:.1f} s")
            net.disturb("redis_down", self._down_until, "redis")
        if world.now < self._down_until:
            raise RedisGone("down")
        if key := net.strikes("redis_flush", task):
            net.note(key, "empty again")
            self._by_its_own_clock(self._client.flushall)
        if key := net.strikes("redis_lie", task, 3):
            net.note(key, f"{task.name}: 'another one has them', {len(keys)} keys")
            return [0] * len(keys)
        if key := net.strikes("redis_slow", task, 3):
            if world.dice.roll(f"{key} executed") < 0.5:
                self._by_its_own_clock(lambda: script(keys=keys, args=args))
            net.note(key, f"{task.name}: no answer in time")
            world.sleep(TIMEOUT_SECONDS)
            raise RedisTimeout("no answer in time")
        answer = self._by_its_own_clock(lambda: script(keys=keys, args=args))
        if key := net.strikes("redis_lost", task, 3):
            net.note(key, f"{task.name}: executed, the answer is lost")
            raise RedisGone("the answer is lost")
        return answer

    def _by_its_own_clock(self, call: Callable[[], Any]) -> Any:
        """Not by that of the replica that asks."""
        task, self._world.current = self._world.current, None
        try:
            return call()
        finally:
            self._world.current = task
