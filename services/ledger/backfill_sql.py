"""The statements of backfill.py. Each comment states the assumptions of its statement."""

from services.ledger.history_sql import LIVE

READ = """
SELECT frequency, time_config, timezone, start_at, end_at, spread_seconds, clock_timestamp() AS now
FROM schedules WHERE schedule_id = %(schedule_id)s
"""

# Schedules first, like every writer of several rows: no replica can claim one of its fires meanwhile.
LOCK = f"{READ} FOR NO KEY UPDATE"

# A younger snapshot than the lock. Fires without a row are not among the answer.
ATTEMPTS = f"""
SELECT scheduled_for, max(attempt) AS last, bool_or(status = 'success') AS succeeded,
       bool_or(status IN {LIVE}) AS is_open
FROM job_executions WHERE schedule_id = %(schedule_id)s AND scheduled_for = ANY(%(fires)s::timestamptz[])
GROUP BY scheduled_for
"""

# Pending rows are claimed in the order of due_at: a microsecond apart, so that the oldest fire runs first. A manual
# retry locks no schedule: of two requests for one attempt the unique key admits one.
INSERT = """
INSERT INTO job_executions
    (schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt, cause, status, priority, due_at, metadata)
SELECT s.schedule_id, coalesce(s.name, s.schedule_id::text), s.domain, s.domain_config_id, f.scheduled_for, f.attempt,
       'backfill', 'pending', s.priority, %(now)s::timestamptz + f.place * interval '1 microsecond',
       jsonb_build_object('requested_by', %(actor)s::text)
FROM schedules AS s, unnest(%(fires)s::timestamptz[], %(attempts)s::int[]) WITH ORDINALITY
     AS f (scheduled_for, attempt, place)
WHERE s.schedule_id = %(schedule_id)s
ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
RETURNING scheduled_for, attempt, execution_id
"""
