"""A virtual worker of the fleet: the product's FleetWorker, which virtual deliveries wake as Celery would."""

from functools import partial

from services.fleet.worker import FleetWorker
from services.jobs import default_registry
from services.jobs.users import load_users_jobs
from tests.proof.simulation.broker import broker
from tests.proof.simulation.replica import Process, held_by
from tests.proof.simulation.threads import VirtualEvent, VirtualThread

QUEUE = "fleet"
PLACES = (1, 1, 2)


class Worker(Process):
    """`celery worker --pool threads`, with prefetch 1 and late acknowledgement: each place has one message at most."""

    scope = "worker"
    places = 1
    worker: FleetWorker | None = None

    _asked: VirtualEvent | None = None

    def ask_to_stop(self) -> None:
        if self._asked is None:
            return
        self.draining_since = self._world.now
        self._asked.set()

    def holds(self) -> list[str]:
        if self.worker is None:
            return []
        return held_by(self.worker.place) + [f"calls of serve: {len(self.worker._over)}"] * bool(self.worker._over)

    def _live(self) -> None:
        asked = VirtualEvent()
        default_registry.load_built_in()
        load_users_jobs(self.settings)
        worker = FleetWorker(
            self.settings, default_registry, (QUEUE,), self.places, name=self.name, pool="threads", parts=self.parts()
        )
        worker.start()
        self.worker, self._asked = worker, asked
        consumers = [VirtualThread(partial(self._consume, worker, asked), f"place-{n + 1}") for n in range(self.places)]
        for each in consumers:
            each.start()
        asked.wait()
        for each in consumers:  # a warm shutdown: what was begun ends
            each.join()
        worker.stop()

    def _consume(self, worker: FleetWorker, asked: VirtualEvent) -> None:
        while not asked.is_set():
            delivery = broker().receive(self, (QUEUE,))
            if delivery is not None:
                self._world.counts["rows served"] += worker.serve()
                broker().acknowledge(delivery)
