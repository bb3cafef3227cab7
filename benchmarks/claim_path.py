"""Claim, start and finish against Postgres alone, in one thread, by batch size."""

import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

from benchmarks.cluster import cluster, insert
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from database.models import ExecutionStatus
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Ending, Fire, Owner
from tests.support.executions import POLICY
from tests.support.replicas import Cluster

BATCHES = (1, 10, 100, 500)
MOST_BATCHES = 100


def run(scale: Scale) -> Iterator[Sheet]:
    columns = ["fires per batch", "claim", "start", "finish", "together per fire"]
    sheet = Sheet("claim-path", "Claim, start and finish of one batch (medians)", columns)
    for size in BATCHES:
        doing(f"batches of {size:,}")
        with cluster() as made:
            times = _measure(made, size, min(MOST_BATCHES, max(3, scale.claim_fires // size)))
        medians = [statistics.median(step) for step in zip(*times, strict=True)]
        per_fire = sum(medians) / size
        sheet.add(str(size), *(f"{seconds * 1000:.1f} ms" for seconds in medians), f"{per_fire * 1e6:,.0f} us")
        sheet.facts[str(size)] = {"seconds": medians, "seconds_per_fire": per_fire}
    yield sheet


def _measure(made: Cluster, size: int, batches: int) -> list[tuple[float, float, float]]:
    at = datetime.now(UTC).replace(microsecond=0)
    insert(made, size * batches, "once", {"at": at.isoformat()})
    made.run("ALTER TABLE schedules DISABLE TRIGGER USER")
    made.run("UPDATE schedules SET effective_from = now() - interval '1 hour'")
    ids = [row[0] for row in made.rows("SELECT schedule_id FROM schedules ORDER BY schedule_id")]
    store = ExecutionStore(made.db, Owner("benchmark", uuid4()), POLICY, 86_400)
    times = [_batch(store, ids[number * size :][:size], at) for number in range(batches)]
    store.close()
    return times


def _batch(store: ExecutionStore, ids: Sequence[UUID], at: datetime) -> tuple[float, float, float]:
    began = time.perf_counter()
    claims = store.claim([Fire(schedule_id, at, at) for schedule_id in ids]).claims
    claimed = time.perf_counter()
    started = store.start(claims).started
    running = time.perf_counter()
    report = store.finish(
        [Ending(claim=claim, status=ExecutionStatus.SUCCESS, duration_seconds=0) for claim in started]
    )
    ended = time.perf_counter()
    if len(started) != len(ids) or report.refused or report.later:
        raise RuntimeError(f"{len(ids)} fires, {len(started)} started: what was measured is not the whole way")
    return claimed - began, running - claimed, ended - running
