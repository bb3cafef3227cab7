"""The settler: ends waiting rows that will not run any more, whether or not this replica has a free worker."""

from functools import cached_property

from services.engine.loops import Loop
from services.ledger.waiting import SETTLED_AT_ONCE, Settling

INTERVAL_SECONDS = 2.0
SOON_SECONDS = 0.05  # while there is more


class Settler:
    def __init__(self, settling: Settling) -> None:
        self._settling = settling

    @cached_property
    def loop(self) -> Loop:
        return Loop("settler", self.tick, INTERVAL_SECONDS)

    def tick(self) -> float | None:
        self._settling.settle_changed()
        return SOON_SECONDS if self._settling.settle() >= SETTLED_AT_ONCE else None

    def close(self) -> None:
        self._settling.close()
