"""Transactions that are tried again: a deadlock's victim, and one that waited too long for another session's rows."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, sqlstate

DEADLOCK_RETRIES = 5
CAREFUL_SECONDS = 10.0  # after a lock timeout: rows that another session holds are looked for before they are written

T = TypeVar("T")


class CarefulRetries:
    """For one thread."""

    def __init__(self) -> None:
        self._careful_until = 0.0

    def __call__(self, transaction: Callable[[bool], T]) -> T:
        """A deadlock's victim wrote nothing: the same again is safe.

        After a lock timeout the transaction is `careful`: it leaves out the rows that another session holds.
        """
        for _ in range(DEADLOCK_RETRIES):
            careful = time.monotonic() < self._careful_until
            try:
                return transaction(careful)
            except DBAPIError as error:
                code = sqlstate(error)
                if code == LOCK_TIMEOUT and not careful:
                    self._careful_until = time.monotonic() + CAREFUL_SECONDS
                elif code not in DEADLOCKS:
                    raise
        return transaction(True)
