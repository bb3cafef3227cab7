"""The garbage collector, switched off while a process builds what stays: imports, loaded schedules."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection(*, freeze: bool = False) -> Iterator[None]:
    """Searching for garbage meanwhile costs a fifth of an import's time. `freeze` exempts what was built for good."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if freeze:
            gc.freeze()
        if was_on:
            gc.enable()
