"""Transactions that write schedules: recorded under the actor's name, and retried after a lost race."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from services.errors import InvalidSchedule, Problem

# Fires wait while their schedules are locked, so a bulk save never locks more rows than this at once.
ROWS_PER_COMMIT = 1000
# A deadlock, a lock timeout, or a unique key that another session inserted first: the transaction decides again on the
# current rows.
LOST_RACES = ("40P01", "55P03", "23505")
ATTEMPTS = 6

T = TypeVar("T")


def write_as(db: DatabaseConnection, actor: str, work: Callable[[Connection], T]) -> T:
    """One transaction whose changes are recorded under the actor's name; retried after a lost race."""
    attempt = 0
    while True:
        attempt += 1
        try:
            with db.transaction() as connection:
                connection.execute(select(func.set_config("scheduler.actor", actor, True)))
                return work(connection)
        except DBAPIError as error:
            if getattr(error.orig, "pgcode", None) not in LOST_RACES or attempt == ATTEMPTS:
                raise _as_problem(error) from error
        time.sleep(random.uniform(0, 0.05 * attempt))  # noqa: S311 - jitter between competing writers


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
