"""The statements of recovery.py. Each comment says what a statement relies on."""

from services.ledger.verdicts import Reason

# How much later than its interval a replica's heartbeat must be before its vanished sessions count as its death.
# A replica stops trusting itself earlier than that (FRESH_SECONDS in recovery.py).
MISSED_SECONDS = 1.5

# `alive_since` starts anew after every longer gap: a replica that was away itself cannot tell who is dead. So it does
# when it lies in the future, because the server's clock was set back.
_ALIVE_SINCE = """CASE WHEN i.heartbeat_at < clock_timestamp() - make_interval(secs => %(gap)s)
                         OR i.alive_since > clock_timestamp() THEN clock_timestamp() ELSE i.alive_since END"""

# The session's name is what pg_stat_activity shows; behind a pooler the sessions say nothing about the process.
BEAT = f"""
INSERT INTO scheduler_instances AS i (
    instance_id, incarnation, revision, schedules, running, clock_skew_seconds, claiming, facts,
    heartbeat_interval_seconds, session_name
)
VALUES (
    %(instance_id)s, %(incarnation)s, %(revision)s, %(schedules)s, %(running)s, %(skew)s, %(claiming)s,
    %(facts)s::jsonb, %(interval)s, CASE WHEN %(sessions)s THEN current_setting('application_name') END
)
ON CONFLICT (instance_id, incarnation) DO UPDATE SET
    alive_since = {_ALIVE_SINCE},
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
SELECT execution_id, fencing_token, cancel_requested_at IS NOT NULL AS cancel_requested FROM job_executions
WHERE status IN ('claimed', 'running') AND instance_id = %(instance_id)s AND incarnation = %(incarnation)s
"""

# Is also a heartbeat: for as long as one lasts nobody can give up what this says yes to. A row that another session
# holds may just be given up by it, in a transaction that judged us before: `free` is false, and nobody can say.
CONFIRM = f"""
WITH alive AS (
    UPDATE scheduler_instances AS i SET alive_since = {_ALIVE_SINCE}, heartbeat_at = clock_timestamp()
    WHERE i.instance_id = %(instance_id)s AND i.incarnation = %(incarnation)s RETURNING 1
), free AS MATERIALIZED (
    SELECT execution_id FROM job_executions
    WHERE execution_id = %(execution_id)s AND fencing_token = %(token)s AND status = 'running' FOR SHARE SKIP LOCKED
)
SELECT EXISTS (SELECT FROM free) AS free FROM job_executions, alive
WHERE execution_id = %(execution_id)s AND fencing_token = %(token)s AND status = 'running'
"""

# The proofs were disowned before this is sent. The heart waits for no row: one that another session holds comes later.
HAND_BACK_STRANGERS = """
WITH free AS MATERIALIZED (
    SELECT execution_id FROM job_executions
    WHERE (execution_id, fencing_token) IN (SELECT * FROM unnest(%(execution_ids)s::uuid[], %(tokens)s::bigint[]))
      AND incarnation = %(incarnation)s AND status IN ('claimed', 'running')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE job_executions AS e SET status = 'pending', due_at = clock_timestamp(), instance_id = NULL, incarnation = NULL,
       fencing_token = NULL, claimed_at = NULL, started_at = NULL
FROM free WHERE e.execution_id = free.execution_id
"""

# Which replicas have a session at the server, and for how long we have had the one that asks.
SESSIONS = """
SELECT i.incarnation, i.session_name IN (SELECT a.application_name FROM pg_stat_activity AS a) AS present,
       (SELECT extract(epoch FROM clock_timestamp() - a.backend_start) FROM pg_stat_activity AS a
        WHERE a.pid = pg_backend_pid()) AS own_seconds
FROM scheduler_instances AS i
WHERE i.session_name IS NOT NULL AND i.heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
"""

# Everything is judged by one instant: after a stall of the server, wherever in the statement it struck, our own
# heartbeat is as old as those of the others.
_MOMENT = "moment AS MATERIALIZED (SELECT clock_timestamp() AS now)"

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

# Nobody is dead for a replica that has not been seen alive itself, without a gap, for a whole timeout.
_WE_LIVE = """
    EXISTS (
        SELECT FROM scheduler_instances AS we
        WHERE we.instance_id = %(instance_id)s AND we.incarnation = %(incarnation)s
          AND we.heartbeat_at > moment.now - make_interval(secs => %(gap)s)
          AND we.alive_since <= moment.now - make_interval(secs => %(timeout)s)
    )
"""

# Schedules in id order, as everybody does; what another session works on, execution or schedule, comes with a later
# tick and does not fill the batch.
LOCK_DEAD = f"""
WITH {_MOMENT}, dead AS MATERIALIZED (
    SELECT e.execution_id FROM moment, job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
    WHERE {_DEAD} AND {_WE_LIVE}
    ORDER BY s.schedule_id LIMIT %(limit)s FOR NO KEY UPDATE OF s, e SKIP LOCKED
), orphaned AS MATERIALIZED (
    SELECT e.execution_id FROM moment, job_executions AS e
    WHERE {_DEAD} AND {_WE_LIVE}
      AND (SELECT s.schedule_id FROM schedules AS s WHERE s.schedule_id = e.schedule_id) IS NULL
    LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
)
SELECT execution_id FROM dead UNION ALL SELECT execution_id FROM orphaned
"""

RESCUE = f"""
WITH {_MOMENT}, rescued AS (
    UPDATE job_executions AS e SET
        status = CASE WHEN e.status = 'claimed' THEN 'pending' ELSE 'abandoned' END,
        due_at = CASE WHEN e.status = 'claimed' THEN clock_timestamp() ELSE e.due_at END,
        completed_at = CASE WHEN e.status = 'running' THEN clock_timestamp() END,
        duration_seconds = CASE WHEN e.status = 'running'
                                THEN extract(epoch FROM clock_timestamp() - e.started_at) END,
        reason = CASE WHEN e.status = 'running' THEN '{Reason.REPLICA_DEAD}' ELSE e.reason END,
        error_message = CASE WHEN e.status = 'running' THEN 'replica ' || e.instance_id ||
            CASE WHEN e.incarnation = ANY(%(absent)s::uuid[]) THEN ' is gone: its process has no connection any more'
                 ELSE ' gave no sign of life any more' END END
    FROM moment, job_executions AS before
    WHERE e.execution_id = ANY(%(execution_ids)s::uuid[]) AND before.execution_id = e.execution_id
      AND {_DEAD} AND {_WE_LIVE}
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
