"""The statements of claims.py. Each comment says what a statement relies on.

They are written for one plan: each row is found by its key. The planner knows neither how many rows a young or busy
table has nor that most entries of a small index are dead, and would rather read all of them. So these transactions do
without sequential scans, OFFSET 0 keeps a subquery a look-up per row, and `coalesce(e.status, '')` keeps the index of
live rows out of it. tests/integration/ledger/test_claim_plans.py holds that.
"""

from dataclasses import fields

from database.models import ExecutionStatus
from services.ledger.limits_sql import ARE_THERE, BY_INDEX, HAS_WAITED, LIMIT, MARK, PREVIEW
from services.ledger.summary_sql import recorded_as_missed
from services.ledger.verdicts import Reason, Situation, Stage, as_case, status_of
from services.schedules.spec import ScheduleSpec

_SPEC = ", ".join(f"s.{item.name}" for item in fields(ScheduleSpec))
SCHEDULE = f"s.schedule_id, s.revision, s.effective_from, s.backoff_until, {_SPEC}"

# A schedule missing from the answer is locked by another session, or deleted.
LOCK_SCHEDULES = f"""
SELECT {ARE_THERE} AS are_limited, {SCHEDULE}, clock_timestamp() AS now FROM schedules AS s
WHERE s.schedule_id = ANY(%(ids)s::uuid[]) ORDER BY s.schedule_id FOR NO KEY UPDATE SKIP LOCKED
"""

PRESENT = "SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])"

# --- what both ways of a claim share: the verdicts are those of verdicts.py, each by its word ---

CLAIMED = f"verdict = '{ExecutionStatus.CLAIMED}'"
LIMITED = f"verdict = '{Reason.LIMITED}'"
WAITS = f"verdict IN ('{ExecutionStatus.PENDING}', '{Reason.LIMITED}')"
STATUS = status_of("verdict")
LIVE = """
    SELECT schedule_id, count(*) AS n FROM job_executions
    WHERE schedule_id = ANY(%(schedule_ids)s::uuid[]) AND status IN ('claimed', 'running') GROUP BY schedule_id
"""

_AMONG_FIRES = {
    Situation.COALESCES: "f.coalesces AND f.rank < f.fires",
    Situation.STOOD_FOR: "f.coalesces AND standing.schedule_id IS NOT NULL",
    Situation.NO_ROOM: "coalesce(live.n, 0) >= f.max_instances",
    Situation.OTHERS_FIRST: "NOT f.coalesces AND coalesce(live.n, 0) + f.rank > f.max_instances",
    Situation.BEHIND: "standing.schedule_id IS NOT NULL",
    Situation.UNABLE: "NOT f.able",
    Situation.LIMITED: "f.full_key IS NOT NULL",
}

# Schedules with a first attempt that waits as a row and may still run. One that only has to be settled (its timing has
# ended, it was cancelled, its grace is over) stands for nothing: the fires of its schedule would end with it.
_STANDING = f"""
    SELECT DISTINCT e.schedule_id FROM (
        SELECT schedule_id, scheduled_for, due_at, metadata FROM job_executions
        WHERE schedule_id = ANY(%(schedule_ids)s::uuid[]) AND coalesce(status, 't') = 'pending' AND attempt = 1
          AND cause IN ('schedule', 'catchup') AND cancel_requested_at IS NULL OFFSET 0
    ) AS e
    WHERE (SELECT e.scheduled_for > s.effective_from AND e.due_at > clock_timestamp() - make_interval(
               secs => CASE WHEN {HAS_WAITED} THEN %(horizon)s ELSE coalesce(s.misfire_grace_seconds, %(grace)s) END)
           FROM schedules AS s WHERE s.schedule_id = e.schedule_id)
"""

# A separate statement, so that its snapshot is younger than the locks: every replica that could have claimed another
# fire of these schedules has committed. In one statement with the locks the count would be from before them.
# `judged` is the verdict by the schedule's own row; what may run is judged here by the executions beside it. A fire
# that would only meet others of this batch is no overlap: its row waits until there is room, and so does one that this
# replica is not able to run. `standing` is asked here and never when a row is taken: it would stand for itself.
_CLAIMS = f"""
WITH asked AS (
    SELECT * FROM unnest(
        %(schedule_ids)s::uuid[], %(scheduled)s::timestamptz[], %(due)s::timestamptz[], %(verdicts)s::text[],
        %(coalesce)s::boolean[], %(limits)s::int[], %(job_ids)s::text[], %(domains)s::text[], %(config_ids)s::uuid[],
        %(next_runs)s::timestamptz[], %(starts)s::boolean[], %(able)s::boolean[], %(keys)s::text[],
        %(full_keys)s::text[], %(queues)s::text[], %(needs)s::text[], %(priorities)s::int[]
    ) WITH ORDINALITY AS a (
        schedule_id, scheduled_for, due_at, judged, coalesces, max_instances, job_id, domain, domain_config_id,
        next_run, starts, able, keys, full_key, queue, needs, priority, place
    )
), live AS ({LIVE}), standing AS ({_STANDING}), fresh AS (
    SELECT a.*,
           row_number() OVER (PARTITION BY schedule_id, judged ORDER BY scheduled_for) AS rank,
           count(*) OVER (PARTITION BY schedule_id, judged) AS fires
    FROM asked AS a
    WHERE NOT EXISTS (
        SELECT FROM job_executions AS e
        WHERE e.schedule_id = a.schedule_id AND e.scheduled_for = a.scheduled_for AND e.attempt = 1 OFFSET 0
    ) /* if late */
), decided AS (
    SELECT f.*, CASE WHEN f.judged <> '{ExecutionStatus.CLAIMED}' THEN f.judged
    ELSE {as_case(Stage.CLAIM, _AMONG_FIRES)} END AS verdict
    FROM fresh AS f LEFT JOIN live USING (schedule_id) LEFT JOIN standing USING (schedule_id)
)"""

# What waits for a limit is sorted into its lane at once. What else waits, or comes back, is as urgent as its schedule
# before anybody has sorted it.
_WRITTEN = f""", advanced AS (
    UPDATE schedules AS s SET next_run = d.next_run
    FROM (SELECT schedule_id, max(next_run) AS next_run FROM decided GROUP BY schedule_id) AS d
    WHERE s.schedule_id = d.schedule_id AND (s.next_run IS NULL OR s.next_run < d.next_run)
), written AS (
    INSERT INTO job_executions (
        schedule_id, job_id, domain, domain_config_id, scheduled_for, due_at, status, reason,
        claimed_at, started_at, completed_at, instance_id, incarnation, fencing_token, limit_keys, metadata, queue,
        needs, priority
    )
    SELECT schedule_id, job_id, domain, domain_config_id, scheduled_for, due_at,
           CASE WHEN {CLAIMED} AND starts THEN 'running' ELSE {STATUS} END,
           CASE WHEN {LIMITED} THEN '{LIMIT}' || full_key WHEN NOT ({CLAIMED} OR {WAITS}) THEN verdict END,
           CASE WHEN {CLAIMED} THEN clock_timestamp() END,
           CASE WHEN {CLAIMED} AND starts THEN clock_timestamp() END,
           CASE WHEN NOT ({CLAIMED} OR {WAITS}) THEN clock_timestamp() END,
           CASE WHEN NOT {WAITS} THEN %(instance_id)s END,
           CASE WHEN NOT {WAITS} THEN %(incarnation)s::uuid END,
           CASE WHEN {CLAIMED} THEN nextval('fencing_token_seq') END, keys::text[],
           CASE WHEN {LIMITED} THEN jsonb_build_object('{MARK}', full_key) END,
           CASE WHEN {LIMITED} THEN queue ELSE '' END, CASE WHEN {LIMITED} THEN needs::text[] ELSE '{{}}' END,
           coalesce(priority, 0)
    FROM decided
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
    RETURNING execution_id, schedule_id, job_id, scheduled_for, attempt, cause, status, reason, fencing_token
)
SELECT *, false AS has_waited FROM written
"""
INSERT_CLAIMS = _CLAIMS + _WRITTEN
PREVIEW_CLAIMS = BY_INDEX + _CLAIMS + PREVIEW

# The same for a batch with late fires: what a summary has recorded as missed is decided, as if it had its own row.
INSERT_LATE_CLAIMS, PREVIEW_LATE_CLAIMS = (
    statement.replace("/* if late */", f"AND NOT {recorded_as_missed('a')}")
    for statement in (INSERT_CLAIMS, PREVIEW_CLAIMS)
)

# Stretches of time in which a schedule was switched on with one timing, each up to where the next one begins (a change
# of many rows is logged later than that). What its newest changes do not prove gets no row here: the gap scan, which
# reads the log page by page, records it.
CHANGES_LOOKED_AT = 200
FORMER_TIMINGS = f"""
SELECT s.schedule_id, s.effective_from, c.ended_at, s.frequency, s.time_config, s.timezone, s.start_at, s.end_at
FROM unnest(%(ids)s::uuid[]) AS w (schedule_id), LATERAL (
    SELECT old, least(changed_at, (new->>'effective_from')::timestamptz) AS ended_at FROM schedule_changes AS log
    WHERE log.schedule_id = w.schedule_id ORDER BY log.change_id DESC LIMIT {CHANGES_LOOKED_AT}
) AS c, jsonb_populate_record(NULL::schedules, c.old) AS s
WHERE s.enabled AND s.effective_from < c.ended_at AND c.ended_at >= %(since)s
"""

_FENCED = "unnest(%(execution_ids)s::uuid[], %(tokens)s::bigint[]) AS c (execution_id, token)"

START = """
UPDATE job_executions AS e SET status = 'running', started_at = clock_timestamp()
FROM unnest(%(execution_ids)s::uuid[], %(tokens)s::bigint[], %(schedule_ids)s::uuid[], %(revisions)s::bigint[])
     AS c (execution_id, token, schedule_id, revision)
WHERE e.execution_id = c.execution_id AND e.fencing_token = c.token AND coalesce(e.status, '') = 'claimed'
  AND c.revision = (SELECT s.revision FROM schedules AS s WHERE s.schedule_id = c.schedule_id)
RETURNING e.execution_id, e.fencing_token
"""

# A row that another session holds is let go: once it is free the heart finds it and hands it back.
LOOK_AGAIN = f"""
SELECT {SCHEDULE}, clock_timestamp() AS now
FROM job_executions AS e LEFT JOIN schedules AS s ON s.schedule_id = %(schedule_id)s
WHERE e.execution_id = (%(execution_ids)s::uuid[])[1] AND e.fencing_token = (%(tokens)s::bigint[])[1]
  AND e.status = 'claimed'
FOR NO KEY UPDATE OF e SKIP LOCKED
"""

END_UNSTARTED = """
UPDATE job_executions SET status = %(status)s, reason = %(reason)s, completed_at = clock_timestamp()
WHERE execution_id = %(execution_id)s AND status = 'claimed'
"""

# Returns the schedules that another session locks: one open transaction must not delay all other results. Run alone, in
# autocommit, it only reports: its locks end with it.
LOCK_OR_TELL = """
WITH locked AS MATERIALIZED (
    SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])
    ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT schedule_id FROM schedules
WHERE schedule_id = ANY(%(ids)s::uuid[]) AND schedule_id NOT IN (SELECT schedule_id FROM locked)
"""

# In one statement with its answer: those that another session holds. Only after a lock timeout, else it would cost each
# batch a round trip.
LOCK_FREE_EXECUTIONS = """
WITH locked AS MATERIALIZED (
    SELECT execution_id FROM job_executions WHERE execution_id = ANY(%(ids)s::uuid[])
    ORDER BY execution_id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT execution_id FROM job_executions
WHERE execution_id = ANY(%(ids)s::uuid[]) AND execution_id NOT IN (SELECT execution_id FROM locked)
"""

# An ending that is already written: the answer to its commit was lost. Only we write these statuses under our token.
LANDED = """
SELECT e.execution_id FROM job_executions AS e
JOIN unnest(%(execution_ids)s::uuid[], %(tokens)s::bigint[], %(statuses)s::text[]) AS c (execution_id, token, status)
  ON e.execution_id = c.execution_id AND e.fencing_token = c.token AND e.status = c.status
"""

# The end, the schedule's bookkeeping, and the next attempt, which waits without an owner.
FINISH = """
WITH ended AS (
    UPDATE job_executions AS e SET
        status = c.status, completed_at = clock_timestamp(), duration_seconds = c.duration,
        metadata = coalesce(e.metadata, '{}') || coalesce(c.details::jsonb, '{}'), error_message = c.message,
        error_details = c.error::jsonb, scan_id = c.scan_id, reason = coalesce(c.reason, e.reason)
    FROM unnest(
        %(execution_ids)s::uuid[], %(tokens)s::bigint[], %(statuses)s::text[], %(durations)s::float8[],
        %(details)s::text[], %(messages)s::text[], %(errors)s::text[], %(scans)s::uuid[], %(delays)s::float8[],
        %(reasons)s::text[]
    ) AS c (execution_id, token, status, duration, details, message, error, scan_id, delay, reason)
    WHERE e.execution_id = c.execution_id AND e.fencing_token = c.token AND coalesce(e.status, '') = 'running'
    RETURNING e.*, c.delay
), kept AS (
    UPDATE schedules AS s SET last_run = newest.started_at, last_status = newest.status
    FROM (
        SELECT DISTINCT ON (schedule_id) schedule_id, started_at, status FROM ended
        ORDER BY schedule_id, started_at DESC
    ) AS newest
    WHERE s.schedule_id = newest.schedule_id AND s.last_status IS DISTINCT FROM 'invalid'
      AND (s.last_run IS NULL OR s.last_run <= newest.started_at)
), retried AS (
    INSERT INTO job_executions
        (schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt, cause, status, priority, due_at)
    SELECT schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt + 1, cause, 'pending', priority,
           clock_timestamp() + make_interval(secs => delay)
    FROM ended WHERE delay IS NOT NULL AND cancel_requested_at IS NULL
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
)
SELECT execution_id FROM ended
"""

# Releases a row for any replica. Each statement sets the due time: a fire that its replica hands back keeps its grace,
# one that never reached its replica, or whose replica died, gets a new one.
HANDED_BACK = """status = 'pending', instance_id = NULL, incarnation = NULL, fencing_token = NULL, claimed_at = NULL,
       started_at = NULL"""

HAND_BACK = f"""
UPDATE job_executions AS e SET {HANDED_BACK}, due_at = least(e.due_at, clock_timestamp())
FROM {_FENCED}
WHERE e.execution_id = c.execution_id AND e.fencing_token = c.token AND coalesce(e.status, '') = 'claimed'
"""

# Places in the arrays; almost always none. A fire that a summary covers is no longer looked for.
WITHOUT_ROW = f"""
SELECT f.place - 1 AS place
FROM unnest(%(ids)s::uuid[], %(scheduled)s::timestamptz[]) WITH ORDINALITY AS f (schedule_id, scheduled_for, place)
WHERE CASE WHEN EXISTS (
    SELECT FROM job_executions AS e
    WHERE e.schedule_id = f.schedule_id AND e.scheduled_for = f.scheduled_for AND e.attempt = 1 OFFSET 0
) THEN false ELSE NOT {recorded_as_missed("f")} END
"""

# For executions whose handler was never called: any replica may run them.
UNSTART = f"""
UPDATE job_executions AS e SET {HANDED_BACK}, due_at = least(e.due_at, clock_timestamp())
FROM {_FENCED}
WHERE e.execution_id = c.execution_id AND e.fencing_token = c.token AND coalesce(e.status, '') IN ('claimed', 'running')
"""
