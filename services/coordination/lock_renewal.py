"""Renews named locks while they are held: one thread per holder renews each lock at a third of its lifetime.

A holder trusts its lock for one lifetime, counted from before the call that took or renewed it. A holder that is gone
(its process died, or its object was garbage-collected) renews nothing, and its locks expire.
"""

import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread

from database.clock import awake_or_not
from services.errors import Unavailable

logger = logging.getLogger(__name__)

RENEW_SHARE, RETRY_SHARE = 1 / 3, 1 / 10  # of the lifetime: until the next renewal, and after one without an answer

Extend = Callable[[str, str, float], bool]  # (name, token, lifetime in seconds) -> is it still ours? Raises Unavailable


@dataclass(slots=True)
class _Held:
    token: str
    lifetime_seconds: float
    renews: bool
    trusted_until: float
    renew_at: float

    def renewed(self, lifetime_seconds: float, since: float) -> None:
        self.lifetime_seconds = lifetime_seconds
        self.trusted_until, self.renew_at = since + lifetime_seconds, since + lifetime_seconds * RENEW_SHARE


class HeldLocks:
    """Thread-safe. `extend` must not reference the holder, or the holder could never be garbage-collected."""

    def __init__(self, extend: Extend) -> None:
        self._extend = extend
        self._mutex = Lock()  # never held during a call
        self._held: dict[str, _Held] = {}
        self._wake = Event()
        self._thread: Thread | None = None

    @property
    def names(self) -> list[str]:
        """Those that are surely ours right now."""
        now = awake_or_not()
        with self._mutex:
            return [name for name, held in self._held.items() if now < held.trusted_until]

    def add(self, name: str, token: str, lifetime_seconds: float, *, renews: bool, since: float) -> None:
        held = _Held(token, lifetime_seconds, renews, 0.0, 0.0)
        held.renewed(lifetime_seconds, since)
        with self._mutex:
            self._held[name] = held
            if renews and self._thread is None:
                self._thread = Thread(
                    target=_keep_renewing, args=(weakref.ref(self), self._wake), name="lock-renewal", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def extended(self, name: str, token: str, lifetime_seconds: float, since: float) -> None:
        with self._mutex:
            held = self._held.get(name)
            if held is not None and held.token == token:
                held.renewed(lifetime_seconds, since)
        self._wake.set()

    def drop(self, name: str, token: str) -> None:
        with self._mutex:
            held = self._held.get(name)
            if held is not None and held.token == token:
                del self._held[name]
        self._wake.set()

    # --- in the thread ---

    def renew_due(self) -> float | None:
        """Seconds until the next renewal; None: there is nothing to renew, and the thread ends."""
        now = awake_or_not()
        with self._mutex:
            due = [(name, held) for name, held in self._held.items() if held.renews and held.renew_at <= now]
        for name, held in due:
            self._renew(name, held)
        with self._mutex:
            waiting = [held.renew_at for held in self._held.values() if held.renews]
            if not waiting:
                self._thread = None
                return None
            return max(0.0, min(waiting) - awake_or_not())

    def _renew(self, name: str, held: _Held) -> None:
        since = awake_or_not()
        try:
            ours = self._extend(name, held.token, held.lifetime_seconds)
        except Unavailable as error:
            self._not_renewed(name, held, since, str(error))
            return
        with self._mutex:
            if self._held.get(name) is not held:
                return  # released meanwhile
            if ours:
                held.renewed(held.lifetime_seconds, since)
        if not ours:
            self._lost(name, held, "its key has expired or belongs to another holder")

    def _not_renewed(self, name: str, held: _Held, since: float, error: str) -> None:
        if since >= held.trusted_until:
            self._lost(name, held, error)
            return
        logger.warning(
            "lock %r could not be renewed: %s", name, error, extra={"event": "lock_not_renewed", "lock": name}
        )
        with self._mutex:
            held.renew_at = since + held.lifetime_seconds * RETRY_SHARE

    def _lost(self, name: str, held: _Held, reason: str) -> None:
        """The lock is not acquired again: another holder may have had it in the meantime."""
        with self._mutex:
            if self._held.get(name) is held:
                del self._held[name]
        logger.warning("lock %r was lost: %s", name, reason, extra={"event": "lock_lost", "lock": name})


def _keep_renewing(reference: weakref.ref[HeldLocks], wake: Event) -> None:
    while (locks := reference()) is not None:
        wake.clear()
        wait_seconds = locks.renew_due()
        if wait_seconds is None:
            return
        del locks  # while it waits, nothing here keeps the holder alive
        wake.wait(wait_seconds)
