"""What became of a failed attempt's fire: one SQL expression for the lists and the counts.

People count fires. An attempt that failed and was followed by another one is not the end of its fire, and the next
attempt says how it went on: a success, one more failure, or one that waits or runs. A next attempt that was cancelled,
skipped or missed ran nothing, so it changes nothing. Of the failed attempts of a fire, exactly one (the last) is
followed by no failure: counted by it, each fire counts once.
"""

from enum import StrEnum


class Fate(StrEnum):
    """Of a fire with a failed attempt."""

    FAILED = "failed"  # for good: no attempt follows
    RECOVERED = "recovered"
    RETRYING = "retrying"


FAILED = "('failed', 'timed_out', 'abandoned')"
PASSED_OVER = "('cancelled', 'skipped', 'missed')"

# A subquery that cannot be pulled up into a join: the planner would read the whole history for an anti join. NULL for
# an execution that belongs to no schedule, which has no other attempt.
_NEXT = f"""(SELECT later.status FROM job_executions AS later
             WHERE later.schedule_id = job_executions.schedule_id
               AND later.scheduled_for = job_executions.scheduled_for AND later.attempt > job_executions.attempt
               AND later.status NOT IN {PASSED_OVER}
             ORDER BY later.attempt LIMIT 1)"""

# On a failed row of `job_executions` (without an alias); NULL if a later attempt failed, too.
FATE = f"""CASE coalesce({_NEXT}, 'none')
    WHEN 'none' THEN '{Fate.FAILED}' WHEN 'success' THEN '{Fate.RECOVERED}' WHEN 'pending' THEN '{Fate.RETRYING}'
    WHEN 'claimed' THEN '{Fate.RETRYING}' WHEN 'running' THEN '{Fate.RETRYING}' END"""


def has_fate(fate: Fate) -> str:
    """A condition on a failed row. A CASE, because the planner expects half of the rows to meet it: it goes through an
    index in the order of the list until a page is full. Of an equation it expects next to none, and sorts all failures.
    """
    return f"CASE WHEN {FATE} = '{fate}' THEN true ELSE false END"
