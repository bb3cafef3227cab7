"""Fair queueing: rows of one site that arrive all at once take turns with rows of other sites. Pure.

A point of priority is worth ten minutes of waiting (`AGE_BOOST`). Each few rows that a site already has in the queue
cost its next row one point. The site is thereby processed at a rate, and rows of other sites that arrive later go in
between, not behind all of them. Without other sites no row waits: all rows are due, and only their order differs.
"""

from database.workflow_models import LEAST_PRIORITY


def priority_in_line(priority: int, before: int, per_point: int) -> int:
    """`before`: the number of queued rows of the same site and importance."""
    return max(LEAST_PRIORITY, priority - before // per_point)
