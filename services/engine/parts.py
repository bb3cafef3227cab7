"""What a replica takes from outside, each as a factory: servers, clocks, threads, its port.

A program uses the defaults. The simulation (tests/proof/simulation/) gives others, and runs everything else as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

from config import Settings
from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from services.engine.stop_signal import StopSignal
from services.engine.threads import OF_THE_SYSTEM, Threads
from services.engine.timer import Timer
from services.redis_client import RedisClient
from services.telemetry.health import HealthServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    incarnation: Callable[[], UUID] = uuid4
    database: Callable[..., DatabaseConnection] = DatabaseConnection.from_settings
    redis: Callable[[Settings], RedisClient] = RedisClient.from_settings
    clock: Callable[[float], DatabaseClock] = DatabaseClock
    timer: Callable[..., Timer] = Timer
    health: Callable[..., HealthServer] = HealthServer
    signal: Callable[[Threads], StopSignal] = StopSignal
    threads: Threads = OF_THE_SYSTEM
