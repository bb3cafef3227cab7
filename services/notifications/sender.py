"""Sends deliveries, from any replica: each at least once, with the same id in every attempt.

One delivery at a time is claimed, sent and settled, by a few threads, each with a channel of its own: one that hangs
delays no other. A claim expires; what its process was sending when it was killed is sent again. A channel that fails
is tried by one replica at a time, after growing pauses, until it works again; nothing is lost meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from config import Settings, environment_secret
from database.connection import DatabaseConnection
from services.engine.loops import Loop
from services.errors import InvalidInput, SchedulerError, Unavailable
from services.notifications.channels.kinds import config_of, send
from services.notifications.channels.sending import SEND_SECONDS, Envelope, Lookup, SendFailed, Surroundings
from services.notifications.deliveries import GIVE_UP_SECONDS, Claim, Deliveries
from services.notifications.messages import Message
from services.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 2.0
COUNT_SECONDS = 15.0
MOST_THREADS = 4
MOST_PROBES = MOST_THREADS - 1  # one thread is always for channels that work
CLAIM_SECONDS = SEND_SECONDS + 40.0  # to note the result, even if Postgres restarts meanwhile
SETTLE_AGAIN_SECONDS = 1.0
END_SECONDS = 5.0  # for what is being sent when the replica stops; otherwise it is sent again


class Sender:
    def __init__(self, settings: Settings, db: DatabaseConnection, lookup: Lookup = environment_secret) -> None:
        self._settings, self._lookup = settings, lookup
        self._deliveries = Deliveries(db)
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._busy: dict[UUID, bool] = {}  # channel -> whether it is one that fails
        self._counted_at = float("-inf")
        self.loop = Loop("sender", self.tick, LOOK_SECONDS)

    def tick(self) -> float | None:
        due = self._deliveries.channels_due(MOST_THREADS)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(min(due, MOST_THREADS - len(self._threads))):
            thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._threads.append(thread)
            thread.start()
        if time.monotonic() >= self._counted_at + COUNT_SECONDS:
            found, self._counted_at = self._deliveries.figures(), time.monotonic()
            metrics.observe_notifications(
                waiting=found.waiting,
                oldest_seconds=found.oldest_seconds,
                failing=found.failing,
                failing_seconds=found.failing_seconds,
            )
        return None

    def send_one(self) -> bool:
        """Claim, send and settle one delivery; says whether there was one."""
        claim = self._claim()
        if claim is None:
            return False
        try:
            self._deliver(claim)
        finally:
            with self._lock:
                del self._busy[claim.channel_id]
        return True

    def close(self) -> None:
        self._stopping.set()
        until = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        """Until nothing is left for this thread. If Postgres is away, the loop reports it and starts others later."""
        with suppress(Unavailable):
            while not self._stopping.is_set() and self.send_one():
                pass

    def _claim(self) -> Claim | None:
        with self._lock:
            probes = sum(self._busy.values()) < MOST_PROBES
            claim = self._deliveries.claim(self._settings.instance_id, CLAIM_SECONDS, self._busy, probes=probes)
            if claim is not None:
                self._busy[claim.channel_id] = claim.is_probe
        if claim is not None and claim.lost:
            metrics.notification_attempt(claim.kind, "lost")
        return claim

    def _deliver(self, claim: Claim) -> None:
        until = time.monotonic() + CLAIM_SECONDS
        around = Surroundings(self._settings, self._lookup)
        try:
            answer = around.shown(self._send(claim, around))
        except SchedulerError as error:
            wait = error.retry_after_seconds if isinstance(error, SendFailed) else None
            self._note_failed(claim, around.shown(str(error)), wait, until)
        except Exception as error:  # noqa: BLE001 - a bug in a kind of channel must not end in a message sent for ever
            facts = {"event": "notification_broken", "channel": claim.name}
            logger.error("channel %s: %s", claim.name, type(error).__name__, extra=facts)
            self._note_failed(claim, f"the channel's own code failed: {type(error).__name__}", None, until)
        else:
            self._note_sent(claim, answer, until)

    def _send(self, claim: Claim, around: Surroundings) -> str:
        try:
            config = config_of(claim.kind, claim.config)
        except InvalidInput as error:
            raise SendFailed(f"the channel's configuration is not valid: {error}") from None
        return send(config, Envelope(claim.delivery_id, claim.created_at, Message.from_json(claim.message)), around)

    def _note_sent(self, claim: Claim, answer: str, until: float) -> None:
        metrics.notification_attempt(claim.kind, "sent")
        held, failing_since = self._patiently(lambda: self._deliveries.note_sent(claim, answer), until)
        if held and failing_since is not None:
            words = "channel %s works again; it had been failing since %s"
            facts = {"event": "channel_recovered", "channel": claim.name}
            logger.info(words, claim.name, failing_since.isoformat(timespec="seconds"), extra=facts)

    def _note_failed(self, claim: Claim, reason: str, retry_after_seconds: float | None, until: float) -> None:
        metrics.notification_attempt(claim.kind, "failed")
        found = self._patiently(lambda: self._deliveries.note_failed(claim, reason, retry_after_seconds), until)
        if found is None:
            return
        facts = {"event": "channel_failing", "channel": claim.name, "delivery_id": str(claim.delivery_id)}
        if found.failures == 1:
            logger.warning("channel %s fails; its messages wait: %s", claim.name, reason, extra=facts)
        given_up = 1 if found.state == "failed" and claim.event != "test" else 0
        if found.is_old:
            days = GIVE_UP_SECONDS / 86_400
            why = f"not tried: the channel has been failing for more than {days:g} days: {reason}"
            given_up += self._patiently(lambda: self._deliveries.give_up(claim.channel_id, why), until)
        if given_up:
            facts["event"] = "notification_given_up"
            logger.error("channel %s: %d messages given up: %s", claim.name, given_up, reason, extra=facts)

    def _patiently(self, note: Callable[[], T], until: float) -> T:
        """As long as the claim is valid: a message that was sent and cannot be recorded is sent again."""
        while True:
            try:
                return note()
            except Unavailable:
                if time.monotonic() >= until or self._stopping.wait(SETTLE_AGAIN_SECONDS):
                    raise
