"""The replicas: whether each is live, claims work and has applied the newest change; and the workers of the fleet."""

from nicegui import ui

from services.insight.replicas import ReplicaRecord, Replicas, WorkerRecord, list_replicas
from services.schedules.buckets import BUCKETS
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import keep_fresh
from services.web.dashboard.look import ago, card, chip, empty, fact
from services.web.dashboard.visitor import Visitor
from services.wording.commands import as_called_here

REFRESH_SECONDS = 3.0


@for_visitors("/replicas")
async def replicas(visitor: Visitor) -> None:
    with frame(visitor, "Replicas", "/replicas"):
        page = _Page(visitor, await visitor.read(lambda: _look(visitor)))
        keep_fresh(REFRESH_SECONDS, page.refresh)


def _look(visitor: Visitor) -> Replicas:
    return list_replicas(visitor.parts.db, visitor.parts.settings.heartbeat_timeout_seconds)


class _Page:
    def __init__(self, visitor: Visitor, seen: Replicas) -> None:
        self._visitor, self._seen = visitor, seen
        self._content()

    async def refresh(self) -> None:
        self._seen = await self._visitor.read(lambda: _look(self._visitor))
        self._content.refresh()

    @ui.refreshable_method
    def _content(self) -> None:
        if not self._seen.items:
            with card():
                empty("No replica has ever run", as_called_here("Start one: python services/enhanced_scheduler.py"))
            return
        ui.label(_convergence(self._seen)).classes("es-faint")
        with ui.element("div").classes("es-grid"):
            for replica in self._seen.items:
                _card(replica, self._seen.newest_revision)
        if self._seen.workers:
            ui.label(_load(self._seen.workers)).classes("es-faint")
            with ui.element("div").classes("es-grid"):
                for worker in self._seen.workers:
                    _worker_card(worker)


def _convergence(seen: Replicas) -> str:
    if not seen.live:
        return "No replica is live. No job runs until one is started."
    if seen.are_converged:
        return f"All {len(seen.live)} live replicas have applied the newest change (revision {seen.newest_revision})."
    behind = [replica.instance_id for replica in seen.live if not replica.is_converged]
    return f"The newest change (revision {seen.newest_revision}) has not reached {', '.join(behind)} yet."


def _card(replica: ReplicaRecord, newest_revision: int) -> None:
    with card(replica.instance_id):
        with ui.row().classes("gap-2"):
            chip(*_state(replica))
            if replica.redis_degraded and replica.is_live:
                chip("missed", "Redis degraded")
            if replica.is_live and not replica.is_converged:
                chip("missed", "behind")
        with ui.element("dl").classes("es-facts"):
            fact("Heartbeat", ago(replica.heartbeat_at))
            fact("Started", ago(replica.started_at))
            fact("Running", f"{replica.running} of {replica.max_workers or '?'}")
            fact("Schedules", f"{replica.schedules:,} loaded")
            fact("Share", _share(replica))
            fact("Labels", ", ".join(_labels(replica)) or "none")
            fact("Queues", "all (older version)" if replica.queues is None else ", ".join(replica.queues))
            fact("Host", replica.host or "?")
            fact("Applied revision", f"{replica.revision} of {newest_revision}")
            fact("Clock skew", f"{round(replica.clock_skew_seconds * 1000):+d} ms against Postgres")
            fact("Version", replica.version or "?")
            fact("Time zone data", replica.tzdata or "?")


def _load(workers: list[WorkerRecord]) -> str:
    places = sum(worker.max_workers or 0 for worker in workers)
    some = "1 Celery process runs" if len(workers) == 1 else f"{len(workers)} Celery processes run"
    return f"{some} {sum(worker.running for worker in workers)} of {places} executions at once."


def _worker_card(worker: WorkerRecord) -> None:
    with card(worker.instance_id):
        with ui.row().classes("gap-2"):
            chip("success", "live")
            if worker.redis_degraded:
                chip("missed", "Redis degraded")
        with ui.element("dl").classes("es-facts"):
            fact("Heartbeat", ago(worker.heartbeat_at))
            fact("Started", ago(worker.started_at))
            fact("Running", f"{worker.running} of {worker.max_workers or '?'}")
            fact("Pool", worker.pool or "?")
            fact("Labels", ", ".join(_labels(worker)) or "none")
            fact("Queues", ", ".join(worker.queues))
            fact("Host", worker.host or "?")
            fact("Version", worker.version or "?")


def _share(replica: ReplicaRecord) -> str:
    return "all buckets (older version)" if replica.buckets is None else f"{replica.buckets:,} of {BUCKETS:,} buckets"


def _labels(process: ReplicaRecord | WorkerRecord) -> list[str]:
    """Without the job types, which nearly always are the same."""
    return [word for word in process.abilities or () if not word.startswith("job:")]


def _state(replica: ReplicaRecord) -> tuple[str, str]:
    if not replica.is_live:
        return "failed", "no heartbeat"
    return ("success", "live") if replica.claiming else ("missed", "not claiming")
