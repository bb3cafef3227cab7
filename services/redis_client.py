"""The Redis client: one per process, which answers or fails within a quarter of a second; and its circuit breaker.

redis-py's defaults (5 s timeouts, ten retries) would block fires; a slow Redis is treated as absent. The breaker spares
fires even those timeouts while Redis is away; the fleet's publisher has one for its broker.
"""

import logging
import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from config import Settings, get_settings, masked
from database.backoff import Backoff
from database.clock import awake_or_not
from services.embedded.servers import redis_url
from services.errors import ConfigurationError, Unavailable

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.25
MAX_CONNECTIONS = 50
FAILURES_UNTIL_OPEN = 3
PAUSES = Backoff(first_seconds=1.0, longest_seconds=5.0, jitter=0.0)


class RedisClient:
    """A connection pool with health checks; `commands` is the redis-py client itself."""

    def __init__(self, url: str, *, client_name: str = "enhanced-scheduler") -> None:
        self.where = masked(url)
        self.commands = _connect(url, client_name)

    @classmethod
    def from_settings(cls, settings: Settings) -> "RedisClient":
        return cls(redis_url(settings), client_name=settings.instance_id)

    def ping(self) -> bool:
        """Does Redis answer right now?"""
        try:
            return bool(self.commands.ping())
        except redis.RedisError as error:
            logger.warning("Redis at %s: %s", self.where, error, extra={"event": "redis_unreachable"})
            return False

    def version(self) -> str:
        return str(self._info()["redis_version"])

    def time_seconds(self) -> float:
        """Redis' own clock, as seconds since the epoch."""
        try:
            seconds, microseconds = self.commands.time()
        except redis.RedisError as error:
            raise Unavailable("Redis", self.where, str(error)) from error
        return float(seconds) + float(microseconds) / 1_000_000

    def close(self) -> None:
        self.commands.close()
        finder: Sentinel | None = getattr(self.commands.connection_pool, "sentinel_manager", None)
        for sentinel in finder.sentinels if finder else ():
            sentinel.close()

    def _info(self) -> dict[str, Any]:
        try:
            return dict(self.commands.info("server"))
        except redis.RedisError as error:
            raise Unavailable("Redis", self.where, str(error)) from error


def _connect(url: str, client_name: str) -> redis.Redis:
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "client_name": re.sub(r"[^!-~]", "-", client_name),  # Redis takes nothing else in a name
    }
    if "+sentinel://" in url:
        return _through_sentinel(url, options)
    if url.startswith("unix://"):
        del options["socket_connect_timeout"]  # a local socket connects or fails at once
    try:
        client = redis.Redis.from_url(url, max_connections=MAX_CONNECTIONS, **options)
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)  # knows its options
    except (ValueError, TypeError, redis.RedisError) as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        reason = f"has no option {unknown[1]!r}" if unknown else str(error)
        raise ConfigurationError(f"REDIS_URL={masked(url)!r}: {reason}") from None
    return client


def _through_sentinel(url: str, options: dict[str, Any]) -> redis.Redis:
    """`redis+sentinel://[user:password@]host:port[,host:port…]/service[?db=0]`"""
    parts = urlsplit(url)
    service = parts.path.strip("/")
    if not service:
        raise ConfigurationError(
            f"REDIS_URL={masked(url)!r}: the service name is missing, as in redis+sentinel://host:26379/mymaster"
        )
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    try:
        sentinels = [(host, int(port or 26379)) for host, _, port in (item.partition(":") for item in hosts.split(","))]
        number = int(parse_qs(parts.query).get("db", ["0"])[0])
    except ValueError:
        raise ConfigurationError(f"REDIS_URL={masked(url)!r}: ports and db must be numbers") from None
    sentinel = Sentinel(sentinels, sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # redis-py has no types here
    client: redis.Redis = sentinel.master_for(  # type: ignore[no-untyped-call]
        service,
        db=number,
        username=unquote(user) or None,
        password=unquote(password) or None,
        ssl=parts.scheme.startswith("rediss"),
        max_connections=MAX_CONNECTIONS,
        **options,
    )
    return client


@cache
def get_redis_client() -> RedisClient:
    """The Redis client of this process."""
    return RedisClient.from_settings(get_settings())


class CircuitBreaker:
    """Stops calling a server after several consecutive failures; then one probe per pause passes, until one succeeds.

    Pauses double up to a maximum. Thread-safe; `now` is a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = awake_or_not) -> None:
        self._now = now
        self._mutex = threading.Lock()
        self._failures = 0
        self._pauses = 0  # since it opened
        self._probe_at = 0.0
        self.is_open = False

    def lets_through(self) -> bool:
        with self._mutex:
            if not self.is_open:
                return True
            if self._now() < self._probe_at:
                return False
            # Set before the probe's outcome is known: a probe that never reports must not prevent the next one.
            self._pause()
            return True

    def failed(self) -> bool:
        """True if this failure opened the circuit."""
        with self._mutex:
            self._failures += 1
            if self.is_open or self._failures < FAILURES_UNTIL_OPEN:
                return False
            self.is_open, self._pauses = True, 0
            self._pause()
            return True

    def succeeded(self) -> bool:
        """True if this success closed the circuit."""
        with self._mutex:
            was_open, self.is_open, self._failures = self.is_open, False, 0
            return was_open

    def _pause(self) -> None:
        self._pauses += 1
        self._probe_at = self._now() + PAUSES.after(self._pauses)
