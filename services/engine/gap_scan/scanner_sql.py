"""The statements of scanner.py. Each comment states the assumptions of its statement."""

from services.ledger.summary_sql import LOOKED_AT, recorded_as_missed
from services.ledger.verdicts import Reason

LONGEST_CLAIM_SECONDS = 30  # from a claim's beginning, which its rows are dated by, to its end: the statement timeout

WATCHED_UNTIL = "SELECT until FROM fires_watched"

# Since when one of the replicas that live now has been there to hand over what came due; and Postgres' clock.
ATTENDED_SINCE = """
SELECT min(started_at) AS since, clock_timestamp() AS now FROM scheduler_instances
WHERE claiming AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
"""

# Replicas scan independently, each without a break since its start: the furthest one vouches for all that is before.
# All of them write this one row: in one statement that commits by itself, so that whoever freezes holds nothing, and
# without waiting for somebody who does. What is not written now is written by the next scan of anybody.
WATCHED = """
WITH free AS MATERIALIZED (
    SELECT only_row FROM fires_watched WHERE until < %(until)s FOR NO KEY UPDATE SKIP LOCKED
), grown AS (
    UPDATE fires_watched AS w SET until = greatest(w.until, %(until)s) FROM free WHERE w.only_row = free.only_row
)
INSERT INTO fires_watched (since, until)
SELECT %(since)s, %(until)s WHERE NOT EXISTS (SELECT FROM fires_watched)
ON CONFLICT (only_row) DO NOTHING
"""

# A summary row accounts for everything between its first and its last fire.
MISSING = f"""
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
    WHERE e.schedule_id = f.schedule_id AND e.scheduled_for <= f.scheduled_for AND e.reason = '{Reason.CATCHUP_CAP}'
      AND (e.metadata->>'last')::timestamptz >= f.scheduled_for
)
ORDER BY schedule_id, scheduled_for
"""

POLICIES = """
SELECT schedule_id, revision, misfire_grace_seconds, catchup, coalesce(name, schedule_id::text) AS job_id, domain,
       domain_config_id
FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])
"""

# What a change of the timing (nothing else moves effective_from) or a deletion ended: where the next one begins. A
# change of many rows is logged later than that, at its statement's end.
FORMER = """
SELECT c.change_id, s.schedule_id, s.effective_from, s.frequency, s.time_config, s.timezone, s.start_at, s.end_at,
       s.spread_seconds, coalesce(s.name, s.schedule_id::text) AS job_id, s.domain, s.domain_config_id,
       least(c.changed_at, (c.new->>'effective_from')::timestamptz) AS ended_at
FROM schedule_changes AS c, jsonb_populate_record(NULL::schedules, c.old) AS s
WHERE c.changed_at > %(since)s AND c.change_id > %(after)s AND s.enabled
  AND (c.operation = 'delete' OR c.old->'effective_from' IS DISTINCT FROM c.new->'effective_from')
ORDER BY c.change_id LIMIT %(limit)s
"""

# Whoever claims a fire holds its schedule, and so do we: nobody decides over the same fires at the same time, and all
# lock in id order. What somebody holds is left for the next scan.
LOCK = """
SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])
ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
"""

# A younger snapshot than the locks. A schedule that is not as it was planned for is left for the next scan. A fire that
# another one's summary speaks for is decided; and a summary speaks only for what had no row when the scan looked, so it
# is not written if somebody has written one in its range since then.
INSERT = f"""
WITH planned AS (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS p (
        schedule_id uuid, revision bigint, job_id text, domain text, domain_config_id uuid, scheduled_for timestamptz,
        status text, reason text, details jsonb
    )
), held AS MATERIALIZED (
    SELECT schedule_id, revision, enabled FROM schedules WHERE schedule_id = ANY(%(held)s::uuid[])
)
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause, due_at, reason, metadata, completed_at
)
SELECT p.schedule_id, p.job_id, p.domain, p.domain_config_id, p.status, p.scheduled_for, 'catchup',
       CASE WHEN p.status = 'pending' THEN clock_timestamp() ELSE p.scheduled_for END, p.reason, p.details,
       CASE WHEN p.status = 'missed' THEN clock_timestamp() END
FROM planned AS p LEFT JOIN held ON held.schedule_id = p.schedule_id
WHERE CASE WHEN p.revision IS NOT NULL THEN held.revision = p.revision AND held.enabled
           ELSE held.schedule_id IS NOT NULL
                OR NOT EXISTS (SELECT FROM schedules AS s WHERE s.schedule_id = p.schedule_id) END
  AND NOT {recorded_as_missed("p")}
  AND (p.details IS NULL OR NOT EXISTS (
      SELECT FROM job_executions AS e
      WHERE e.schedule_id = p.schedule_id AND e.scheduled_for > p.scheduled_for
        AND e.scheduled_for <= (p.details->>'last')::timestamptz AND e.attempt = 1 AND e.cause <> 'manual'
        AND e.created_at > %(looked_at)s::timestamptz - interval '{LONGEST_CLAIM_SECONDS} seconds'
  ) AND (
      SELECT count(*) FROM job_executions AS e
      WHERE e.schedule_id = p.schedule_id AND e.scheduled_for > p.scheduled_for
        AND e.scheduled_for <= (p.details->>'last')::timestamptz AND e.reason = '{Reason.CATCHUP_CAP}'
  ) < {LOOKED_AT})
ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
RETURNING schedule_id, scheduled_for
"""
