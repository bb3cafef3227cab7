"""Which replica tries a fire first: rendezvous hashing over the live replicas, so that they agree without messages."""

import hashlib
from collections.abc import Sequence

from services.ledger.fires import Fire

# The next one in line tries so much later; it then finds the mark of the first, or takes over.
HANDICAP_SECONDS = 0.15
LONGEST_HANDICAP_SECONDS = 0.45
# Multiplicative hashing: every fire asks for as many numbers as there are replicas, so each must be cheap.
MULTIPLIER, MASK = 0x9E3779B97F4A7C15F39CC0605CEDC835, (1 << 128) - 1


class Peers:
    """The replicas that claim, as of the last heartbeat. Reading and replacing are atomic."""

    def __init__(self, own_id: str) -> None:
        self._own = _seed(own_id)
        self._own_id = own_id
        self._others: tuple[int, ...] = ()

    def update(self, instance_ids: Sequence[str]) -> None:
        self._others = tuple(_seed(name) for name in sorted(instance_ids) if name != self._own_id)

    def handicap_seconds(self, fire: Fire) -> float:
        """How long this replica waits before it tries: nothing if the fire is preferably its own."""
        if not self._others:
            return 0.0
        # By schedule, not by fire: overdue fires of one schedule must meet in one batch to become one run.
        key = fire.schedule_id.int
        own = (key ^ self._own) * MULTIPLIER & MASK
        before_us = 0
        for other in self._others:
            before_us += (key ^ other) * MULTIPLIER & MASK > own
        return min(before_us * HANDICAP_SECONDS, LONGEST_HANDICAP_SECONDS)


def _seed(instance_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(instance_id.encode(), digest_size=16).digest(), "big")
