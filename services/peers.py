"""Who tries a fire first: rendezvous hashing over the live replicas, so that all of them agree without talking."""

import zlib
from collections.abc import Sequence

from services.fires import Fire

# The next one in line tries so much later; it then finds the mark of the first, or takes over.
HANDICAP_SECONDS = 0.15
LONGEST_HANDICAP_SECONDS = 0.45


class Peers:
    """The replicas that claim, as the last heartbeat saw them. Reading and replacing are atomic."""

    def __init__(self, own_id: str) -> None:
        self._own = own_id.encode()
        self._others: tuple[bytes, ...] = ()

    def update(self, instance_ids: Sequence[str]) -> None:
        self._others = tuple(sorted(name.encode() for name in instance_ids if name.encode() != self._own))

    def handicap_seconds(self, fire: Fire) -> float:
        """How long this replica waits before it tries: nothing if the fire is preferably its own."""
        if not self._others:
            return 0.0
        # By schedule, not by fire: overdue fires of one schedule must meet in one batch to become one run.
        key = fire.schedule_id.bytes
        own = zlib.crc32(key + self._own)
        before_us = sum(zlib.crc32(key + other) > own for other in self._others)
        return min(before_us * HANDICAP_SECONDS, LONGEST_HANDICAP_SECONDS)
