"""Announces rows that wait for the fleet to its broker, from a thread of its own in each replica.

A broker that is away or hangs delays this thread by a second now and then, and nothing else: no row is locked, and no
place of the replica is held meanwhile. Start reading at `Publisher.tick`.
"""

import logging
from collections import Counter, deque
from collections.abc import Collection
from functools import cached_property
from uuid import UUID

from services.engine.loops import Loop
from services.errors import Unavailable
from services.fleet.messages import Messages
from services.ledger.outbox import MAX_BATCH, Announced, Outbox
from services.redis_client import CircuitBreaker

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
SOON_SECONDS = 0.01  # while there is more
MOST_NOTED = 5000


class Publisher:
    def __init__(self, outbox: Outbox, messages: Messages) -> None:
        self._outbox, self._messages = outbox, messages
        self._circuit = CircuitBreaker()
        self._room: deque[UUID | str] = deque(maxlen=MOST_NOTED)  # schedules and limit keys, each once per free place

    def room_is_made(self, schedule_ids: Collection[UUID], limit_keys: Collection[str]) -> None:
        """From the finisher and the rescuer: workers that found these full were sent away. Waits for nothing."""
        self._room.extend(schedule_ids)
        self._room.extend(limit_keys)

    @cached_property
    def loop(self) -> Loop:
        return Loop("publisher", self.tick, INTERVAL_SECONDS)

    def tick(self) -> float | None:
        if not self._circuit.lets_through():
            return None
        self._announce_room()
        batch = self._outbox.take()
        if not batch.ids:
            return None
        try:
            self._announce(batch)
        except Unavailable as error:
            self._outbox.put_back(batch.ids)
            self._note_failure(error)
            return None
        except Exception:
            self._outbox.put_back(batch.ids)
            raise
        if self._circuit.succeeded():
            logger.warning("the Celery broker answers again", extra={"event": "broker_available"})
        return SOON_SECONDS if len(batch.ids) >= MAX_BATCH else None

    def _announce_room(self) -> None:
        """If this fails, the rows wait for their next announcement, as they do for what was not noted."""
        freed = Counter(self._room.popleft() for _ in range(len(self._room)))
        keys = {each: places for each, places in freed.items() if isinstance(each, str)}
        schedules = {each: places for each, places in freed.items() if isinstance(each, UUID)}
        keys |= self._outbox.room_after_change()
        if keys or schedules:
            self._outbox.announce_next(schedules, keys)

    def _note_failure(self, error: Unavailable) -> None:
        if self._circuit.failed():
            words = "%s; executions of its queues wait, all others run"
            logger.warning(words, error, extra={"event": "broker_unavailable"})

    def _announce(self, batch: Announced) -> None:
        """Never more messages than waiting rows: those already in the broker wake workers just as well.

        Workers go on meanwhile. So messages are counted again after the rows: counted before, they would be more
        than the rows that are left by then have, and as many of them would get no message.
        """
        for queue, marked in batch.by_queue.items():
            lying = self._messages.depth(queue)
            if lying:
                waiting = self._outbox.waiting(queue, lying + marked)
                lying = min(lying, self._messages.depth(queue))  # others may have sent theirs
                marked = min(marked, max(0, waiting - lying))
            self._messages.send(queue, marked)

    def close(self) -> None:
        self._outbox.close()
        self._messages.close()
