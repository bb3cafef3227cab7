"""The Celery broker of a history, at the edge of kombu: what the product sends goes through Celery and kombu as ever.

Messages come late, twice, never and in any order; the broker is away, loses an answer, is purged by people. What a
worker has taken and not acknowledged comes again when it dies, when its visibility timeout is over, or never.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from kombu.transport import TRANSPORT_ALIASES, virtual  # noqa: TID251 - what it stands for is behind this door

from tests.proof.simulation.net import Net
from tests.proof.simulation.threads import wait_in
from tests.proof.simulation.world import Owner, Task, World

URL = "virtual://broker"
REDELIVERED = (0.05, 3.0, None)  # after a worker's death: RabbitMQ at once, Redis after a while or in an hour
VISIBLE_AGAIN = (1.0, 6.0, None, None)  # a message that is held for longer is given to another one as well
DOWN_SECONDS = (0.5, 8.0)


@dataclass(slots=True)
class Delivery:
    """One message that a worker has been given."""

    queue: str
    owner: Owner
    is_open: bool = True  # neither acknowledged nor given to another one


class VirtualBroker:
    now: ClassVar["VirtualBroker | None"] = None

    def __init__(self, world: World, net: Net) -> None:
        VirtualBroker.now = self
        self._world, self._net = world, net
        self._lying: list[str] = []  # the queue of each
        self._given: list[Delivery] = []
        self._waiting: list[Task] = []
        self._down_until = 0.0
        self._redelivered = world.dice.one_of("broker redelivers", REDELIVERED)
        self._visible_again = world.dice.one_of("broker visibility", VISIBLE_AGAIN)
        self.last_trouble = 0.0  # since then every message was given once, and soon

    # --- for publishers ---

    def send(self, queue: str) -> None:
        world, net, task = self._world, self._net, self._world.me
        self._reach(task)
        world.counts["messages"] += 1
        if key := net.strikes("message_lost", task, 8):
            self._trouble(key, queue, 0.0)
            return
        copies, late = 1, 0.0
        if key := net.strikes("message_twice", task, 8):
            copies = 2
            self._trouble(key, queue, 0.0)
        if key := net.strikes("message_late", task, 8):
            late = net.seconds(key)
            self._trouble(key, f"{queue}, by {late:.3f} s", late)
        for number in range(copies):
            world.call_at(world.now + late + number * world.dice.about(f"second {task.name}#{task.steps}", 1.0),
                          partial(self._put, queue))  # fmt: skip
        if key := net.strikes("broker_lost", task, 4):
            self._trouble(key, f"{task.name}: the message is there, its answer is lost", 0.0)
            raise ConnectionResetError("the broker's answer is lost")

    def size(self, queue: str) -> int:
        self._reach(self._world.me)
        return self._lying.count(queue)

    def purge(self, queue: str) -> int:
        found = self._lying.count(queue)
        self._lying = [each for each in self._lying if each != queue]
        self.last_trouble = self._world.now
        return found

    def _reach(self, task: Task) -> None:
        world, net = self._world, self._net
        world.sleep(world.dice.about(f"broker {task.name}#{task.steps}", net.typical))
        if key := net.strikes("broker_down", task, 2):
            self._down_until = world.now + world.dice.between(f"{key} seconds", *DOWN_SECONDS)
            self._trouble(key, f"for {self._down_until - world.now:.1f} s", self._down_until - world.now)
        if world.now < self._down_until:
            hangs = world.dice.roll(f"hangs {task.name}#{task.steps}") < 0.5
            world.sleep(1.0 if hangs else 0.001)  # accepts and never answers, or refuses
            raise TimeoutError("timed out") if hangs else ConnectionRefusedError("connection refused")

    def _trouble(self, key: str, text: str, lasts: float) -> None:
        self._net.note(key, text)
        self.last_trouble = max(self.last_trouble, self._world.now + lasts)

    def _put(self, queue: str) -> None:
        self._lying.append(queue)
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._world.wake(task)

    # --- for workers ---

    def receive(self, owner: Owner, queues: Collection[str]) -> Delivery | None:
        """None: nothing came for a second."""
        world, task = self._world, self._world.me
        if not self._theirs(queues) or world.now < self._down_until:
            wait_in(self._waiting, 1.0)
        world.sleep(world.dice.about(f"given {task.name}#{task.steps}", self._net.typical))
        theirs = self._theirs(queues)
        if not theirs or world.now < self._down_until:
            return None
        place = world.dice.one_of(f"which {task.name}#{task.steps}", theirs)  # in any order
        delivery = Delivery(self._lying.pop(place), owner)
        self._given.append(delivery)
        world.counts["messages given"] += 1
        if self._visible_again is not None:
            world.call_at(world.now + self._visible_again, partial(self._give_again, delivery))
        return delivery

    def acknowledge(self, delivery: Delivery) -> None:
        delivery.is_open = False
        if delivery in self._given:
            self._given.remove(delivery)

    def has_died(self, owner: Owner) -> None:
        """Its connection is gone."""
        for delivery in [each for each in self._given if each.owner is owner]:
            self._given.remove(delivery)
            if self._redelivered is not None:
                self._world.call_at(self._world.now + self._redelivered, partial(self._give_again, delivery))

    def _give_again(self, delivery: Delivery) -> None:
        if delivery.is_open:
            delivery.is_open = False
            self._world.counts["messages given again"] += 1
            self._put(delivery.queue)

    def _theirs(self, queues: Collection[str]) -> list[int]:
        return [place for place, queue in enumerate(self._lying) if queue in queues]


def broker() -> VirtualBroker:
    if VirtualBroker.now is None:
        raise RuntimeError("no history is being played")
    return VirtualBroker.now


class Channel(virtual.Channel):  # type: ignore[misc]  # kombu has no types
    """Each method that needs the server reaches it; exchanges and bindings are kombu's own, in memory."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        broker().send(queue)

    def _size(self, queue: str) -> int:
        return broker().size(queue)

    def _purge(self, queue: str) -> int:
        return broker().purge(queue)

    def _new_queue(self, queue: str, **_: Any) -> None: ...

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return True


class Transport(virtual.Transport):  # type: ignore[misc]
    Channel = Channel
    connection_errors = (*virtual.Transport.connection_errors, OSError)
    driver_type, driver_name = "virtual", "virtual"


TRANSPORT_ALIASES["virtual"] = f"{__name__}:Transport"
