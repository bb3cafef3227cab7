"""/api/v3/queues: the queues of the workflows: list, read, pause, resume, requeue failed rows."""

from typing import Annotated

from fastapi import Path

from services.queues.overview import QueueOverview
from services.queues.queue_state import QueueStates
from services.queues.queue_table import FailedFilter
from services.queues.requeue import Requeue
from services.web.auth.guard import IdempotencyKey, Operator, Viewer
from services.web.parts import Parts
from services.web.problems import not_found
from services.web.routing import API, PartsOf, router
from services.web.schemas.workflows import PauseQueue, QueueList, QueueOut, RequeuedRows, RequeueFailed
from services.workflows import queues as known_queues

queues = router(f"{API}/queues", "queues")

QueueName = Annotated[str, Path(max_length=100, description="Name of the queue.", examples=["domain_metadata"])]


@queues.get("")
def list_queues(parts: PartsOf, who: Viewer) -> QueueList:
    """Depth, age, failures and state of every queue, in pipeline order."""
    return QueueList(items=[QueueOut.model_validate(view) for view in QueueOverview(parts.db, parts.settings).look()])


@queues.get("/{queue}")
def read_queue(queue: QueueName, parts: PartsOf, who: Viewer) -> QueueOut:
    """A queue."""
    return _look_at(parts, _name(queue))


@queues.post("/{queue}/pause")
def pause_queue(
    queue: QueueName, body: PauseQueue, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> QueueOut:
    """Pause a queue: no run starts, and current runs stop within seconds. A paused queue keeps its first reason."""
    name = _name(queue)
    QueueStates(parts.db).pause(name, body.reason, who.actor)
    return _look_at(parts, name)


@queues.post("/{queue}/resume")
def resume_queue(queue: QueueName, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> QueueOut:
    """Resume a paused queue with its next run; also closes its circuit breaker."""
    name = _name(queue)
    QueueStates(parts.db).resume(name)
    return _look_at(parts, name)


@queues.post("/{queue}/requeue")
def requeue_failed_rows(
    queue: QueueName, body: RequeueFailed, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> RequeuedRows:
    """Requeue failed rows, dead letters included, oldest first; each gets all of its attempts again."""
    found = known_queues.find(_name(queue))
    which = FailedFilter(keys=body.keys, error=body.error, since=body.since, limit=body.limit)
    requeue = Requeue(parts.db, who.actor)
    count = requeue.count(found, which)
    done = 0 if body.dry_run else requeue.failed(found, which, body.per_second)
    return RequeuedRows(queue=found.name, found=count, requeued=done, dry_run=body.dry_run)


def _name(queue: str) -> str:
    known = next((each for each in known_queues.all() if queue in (each.name, each.job_id)), None)
    if known is None:
        raise not_found(f"queue {queue}")
    return known.name


def _look_at(parts: Parts, name: str) -> QueueOut:
    return QueueOut.model_validate(QueueOverview(parts.db, parts.settings).look_at(known_queues.find(name)))
