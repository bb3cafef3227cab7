"""The statements of audit.py. Each comment states the assumptions of its statement."""

from services.ledger.limits_sql import HAS_WAITED
from services.ledger.verdicts import Reason, kind_of, patience_seconds
from services.schedules.buckets import bucket_of

# By bucket, and without one: of all together, by replicas of the version before.
WATCHED = """
SELECT bucket, since, until FROM fires_watched_by_bucket WHERE until IS NOT NULL
UNION ALL SELECT NULL, since, until FROM fires_watched
"""

_DEFINITION = ", ".join(
    f"s.{name}"
    for name in (
        "schedule_id", "effective_from", "enabled", "frequency", "time_config", "timezone", "start_at", "end_at",
        "spread_seconds", "name", "domain",
    )
)  # fmt: skip

# The ids of the schedules in a range of that many, in order.
RANGE = """
SELECT schedule_id FROM schedules WHERE schedule_id >= %(first)s ORDER BY schedule_id LIMIT %(schedules)s
"""

# Who has rows in the window, but no schedule: it was deleted, or never existed. A row is never created before its fire
# is due, so the index on created_at finds the window. One slice of time, from the next row on; its end is NULL when no
# row is left.
STRANGERS = """
WITH slice AS MATERIALIZED (
    SELECT min(created_at) AS begin, min(created_at) + %(slice)s AS ends FROM job_executions
    WHERE created_at >= %(begin)s
), found AS MATERIALIZED (
    SELECT DISTINCT schedule_id FROM job_executions
    WHERE created_at >= (SELECT begin FROM slice) AND created_at < (SELECT ends FROM slice)
      AND scheduled_for <= %(until)s AND schedule_id IS NOT NULL
)
SELECT ends, ARRAY(
    SELECT schedule_id FROM found
    WHERE NOT EXISTS (SELECT FROM schedules WHERE schedules.schedule_id = found.schedule_id)
) FROM slice
"""

# Each period in which a schedule had one timing. The current one is the schedule's row; an earlier one was replaced by
# a change of the timing (only that moves effective_from) or by a deletion. It ended where the next one begins, because
# a change of many rows is logged later, at the end of its statement. TRUNCATE logs no rows: what it ended follows from
# each schedule's newest change before it.
SEGMENTS = f"""
WITH truncated AS (
    SELECT DISTINCT ON (t.change_id, c.schedule_id) c.new AS definition, t.changed_at AS ended_at
    FROM schedule_changes AS t JOIN schedule_changes AS c ON c.change_id < t.change_id AND c.schedule_id IS NOT NULL
    WHERE t.operation = 'truncate' AND t.changed_at > %(since)s AND c.schedule_id BETWEEN %(first)s AND %(last)s
      AND NOT EXISTS (
        SELECT FROM schedule_changes AS between_them
        WHERE between_them.operation = 'truncate'
          AND between_them.change_id > c.change_id AND between_them.change_id < t.change_id
    )
    ORDER BY t.change_id, c.schedule_id, c.change_id DESC
), past AS (
    SELECT old AS definition, least(changed_at, (new->>'effective_from')::timestamptz) AS ended_at
    FROM schedule_changes
    WHERE changed_at > %(since)s AND old IS NOT NULL AND schedule_id BETWEEN %(first)s AND %(last)s
      AND (operation = 'delete' OR old->'effective_from' IS DISTINCT FROM new->'effective_from')
    UNION ALL
    SELECT definition, ended_at FROM truncated WHERE definition IS NOT NULL
)
SELECT {_DEFINITION}, {bucket_of("s.schedule_id")} AS bucket, past.ended_at
FROM past, jsonb_populate_record(NULL::schedules, past.definition) AS s
UNION ALL
SELECT {_DEFINITION}, {bucket_of("s.schedule_id")}, NULL FROM schedules AS s
WHERE s.schedule_id BETWEEN %(first)s AND %(last)s
ORDER BY schedule_id, effective_from
"""

# Of each schedule by the unique key, in order: a subquery that is sorted cannot be turned into a scan of the table. A
# summary row counts from its first fire, which may lie before the window; they have an index. Rows of programs that
# record their own work have no owner and do not fall on a full second. A backfill accounts for a fire without a row,
# and may lie before the schedule's creation; it is the only way in which a fire that was recorded as missed may run.
_COVERS_UNTIL = "(metadata->>'last')::timestamptz"
ROWS = f"""
SELECT ids.schedule_id, found.* FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS ids (schedule_id, place)
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT scheduled_for, domain, status, created_at, cause, reason, metadata, incarnation FROM job_executions AS e
        WHERE e.schedule_id = ids.schedule_id AND reason = '{Reason.CATCHUP_CAP}'
          AND scheduled_for <= %(since)s AND {_COVERS_UNTIL} > %(since)s
          AND attempt = 1 AND cause IN ('schedule', 'catchup', 'backfill')
        UNION ALL
        SELECT scheduled_for, domain, status, created_at, cause, reason, metadata, incarnation FROM job_executions AS e
        WHERE e.schedule_id = ids.schedule_id AND scheduled_for > %(since)s AND scheduled_for <= %(until)s
          AND attempt = 1 AND cause IN ('schedule', 'catchup', 'backfill')
    ) AS both_kinds ORDER BY scheduled_for
) AS e CROSS JOIN LATERAL (
    SELECT e.scheduled_for, e.domain, e.status, e.created_at,
           CASE WHEN e.reason = '{Reason.CATCHUP_CAP}' THEN (e.metadata->>'last')::timestamptz END AS covers_until,
           e.cause <> 'backfill' AND e.status NOT IN ('skipped', 'missed', 'cancelled') AS is_run,
           e.cause = 'backfill'
               OR (e.incarnation IS NULL AND e.scheduled_for <> date_trunc('second', e.scheduled_for)) AS is_no_fire
) AS found
ORDER BY ids.place, found.scheduled_for
"""

# The unique key makes duplicates impossible; this checks it anyway.
DUPLICATES = """
SELECT coalesce(sum(repeated.n), 0)::bigint FROM unnest(%(ids)s::uuid[]) AS ids (schedule_id)
CROSS JOIN LATERAL (
    SELECT count(*) - 1 AS n FROM job_executions AS e
    WHERE e.schedule_id = ids.schedule_id AND scheduled_for > %(since)s AND scheduled_for <= %(until)s
    GROUP BY scheduled_for, attempt HAVING count(*) > 1
) AS repeated
"""

# All executions, not only those of the window: a chain of attempts is open as long as one of its rows is. Each status
# has a limit: waiting (for room as long as a claim allows, with room no longer than the grace, once for a limit as long
# as anything may wait), from claim to start, and running. Rows without an owner belong to other programs.
_GRACE = f"CASE WHEN {HAS_WAITED} THEN %(horizon)s ELSE coalesce(s.misfire_grace_seconds, %(grace)s) END"
_FOR_ROOM = f"""CASE WHEN (
        SELECT count(*) FROM job_executions AS live
        WHERE live.schedule_id = e.schedule_id AND live.status IN ('claimed', 'running')
    ) >= coalesce(s.max_instances, %(max_instances)s) THEN %(horizon)s ELSE {_GRACE} END"""
UNFINISHED = f"""
SELECT e.schedule_id, e.scheduled_for, e.domain, e.status, CASE e.status
    WHEN 'pending' THEN e.due_at + make_interval(secs => {patience_seconds(kind_of("e"), _GRACE, _FOR_ROOM)})
    WHEN 'claimed' THEN e.claimed_at
    ELSE e.started_at + make_interval(secs => coalesce(s.timeout_seconds, %(timeout)s))
END < clock_timestamp() - make_interval(secs => %(patience)s) AS overdue
FROM job_executions AS e LEFT JOIN schedules AS s USING (schedule_id)
WHERE (e.status = 'pending' OR e.status IN ('claimed', 'running') AND e.incarnation IS NOT NULL)
  AND e.schedule_id IS NOT NULL
ORDER BY e.scheduled_for
"""
