"""The statements of gap_scan.py. Each comment says what a statement relies on."""

WATCHED_UNTIL = "SELECT until FROM fires_watched"

# Since when one of the replicas that live now has been there to hand over what came due.
ATTENDED_SINCE = """
SELECT min(started_at) FROM scheduler_instances
WHERE claiming AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
"""

# Replicas scan independently, each without a break since its start: the furthest one vouches for all that is before.
WATCHED = """
INSERT INTO fires_watched (since, until) VALUES (%(since)s, %(until)s)
ON CONFLICT (only_row) DO UPDATE SET until = greatest(fires_watched.until, excluded.until)
"""

# A summary row accounts for everything between its first and its last fire.
MISSING = """
WITH alone AS MATERIALIZED (
    SELECT w.schedule_id, f.scheduled_for
    FROM unnest(%(parts)s::int[], %(ids)s::uuid[], %(after)s::timestamptz[], %(until)s::timestamptz[])
         AS w (part, schedule_id, after, until)
    JOIN unnest(%(fire_parts)s::int[], %(fires)s::timestamptz[]) AS f (part, scheduled_for)
      ON f.part = w.part AND f.scheduled_for > w.after AND f.scheduled_for <= w.until
    WHERE NOT EXISTS (
        SELECT FROM job_executions AS e
        WHERE e.schedule_id = w.schedule_id AND e.scheduled_for = f.scheduled_for AND e.attempt = 1
    )
)
SELECT schedule_id, scheduled_for FROM alone AS f
WHERE NOT EXISTS (
    SELECT FROM job_executions AS e
    WHERE e.schedule_id = f.schedule_id AND e.scheduled_for <= f.scheduled_for AND e.reason = 'catchup_cap'
      AND (e.metadata->>'last')::timestamptz >= f.scheduled_for
)
ORDER BY schedule_id, scheduled_for
"""

POLICIES = """
SELECT schedule_id, revision, misfire_grace_seconds, catchup, coalesce(name, schedule_id::text) AS job_id, domain,
       domain_config_id
FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])
"""

# What a change of the timing (nothing else moves effective_from) or a deletion ended.
FORMER = """
SELECT c.change_id, s.schedule_id, s.effective_from, s.frequency, s.time_config, s.timezone, s.start_at, s.end_at,
       s.spread_seconds, coalesce(s.name, s.schedule_id::text) AS job_id, s.domain, s.domain_config_id,
       c.changed_at AS ended_at
FROM schedule_changes AS c, jsonb_populate_record(NULL::schedules, c.old) AS s
WHERE c.changed_at > %(since)s AND c.change_id > %(after)s AND s.enabled
  AND (c.operation = 'delete' OR c.old->'effective_from' IS DISTINCT FROM c.new->'effective_from')
ORDER BY c.change_id LIMIT %(limit)s
"""

# Whoever claims a fire holds its schedule, and so do we: nobody decides over the same fires at the same time, and all
# lock in id order. A schedule that is not as it was planned for, or that somebody holds, is left for the next scan.
INSERT = """
WITH planned AS (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS p (
        schedule_id uuid, revision bigint, job_id text, domain text, domain_config_id uuid, scheduled_for timestamptz,
        status text, reason text, details jsonb
    )
), free AS MATERIALIZED (
    SELECT schedule_id, revision, enabled FROM schedules WHERE schedule_id IN (SELECT schedule_id FROM planned)
    ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
)
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause, due_at, reason, metadata, completed_at
)
SELECT p.schedule_id, p.job_id, p.domain, p.domain_config_id, p.status, p.scheduled_for, 'catchup',
       CASE WHEN p.status = 'pending' THEN clock_timestamp() ELSE p.scheduled_for END, p.reason, p.details,
       CASE WHEN p.status = 'missed' THEN clock_timestamp() END
FROM planned AS p LEFT JOIN free ON free.schedule_id = p.schedule_id
WHERE CASE WHEN p.revision IS NOT NULL THEN free.revision = p.revision AND free.enabled
           ELSE free.schedule_id IS NOT NULL
                OR NOT EXISTS (SELECT FROM schedules AS s WHERE s.schedule_id = p.schedule_id) END
ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
RETURNING schedule_id, scheduled_for
"""
