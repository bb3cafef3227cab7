"""Rows of one site that come all at once take turns with everybody else's. Pure.

A point of priority is worth ten minutes of waiting (`AGE_BOOST`). A site whose next row has a point less whenever a few
more of its own wait before it has its place at a rate: whoever comes later goes in between, not behind all of them.
With nobody else there, nobody waits: all rows are due, and only their order says whose turn it is.
"""

from database.workflow_models import LEAST_PRIORITY


def priority_in_line(priority: int, before: int, per_point: int) -> int:
    """`before`: how many rows of the same site and importance wait already."""
    return max(LEAST_PRIORITY, priority - before // per_point)
