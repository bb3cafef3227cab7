"""The statements of scanner.py. Each comment states the assumptions of its statement."""

from services.ledger.summary_sql import LOOKED_AT, recorded_as_missed
from services.ledger.verdicts import Reason
from services.schedules.buckets import BUCKETS, bucket_of

LONGEST_CLAIM_SECONDS = 30  # from a claim's beginning, which its rows are dated by, to its end: the statement timeout

# How far each of these buckets has been scanned: by its own scans, or by one of the version before, which is of all.
WATCHED_UNTIL = """
SELECT n.bucket, greatest(b.until, w.until) AS until
FROM unnest(%(buckets)s::smallint[]) AS n (bucket) LEFT JOIN fires_watched_by_bucket AS b USING (bucket)
LEFT JOIN fires_watched AS w ON true
"""

# Since when one of the replicas that live now has been there to hand over what came due; Postgres' clock; and which
# transactions had ended by then.
ATTENDED_SINCE = """
SELECT min(started_at) AS since, clock_timestamp() AS now, pg_current_snapshot()::text AS snapshot
FROM scheduler_instances
WHERE kind = 'replica' AND claiming AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
"""

# A replica that scans a bucket continues where its last scan ended: the furthest one vouches for all that is before.
# One statement that commits by itself: a replica that freezes holds no lock, and none waits for a lock. What is not
# written now is written by the next scan of any replica.
WATCHED = """
WITH told AS (
    SELECT * FROM unnest(%(buckets)s::smallint[], %(until)s::timestamptz[]) AS t (bucket, until)
), free AS MATERIALIZED (
    SELECT b.bucket FROM fires_watched_by_bucket AS b JOIN told USING (bucket) FOR NO KEY UPDATE OF b SKIP LOCKED
), grown AS (
    UPDATE fires_watched_by_bucket AS b
    SET since = coalesce(b.since, %(since)s), until = greatest(b.until, told.until), tried_at = clock_timestamp()
    FROM free JOIN told USING (bucket) WHERE b.bucket = free.bucket
)
INSERT INTO fires_watched_by_bucket (bucket, since, until, tried_at)
SELECT bucket, %(since)s, until, clock_timestamp() FROM told
WHERE NOT EXISTS (SELECT FROM fires_watched_by_bucket AS b WHERE b.bucket = told.bucket)
ON CONFLICT (bucket) DO NOTHING
"""

# The one row of all buckets together, which replicas of the version before, and people, read: the least of them.
WATCHED_BY_ALL = f"""
WITH least AS (
    SELECT max(since) AS since, min(until) AS until FROM fires_watched_by_bucket HAVING count(until) = {BUCKETS}
), free AS MATERIALIZED (
    SELECT w.only_row FROM fires_watched AS w, least WHERE w.until < least.until
    FOR NO KEY UPDATE OF w SKIP LOCKED
), grown AS (
    UPDATE fires_watched AS w SET until = greatest(w.until, least.until) FROM free, least
    WHERE w.only_row = free.only_row
)
INSERT INTO fires_watched (since, until)
SELECT since, until FROM least WHERE NOT EXISTS (SELECT FROM fires_watched)
ON CONFLICT (only_row) DO NOTHING
"""

# Buckets that nobody has tried to scan for a while, although replicas have been there. Not those whose `until` stands
# still: it does as long as somebody holds one schedule. Each is tried by one replica at a time; nothing is held between
# this statement and the scan.
LAGGING = """
UPDATE fires_watched_by_bucket AS b SET tried_at = clock_timestamp()
FROM (
    SELECT bucket FROM fires_watched_by_bucket
    WHERE greatest(tried_at, (SELECT until FROM fires_watched), %(attended)s::timestamptz)
              < clock_timestamp() - make_interval(secs => %(lag)s)
      AND bucket <> ALL(%(mine)s::smallint[])
    ORDER BY tried_at NULLS FIRST, bucket LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
) AS lagging
WHERE b.bucket = lagging.bucket RETURNING b.bucket
"""

SCHEDULES_OF = f"""
SELECT schedule_id, {bucket_of("schedule_id")} AS bucket, revision, effective_from, frequency, time_config, timezone,
       start_at, end_at, spread_seconds, priority
FROM schedules WHERE {bucket_of("schedule_id")} = ANY(%(buckets)s::bigint[]) AND enabled
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
FORMER = f"""
SELECT c.change_id, s.schedule_id, {bucket_of("s.schedule_id")} AS bucket, s.effective_from, s.frequency,
       s.time_config, s.timezone, s.start_at, s.end_at, s.spread_seconds,
       coalesce(s.name, s.schedule_id::text) AS job_id, s.domain, s.domain_config_id,
       least(c.changed_at, (c.new->>'effective_from')::timestamptz) AS ended_at
FROM schedule_changes AS c, jsonb_populate_record(NULL::schedules, c.old) AS s
WHERE c.changed_at > %(since)s AND c.change_id > %(after)s AND s.enabled
  AND (c.operation = 'delete' OR c.old->'effective_from' IS DISTINCT FROM c.new->'effective_from')
  AND get_bit(%(mask)s::bytea, {bucket_of("c.schedule_id")}) = 1
ORDER BY c.change_id LIMIT %(limit)s
"""

# A claim locks the fire's schedule, and so does this: no two sessions decide on the same fires at the same time, and
# all lock in id order. A schedule that another session locks is left for the next scan.
LOCK = """
SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])
ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
"""

# The transaction of the row `e`, whose 32 bits are counted from our own: an id that never wraps around.
_WRITTEN_BY = "greatest(pg_current_xact_id()::text::bigint - age(e.xmin), 3)::text::xid8"

# A younger snapshot than the locks. A schedule that is not as it was planned for is left for the next scan. A fire that
# another one's summary speaks for is decided; and a summary speaks only for what had no row when the scan looked, so it
# is not written if another session has written one in its range since then. What of the schedule was to be caught up
# beside it is not written either: the next scan would apply the rule once more. Rows that the scan saw do not count,
# however young: their replica may have died right after.
INSERT = f"""
WITH planned AS (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS p (
        schedule_id uuid, revision bigint, job_id text, domain text, domain_config_id uuid, scheduled_for timestamptz,
        status text, reason text, details jsonb
    )
), held AS MATERIALIZED (
    SELECT schedule_id, revision, enabled, priority FROM schedules WHERE schedule_id = ANY(%(held)s::uuid[])
), refused AS MATERIALIZED (
    SELECT p.schedule_id FROM planned AS p WHERE p.details IS NOT NULL AND (EXISTS (
        SELECT FROM job_executions AS e
        WHERE e.schedule_id = p.schedule_id AND e.scheduled_for > p.scheduled_for
          AND e.scheduled_for <= (p.details->>'last')::timestamptz AND e.attempt = 1 AND e.cause <> 'manual'
          AND e.created_at > %(looked_at)s::timestamptz - interval '{LONGEST_CLAIM_SECONDS} seconds'
          AND NOT pg_visible_in_snapshot({_WRITTEN_BY}, %(snapshot)s::pg_snapshot)
    ) OR (
        SELECT count(*) FROM job_executions AS e
        WHERE e.schedule_id = p.schedule_id AND e.scheduled_for > p.scheduled_for
          AND e.scheduled_for <= (p.details->>'last')::timestamptz AND e.reason = '{Reason.CATCHUP_CAP}'
    ) >= {LOOKED_AT})
)
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause, due_at, reason, metadata, completed_at,
    priority
)
SELECT p.schedule_id, p.job_id, p.domain, p.domain_config_id, p.status, p.scheduled_for, 'catchup',
       CASE WHEN p.status = 'pending' THEN clock_timestamp() ELSE p.scheduled_for END, p.reason, p.details,
       CASE WHEN p.status = 'missed' THEN clock_timestamp() END, coalesce(held.priority, 0)
FROM planned AS p LEFT JOIN held ON held.schedule_id = p.schedule_id
WHERE CASE WHEN p.revision IS NOT NULL THEN held.revision = p.revision AND held.enabled
           ELSE held.schedule_id IS NOT NULL
                OR NOT EXISTS (SELECT FROM schedules AS s WHERE s.schedule_id = p.schedule_id) END
  AND NOT {recorded_as_missed("p")}
  AND NOT EXISTS (SELECT FROM refused WHERE refused.schedule_id = p.schedule_id)
ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
RETURNING schedule_id, scheduled_for
"""
