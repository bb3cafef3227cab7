"""Rescue of rows in processing whose worker vanished: requeued, or failed after their last attempt."""

import logging
from typing import Generic

from database.connection import DatabaseConnection
from enhanced_scheduler.containment import Raised
from services.queues.item_writer import ItemWriter, WorkerVanished
from services.queues.outcomes import Ending, K
from services.queues.queue_table import QueueTable
from services.queues.run_ledger import RunLedger

logger = logging.getLogger(__name__)

AT_ONCE = 200


class Rescue(Generic[K]):
    """Takes a stale claim over first: from then on its previous worker can write nothing."""

    def __init__(
        self, db: DatabaseConnection, queue: str, table: QueueTable[K], writer: ItemWriter[K], stale_seconds: float
    ) -> None:
        self._db, self._queue, self._table, self._writer = db, queue, table, writer
        self._stale_seconds = stale_seconds

    def run(self, ledger: RunLedger) -> None:
        while self._some(ledger) == AT_ONCE:
            pass

    def _some(self, ledger: RunLedger) -> int:
        with self._db.transaction() as connection:
            stale = self._table.take_stale(connection, self._stale_seconds, AT_ONCE)
        gone = Raised(WorkerVanished(self._stale_seconds))
        for ending, verdict in self._writer.write([Ending(claim, gone) for claim in stale]):
            ledger.stale(verdict)
            logger.warning(
                "%s %s lost its worker: %s", self._queue, ending.claim.key, verdict,
                extra={"event": "item_rescued", "queue": self._queue, "key": str(ending.claim.key)},
            )  # fmt: skip
        return len(stale)
