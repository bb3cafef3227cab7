"""The statements of claims.py. Each comment says what a statement relies on.

They are written for one plan: each row is found by its key. The planner knows neither how many rows a young or busy
table has nor that most entries of a small index are dead, and would rather read all of them. So these transactions do
without sequential scans, OFFSET 0 keeps a subquery a look-up per row, and `coalesce(e.status, '')` keeps the index of
live rows out of it. tests/integration/ledger/test_claim_plans.py holds that.
"""

from dataclasses import fields

from database.models import ExecutionStatus
from services.ledger.summary_sql import recorded_as_missed
from services.ledger.verdicts import (
    UNHANDLED_PATIENCE_SECONDS,
    Reason,
    Situation,
    Stage,
    as_case,
    kind_of,
    patience_seconds,
    status_of,
)
from services.schedules.spec import ScheduleSpec

_SPEC = ", ".join(f"s.{item.name}" for item in fields(ScheduleSpec))
_SCHEDULE = f"s.schedule_id, s.revision, s.effective_from, {_SPEC}"

# What is missing among them is locked by somebody else, or gone.
LOCK_SCHEDULES = f"""
SELECT {_SCHEDULE}, clock_timestamp() AS now FROM schedules AS s
WHERE s.schedule_id = ANY(%(ids)s::uuid[]) ORDER BY s.schedule_id FOR NO KEY UPDATE SKIP LOCKED
"""

PRESENT = "SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])"

# --- what both ways of a claim share: the verdicts are those of verdicts.py, each by its word ---

_CLAIMED = f"verdict = '{ExecutionStatus.CLAIMED}'"
_WAITS = f"verdict = '{ExecutionStatus.PENDING}'"
_STATUS = status_of("verdict")
_KIND = kind_of("e")
_LIVE = """
    SELECT schedule_id, count(*) AS n FROM job_executions
    WHERE schedule_id = ANY(%(schedule_ids)s::uuid[]) AND status IN ('claimed', 'running') GROUP BY schedule_id
"""

_AMONG_FIRES = {
    Situation.COALESCES: "f.coalesces AND f.rank < f.fires",
    Situation.NO_ROOM: "coalesce(live.n, 0) >= f.max_instances",
    Situation.OTHERS_FIRST: "NOT f.coalesces AND coalesce(live.n, 0) + f.rank > f.max_instances",
    Situation.UNKNOWN_JOB: "NOT f.handled",
}

_AMONG_WAITING = {
    Situation.CANCEL_REQUESTED: "w.cancel_requested_at IS NOT NULL",
    Situation.DELETED: "w.enabled IS NULL",
    Situation.OFF: "NOT w.enabled",
    Situation.ENDED: "w.scheduled_for <= w.effective_from",
    Situation.OVERDUE: "w.is_overdue",
    Situation.UNKNOWN_JOB: "NOT w.handled",
    Situation.NO_ROOM: "coalesce(live.n, 0) + w.rank > w.max_instances",
}

# A statement of its own, so that its snapshot is younger than the locks: everybody who could have claimed another fire
# of these schedules has committed. In one statement with the locks the count would be from before them.
# `judged` is the verdict by the schedule's own row; what may run is judged here by the executions beside it. A fire
# that would only meet others of this batch is no overlap: its row waits until there is room, and so does one whose job
# this replica does not know.
INSERT_CLAIMS = f"""
WITH asked AS (
    SELECT * FROM unnest(
        %(schedule_ids)s::uuid[], %(scheduled)s::timestamptz[], %(due)s::timestamptz[], %(verdicts)s::text[],
        %(coalesce)s::boolean[], %(limits)s::int[], %(job_ids)s::text[], %(domains)s::text[], %(config_ids)s::uuid[],
        %(next_runs)s::timestamptz[], %(starts)s::boolean[], %(handled)s::boolean[]
    ) AS a (
        schedule_id, scheduled_for, due_at, judged, coalesces, max_instances, job_id, domain, domain_config_id,
        next_run, starts, handled
    )
), live AS ({_LIVE}), fresh AS (
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
    FROM fresh AS f LEFT JOIN live USING (schedule_id)
), advanced AS (
    UPDATE schedules AS s SET next_run = d.next_run
    FROM (SELECT schedule_id, max(next_run) AS next_run FROM decided GROUP BY schedule_id) AS d
    WHERE s.schedule_id = d.schedule_id AND (s.next_run IS NULL OR s.next_run < d.next_run)
), written AS (
    INSERT INTO job_executions (
        schedule_id, job_id, domain, domain_config_id, scheduled_for, due_at, status, reason,
        claimed_at, started_at, completed_at, instance_id, incarnation, fencing_token
    )
    SELECT schedule_id, job_id, domain, domain_config_id, scheduled_for, due_at,
           CASE WHEN {_CLAIMED} AND starts THEN 'running' ELSE {_STATUS} END,
           CASE WHEN NOT ({_CLAIMED} OR {_WAITS}) THEN verdict END,
           CASE WHEN {_CLAIMED} THEN clock_timestamp() END,
           CASE WHEN {_CLAIMED} AND starts THEN clock_timestamp() END,
           CASE WHEN NOT ({_CLAIMED} OR {_WAITS}) THEN clock_timestamp() END,
           CASE WHEN NOT {_WAITS} THEN %(instance_id)s END,
           CASE WHEN NOT {_WAITS} THEN %(incarnation)s::uuid END,
           CASE WHEN {_CLAIMED} THEN nextval('fencing_token_seq') END
    FROM decided
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
    RETURNING execution_id, schedule_id, job_id, scheduled_for, attempt, cause, status, reason, fencing_token
)
SELECT * FROM written
"""

# The same for a batch with late fires: what a summary has recorded as missed is decided, as if it had its own row.
INSERT_LATE_CLAIMS = INSERT_CLAIMS.replace("/* if late */", f"AND NOT {recorded_as_missed('a')}")

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

_HANDLED = "(%(job_types)s::text[] IS NULL OR s.job_type = ANY(%(job_types)s::text[]))"
_PATIENCE = patience_seconds(_KIND, "coalesce(s.misfire_grace_seconds, %(grace)s)", "%(horizon)s")

# Pending rows that are due, oldest first, with their schedules locked; `gone` is true where the schedule was deleted.
# Those that would only wait, for their schedule or for whoever holds it, are passed over: they must not fill the places
# of others. So are those whose job this replica does not know, until their time is over and a little longer: a replica
# that knows it goes first. Not in id order, which those need who wait for a lock. Deleted ones are looked for among the
# oldest: all of a long queue would be too many to ask for each time (nor is NOT EXISTS asked one by one: it reads the
# whole table).
LOCK_PENDING = f"""
WITH locked AS MATERIALIZED (
    SELECT e.execution_id, e.due_at, {_SCHEDULE}
    FROM job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
    WHERE e.status = 'pending' AND e.due_at <= clock_timestamp() AND (
        e.cancel_requested_at IS NOT NULL
        OR {_HANDLED} AND (SELECT count(*) FROM job_executions AS live
            WHERE live.schedule_id = e.schedule_id AND live.status IN ('claimed', 'running'))
           < coalesce(s.max_instances, %(max_instances)s)
        OR clock_timestamp() - e.due_at > make_interval(secs => {_PATIENCE}
           + CASE WHEN {_HANDLED} THEN 0 ELSE {UNHANDLED_PATIENCE_SECONDS} END)
    )
    ORDER BY e.due_at LIMIT %(limit)s FOR NO KEY UPDATE OF e, s SKIP LOCKED
), due AS (
    SELECT execution_id, schedule_id AS wanted, due_at FROM locked
    UNION ALL
    SELECT execution_id, schedule_id, due_at FROM (
        SELECT execution_id, schedule_id, due_at FROM job_executions
        WHERE status = 'pending' AND due_at <= clock_timestamp() ORDER BY due_at LIMIT 500
    ) AS oldest
    WHERE (SELECT s.schedule_id FROM schedules AS s WHERE s.schedule_id = oldest.schedule_id) IS NULL
)
SELECT due.execution_id, due.wanted, s.schedule_id IS NULL AS gone, {_SCHEDULE}, clock_timestamp() AS now
FROM due LEFT JOIN locked AS s ON s.execution_id = due.execution_id
ORDER BY due.due_at LIMIT %(limit)s
"""

# Again a younger snapshot than the locks. What finds no room, or whose job this replica does not know, waits as long as
# its kind may (PATIENCE in verdicts.py). Dates that Python cannot read, written by SQL, are answered as the nearest
# that it can: one such row must not keep all others waiting.
CLAIM_PENDING = f"""
WITH asked AS (
    SELECT * FROM unnest(
        %(execution_ids)s::uuid[], %(schedule_ids)s::uuid[], %(limits)s::int[], %(graces)s::int[],
        %(enabled)s::boolean[], %(effective_from)s::timestamptz[], %(handled)s::boolean[], %(names)s::text[]
    ) WITH ORDINALITY AS a (
        execution_id, schedule_id, max_instances, grace_seconds, enabled, effective_from, handled, job_type, place
    )
), live AS ({_LIVE}), waiting AS (
    SELECT a.*, e.scheduled_for, e.cancel_requested_at, {_KIND} AS kind,
           clock_timestamp() - e.due_at > make_interval(
               secs => {patience_seconds(_KIND, "a.grace_seconds", "%(horizon)s")}) AS is_overdue,
           row_number() OVER (PARTITION BY a.schedule_id ORDER BY a.place) AS rank
    FROM asked AS a JOIN job_executions AS e ON e.execution_id = a.execution_id AND e.status = 'pending'
), decided AS (
    SELECT w.execution_id, w.job_type, {as_case(Stage.WAITING, _AMONG_WAITING, "w.kind")} AS verdict
    FROM waiting AS w LEFT JOIN live ON live.schedule_id = w.schedule_id
)
UPDATE job_executions AS e SET
    status = {_STATUS},
    error_message = CASE WHEN verdict = '{Reason.NO_HANDLER}'
        THEN 'no replica that was free knew the job type ' || quote_literal(d.job_type) ELSE e.error_message END,
    reason = CASE WHEN {_CLAIMED} THEN e.reason ELSE verdict END,
    claimed_at = CASE WHEN {_CLAIMED} THEN clock_timestamp() END,
    completed_at = CASE WHEN NOT {_CLAIMED} THEN clock_timestamp() END,
    instance_id = %(instance_id)s, incarnation = %(incarnation)s,
    fencing_token = CASE WHEN {_CLAIMED} THEN nextval('fencing_token_seq') END
FROM decided AS d
WHERE d.execution_id = e.execution_id AND e.status = 'pending' AND NOT {_WAITS}
RETURNING e.execution_id, e.schedule_id, e.job_id, e.attempt, e.cause, e.status, e.fencing_token,
          greatest('0001-01-02', least(e.scheduled_for, '9999-12-30')) AS scheduled_for,
          greatest('0001-01-02', least(e.due_at, '9999-12-30')) AS due_at
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
SELECT {_SCHEDULE}, clock_timestamp() AS now
FROM job_executions AS e LEFT JOIN schedules AS s ON s.schedule_id = %(schedule_id)s
WHERE e.execution_id = (%(execution_ids)s::uuid[])[1] AND e.fencing_token = (%(tokens)s::bigint[])[1]
  AND e.status = 'claimed'
FOR NO KEY UPDATE OF e SKIP LOCKED
"""

END_UNSTARTED = """
UPDATE job_executions SET status = %(status)s, reason = %(reason)s, completed_at = clock_timestamp()
WHERE execution_id = %(execution_id)s AND status = 'claimed'
"""

# Returns the schedules that somebody else holds: one open transaction must not keep all other results waiting. Asked
# alone, in autocommit, it only tells: its locks end with it.
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

# An end that is there already: its commit's answer was lost. Nobody else writes these statuses under our token.
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
        (schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt, cause, status, due_at)
    SELECT schedule_id, job_id, domain, domain_config_id, scheduled_for, attempt + 1, cause, 'pending',
           clock_timestamp() + make_interval(secs => delay)
    FROM ended WHERE delay IS NOT NULL AND cancel_requested_at IS NULL
    ON CONFLICT (schedule_id, scheduled_for, attempt) DO NOTHING
)
SELECT execution_id FROM ended
"""

HAND_BACK = f"""
UPDATE job_executions AS e SET
    status = 'pending', due_at = least(e.due_at, clock_timestamp()), instance_id = NULL, incarnation = NULL,
    fencing_token = NULL, claimed_at = NULL
FROM {_FENCED}
WHERE e.execution_id = c.execution_id AND e.fencing_token = c.token AND coalesce(e.status, '') = 'claimed'
"""

# Places in the arrays; almost always none. What a summary speaks for is not looked for any more.
WITHOUT_ROW = f"""
SELECT f.place - 1 AS place
FROM unnest(%(ids)s::uuid[], %(scheduled)s::timestamptz[]) WITH ORDINALITY AS f (schedule_id, scheduled_for, place)
WHERE CASE WHEN EXISTS (
    SELECT FROM job_executions AS e
    WHERE e.schedule_id = f.schedule_id AND e.scheduled_for = f.scheduled_for AND e.attempt = 1 OFFSET 0
) THEN false ELSE NOT {recorded_as_missed("f")} END
"""

# For executions whose handler was never called: somebody else may run them.
UNSTART = f"""
UPDATE job_executions AS e SET
    status = 'pending', due_at = least(e.due_at, clock_timestamp()), instance_id = NULL, incarnation = NULL,
    fencing_token = NULL, claimed_at = NULL, started_at = NULL
FROM {_FENCED}
WHERE e.execution_id = c.execution_id AND e.fencing_token = c.token AND coalesce(e.status, '') IN ('claimed', 'running')
"""
