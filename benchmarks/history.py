"""Delete half of a million history rows while claims go on. Measures the duration and every blocked claim.

A claim is blocked if one of its fires, all new and due now, does not become CLAIMED, or if the claim or its finish
meets another session's lock. The server logs every lock wait longer than a millisecond.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

from benchmarks.cluster import cluster, insert
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from benchmarks.surface_rows import DAYS
from benchmarks.surface_rows import fill as fill_history
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.job_history import JobHistory
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Decision, Ending, Fire, Owner
from tests.support.executions import POLICY
from tests.support.replicas import Cluster

FIRES = 50
GROUPS = 50  # of schedules that fire each second: so many claims in a second are of new fires
PAUSE_SECONDS = 0.01
ALONE_SECONDS = 3
CLAIMER = "claimer"
LOG_LOCK_WAITS = {"log_lock_waits": "on", "deadlock_timeout": "1ms", "log_line_prefix": "%a|"}


def run(scale: Scale) -> Iterator[Sheet]:
    with cluster(LOG_LOCK_WAITS) as made:
        fill_history(made.db, max(scale.history_rows // 10, 1000), scale.history_rows)
        insert(made, FIRES * GROUPS, "interval", {"seconds": 1})
        time.sleep(2)  # from now on the fire of this second came due after its schedule was made
        before = _Claims(made)
        before.start()
        time.sleep(ALONE_SECONDS)
        before.stop()
        time.sleep(1)  # the next second brings new fires
        during = _Claims(made)
        during.start()
        started = time.perf_counter()
        deleted = JobHistory(made.db).cleanup_old_executions(days=DAYS // 2)
        seconds = time.perf_counter() - started
        during.stop()
    sheet = Sheet("cleanup", *_heading(scale.history_rows, deleted, seconds))
    for name, claims in {"before": before, "during": during}.items():
        median, slowest = statistics.median(claims.seconds), max(claims.seconds)
        cells = f"{len(claims.seconds):,}", f"{median * 1000:.1f} ms", f"{slowest * 1000:.1f} ms"
        sheet.add(f"{name} the deletion", *cells, f"{claims.claimed:,}", f"{claims.blocked:,}")
        sheet.facts[name] = {
            "claims": len(claims.seconds), "median_seconds": median, "slowest_seconds": slowest,
            "fires_claimed": claims.claimed, "blocked": claims.blocked,
        }  # fmt: skip
    sheet.facts |= {"rows": scale.history_rows, "deleted": deleted, "seconds": seconds}
    yield sheet


def _heading(rows: int, deleted: int, seconds: float) -> tuple[str, list[str]]:
    title = f"Cleanup of half of the history while somebody claims: {deleted:,} of {rows:,} rows in {seconds:.1f} s"
    return title, [f"claims of {FIRES} fires", "number", "median", "slowest", "fires claimed", "blocked"]


class _Claims:
    """Claims new fires of this second, starts and finishes them, again and again, on a connection of its own."""

    def __init__(self, made: Cluster) -> None:
        rows = made.rows("SELECT schedule_id FROM schedules WHERE frequency = 'interval' ORDER BY schedule_id")
        ids: list[UUID] = [row[0] for row in rows]
        self._groups = [ids[first : first + FIRES] for first in range(0, len(ids), FIRES)]
        self._db = DatabaseConnection(made.environment["DATABASE_URL"], pool_size=1, application_name=CLAIMER)
        self._store = ExecutionStore(self._db, Owner(CLAIMER, uuid4()), POLICY, 86_400)
        self._log = made.directory / "servers" / "postgres.log"
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self.seconds: list[float] = []
        self.claimed = self.blocked = 0

    def start(self) -> None:
        self._store.without_row([])  # connects; connecting is not part of a claim
        self._ended = self._thread.submit(self._loop)

    def stop(self) -> None:
        self._stopping.set()
        self._ended.result()  # re-raises what ended the thread early
        self._thread.shutdown()
        self._store.close()
        self._db.close()

    def _loop(self) -> None:
        for fires in _new_fires(self._groups):
            self._work(fires)
            if self._stopping.wait(PAUSE_SECONDS):
                return

    def _work(self, fires: list[Fire]) -> None:
        logged = self._log.stat().st_size
        began = time.perf_counter()
        report = self._store.claim(fires, start=len(fires))
        self.seconds.append(time.perf_counter() - began)
        claimed = sum(decision is Decision.CLAIMED for decision in report.decisions.values())
        is_finished = self._finish(report.started)
        self.claimed += claimed
        self.blocked += claimed < len(fires) or not is_finished or _waited(self._log, logged)

    def _finish(self, claims: list[Claim]) -> bool:
        """Whether it was written at once. What another session's lock delays is retried, as in a replica."""
        endings = [Ending(claim=claim, status=ExecutionStatus.SUCCESS, duration_seconds=0) for claim in claims]
        later = first = self._store.finish(endings).later
        while later:
            time.sleep(PAUSE_SECONDS)
            later = self._store.finish(later).later
        return not first


def _new_fires(groups: list[list[UUID]]) -> Iterator[list[Fire]]:
    """One group after the other, each with its fire of this second; no fire twice."""
    last = datetime.min.replace(tzinfo=UTC)
    while True:
        while (at := datetime.now(UTC).replace(microsecond=0)) <= last:
            time.sleep(PAUSE_SECONDS)
        last = at
        for ids in groups:
            if datetime.now(UTC).replace(microsecond=0) > at:
                break
            yield [Fire(schedule_id, at, at) for schedule_id in ids]


def _waited(log: Path, since: int) -> bool:
    """Whether the claimer waited for another session's lock, by the server's log from this offset on."""
    with log.open("rb") as lines:
        lines.seek(since)
        return any(line.startswith(f"{CLAIMER}|".encode()) and b" still waiting for " in line for line in lines)
