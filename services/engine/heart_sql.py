"""The statements of heart.py. Each comment states the assumptions of its statement."""

from services.ledger.claims_sql import HANDED_BACK

# `alive_since` starts anew after every longer gap: a replica that was away cannot tell which replicas are dead. It also
# starts anew when it lies in the future, because the server's clock was set back.
_ALIVE_SINCE = """CASE WHEN i.heartbeat_at < clock_timestamp() - make_interval(secs => %(gap)s)
                         OR i.alive_since > clock_timestamp() THEN clock_timestamp() ELSE i.alive_since END"""

# The session's name is what pg_stat_activity shows; behind a pooler the sessions say nothing about the process.
BEAT = f"""
INSERT INTO scheduler_instances AS i (
    instance_id, incarnation, revision, schedules, running, clock_skew_seconds, claiming, facts,
    heartbeat_interval_seconds, session_name, abilities, queues, host, holds, on_duty, free_slots, kind
)
VALUES (
    %(instance_id)s, %(incarnation)s, %(revision)s, %(schedules)s, %(running)s, %(skew)s, %(claiming)s,
    %(facts)s::jsonb, %(interval)s, CASE WHEN %(sessions)s THEN current_setting('application_name') END,
    %(abilities)s::text[], %(queues)s::text[], %(host)s, %(holds)s::bytea, %(on_duty)s,
    %(free_slots)s, %(kind)s
)
ON CONFLICT (instance_id, incarnation) DO UPDATE SET
    alive_since = {_ALIVE_SINCE},
    heartbeat_at = clock_timestamp(), revision = excluded.revision, schedules = excluded.schedules,
    running = excluded.running, clock_skew_seconds = excluded.clock_skew_seconds, claiming = excluded.claiming,
    facts = excluded.facts, abilities = excluded.abilities, queues = excluded.queues, holds = excluded.holds,
    on_duty = excluded.on_duty, free_slots = excluded.free_slots
RETURNING extract(epoch FROM clock_timestamp()) AS now
"""

# With its former lives that ended badly: without this one, the last of them would look like a replica that is lost.
GONE = """
DELETE FROM scheduler_instances
WHERE instance_id = %(instance_id)s
  AND (incarnation = %(incarnation)s OR heartbeat_at < clock_timestamp() - make_interval(secs => %(timeout)s))
"""

# The living, and those known before that have not unregistered: their silence may be our own. A heartbeat that is late
# says nothing about now.
MEMBERS = """
SELECT instance_id, incarnation, started_at, host, claiming, on_duty, holds, free_slots, abilities, queues,
       (facts->>'free_async_slots')::int AS free_async_slots, coalesce(facts->>'schema', '') AS schema,
       heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s) AS is_live,
       heartbeat_at > clock_timestamp()
           - make_interval(secs => coalesce(heartbeat_interval_seconds, %(interval)s) + %(late)s) AS is_fresh
FROM scheduler_instances
WHERE kind = 'replica'
  AND (heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s) OR incarnation = ANY(%(known)s::uuid[]))
"""

OWN_ROWS = """
SELECT execution_id, fencing_token, cancel_requested_at IS NOT NULL AS cancel_requested FROM job_executions
WHERE status IN ('claimed', 'running') AND instance_id = %(instance_id)s AND incarnation = %(incarnation)s
"""

# Also a heartbeat: for as long as one lasts, no replica can give up the executions that it confirms. Another session
# that holds a row may be giving it up, in a transaction that judged us before: then `free` is false, and it is unknown.
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
HAND_BACK_STRANGERS = f"""
WITH free AS MATERIALIZED (
    SELECT execution_id FROM job_executions
    WHERE (execution_id, fencing_token) IN (SELECT * FROM unnest(%(execution_ids)s::uuid[], %(tokens)s::bigint[]))
      AND incarnation = %(incarnation)s AND status IN ('claimed', 'running')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE job_executions AS e SET {HANDED_BACK}, due_at = clock_timestamp()
FROM free WHERE e.execution_id = free.execution_id
"""
