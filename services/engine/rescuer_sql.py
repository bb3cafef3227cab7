"""The statements of rescuer.py. Each comment states the assumptions of its statement."""

from services.ledger.living_sql import MOMENT, WE_LIVE
from services.ledger.verdicts import Reason

# How much later than its interval a replica's heartbeat must be before its vanished sessions count as its death.
# A replica stops trusting itself earlier than that (FRESH_SECONDS in heart.py).
MISSED_SECONDS = 1.5

# Which replicas have a session at the server, and for how long we have had the one that asks.
SESSIONS = """
SELECT i.incarnation, i.session_name IN (SELECT a.application_name FROM pg_stat_activity AS a) AS present,
       (SELECT extract(epoch FROM clock_timestamp() - a.backend_start) FROM pg_stat_activity AS a
        WHERE a.pid = pg_backend_pid()) AS own_seconds
FROM scheduler_instances AS i
WHERE i.session_name IS NOT NULL AND i.heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
"""

# Silent for the timeout; or without a session at the server, now and in every look lately, with a heartbeat missed.
_DEAD = f"""
    e.status IN ('claimed', 'running') AND e.incarnation IS NOT NULL AND NOT EXISTS (
        SELECT FROM scheduler_instances AS i
        WHERE i.instance_id = e.instance_id AND i.incarnation = e.incarnation
          AND i.heartbeat_at > moment.now - make_interval(secs => %(timeout)s)
          AND NOT (
              i.incarnation = ANY(%(absent)s::uuid[])
              AND i.heartbeat_at < moment.now - make_interval(secs => i.heartbeat_interval_seconds + {MISSED_SECONDS})
              AND i.session_name NOT IN (
                  SELECT a.application_name FROM pg_stat_activity AS a WHERE a.application_name IS NOT NULL)
          )
    )
"""

# Schedules in id order, like every writer; rows that another session locks, execution or schedule, come with a later
# tick and do not fill the batch.
LOCK_DEAD = f"""
WITH {MOMENT}, dead AS MATERIALIZED (
    SELECT e.execution_id FROM moment, job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
    WHERE {_DEAD} AND {WE_LIVE}
    ORDER BY s.schedule_id LIMIT %(limit)s FOR NO KEY UPDATE OF s, e SKIP LOCKED
), orphaned AS MATERIALIZED (
    SELECT e.execution_id FROM moment, job_executions AS e
    WHERE {_DEAD} AND {WE_LIVE}
      AND (SELECT s.schedule_id FROM schedules AS s WHERE s.schedule_id = e.schedule_id) IS NULL
    LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
)
SELECT execution_id FROM dead UNION ALL SELECT execution_id FROM orphaned
"""

RESCUE = f"""
WITH {MOMENT}, rescued AS (
    UPDATE job_executions AS e SET
        status = CASE WHEN e.status = 'claimed' THEN 'pending' ELSE 'abandoned' END,
        due_at = CASE WHEN e.status = 'claimed' THEN clock_timestamp() ELSE e.due_at END,
        completed_at = CASE WHEN e.status = 'running' THEN clock_timestamp() END,
        duration_seconds = CASE WHEN e.status = 'running'
                                THEN extract(epoch FROM clock_timestamp() - e.started_at) END,
        reason = CASE WHEN e.status = 'running' THEN '{Reason.REPLICA_DEAD}' ELSE e.reason END,
        error_message = CASE WHEN e.status = 'running' THEN 'replica ' || e.instance_id ||
            CASE WHEN e.incarnation = ANY(%(absent)s::uuid[]) THEN ' is gone: its process no longer has a connection'
                 ELSE ' stopped sending heartbeats' END END
    FROM moment, job_executions AS before
    WHERE e.execution_id = ANY(%(execution_ids)s::uuid[]) AND before.execution_id = e.execution_id
      AND {_DEAD} AND {WE_LIVE}
    RETURNING e.*, before.fencing_token AS token
), retried AS (
    INSERT INTO job_executions
        (schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt, cause, status, priority, due_at)
    SELECT r.schedule_id, r.job_id, r.domain, r.domain_config_id, r.scheduled_for, r.attempt + 1, r.cause, 'pending',
           s.priority, clock_timestamp()
    FROM rescued AS r JOIN schedules AS s USING (schedule_id)
    WHERE r.status = 'abandoned' AND r.attempt <= coalesce(s.max_retries, %(max_retries)s)
      AND r.cancel_requested_at IS NULL
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
    RETURNING schedule_id, scheduled_for
), kept AS (
    UPDATE schedules AS s SET last_status = 'abandoned' FROM rescued AS r
    WHERE r.schedule_id = s.schedule_id AND r.status = 'abandoned' AND s.last_status IS DISTINCT FROM 'invalid'
)
SELECT r.execution_id, r.schedule_id, r.job_id, r.domain, r.scheduled_for, r.attempt, r.status, r.error_message,
       r.token, r.instance_id, r.limit_keys, s.job_type, (SELECT count(*) FROM retried) AS retried,
       (r.schedule_id, r.scheduled_for) IN (SELECT schedule_id, scheduled_for FROM retried) AS is_retried
FROM rescued AS r LEFT JOIN schedules AS s USING (schedule_id)
"""
