"""The statements of job_history.py and retention.py. Each comment states the assumptions of its statement."""

from services.ledger.limits_sql import HAS_WAITED
from services.ledger.verdicts import Reason

LIVE = "('pending', 'claimed', 'running')"
FAILED = "('failed', 'timed_out', 'abandoned')"
RAN = "('success', 'failed', 'timed_out', 'abandoned')"

# Overlaps with an execution that had its place then, and was given up later because its replica was gone. Found by
# status and age: a schedule that fires every second has thousands of other rows, but few executions are given up. One
# that was made more than a day before is only named by explain.
BEHIND_THE_GONE = """
SELECT DISTINCT skipped.execution_id FROM job_executions AS skipped JOIN job_executions AS gone
  ON gone.schedule_id = skipped.schedule_id
 AND gone.claimed_at <= coalesce(skipped.completed_at, skipped.created_at)
 AND gone.completed_at > coalesce(skipped.completed_at, skipped.created_at)
WHERE skipped.execution_id = ANY(%(ids)s::uuid[]) AND gone.status = 'abandoned'
  AND gone.created_at > %(first)s::timestamptz - interval '1 day' AND gone.created_at <= %(last)s
"""

# The keys are the answer's, in its order. What ran counts for durations; only an ordinary first attempt can be late,
# unless it had to wait for a limit.
# now(), not clock_timestamp(): for a volatile limit the planner would read the whole history.
STATISTICS = f"""
WITH chosen AS (
    SELECT status,
           CASE WHEN status IN {RAN} THEN duration_seconds END AS duration,
           CASE WHEN cause = 'schedule' AND attempt = 1 AND NOT {HAS_WAITED}
                THEN date_part('epoch', started_at - coalesce(due_at, scheduled_for)) END AS lateness
    FROM job_executions AS e WHERE created_at >= now() - make_interval(days => %(days)s)
), counted AS (
    SELECT count(*) FILTER (WHERE status = 'success') AS successful,
           count(*) FILTER (WHERE status IN {FAILED}) AS failed,
           avg(duration) AS avg_duration, min(duration) AS min_duration, max(duration) AS max_duration,
           count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE status = 'skipped') AS skipped,
           count(*) FILTER (WHERE status = 'missed') AS missed,
           count(*) FILTER (WHERE status = 'abandoned') AS abandoned,
           count(*) FILTER (WHERE status = 'timed_out') AS timed_out,
           count(*) FILTER (WHERE status IN ('claimed', 'running')) AS running,
           percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY duration) AS durations,
           percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY lateness) AS latenesses
    FROM chosen
)
SELECT successful + failed AS total_executions, successful, failed,
       coalesce(100.0::float8 * successful / nullif(successful + failed, 0), 0) AS success_rate,
       coalesce(avg_duration, 0) AS avg_duration, coalesce(min_duration, 0) AS min_duration,
       coalesce(max_duration, 0) AS max_duration,
       cancelled, skipped, missed, abandoned, timed_out, running,
       coalesce(durations[1], 0) AS p50_duration, coalesce(durations[2], 0) AS p95_duration,
       coalesce(durations[3], 0) AS p99_duration,
       coalesce(latenesses[1], 0) AS p50_lateness, coalesce(latenesses[2], 0) AS p99_lateness
FROM counted
"""

# Without an owner: no replica rescues it. What is not given is taken from the schedule, if there is one.
START_OWN = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, started_at, cause, due_at, metadata)
SELECT w.schedule_id, coalesce(w.job_id, s.name, w.schedule_id::text, w.domain), coalesce(w.domain, s.domain),
       coalesce(w.domain_config_id, s.domain_config_id, w.schedule_id, gen_random_uuid()),
       'running', clock_timestamp(), 'manual', clock_timestamp(), w.metadata
FROM (SELECT %(schedule_id)s::uuid, %(job_id)s::text, %(domain)s::text, %(domain_config_id)s::uuid, %(metadata)s::jsonb)
     AS w (schedule_id, job_id, domain, domain_config_id, metadata)
LEFT JOIN schedules AS s ON s.schedule_id = w.schedule_id
WHERE coalesce(w.domain, s.domain) IS NOT NULL
RETURNING execution_id
"""

# Only rows of START_OWN: what a replica runs is fenced and ended by that replica alone.
COMPLETE_OWN = """
UPDATE job_executions SET
    status = %(status)s, completed_at = clock_timestamp(),
    duration_seconds = extract(epoch FROM clock_timestamp() - started_at),
    error_message = %(error_message)s, error_details = %(error_details)s::jsonb,
    scan_id = coalesce(%(scan_id)s::uuid, scan_id), metadata = nullif(
        coalesce(metadata, '{}') || coalesce(%(metadata)s::jsonb, '{}'), '{}'
    )
WHERE execution_id = %(execution_id)s AND status = 'running' AND incarnation IS NULL AND fencing_token IS NULL
"""

# Fires are whole seconds: a request that falls on one must not take a fire's place. The two columns of the answer tell
# an unknown schedule from a request of the same microsecond.
REQUEST_RUN = """
WITH wanted AS MATERIALIZED (
    SELECT s.*, clock_timestamp() AS asked_at FROM schedules AS s WHERE s.schedule_id = %(schedule_id)s
), inserted AS (
    INSERT INTO job_executions
        (schedule_id, job_id, domain, domain_config_id, status, cause, priority, scheduled_for, due_at, metadata)
    SELECT schedule_id, coalesce(name, schedule_id::text), domain, domain_config_id, 'pending', 'manual', priority,
           CASE WHEN asked_at <> date_trunc('second', asked_at) THEN asked_at
                ELSE asked_at + interval '1 microsecond' END,
           asked_at, jsonb_build_object('requested_by', %(actor)s::text)
    FROM wanted
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
    RETURNING execution_id
)
SELECT wanted.schedule_id, inserted.execution_id FROM wanted LEFT JOIN inserted ON true
"""

NOTIFY_PENDING = "SELECT pg_notify('executions_pending', '')"

# A pending row ends here; for a row with an owner this is a request, which the owner reads with its next heartbeat.
# Of an attempt that has ended it is the next one that is meant: it waits, or runs already.
REQUEST_CANCEL = f"""
UPDATE job_executions SET
    status = CASE WHEN status = 'pending' THEN 'cancelled' ELSE status END,
    completed_at = CASE WHEN status = 'pending' THEN clock_timestamp() END,
    reason = CASE WHEN status = 'pending' THEN '{Reason.CANCEL_REQUESTED}' ELSE reason END,
    metadata = CASE WHEN %(actor)s::text IS NULL OR cancel_requested_at IS NOT NULL THEN metadata
                    ELSE coalesce(metadata, '{{}}') || jsonb_build_object('cancel_requested_by', %(actor)s::text) END,
    cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
WHERE status IN {LIVE} AND execution_id IN (
    SELECT %(execution_id)s::uuid
    UNION ALL
    SELECT later.execution_id FROM job_executions AS asked JOIN job_executions AS later
        ON later.schedule_id = asked.schedule_id AND later.scheduled_for = asked.scheduled_for
        AND later.attempt > asked.attempt
    WHERE asked.execution_id = %(execution_id)s
)
"""

# The next attempt of the same fire, for a person: the last one must have ended, and not well. Its schedule may be
# switched off, so it is a manual run. Of two requests at once the unique key lets one through.
REQUEST_RETRY = """
WITH asked AS (
    SELECT schedule_id, scheduled_for FROM job_executions WHERE execution_id = %(execution_id)s
), last AS MATERIALIZED (
    SELECT e.*, s.schedule_id IS NOT NULL AS has_schedule
    FROM asked JOIN job_executions AS e USING (schedule_id, scheduled_for) LEFT JOIN schedules AS s USING (schedule_id)
    ORDER BY e.attempt DESC LIMIT 1
), inserted AS (
    INSERT INTO job_executions
        (schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt, cause, status, priority, due_at,
         metadata)
    SELECT schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt + 1, 'manual', 'pending', priority,
           clock_timestamp(), jsonb_build_object('requested_by', %(actor)s::text, 'retry_of', execution_id)
    FROM last
    WHERE has_schedule AND status IN ('failed', 'timed_out', 'abandoned', 'cancelled', 'skipped', 'missed')
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
    RETURNING execution_id
)
SELECT last.status, last.has_schedule, inserted.execution_id
FROM asked LEFT JOIN last ON true LEFT JOIN inserted ON true
"""

# --- retention ---

LIMIT = "SELECT clock_timestamp() - make_interval(days => %(days)s)"

# Both times: an old row fences its fire, and a fire is as old as its scheduled_for.
_OLD = f"status NOT IN {LIVE} AND created_at < %(limit)s AND scheduled_for < %(limit)s"

COUNT_EXECUTIONS = f"SELECT count(*) FROM job_executions WHERE {_OLD}"

# `since` is where the batch before ended: without it each batch would step over the dead entries of all former ones.
DELETE_EXECUTIONS = f"""
WITH deleted AS (
    DELETE FROM job_executions WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM job_executions WHERE {_OLD} AND created_at >= %(since)s
        ORDER BY created_at LIMIT %(batch_size)s FOR UPDATE SKIP LOCKED
    )) RETURNING created_at
)
SELECT count(*) AS n, max(created_at) AS place FROM deleted
"""

# Of each schedule the newest old change says what was valid since; it is kept unless it says that nothing was.
# The newest of all is kept as well: replicas that applied it are compared with others by its revision.
_SUPERSEDED = """
    c.changed_at < %(limit)s AND c.change_id < (SELECT max(change_id) FROM schedule_changes) AND (
        c.operation IN ('delete', 'truncate') OR EXISTS (
            SELECT FROM schedule_changes AS newer
            WHERE newer.schedule_id = c.schedule_id AND newer.change_id > c.change_id AND newer.changed_at < %(limit)s
        ) OR EXISTS (
            SELECT FROM schedule_changes AS newer
            WHERE newer.schedule_id IS NULL AND newer.change_id > c.change_id AND newer.changed_at < %(limit)s
        )
    )
"""

COUNT_CHANGES = f"SELECT count(*) FROM schedule_changes AS c WHERE {_SUPERSEDED}"

# Oldest first and without SKIP LOCKED: a deletion may go only after everything before it, or the schedule would seem to
# live. Only another cleanup ever waits: every other session only adds changes. No FOR UPDATE: it needs the privilege to
# alter changes, which only the owner has.
DELETE_CHANGES = f"""
WITH deleted AS (
    DELETE FROM schedule_changes WHERE change_id = ANY(ARRAY(
        SELECT c.change_id FROM schedule_changes AS c WHERE {_SUPERSEDED} AND c.change_id > %(since)s
        ORDER BY c.change_id LIMIT %(batch_size)s
    )) RETURNING change_id
)
SELECT count(*) AS n, max(change_id) AS place FROM deleted
"""
