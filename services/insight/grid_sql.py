"""The statement of grid.py: which schedules, and their last fires. What it reads of the history is bounded."""

from services.ledger.fate_sql import FAILED

_TROUBLE = FAILED.replace(")", ", 'missed')")

# Those whose last run failed or that have missed a fire since, those with a failed attempt or a missed fire in the
# window, and those that ran last; in this order: what retries mend all the time must not hide what was missed once.
# Without an index by last_status (docs/decisions.md): the table is read once. The fires of each come from its unique
# key, the last attempt of each fire first, until there are enough.
GRID = f"""
WITH failing AS MATERIALIZED (
    SELECT schedule_id, last_run AS at FROM schedules
    WHERE enabled AND last_status IN {FAILED} ORDER BY last_run DESC NULLS LAST LIMIT %(schedules)s
), missing AS MATERIALIZED (
    SELECT newest.schedule_id, max(newest.created_at) AS at FROM (
        SELECT schedule_id, created_at FROM job_executions
        WHERE status = 'missed' AND created_at >= now() - make_interval(hours => %(hours)s)
        ORDER BY created_at DESC LIMIT %(looked_at)s
    ) AS newest JOIN schedules AS s USING (schedule_id)
    WHERE s.enabled AND (s.last_run IS NULL OR s.last_run < newest.created_at) GROUP BY newest.schedule_id
), troubled AS MATERIALIZED (
    SELECT schedule_id, max(created_at) AS at FROM (
        SELECT schedule_id, created_at FROM job_executions
        WHERE status IN {_TROUBLE} AND created_at >= now() - make_interval(hours => %(hours)s)
        ORDER BY created_at DESC LIMIT %(looked_at)s
    ) AS newest GROUP BY schedule_id
), lately AS MATERIALIZED (
    SELECT schedule_id, max(created_at) AS at FROM (
        SELECT schedule_id, created_at FROM job_executions ORDER BY created_at DESC LIMIT %(looked_at)s
    ) AS newest GROUP BY schedule_id
), ranked AS (
    SELECT schedule_id, min(place) AS place, max(at) AS at FROM (
        SELECT schedule_id, 0 AS place, at FROM failing
        UNION ALL SELECT schedule_id, 0, at FROM missing
        UNION ALL SELECT schedule_id, 1, at FROM troubled
        UNION ALL SELECT schedule_id, 2, at FROM lately
    ) AS found GROUP BY schedule_id
), chosen AS MATERIALIZED (
    SELECT s.schedule_id, coalesce(s.name, s.domain) AS label, r.place, r.at
    FROM ranked AS r JOIN schedules AS s USING (schedule_id)
    ORDER BY r.place, r.at DESC NULLS LAST LIMIT %(schedules)s
)
SELECT c.schedule_id, c.label, f.execution_id, f.scheduled_for, f.status, f.attempt, f.duration_seconds, f.why
FROM chosen AS c CROSS JOIN LATERAL (
    SELECT DISTINCT ON (e.scheduled_for) e.execution_id, e.scheduled_for, e.status, e.attempt, e.duration_seconds,
           left(coalesce(e.error_message, e.reason, ''), 160) AS why
    FROM job_executions AS e WHERE e.schedule_id = c.schedule_id
    ORDER BY e.scheduled_for DESC, e.attempt DESC LIMIT %(fires)s
) AS f
ORDER BY c.place, c.at DESC NULLS LAST, c.schedule_id, f.scheduled_for DESC
"""
