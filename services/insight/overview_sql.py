"""The statements of overview.py and forecast.py. Each reads a bounded part of the history, through its indexes.

They use now(), not clock_timestamp(): with a volatile limit the planner would read the whole history.
"""

from services.ledger.limits_sql import HAS_WAITED, WAITS_FOR_LIMIT

LABEL = "CASE WHEN job_id = schedule_id::text THEN domain ELSE job_id END"

# Executions created since then, by the minute in which they were due. What had to wait for a limit was not late.
MINUTES = f"""
SELECT date_trunc('minute', coalesce(due_at, scheduled_for)) AS at, status, count(*) AS executions,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
           ORDER BY date_part('epoch', started_at - coalesce(due_at, scheduled_for)))
           FILTER (WHERE started_at IS NOT NULL AND cause = 'schedule' AND attempt = 1 AND NOT {HAS_WAITED}) AS lateness
FROM job_executions AS e
WHERE created_at >= date_trunc('minute', now()) - make_interval(mins => %(minutes)s)
GROUP BY GROUPING SETS ((1, 2), (1))
ORDER BY 1
"""

PARKED = """
SELECT schedule_id, coalesce(name, domain) AS label, invalid_reason AS words, updated_at AS since
FROM schedules WHERE invalid_reason IS NOT NULL ORDER BY updated_at DESC LIMIT %(limit)s
"""

# The text comes from the newest failed execution, whatever happened since. A schedule whose fire is tried again has not
# failed yet, unless earlier fires did.
FAILING = """
SELECT s.schedule_id, coalesce(s.name, s.domain) AS label, coalesce(e.error_message, s.last_status) AS words,
       s.last_run AS since
FROM (SELECT * FROM schedules WHERE enabled AND last_status IN ('failed', 'timed_out', 'abandoned')
      ORDER BY last_run DESC NULLS LAST LIMIT %(limit)s) AS s
LEFT JOIN LATERAL (
    SELECT error_message FROM job_executions AS e
    WHERE e.schedule_id = s.schedule_id AND e.status IN ('failed', 'timed_out', 'abandoned')
    ORDER BY scheduled_for DESC, attempt DESC LIMIT 1) AS e ON true
WHERE s.failures_in_a_row > 0 OR NOT EXISTS (
    SELECT FROM job_executions AS again
    WHERE again.schedule_id = s.schedule_id AND coalesce(again.status, 't') = 'pending' AND again.attempt > 1
) AND NOT EXISTS (
    SELECT FROM job_executions AS again
    WHERE again.schedule_id = s.schedule_id AND again.status IN ('claimed', 'running') AND again.attempt > 1)
ORDER BY s.last_run DESC NULLS LAST
"""

# next_run advances when a fire is claimed: if it lies in the past, no replica has claimed the fire.
LATE = """
SELECT schedule_id, coalesce(name, domain) AS label, next_run AS since
FROM schedules
WHERE enabled AND invalid_reason IS NULL AND next_run < now() - make_interval(secs => %(seconds)s)
  AND next_run + make_interval(secs => spread_seconds + %(seconds)s) < now()
ORDER BY next_run LIMIT %(limit)s
"""

STUCK = f"""
SELECT e.execution_id, e.schedule_id, {LABEL} AS label, e.status, e.instance_id,
       coalesce(e.started_at, e.due_at) AS since
FROM job_executions AS e
WHERE e.status IN ('claimed', 'running') AND e.incarnation IS NOT NULL
  AND NOT EXISTS (SELECT FROM scheduler_instances AS i WHERE i.incarnation = e.incarnation
                  AND i.heartbeat_at > now() - make_interval(secs => %(seconds)s))
ORDER BY since LIMIT %(limit)s
"""

# A draining replica gives no reasons: it will stop soon.
IDLE = """
SELECT NULL::uuid AS schedule_id, instance_id AS label, facts->'not_claiming' AS reasons,
       (facts->>'not_claiming_since')::timestamptz AS since
FROM scheduler_instances
WHERE kind = 'replica' AND NOT claiming AND facts ? 'not_claiming'
  AND heartbeat_at > now() - make_interval(secs => %(seconds)s)
ORDER BY since LIMIT %(limit)s
"""

# The newest incarnation of each instance: a restarted replica is not reported.
SILENT = """
SELECT NULL::uuid AS schedule_id, instance_id AS label, heartbeat_at AS since
FROM (SELECT DISTINCT ON (instance_id) instance_id, heartbeat_at FROM scheduler_instances
      ORDER BY instance_id, heartbeat_at DESC) AS newest
WHERE heartbeat_at < now() - make_interval(secs => %(seconds)s)
  AND heartbeat_at > now() - make_interval(secs => %(gone)s)
ORDER BY heartbeat_at DESC LIMIT %(limit)s
"""

CIRCUITS = """
SELECT NULL::uuid AS schedule_id, 'queue ' || queue AS label, circuit, circuit_changed_at AS since
FROM workflow_queues WHERE circuit <> 'closed' ORDER BY circuit_changed_at LIMIT %(limit)s
"""

MOST_LETTERS = 1000
DEAD = f"""
SELECT NULL::uuid AS schedule_id, 'queue ' || queue AS label, count(*) AS letters,
       (array_agg(error ORDER BY died_at DESC))[1] AS error, max(died_at) AS since
FROM (SELECT queue, error, died_at FROM dead_letters
      WHERE requeued_at IS NULL AND died_at > now() - make_interval(hours => %(hours)s)
      ORDER BY died_at DESC LIMIT {MOST_LETTERS} + 1) AS lately
GROUP BY queue ORDER BY since DESC LIMIT %(limit)s
"""

PAUSED = """
SELECT NULL::uuid AS schedule_id, 'queue ' || queue AS label, coalesce(paused_by, 'an unknown user') AS paused_by,
       coalesce(paused_reason, 'no reason given') AS paused_reason, paused_at AS since
FROM workflow_queues WHERE paused_at IS NOT NULL ORDER BY paused_at LIMIT %(limit)s
"""

# Backfills wait for each other, and what waits for a limit is where it belongs.
WAITING = f"""
SELECT e.execution_id, e.schedule_id, {LABEL} AS label, e.due_at AS since
FROM job_executions AS e
WHERE e.status = 'pending' AND e.cause <> 'backfill' AND e.due_at < now() - make_interval(secs => %(seconds)s)
  AND NOT {WAITS_FOR_LIMIT}
ORDER BY e.due_at LIMIT %(limit)s
"""

TIMELINE = f"""
SELECT execution_id, schedule_id, {LABEL} AS label, coalesce(instance_id, '') AS instance_id, status, attempt,
       started_at, completed_at
FROM job_executions
WHERE created_at >= now() - make_interval(mins => %(minutes)s) AND started_at IS NOT NULL
ORDER BY created_at DESC LIMIT %(limit)s
"""

CALENDAR = """
SELECT (scheduled_for AT TIME ZONE %(timezone)s)::date AS day, status, count(*) AS executions
FROM job_executions
WHERE schedule_id = %(schedule_id)s AND scheduled_for >= now() - make_interval(days => %(days)s)
GROUP BY 1, 2
"""

# Typical durations from the newest part of the history, and the schedules due, grouped by timing.
DUE_WITHIN = """
WITH lately AS MATERIALIZED (
    SELECT schedule_id, duration_seconds FROM (
        SELECT schedule_id, duration_seconds, status FROM job_executions ORDER BY created_at DESC LIMIT %(sample)s
    ) AS newest WHERE status = 'success'
), typical AS MATERIALIZED (
    SELECT schedule_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_seconds) AS seconds
    FROM lately GROUP BY schedule_id
), otherwise AS (
    SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_seconds), 0) AS seconds FROM lately
)
SELECT s.frequency, s.time_config, s.timezone, s.start_at, s.end_at, s.spread_seconds,
       count(*) AS schedules, sum(coalesce(t.seconds, o.seconds))::float8 AS seconds,
       min(coalesce(s.name, s.domain)) AS label
FROM schedules AS s CROSS JOIN otherwise AS o LEFT JOIN typical AS t USING (schedule_id)
WHERE s.enabled AND s.invalid_reason IS NULL
  AND s.next_run < now() + make_interval(mins => %(minutes)s)
GROUP BY s.frequency, s.time_config, s.timezone, s.start_at, s.end_at, s.spread_seconds
"""
