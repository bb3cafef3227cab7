"""Startup of a replica waits for a database that is only busy: a table locked by a migration, a starting server.

Every other problem ends startup at once, in one line: no schema, no privileges, a wrong password, no server at the
address. An operator sees what to fix; an orchestrator starts the replica again.
"""

import logging
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from services.errors import SchedulerError, Unavailable
from services.wording.refusals import first_line, is_busy

logger = logging.getLogger(__name__)

# Most migrations hold a table for less, and no orchestrator gives up a start so early (systemd: 90 s).
START_PATIENCE_SECONDS = 30.0
AGAIN_SECONDS = 0.5


class StartInterrupted(SchedulerError):
    """A stop was requested during startup."""

    def __init__(self) -> None:
        super().__init__("the replica was stopped before it had started")


class StartPatience:
    """Calls the steps of one startup. `pause` waits for a number of seconds and tells whether a stop was requested."""

    def __init__(self, pause: Callable[[float], bool]) -> None:
        self._pause = pause
        self._until = time.monotonic() + START_PATIENCE_SECONDS
        self._has_answered = self._has_told = False

    def __call__(self, step: Callable[[], object]) -> None:
        """Repeats a repeatable step until it succeeds, the time is over, or a stop is requested."""
        while True:
            try:
                step()
            except (DBAPIError, Unavailable) as error:
                if time.monotonic() > self._until or not self._will_pass(error):
                    raise
                self._tell(error)
            else:
                self._has_answered = True
                return
            if self._pause(AGAIN_SECONDS):
                raise StartInterrupted

    def _will_pass(self, error: DBAPIError | Unavailable) -> bool:
        """A server that answered before is probably restarting; one that never did may be at a wrong address."""
        if isinstance(error, DBAPIError):
            self._has_answered = True
        return is_busy(error) or (self._has_answered and isinstance(error, Unavailable))

    def _tell(self, error: DBAPIError | Unavailable) -> None:
        if not self._has_told:
            self._has_told = True
            logger.warning(
                "the database is busy; startup waits for up to %.0f s: %s",
                START_PATIENCE_SECONDS,
                first_line(error),
                extra={"event": "start_waits"},
            )
