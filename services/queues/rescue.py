"""Rows in processing whose worker is gone: back to the queue, or to their end after the last attempt."""

import logging
from typing import Generic

from database.connection import DatabaseConnection
from services.jobs.containment import Raised
from services.queues.item_writer import ItemWriter, WorkerVanished
from services.queues.outcomes import Ended, K
from services.queues.queue_table import QueueTable
from services.queues.run_ledger import RunLedger

logger = logging.getLogger(__name__)

AT_ONCE = 200


class Rescue(Generic[K]):
    """A stale claim is taken over first: from then on its former owner can write nothing."""

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
        for item, verdict in self._writer.write([Ended(claim, gone) for claim in stale]):
            ledger.stale(verdict)
            logger.warning(
                "%s %s had lost its worker: %s", self._queue, item.claim.key, verdict,
                extra={"event": "item_rescued", "queue": self._queue, "key": str(item.claim.key)},
            )  # fmt: skip
        return len(stale)
