"""Half of a million rows of history is deleted while replicas go on claiming: how long, and who waits for it."""

import statistics
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from benchmarks.cluster import cluster, insert
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from benchmarks.surface import DAYS
from benchmarks.surface import fill as fill_history
from database.connection import DatabaseConnection
from services.execution_store import ExecutionStore
from services.fires import Fire, Owner
from services.job_history import JobHistory
from tests.executions import POLICY
from tests.replicas import Cluster

FIRES = 50
PAUSE_SECONDS = 0.05


def run(scale: Scale) -> Iterator[Sheet]:
    with cluster() as made:
        fill_history(made.db, max(scale.history_rows // 10, 1000), scale.history_rows)
        before = _Claims(made)
        before.run_for(3)
        during = _Claims(made)
        during.start()
        started = time.perf_counter()
        deleted = JobHistory(made.db).cleanup_old_executions(days=DAYS // 2)
        seconds = time.perf_counter() - started
        during.stop()
    columns = ["rows", "deleted", "seconds", f"claim of {FIRES}, median", "slowest", "without cleanup", "slowest"]
    sheet = Sheet("cleanup", "Cleanup of half of the history while somebody claims", columns)
    sheet.add(f"{scale.history_rows:,}", f"{deleted:,}", f"{seconds:.1f}", *during.cells(), *before.cells())
    sheet.notes.append(f"{len(during.seconds)} claims meanwhile, {during.failed} of them without all their rows")
    sheet.facts = {
        "deleted": deleted, "seconds": seconds, "claim_slowest_seconds": max(during.seconds),
        "claim_slowest_alone_seconds": max(before.seconds), "failed": during.failed,
    }  # fmt: skip
    yield sheet


class _Claims:
    """Claims fires of schedules of its own, again and again, on a connection of its own."""

    def __init__(self, made: Cluster) -> None:
        insert(made, FIRES, "interval", {"seconds": 1})
        made.run("ALTER TABLE schedules DISABLE TRIGGER USER")
        made.run("UPDATE schedules SET effective_from = now() - interval '1 day' WHERE job_type = 'noop'")
        made.run("ALTER TABLE schedules ENABLE TRIGGER USER")
        rows = made.rows("SELECT schedule_id FROM schedules WHERE frequency = 'interval' LIMIT %s", FIRES)
        self._ids = [row[0] for row in rows]
        db: DatabaseConnection = made.db
        self._store = ExecutionStore(db, Owner("claimer", uuid4()), POLICY, 86_400)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop)
        self.seconds: list[float] = []
        self.failed = 0

    def run_for(self, seconds: float) -> None:
        self.start()
        time.sleep(seconds)
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._store.close()

    def cells(self) -> tuple[str, str]:
        return f"{statistics.median(self.seconds) * 1000:.1f} ms", f"{max(self.seconds) * 1000:.1f} ms"

    def _loop(self) -> None:
        at = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        while not self._stopping.wait(PAUSE_SECONDS):
            at += timedelta(seconds=1)
            fires = [Fire(schedule_id, at, at) for schedule_id in self._ids]
            started = time.perf_counter()
            report = self._store.claim(fires)
            self.seconds.append(time.perf_counter() - started)
            self.failed += len(report.outcomes) < FIRES
