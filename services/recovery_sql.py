"""The statements of recovery.py."""

BEAT = """
INSERT INTO scheduler_instances (
    instance_id, incarnation, revision, schedules, running, clock_skew_seconds, claiming, facts
)
VALUES (
    %(instance_id)s, %(incarnation)s, %(revision)s, %(schedules)s, %(running)s, %(skew)s, %(claiming)s, %(facts)s::jsonb
)
ON CONFLICT (instance_id, incarnation) DO UPDATE SET
    heartbeat_at = clock_timestamp(), revision = excluded.revision, schedules = excluded.schedules,
    running = excluded.running, clock_skew_seconds = excluded.clock_skew_seconds, claiming = excluded.claiming,
    facts = excluded.facts
RETURNING extract(epoch FROM clock_timestamp()) AS now
"""

GONE = "DELETE FROM scheduler_instances WHERE instance_id = %(instance_id)s AND incarnation = %(incarnation)s"

PEERS = """
SELECT DISTINCT instance_id FROM scheduler_instances
WHERE claiming AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
"""

OWN_ROWS = """
SELECT execution_id, cancel_requested_at IS NOT NULL AS cancel_requested FROM job_executions
WHERE status IN ('claimed', 'running') AND instance_id = %(instance_id)s AND incarnation = %(incarnation)s
"""

CONFIRM = """
SELECT FROM job_executions
WHERE execution_id = %(execution_id)s AND fencing_token = %(token)s AND status = 'running'
"""

HAND_BACK_STRANGERS = """
UPDATE job_executions SET status = 'pending', due_at = clock_timestamp(), instance_id = NULL, incarnation = NULL,
       fencing_token = NULL, claimed_at = NULL, started_at = NULL
WHERE execution_id = ANY(%(execution_ids)s::uuid[]) AND incarnation = %(incarnation)s
  AND status IN ('claimed', 'running')
"""

_DEAD = """
    e.status IN ('claimed', 'running') AND e.incarnation IS NOT NULL AND NOT EXISTS (
        SELECT FROM scheduler_instances AS i
        WHERE i.instance_id = e.instance_id AND i.incarnation = e.incarnation
          AND i.heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
    )
"""

# Schedules first, in id order, as everybody does; those that somebody works on come with the next tick.
LOCK_DEAD = f"""
WITH dead AS MATERIALIZED (
    SELECT e.execution_id, e.schedule_id FROM job_executions AS e WHERE {_DEAD} LIMIT 1000
), locked AS MATERIALIZED (
    SELECT schedule_id FROM schedules WHERE schedule_id IN (SELECT schedule_id FROM dead)
    ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT dead.execution_id
FROM dead LEFT JOIN schedules AS present USING (schedule_id) LEFT JOIN locked USING (schedule_id)
WHERE locked.schedule_id IS NOT NULL OR present.schedule_id IS NULL
"""

RESCUE = f"""
WITH rescued AS (
    UPDATE job_executions AS e SET
        status = CASE WHEN e.status = 'claimed' THEN 'pending' ELSE 'abandoned' END,
        due_at = CASE WHEN e.status = 'claimed' THEN clock_timestamp() ELSE e.due_at END,
        completed_at = CASE WHEN e.status = 'running' THEN clock_timestamp() END,
        duration_seconds = CASE WHEN e.status = 'running'
                                THEN extract(epoch FROM clock_timestamp() - e.started_at) END,
        reason = CASE WHEN e.status = 'running' THEN 'replica_dead' ELSE e.reason END,
        error_message = CASE WHEN e.status = 'running'
                             THEN 'replica ' || e.instance_id || ' gave no sign of life any more' END
    FROM job_executions AS before
    WHERE e.execution_id = ANY(%(execution_ids)s::uuid[]) AND before.execution_id = e.execution_id AND {_DEAD}
    RETURNING e.*, before.fencing_token AS token
), retried AS (
    INSERT INTO job_executions
        (schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt, cause, status, due_at)
    SELECT r.schedule_id, r.job_id, r.domain, r.domain_config_id, r.scheduled_for, r.attempt + 1, r.cause, 'pending',
           clock_timestamp()
    FROM rescued AS r JOIN schedules AS s USING (schedule_id)
    WHERE r.status = 'abandoned' AND r.attempt <= coalesce(s.max_retries, %(max_retries)s)
      AND r.cancel_requested_at IS NULL
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
    RETURNING execution_id
), kept AS (
    UPDATE schedules AS s SET last_status = 'abandoned' FROM rescued AS r
    WHERE r.schedule_id = s.schedule_id AND r.status = 'abandoned' AND s.last_status IS DISTINCT FROM 'invalid'
)
SELECT r.execution_id, r.schedule_id, r.status, r.token, r.instance_id, s.job_type,
       (SELECT count(*) FROM retried) AS retried
FROM rescued AS r LEFT JOIN schedules AS s USING (schedule_id)
"""
