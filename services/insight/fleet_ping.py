"""FLEET_PING_URL is called after each whole gap scan of the fleet, and at no other time.

A whole scan: the moment up to which the fires of all buckets are accounted for (`fires_watched`) has moved, and is not
old. So silence does not only mean that a process died: fires may be unaccounted for, wherever the fault is.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from pydantic import SecretStr

from config import Settings
from database.connection import DatabaseConnection
from services.engine.gap_scan.scanner import LAGS
from services.engine.loops import Loop
from services.fetching import FETCH_ERRORS, Fetcher, Limits, failure_of, session_from
from services.ledger.verdicts import Tolerances

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
BAD_STATUS = 400
PATIENCE_SECONDS = 120.0  # a slow server of pings is no reason to restart a replica
MAX_ANSWER_BYTES = 16 * 1024
WATCHED = """
SELECT until, date_part('epoch', clock_timestamp() - until) AS age_seconds FROM fires_watched
"""


class FleetPing:
    """`send_if` says how a replica knows that it is the one that pings; while two think so, both do."""

    def __init__(self, settings: Settings, db: DatabaseConnection, secret_url: SecretStr) -> None:
        url = secret_url.get_secret_value()
        self._db, self._url = db, url
        self._is_mine: Callable[[], bool] = lambda: False
        self._fetcher = Fetcher(
            session_from(settings, configured_url=url),
            Limits(max_seconds=settings.request_timeout, max_bytes=MAX_ANSWER_BYTES),
        )
        vouch = Tolerances.from_settings(settings).vouch.total_seconds()
        self._oldest_seconds = LAGS * settings.gap_scan_seconds + vouch
        self._pinged_for: datetime | None = None
        self._is_failing = False
        self.loop = Loop("fleet-ping", self.tick, min(LOOK_SECONDS, settings.gap_scan_seconds), PATIENCE_SECONDS)

    def send_if(self, is_mine: Callable[[], bool]) -> None:
        self._is_mine = is_mine

    def tick(self) -> float | None:
        if not self._is_mine():
            return None
        row = next(iter(self._db.run_alone(WATCHED, {})), None)
        if row is None or row.age_seconds > self._oldest_seconds:
            return None
        if self._pinged_for is not None and row.until <= self._pinged_for:
            return None
        if self._ping():
            self._pinged_for = row.until
        return None

    def close(self) -> None:
        self._fetcher.close()

    def _ping(self) -> bool:
        """A ping that failed is repeated at the next look; the log says when that begins and when it ends."""
        try:
            answer = self._fetcher.get(self._url)
            reason = None if answer.status_code < BAD_STATUS else f"FLEET_PING_URL answered {answer.status_code}"
        except FETCH_ERRORS as error:
            reason = str(failure_of(error, "FLEET_PING_URL"))
        if reason is not None and not self._is_failing:
            logger.warning("no ping could be sent: %s", reason, extra={"event": "fleet_ping_failed"})
        elif reason is None and self._is_failing:
            logger.info("pings are sent again", extra={"event": "fleet_ping_sent"})
        self._is_failing = reason is not None
        return reason is None
