"""Usage of the places API's quota: every request counts, whatever its outcome.

A process counts in memory and adds its count to `place_requests` periodically: the requesting threads have no
connection.
"""

from collections import Counter
from threading import Lock
from typing import Literal

from sqlalchemy import select, text

from database.connection import DatabaseConnection
from database.workflow_models import PlaceRequests
from services.telemetry import metrics

Operation = Literal["details", "search"]
Used = dict[tuple[str, str], int]  # (api, operation) -> requests

_lock = Lock()
_unwritten: Counter[tuple[str, str]] = Counter()


def request_sent(api: str, operation: Operation) -> None:
    metrics.places_request(api, operation)
    with _lock:
        _unwritten[api, operation] += 1


def write_usage(db: DatabaseConnection) -> None:
    """Add this process's usage since the last call. Raises Unavailable, without losing the count."""
    with _lock:
        used = dict(_unwritten)
        _unwritten.clear()
    try:
        if used:
            with db.transaction() as connection:
                for (api, operation), count in sorted(used.items()):
                    connection.execute(ADD, {"api": api, "operation": operation, "count": count})
    except BaseException:
        with _lock:
            _unwritten.update(used)
        raise


def used_today(db: DatabaseConnection) -> Used:
    """By all processes, since midnight UTC."""
    columns = PlaceRequests.api, PlaceRequests.operation, PlaceRequests.requests
    with db.transaction() as connection:
        rows = connection.execute(select(*columns).where(PlaceRequests.day == TODAY))
        return {(api, operation): count for api, operation, count in rows}


def forget_usage(db: DatabaseConnection, days: int) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "DELETE FROM place_requests WHERE day < current_date - %(days)s::int", {"days": days}
        )


TODAY = text("(clock_timestamp() AT TIME ZONE 'UTC')::date")
ADD = text(
    """
    INSERT INTO place_requests AS known (day, api, operation, requests)
    VALUES ((clock_timestamp() AT TIME ZONE 'UTC')::date, :api, :operation, :count)
    ON CONFLICT (day, api, operation) DO UPDATE SET requests = known.requests + excluded.requests
    """
)
