"""Every Redis key of the project: fire marks (which replica tries first), leases (running executions), named locks.

A Redis answer never writes a row and never ends an execution: it only saves the other replicas an attempt in Postgres,
which decides. A slow, empty or absent Redis therefore only costs time. Start at `Coordinator.mark_fires`.

key                                 value                     lifetime
fire:<schedule_id>:<epoch second>   <owner>                   mark_seconds; never renewed, never deleted (id: 32 digits)
lock:schedule:<schedule_id>         <owner>:<fencing token>   lease_seconds; renewed, deleted when the execution ended
lock:<resource_id>                  <instance_id>/<random>    the lock's timeout; renewed while held, deleted by release
check:<owner>                       <owner>                   one second
"""

import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from redis import RedisError
from redis.commands.core import Script

from config import get_settings
from database.clock import awake_or_not
from services.errors import Unavailable
from services.redis_client import CircuitBreaker, RedisClient, get_redis_client
from services.wording.durations import duration

logger = logging.getLogger(__name__)

MOST_MARKS_PER_CALL = 2_000  # 10 to 20 ms of Redis: all replicas call at once, and the last one waits 250 ms at most
POLL_SECONDS = 0.05
QUIET_SECONDS = 2.0  # an idle replica asks Redis this often whether it is there
REMIND_SECONDS = 60.0
RENEW_SHARE, RETRY_SHARE = 1 / 3, 1 / 10  # of a named lock's lifetime: until it is renewed, and after no answer

# In all scripts GET is a pcall: a key of another type belongs to another program and must not fail the whole batch.
# The keys of one call lie in one server: standalone or Sentinel, not Cluster.

# KEYS fires / ARGV owner, milliseconds -> per key 1: ours, 0: another owner's
# A mark that carries our name is ours: the reply of the call that set it was lost, and no other replica runs the fire.
MARK = """
local ours = {}
for i, key in ipairs(KEYS) do
  local set = redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2])
  ours[i] = (set or redis.pcall('GET', key) == ARGV[1]) and 1 or 0
end
return ours
"""

# KEYS leases / ARGV milliseconds, then per key '<owner>:<token>' -> per key 1: renewed, 2: taken, 0: another owner's
# A higher token replaces a lower one, never the reverse: Postgres gave it later. A value without a token is that of a
# DistributedLock and left alone.
HOLD = """
local function token(value)
  return type(value) == 'string' and tonumber(value:match(':(%d+)$')) or math.huge
end
local found = {}
for i, key in ipairs(KEYS) do
  local mine, held = ARGV[i + 1], redis.pcall('GET', key)
  if held == mine then
    redis.call('PEXPIRE', key, ARGV[1])
    found[i] = 1
  elseif not held or token(held) < token(mine) then
    redis.call('SET', key, mine, 'PX', ARGV[1])
    found[i] = 2
  else
    found[i] = 0
  end
end
return found
"""
RENEWED = 1

# KEYS locks / ARGV per key the value it must have -> how many were deleted
RELEASE = """
local deleted = 0
for i, key in ipairs(KEYS) do
  if redis.pcall('GET', key) == ARGV[i] then deleted = deleted + redis.call('DEL', key) end
end
return deleted
"""

# KEYS leases / ARGV per key the highest token that is over -> how many were deleted
CLEAR = """
local deleted = 0
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  local token = type(held) == 'string' and tonumber(held:match(':(%d+)$'))
  if token and token <= tonumber(ARGV[i]) then deleted = deleted + redis.call('DEL', key) end
end
return deleted
"""

# KEYS one lock / ARGV the value it must have, milliseconds -> 1: lives that long from now on, 0: not ours
EXTEND = """
return redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0
"""


class Answer(StrEnum):
    """Redis' answer about a fire. After UNKNOWN the replica asks Postgres."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals since the start of the process."""

    marks_won: int
    marks_lost: int
    marks_unknown: int
    renewals: int  # leases, not rounds
    lost_leases: int  # found gone or replaced by a renewal
    failures: int  # calls without a usable answer; not those that the open breaker spared


class Coordinator:
    """The batch operations of one replica. Thread-safe, raises no Redis error, waits at most one timeout per call.

    `owner` names the process. All held leases are kept here too, so that `renew` restores them after Redis was flushed
    or down; one thread calls it about every `lease_seconds` / 3.
    """

    def __init__(
        self,
        redis: RedisClient,
        *,
        owner: str,
        lease_seconds: float,
        mark_seconds: float,
        now: Callable[[], float] = awake_or_not,
    ) -> None:
        self._owner, self._where = owner, redis.where
        self._lease_ms, self._mark_ms = _milliseconds(lease_seconds), _milliseconds(mark_seconds)
        self._breaker, self._now = CircuitBreaker(now), now
        self._answered_at = now()
        self._degraded_at = self._reminded_at = 0.0
        self._mutex = threading.Lock()  # never held during a call
        self._held: dict[UUID, int] = {}
        self._counts = Counter({field.name: 0 for field in fields(Stats)})
        self.last_error: str | None = None
        register = redis.commands.register_script  # EVALSHA; loads the script into a Redis that does not know it (yet)
        self._mark_script, self._hold_script = register(MARK), register(HOLD)
        self._release_script, self._clear_script = register(RELEASE), register(CLEAR)

    def mark_fires(self, fires: Sequence[tuple[UUID, datetime]]) -> list[Answer]:
        """Whether each fire is this replica's to try; all in one round trip."""
        answers: list[Answer] = []
        for start in range(0, len(fires), MOST_MARKS_PER_CALL):
            answers += self._mark(fires[start : start + MOST_MARKS_PER_CALL])
        self._count(**{f"marks_{answer}": answers.count(answer) for answer in Answer})
        return answers

    def take_leases(self, leases: Mapping[UUID, int]) -> None:
        """Hold these (schedule, fencing token) until they are released; one that Redis refuses is tried by `renew`."""
        with self._mutex:
            for schedule_id, token in leases.items():
                self._held[schedule_id] = max(token, self._held.get(schedule_id, token))
        _log_leases("taken", leases)
        self._hold(leases)

    def release_leases(self, leases: Mapping[UUID, int]) -> None:
        """Let go of leases, if they are still ours. Without Redis they expire."""
        with self._mutex:
            for schedule_id, token in leases.items():
                if self._held.get(schedule_id) == token:
                    del self._held[schedule_id]
        _log_leases("released", leases)
        self._release(leases)

    def clear_leases(self, leases: Mapping[UUID, int]) -> None:
        """Delete the leases of a dead owner, whose tokens are known: a later one stays."""
        self._ask(self._clear_script, _lease_keys(leases), list(leases.values()))

    def renew(self) -> None:
        """Renew all leases in one round trip and take lost ones again; with none to renew, see whether Redis works."""
        with self._mutex:
            held = dict(self._held)
        found = self._hold(held) if held else ([] if self.check() else None)
        if found is None:
            return
        self._count(renewals=found.count(RENEWED), lost_leases=len(found) - found.count(RENEWED))
        with self._mutex:  # what was released during the call may have been taken again by it
            over = {schedule: token for schedule, token in held.items() if self._held.get(schedule) != token}
        self._release(over)

    def check(self) -> bool:
        """Does Redis accept writes right now? Asks in any case, and a yes ends the degraded state.

        Not a PING, which a Redis that is out of memory or a read-only replica answers gladly.
        """
        return self._ask(self._mark_script, [f"check:{self._owner}"], [self._owner, 1000], always=True) is not None

    def watch(self) -> None:
        """For a loop that calls it every second: sees also without any work that Redis is away, and that it is back."""
        if self.degraded or self._now() - self._answered_at >= QUIET_SECONDS:
            self.check()

    @property
    def degraded(self) -> bool:
        """The circuit breaker is open: Redis failed several times in a row and is only probed every few seconds."""
        return self._breaker.is_open

    def stats(self) -> Stats:
        with self._mutex:
            return Stats(**self._counts)

    def _mark(self, fires: Sequence[tuple[UUID, datetime]]) -> list[Answer]:
        keys = [f"fire:{schedule_id.hex}:{int(scheduled_for.timestamp())}" for schedule_id, scheduled_for in fires]
        ours = self._ask(self._mark_script, keys, [self._owner, self._mark_ms])
        if ours is None:
            return [Answer.UNKNOWN] * len(fires)
        return [Answer.WON if mine else Answer.LOST for mine in ours]

    def _hold(self, leases: Mapping[UUID, int]) -> list[int] | None:
        found: list[int] | None = self._ask(
            self._hold_script, _lease_keys(leases), [self._lease_ms, *self._values(leases)]
        )
        return found

    def _release(self, leases: Mapping[UUID, int]) -> None:
        self._ask(self._release_script, _lease_keys(leases), self._values(leases))

    def _values(self, leases: Mapping[UUID, int]) -> list[str]:
        return [f"{self._owner}:{token}" for token in leases.values()]

    def _ask(self, script: Script, keys: list[str], args: Sequence[str | int], *, always: bool = False) -> Any:
        """The script's result; None if there is nothing to ask for, or no usable answer."""
        if not keys or not (always or self._breaker.lets_through()):
            return None
        try:
            result = script(keys=keys, args=args)
        except (RedisError, OSError) as error:
            self._failed(error)
            return None
        self._succeeded()
        return result

    def _failed(self, error: Exception) -> None:
        self._count(failures=1)
        self.last_error = f"{type(error).__name__}: {error}"
        if self._breaker.failed():
            self._degraded_at = self._reminded_at = self._now()
            message = "Redis at %s is failing (%s): its answers count as unknown until it recovers"
            logger.warning(message, self._where, self.last_error, extra={"event": "redis_degraded"})
        elif self._breaker.is_open and self._is_time_to_remind():
            message, so_far = "Redis at %s has been failing for %s (%s)", duration(self._now() - self._degraded_at)
            logger.warning(message, self._where, so_far, self.last_error, extra={"event": "redis_still_degraded"})

    def _is_time_to_remind(self) -> bool:
        with self._mutex:
            due = self._now() - self._reminded_at >= REMIND_SECONDS
            if due:
                self._reminded_at = self._now()
            return due

    def _succeeded(self) -> None:
        self.last_error, self._answered_at = None, self._now()
        if self._breaker.succeeded():
            took = duration(self._now() - self._degraded_at)
            logger.info("Redis at %s works again after %s", self._where, took, extra={"event": "redis_recovered"})

    def _count(self, **more: int) -> None:
        with self._mutex:
            self._counts.update(more)


class DistributedLock:
    """Named locks of one holder; any of its threads may release them. Not re-entrant: a second acquire returns False.

    A lock is renewed while it is held, and expires `timeout` seconds after its holder is gone; with `renew=False` it
    always expires. `holds` tells whether the lock is certainly still ours; long-running work should check it regularly.

    Without an answer from Redis the methods raise `Unavailable`: False would mean that another holder has the lock.
    After such an acquire, `release` removes a key that may have been set; otherwise it expires.
    """

    def __init__(self, redis: RedisClient | None = None, instance_id: str | None = None) -> None:
        self._redis = redis or get_redis_client()
        self._instance_id = instance_id or get_settings().instance_id
        self._tokens: dict[str, str] = {}
        self._release_script = self._redis.commands.register_script(RELEASE)
        self._extend = partial(_extend, self._redis, self._redis.commands.register_script(EXTEND))
        self._held = HeldLocks(self._extend)

    @property
    def held(self) -> list[str]:
        """The locks that are surely ours right now."""
        return self._held.names

    def holds(self, resource_id: str) -> bool:
        """Is the lock surely still ours? False after it was lost, or could not be renewed in time."""
        return resource_id in self._held.names

    def acquire(
        self,
        resource_id: str,
        timeout: float = 60,
        blocking: bool = False,
        wait_timeout: float = 10.0,
        *,
        renew: bool = True,
    ) -> bool:
        """Take the lock; if blocking, try for `wait_timeout` seconds."""
        return self._acquire(resource_id, timeout, wait_timeout if blocking else 0.0, renew) is not None

    def release(self, resource_id: str) -> bool:
        """Release the lock; False if it was no longer ours."""
        token = self._tokens.get(resource_id)
        return token is not None and self._release(resource_id, token)

    def extend(self, resource_id: str, timeout: float = 60) -> bool:
        """Extend the lock to `timeout` seconds from now; False if it was no longer ours."""
        token, since = self._tokens.get(resource_id, ""), awake_or_not()
        is_ours = self._extend(resource_id, token, timeout)
        if is_ours:
            self._held.extended(resource_id, token, timeout, since)
        return is_ours

    @contextmanager
    def lock(
        self,
        resource_id: str,
        timeout: float = 60,
        blocking: bool = False,
        wait_timeout: float = 10.0,
        *,
        renew: bool = True,
    ) -> Iterator[bool]:
        """Yields whether the lock was acquired, and releases it if so."""
        token = self._acquire(resource_id, timeout, wait_timeout if blocking else 0.0, renew)
        try:
            yield token is not None
        finally:
            if token is not None:
                self._release_quietly(resource_id, token)

    def _acquire(self, resource_id: str, timeout: float, wait_seconds: float, renew: bool) -> str | None:
        token = f"{self._instance_id}/{uuid4().hex}"
        give_up_at = time.monotonic() + wait_seconds
        while True:
            since = awake_or_not()
            if self._set(resource_id, token, timeout):
                break
            left_seconds = give_up_at - time.monotonic()
            if left_seconds <= 0:
                self._log("lock_busy", "is held by another holder", resource_id)
                return None
            time.sleep(min(POLL_SECONDS, left_seconds))
        self._tokens[resource_id] = token
        self._held.add(resource_id, token, timeout, renews=renew, since=since)
        self._log("lock_acquired", f"acquired for {timeout:g} s", resource_id)
        return token

    def _set(self, resource_id: str, token: str, timeout: float) -> bool:
        try:
            with _answering(self._redis):
                return bool(self._redis.commands.set(f"lock:{resource_id}", token, nx=True, px=_milliseconds(timeout)))
        except Unavailable:
            self._tokens.setdefault(resource_id, token)
            raise

    def _release(self, resource_id: str, token: str) -> bool:
        self._held.drop(resource_id, token)  # first: whatever Redis answers, it is not renewed from now on
        with _answering(self._redis):
            released = bool(self._release_script(keys=[f"lock:{resource_id}"], args=[token]))
        if self._tokens.get(resource_id) == token:
            self._tokens.pop(resource_id, None)
        self._log("lock_released", "released" if released else "was no longer ours", resource_id)
        return released

    def _release_quietly(self, resource_id: str, token: str) -> None:
        """What the lock protected is done: that Redis is away now must not turn it into a failure."""
        try:
            self._release(resource_id, token)
        except Unavailable as error:
            logger.warning(
                "lock %r could not be released and will expire: %s",
                resource_id,
                error,
                extra={"event": "lock_not_released"},
            )

    def _log(self, event: str, what: str, resource_id: str) -> None:
        facts = {"event": event, "lock": resource_id, "instance_id": self._instance_id}
        logger.debug("lock %r %s", resource_id, what, extra=facts)


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
    """Renews named locks while they are held: one thread per holder renews each lock at a third of its lifetime.

    A holder trusts its lock for one lifetime, counted from before the call that took or renewed it. A holder that is
    gone (its process died, or its object was garbage-collected) renews nothing, and its locks expire. Thread-safe.
    `extend` must not reference the holder, or the holder could never be garbage-collected.
    """

    def __init__(self, extend: Extend) -> None:
        self._extend = extend
        self._mutex = threading.Lock()  # never held during a call
        self._held: dict[str, _Held] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

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
                self._thread = threading.Thread(
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


def _keep_renewing(reference: weakref.ref[HeldLocks], wake: threading.Event) -> None:
    while (locks := reference()) is not None:
        wake.clear()
        wait_seconds = locks.renew_due()
        if wait_seconds is None:
            return
        del locks  # while it waits, nothing here keeps the holder alive
        wake.wait(wait_seconds)


def _extend(redis: RedisClient, script: Script, resource_id: str, token: str, timeout: float) -> bool:
    lifetime = _milliseconds(timeout)
    try:
        with _answering(redis):
            return bool(script(keys=[f"lock:{resource_id}"], args=[token, lifetime]))
    except ValueError as error:  # what redis-py raises where another thread closed the connection meanwhile
        raise Unavailable("Redis", redis.where, str(error)) from error


@contextmanager
def _answering(redis: RedisClient) -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise Unavailable("Redis", redis.where, str(error)) from error


def _lease_keys(leases: Mapping[UUID, int]) -> list[str]:
    return [f"lock:schedule:{schedule_id}" for schedule_id in leases]


def _log_leases(what: str, leases: Mapping[UUID, int]) -> None:
    if leases and logger.isEnabledFor(logging.DEBUG):
        named = ", ".join(map(str, leases))
        logger.debug("leases %s: %s", what, named, extra={"event": f"leases_{what}", "count": len(leases)})


def _milliseconds(seconds: float) -> int:
    if seconds < 0.001:
        raise ValueError(f"a lifetime must be at least 0.001 seconds, got {seconds}")
    return int(seconds * 1000)
