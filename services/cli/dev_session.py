"""What every kind of `manage.py dev` needs: to be alone in its directory, and to end as by Ctrl-C."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.embedded.files import try_lock
from services.errors import ConfigurationError


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """One `dev` per directory: two would give their replicas the same names and write the same logs."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "dev.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(lock, fcntl.LOCK_EX):
            raise ConfigurationError(
                f"`manage.py dev` is already running in {directory.parent}; stop it, or set EMBEDDED_DIR"
            )
        yield
    finally:
        os.close(lock)


@contextmanager
def signals_like_ctrl_c() -> Iterator[None]:
    """SIGHUP (a closed terminal) and SIGTERM drain the replicas, too."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
