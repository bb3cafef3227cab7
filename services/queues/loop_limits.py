"""The numbers of one run of a queue."""

from dataclasses import dataclass, field

from services.queues.batches import AdaptiveBatch, BatchPace
from services.queues.circuit import Breaker

SAVE_SECONDS = 60.0  # time to write an item's result, beyond its timeout
FAST_TRANSACTION_SECONDS, SLOW_TRANSACTION_SECONDS = 0.25, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    batch_size: int = 10
    adapts: bool = True  # False: a fixed batch size; the one that runs share is neither read nor written
    concurrency: int = 1  # items in progress at once
    run_budget_seconds: float = 50.0  # after that the run claims no further item
    item_timeout_seconds: float = 60.0
    max_attempts: int = 3
    retry_backoff_seconds: float = 30.0  # before the second attempt; doubles each time
    stale_seconds: float | None = None  # a claim older than this has lost its worker
    breaker: Breaker = field(default_factory=Breaker)

    @property
    def stale_after_seconds(self) -> float:
        return self.item_timeout_seconds + SAVE_SECONDS if self.stale_seconds is None else self.stale_seconds

    @property
    def longest_run_seconds(self) -> float:
        """Until the end of an item that was claimed at the last moment."""
        return self.run_budget_seconds + self.item_timeout_seconds

    @property
    def late_claim_seconds(self) -> float:
        """A claim whose answer took longer may be stale before its item's timeout is over: it is handed back."""
        return max(1.0, self.stale_after_seconds - self.item_timeout_seconds)

    def pace(self, remembered: int | None, *, threads: bool) -> BatchPace:
        """With threads the batch adapts to the time per item, otherwise to the time of the batch's transaction."""
        fast, slow = FAST_TRANSACTION_SECONDS, SLOW_TRANSACTION_SECONDS
        if threads:
            fast, slow = self.item_timeout_seconds / 10, self.item_timeout_seconds / 2
        batch = AdaptiveBatch.of(self.batch_size, remembered, fast_seconds=fast, slow_seconds=slow)
        if not self.adapts:
            batch = AdaptiveBatch(self.batch_size, self.batch_size, self.batch_size, fast, slow)
        return BatchPace(batch, by_item=threads)
