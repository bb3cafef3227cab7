"""The statements of gap_scan.py."""

SUMMARY = "catchup_cap"

# A summary row accounts for everything between its first and its last fire.
MISSING = f"""
SELECT f.schedule_id, f.scheduled_for
FROM unnest(%(ids)s::uuid[], %(at)s::timestamptz[]) AS f (schedule_id, scheduled_for)
WHERE NOT EXISTS (
    SELECT FROM job_executions AS e
    WHERE e.schedule_id = f.schedule_id AND e.scheduled_for = f.scheduled_for AND e.attempt = 1
) AND NOT EXISTS (
    SELECT FROM job_executions AS e
    WHERE e.schedule_id = f.schedule_id AND e.scheduled_for <= f.scheduled_for AND e.reason = '{SUMMARY}'
      AND (e.metadata->>'last')::timestamptz >= f.scheduled_for
)
"""

POLICIES = """
SELECT schedule_id, revision, misfire_grace_seconds, catchup FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])
"""

INSERT = """
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause, due_at, reason, metadata, completed_at
)
SELECT s.schedule_id, coalesce(s.name, s.schedule_id::text), s.domain, s.domain_config_id, g.status, g.scheduled_for,
       'catchup', clock_timestamp(), g.reason, g.details, CASE WHEN g.status = 'missed' THEN clock_timestamp() END
FROM json_to_recordset(%(rows)s::json) AS g (
    schedule_id uuid, revision bigint, scheduled_for timestamptz, status text, reason text, details jsonb
)
JOIN schedules AS s ON s.schedule_id = g.schedule_id AND s.revision = g.revision AND s.enabled
ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
"""

# What a change of the timing (nothing else moves effective_from) or a deletion ended.
FORMER = """
SELECT s.schedule_id, s.effective_from, s.frequency, s.time_config, s.timezone, s.start_at, s.end_at, s.spread_seconds,
       s.name, s.domain, s.domain_config_id, c.changed_at AS ended_at
FROM schedule_changes AS c, jsonb_populate_record(NULL::schedules, c.old) AS s
WHERE c.changed_at > %(since)s AND s.enabled
  AND (c.operation = 'delete' OR c.old->'effective_from' IS DISTINCT FROM c.new->'effective_from')
ORDER BY c.change_id
"""

INSERT_FORMER = """
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause, due_at, reason, metadata, completed_at
)
SELECT schedule_id, job_id, domain, domain_config_id, 'missed', scheduled_for, 'catchup', scheduled_for, reason,
       details, clock_timestamp()
FROM json_to_recordset(%(rows)s::json) AS g (
    schedule_id uuid, job_id text, domain text, domain_config_id uuid, scheduled_for timestamptz, reason text,
    details jsonb
)
ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
"""
