"""The statements of failures.py. They read the newest failed attempts only, through an index of what went wrong.

They use now(), not clock_timestamp(): with a volatile limit the planner would read the whole history.
"""

from services.insight.overview_sql import LABEL
from services.ledger.fate_sql import FAILED, FATE

_COLUMNS = f"""execution_id, schedule_id, {LABEL} AS label, status, created_at,
       coalesce(due_at, scheduled_for) AS due_at, left(coalesce(error_message, reason, status), 300) AS error"""


def _failures(condition: str, order: str) -> str:
    return f"""
SELECT {_COLUMNS}, {FATE} AS fate
FROM job_executions
WHERE status IN {FAILED} AND {condition}
ORDER BY {order} DESC LIMIT %(most)s
"""


LATELY = _failures("created_at >= now() - make_interval(hours => %(hours)s)", "created_at")
# By its fires, in whose order the index is; a fire of the window may have been run later.
OF_SCHEDULE = _failures(
    "schedule_id = %(schedule_id)s AND scheduled_for >= now() - make_interval(hours => %(hours)s)", "scheduled_for"
)

FATES = f"""
SELECT execution_id, {FATE} AS fate FROM job_executions
WHERE execution_id = ANY(%(ids)s::uuid[]) AND status IN {FAILED}
"""
