"""The replicas, their state, whether they have applied the newest change (convergence); the workers of the fleet."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from database.connection import DatabaseConnection
from services.schedules.buckets import from_bytes
from services.schedules.changes import NEWEST_REVISION


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecord:
    """A row of `scheduler_instances` with derived values, as of the replica's last heartbeat."""

    instance_id: str
    incarnation: UUID
    started_at: datetime
    heartbeat_at: datetime
    heartbeat_age_seconds: float
    is_live: bool
    claiming: bool
    running: int
    schedules: int  # loaded: those of its buckets
    buckets: int | None  # that it holds; None: of a version that loads every schedule
    host: str | None
    abilities: list[str] | None  # `job:<type>` and labels; None: of a version that does not list them
    queues: list[str] | None  # that it serves; None: as above
    revision: int  # the newest change it has applied
    is_converged: bool
    clock_skew_seconds: float
    version: str | None
    tzdata: str | None
    max_workers: int | None
    redis_degraded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A live process of the fleet that runs handlers, as of its last heartbeat."""

    instance_id: str
    started_at: datetime
    heartbeat_at: datetime
    running: int
    max_workers: int | None
    pool: str | None  # prefork, threads, solo
    queues: list[str]
    abilities: list[str]
    host: str | None
    version: str | None
    redis_degraded: bool


@dataclass(frozen=True, slots=True)
class Replicas:
    newest_revision: int
    items: list[ReplicaRecord]
    workers: list[WorkerRecord] = field(default_factory=list)

    @property
    def live(self) -> list[ReplicaRecord]:
        return [replica for replica in self.items if replica.is_live]

    @property
    def are_converged(self) -> bool:
        """False without a live replica: then no replica has applied the changes."""
        return bool(self.live) and all(replica.is_converged for replica in self.live)


# Earlier incarnations of a restarted replica are left out once their heartbeats stop.
REPLICAS = f"""
WITH newest AS (SELECT ({NEWEST_REVISION}) AS revision), seen AS (
    SELECT i.*, extract(epoch FROM clock_timestamp() - i.heartbeat_at)::float8 AS age,
           row_number() OVER (PARTITION BY i.instance_id ORDER BY i.started_at DESC) AS rank
    FROM scheduler_instances AS i
)
SELECT newest.revision AS newest_revision, seen.*, age <= %(timeout)s AS is_live
FROM newest LEFT JOIN seen ON rank = 1 OR age <= %(timeout)s
ORDER BY is_live DESC, instance_id, started_at DESC
"""  # noqa: S608


def list_replicas(db: DatabaseConnection, heartbeat_timeout_seconds: float) -> Replicas:
    """Live replicas first; dead ones are listed for a day. Of workers, whose processes come and go, only the live."""
    with db.transaction() as connection:
        rows = connection.exec_driver_sql(REPLICAS, {"timeout": heartbeat_timeout_seconds}).all()
    return Replicas(
        rows[0].newest_revision,
        [_to_record(row) for row in rows if row.kind == "replica"],
        [_to_worker(row) for row in rows if row.kind == "worker" and row.is_live],
    )


def _to_worker(row: Any) -> WorkerRecord:
    return WorkerRecord(
        instance_id=row.instance_id,
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        running=row.running,
        max_workers=row.facts.get("max_workers"),
        pool=row.facts.get("pool"),
        queues=row.queues or [],
        abilities=row.abilities or [],
        host=row.host,
        version=row.facts.get("version"),
        redis_degraded=bool(row.facts.get("redis_degraded", False)),
    )


def _to_record(row: Any) -> ReplicaRecord:
    return ReplicaRecord(
        instance_id=row.instance_id,
        incarnation=row.incarnation,
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        heartbeat_age_seconds=row.age,
        is_live=row.is_live,
        claiming=row.claiming,
        running=row.running,
        schedules=row.schedules,
        buckets=None if row.holds is None else from_bytes(bytes(row.holds)).bit_count(),
        host=row.host,
        abilities=row.abilities,
        queues=row.queues,
        revision=row.revision,
        is_converged=row.revision >= row.newest_revision,
        clock_skew_seconds=row.clock_skew_seconds,
        version=row.facts.get("version"),
        tzdata=row.facts.get("tzdata"),
        max_workers=row.facts.get("max_workers"),
        redis_degraded=bool(row.facts.get("redis_degraded", False)),
    )
