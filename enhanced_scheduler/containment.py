"""Calls user code: whatever it does, the call returns one value, once.

A call that forks returns in two processes. The child ends here: it has our queues, our tokens and our pipes, and would
continue with the next execution as if it were this process.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


Outcome: TypeAlias = Returned[T] | Raised


def contained(call: Callable[[], T]) -> Outcome[T]:
    """The single blind `except` of the project: a handler's sys.exit() and a callback's bug end here."""
    process = os.getpid()
    outcome = _outcome(call)
    if os.getpid() != process:
        os._exit(isinstance(outcome, Raised))  # at once: nothing of ours is flushed, closed or told a second time
    return outcome


def _outcome(call: Callable[[], T]) -> Outcome[T]:
    try:
        return Returned(call())
    except BaseException as error:  # noqa: BLE001 - see above
        return Raised(error)
