"""Calls code that is not ours: whatever it does, the answer is a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


def contained(call: Callable[[], T]) -> Returned[T] | Raised:
    """The single blind `except` of the project: a handler's sys.exit() and a callback's bug end here."""
    try:
        return Returned(call())
    except BaseException as error:  # noqa: BLE001 - see above
        return Raised(error)
