"""Background loops, all of one form: a tick that may be called at any time, an interval, and the time of last progress.

A loop survives every exception; liveness means that every loop made progress recently. A loop whose ticks fail
repeatedly reports it (`trouble`), pauses longer each time, and logs one traceback, then only a count.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from database.backoff import Backoff
from services.engine.threads import OF_THE_SYSTEM, Threads
from services.errors import Unavailable

logger = logging.getLogger(__name__)

AFTER_FAILURE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 4.0  # when the cause is gone, the loop notices within this time
FAILURES_IN_A_ROW = 3  # so many are trouble, and not bad luck
OUTAGE_PATIENCE_SECONDS = 5.0  # a server that restarts is no trouble of ours
REMIND_SECONDS = 60.0


class Outages:
    """Servers that do not answer, logged once for all loops: at the start, every minute, and at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # by server
        self._told_at: dict[str, float] = {}
        self._waiting: dict[str, set[str]] = {}  # the loops

    def waits(self, loop: str, error: Unavailable) -> None:
        now = time.monotonic()
        with self._lock:
            waiting = self._waiting.setdefault(error.server, set())
            waiting.add(loop)
            since = self._since.setdefault(error.server, now)
            if now < self._told_at.get(error.server, 0.0) + REMIND_SECONDS:
                return
            self._told_at[error.server] = now
            loops = ", ".join(sorted(waiting))
        lasts = f" for {now - since:.0f} s" if now > since else ""
        logger.warning("%s waiting%s: %s", loops, lasts, error, extra={"event": "server_unavailable"})

    def answered(self, loop: str) -> None:
        if not self._waiting:
            return
        with self._lock:
            over = []
            for server, waiting in list(self._waiting.items()):
                waiting.discard(loop)
                if not waiting:
                    over.append((server, time.monotonic() - self._since.pop(server)))
                    del self._waiting[server], self._told_at[server]
        for server, seconds in over:
            logger.warning("%s answers again after %.1f s", server, seconds, extra={"event": "server_available"})


class Loop:
    """Calls `tick` every `interval_seconds`, at once when woken, and earlier if the tick returns an earlier time.

    `on_turn` is called when `trouble` begins or ends. `is_proof` tells, after a successful tick, whether it did what
    failed before: a tick that had nothing to do does not end a series of failures.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], float | None],
        interval_seconds: float,
        patience_seconds: float = 30.0,
        *,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
        outages: Outages | None = None,
        on_turn: Callable[[], None] = lambda: None,
        is_proof: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name, self._tick, self.interval_seconds = name, tick, interval_seconds
        self._patience, self._longest_pause = patience_seconds, longest_pause_seconds
        self._outages, self._on_turn, self._is_proof = outages or Outages(), on_turn, is_proof
        self._progress_at = time.monotonic()
        self._failures, self._failing_since, self._told_at, self._told = 0, 0.0, 0.0, ""
        self.trouble: str | None = None  # why its ticks fail, once they have failed a few times in a row
        self._use(OF_THE_SYSTEM)

    def join(
        self, outages: Outages, longest_pause_seconds: float, on_turn: Callable[[], None], threads: Threads
    ) -> None:
        """The other loops of the process, before the start: an outage is logged once for all of them."""
        self._outages, self._longest_pause, self._on_turn = outages, longest_pause_seconds, on_turn
        self._use(threads)

    def _use(self, threads: Threads) -> None:
        self._threads = threads
        self._wake, self._stopping = threads.event(), threads.event()
        self._thread = threads.thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._progress_at = time.monotonic()
        self._thread.start()

    def wake(self) -> None:
        if not self._wake.is_set():  # else the next tick is on its way, and looks after it has cleared this
            self._wake.set()

    def stop(self, timeout_seconds: float | None = 10.0) -> bool:
        """Says whether it has ended by then."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not self._threads.current():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def stalled_seconds(self) -> float:
        """How long ago the last tick ended."""
        return time.monotonic() - self._progress_at

    @property
    def is_live(self) -> bool:
        return self._thread.is_alive() and self.stalled_seconds() < self.interval_seconds + self._patience

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            wait_seconds = self._tick_safely()
            self._progress_at = time.monotonic()
            self._wake.wait(wait_seconds)

    def _tick_safely(self) -> float:
        try:
            sooner = self._tick()
        except Unavailable as error:
            self._note_failure(str(error), OUTAGE_PATIENCE_SECONDS)
            self._outages.waits(self.name, error)
            pause_seconds = AFTER_FAILURE_SECONDS
        except Exception as error:  # noqa: BLE001 - logged by `_report`
            self._note_failure(_first_line(error), 0.0)
            self._report(error)
            pauses = Backoff(first_seconds=AFTER_FAILURE_SECONDS, longest_seconds=self._longest_pause, jitter=0.0)
            pause_seconds = pauses.after(self._failures)
        else:
            if self._failures == 0 or self._is_proof():
                self._note_success()
            return self.interval_seconds if sooner is None else min(sooner, self.interval_seconds)
        self._progress_at = time.monotonic()
        self._stopping.wait(pause_seconds)  # not woken by new work: that would be a busy loop
        return 0.0

    # --- failures in a row ---

    def _note_failure(self, reason: str, patience_seconds: float) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since if self._failures else now
        self._failures += 1
        if self._failures >= FAILURES_IN_A_ROW and now - self._failing_since >= patience_seconds:
            self._turn(reason)

    def _note_success(self) -> None:
        self._outages.answered(self.name)
        if self._failures == 0:
            return
        if self._told:
            facts = {"event": "loop_recovered", "loop": self.name, "failures": self._failures}
            seconds = time.monotonic() - self._failing_since
            logger.info("%s works again, after %d failures in %.0f s", self.name, self._failures, seconds, extra=facts)
        self._failures, self._told = 0, ""
        self._turn(None)

    def _turn(self, trouble: str | None) -> None:
        turns = (self.trouble is None) != (trouble is None)
        self.trouble = trouble
        if turns:
            self._on_turn()

    def _report(self, error: Exception) -> None:
        """With its traceback the first time, and when it is another one; else its count, now and then."""
        now, kind = time.monotonic(), type(error).__name__
        facts = {"event": "loop_failed", "loop": self.name, "failures": self._failures}
        if kind != self._told:
            logger.exception("%s failed; it continues", self.name, extra=facts)
        elif _is_power_of_two(self._failures) or now >= self._told_at + REMIND_SECONDS:
            line = _first_line(error)
            logger.error("%s failed %d times in a row and continues: %s", self.name, self._failures, line, extra=facts)
        else:
            return
        self._told_at, self._told = now, kind


class Loops:
    """The loops of one process, created by their parts; here they are started, stopped and looked up by name."""

    def __init__(self, longest_pause_seconds: float = LONGEST_PAUSE_SECONDS, threads: Threads = OF_THE_SYSTEM) -> None:
        self._loops: dict[str, Loop] = {}
        self._outages, self._longest_pause, self._threads = Outages(), longest_pause_seconds, threads

    def __iter__(self) -> Iterator[Loop]:
        return iter(self._loops.values())

    def add(self, loops: Iterable[Loop], on_turn: Callable[[], None]) -> None:
        """`on_turn` is called when the trouble of one of them begins or ends."""
        for loop in loops:
            loop.join(self._outages, self._longest_pause, on_turn, self._threads)
            self._loops[loop.name] = loop

    def start(self) -> None:
        for loop in self:
            loop.start()

    def stop(self, *names: str) -> bool:
        """Stop the loops of these names, or all. False if one hangs in a call: what it uses must not be closed."""
        ended = [loop.stop() for loop in self if not names or loop.name in names]
        return all(ended)

    def wake(self, name: str) -> None:
        self._loops[name].wake()

    def trouble(self, name: str) -> str | None:
        return self._loops[name].trouble


def _first_line(error: Exception) -> str:
    """Of what Postgres said, where SQLAlchemy has wrapped it together with the statement."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {cause}".partition("\n")[0]


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
