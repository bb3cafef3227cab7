"""Transactions that write: recorded under the actor's name, retried after a lost race; deletion in batches."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from database.backoff import Backoff
from database.connection import DatabaseConnection
from database.sqlstates import LOST_RACES, sqlstate
from services.errors import InvalidSchedule, Problem

# Fires wait while their schedules are locked, so a bulk save never locks more rows than this at once.
ROWS_PER_COMMIT = 1000
ATTEMPTS = 6
PAUSES = Backoff(first_seconds=0.025, longest_seconds=0.125, jitter=1.0)  # the losers of one race meet no more

T = TypeVar("T")


def write_as(db: DatabaseConnection, actor: str, work: Callable[[Connection], T]) -> T:
    """One transaction whose changes are recorded under the actor's name; repeated when it lost a race."""

    def transaction() -> T:
        with db.transaction() as connection:
            connection.execute(select(func.set_config("scheduler.actor", actor, True)))
            return work(connection)

    try:
        return again_if_lost(transaction)
    except DBAPIError as error:
        raise _as_problem(error) from error


def again_if_lost(transaction: Callable[[], T], races: Collection[str] = LOST_RACES) -> T:
    """Repeats a transaction that lost a race: the decision is made again, on the present rows."""
    for attempt in range(1, ATTEMPTS):
        try:
            return transaction()
        except DBAPIError as error:
            if sqlstate(error) not in races:
                raise
        time.sleep(PAUSES.after(attempt))
    return transaction()


def delete_in_batches(
    db: DatabaseConnection, statement: str, values: Mapping[str, Any], on_progress: Callable[[int], None] | None = None
) -> int:
    """Deletes until nothing is left, each batch in its own transaction; `on_progress` receives the number so far.

    The statement returns the number of rows as `n` and its last position as `place`, which the next batch gets as
    `since`: otherwise each batch would step over the dead entries of all former ones.
    """
    total, since = 0, values["since"]
    while True:
        with db.transaction() as connection:
            deleted = connection.exec_driver_sql(statement, {**values, "since": since}).one()
        if not deleted.n:
            return total
        total, since = total + deleted.n, deleted.place
        if on_progress:
            on_progress(total)


def _as_problem(error: DBAPIError) -> Exception:
    """The unique key still conflicts after all attempts: report it like a key that existed from the start."""
    match getattr(getattr(error.orig, "diag", None), "constraint_name", None):
        case "schedules_name_key":
            return InvalidSchedule(Problem("name", "is already used by another schedule"))
        case "schedules_api_domain_config_id_key":
            return InvalidSchedule(Problem("domain_config_id", "already has a schedule from the API"))
        case "schedules_pkey":
            return InvalidSchedule(Problem("schedule_id", "already exists"))
        case "schedules_profile_id_fkey":
            return InvalidSchedule(Problem("profile_id", "scan profile not found"))
        case _:
            return error
