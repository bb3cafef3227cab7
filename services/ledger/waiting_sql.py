"""The statements of waiting.py. Each comment says what a statement relies on.

A waiting row is found by one of three indexes. Each has a predicate of its own spelling, which its statements repeat:
with the statistics of a quiet hour the planner would read all waiting rows by another index instead. The present time
is asked for in a subquery, once: only so can an index be read up to it.
"""

from services.ledger.claims_sql import CLAIMED, LIMITED, LIVE, SCHEDULE, STATUS, WAITS
from services.ledger.limits_sql import (
    ARE_THERE,
    BY_INDEX,
    FOR_A_LIMIT,
    HAS_WAITED,
    LIMIT,
    MARK,
    PREVIEW,
    WAITS_FOR_LIMIT,
)
from services.ledger.living_sql import MOMENT, WE_LIVE
from services.ledger.needs import QUEUE
from services.ledger.verdicts import Reason, Situation, Stage, as_case, kind_of, patience_seconds
from services.schedules.spec import DEFAULT_QUEUE

MOST_LANES = 1000  # that are looked at together
LOOK_AGAIN = "interval '10 minutes'"  # at the latest; only for what changes without a word

_IN_A_LANE = "coalesce(e.status, 'w') = 'pending' AND e.reason IS NULL"
_BY_ITS_KEY = "coalesce(e.status, '') = 'pending'"
_LANE = "SELECT e.queue, e.needs, e.priority, e.due_at FROM job_executions AS e"
_KIND = kind_of("e")

# The lanes of these queues, each with its oldest row: one step in the index per lane, however many rows wait in it.
# Lanes of other needs are passed over, and so are those in which nothing is due: they take no place from the others. A
# date that Python cannot read, written by SQL, is answered as the nearest that it can. Without any lane there is one
# row, which only says whether a replica of a version that lists no abilities is alive, or of one that knows no limits
# (it also says nothing of free workers), and whether anything waits for a limit: those lanes are LIMIT_LANES. While one
# without abilities is alive, the queues are all that have rows: it serves each.
LANES = f"""
WITH RECURSIVE queues AS (
    SELECT unnest(%(queues)s::text[]) AS queue
    UNION ALL
    SELECT (SELECT e.queue FROM job_executions AS e WHERE {_IN_A_LANE} AND e.queue > q.queue ORDER BY e.queue LIMIT 1)
    FROM queues AS q WHERE %(elders)s AND q.queue IS NOT NULL
), lanes AS (
    SELECT n.* FROM queues AS q, LATERAL (
        {_LANE} WHERE {_IN_A_LANE} AND e.queue = q.queue ORDER BY e.needs, e.priority DESC, e.due_at LIMIT 1
    ) AS n
    UNION ALL
    SELECT n.* FROM lanes AS l, LATERAL (
        SELECT * FROM (
            ({_LANE} WHERE {_IN_A_LANE} AND e.queue = l.queue AND e.needs = l.needs AND e.priority < l.priority
             ORDER BY e.priority DESC, e.due_at LIMIT 1)
            UNION ALL
            ({_LANE} WHERE {_IN_A_LANE} AND e.queue = l.queue AND e.needs > l.needs
             ORDER BY e.needs, e.priority DESC, e.due_at LIMIT 1)
        ) AS next LIMIT 1
    ) AS n
)
SELECT found.*, elder.* FROM (
    SELECT coalesce(bool_or(abilities IS NULL), false) AS elders,
           coalesce(bool_or(abilities IS NULL OR free_slots IS NULL), false) AS ignored_limits,
           EXISTS (SELECT FROM job_executions AS e WHERE {FOR_A_LIMIT}) AS for_limits
    FROM scheduler_instances
    WHERE kind = 'replica' AND heartbeat_at > (SELECT clock_timestamp() - make_interval(secs => %(timeout)s))
) AS elder LEFT JOIN (
    SELECT queue, needs, priority, greatest('0001-01-02', due_at) AS due_at FROM lanes
    WHERE due_at <= clock_timestamp() AND (%(words)s::text[] IS NULL OR needs <@ %(words)s::text[]) LIMIT {MOST_LANES}
) AS found ON true
"""

# Rows that are due, lane by lane in the order given, each oldest first, locked with their schedules. Those that would
# only wait, for room or for whoever holds their schedule, are passed over: they must not fill the places of others. Not
# in id order, which those need who wait for a lock.
_OF_A_LANE = f"""SELECT e.execution_id, greatest('0001-01-02', e.due_at) AS due_at, {SCHEDULE}
        FROM job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
        WHERE /* which */ AND e.queue = lane.queue AND e.needs = lane.needs::text[] AND e.priority = lane.priority
          AND e.due_at <= (SELECT clock_timestamp())
          AND (SELECT count(*) FROM job_executions AS live
               WHERE live.schedule_id = e.schedule_id AND live.status IN ('claimed', 'running'))
              < coalesce(s.max_instances, %(max_instances)s)
        ORDER BY e.due_at LIMIT /* most */ FOR NO KEY UPDATE OF e, s SKIP LOCKED"""
_FREELY = _OF_A_LANE.replace("/* which */", _IN_A_LANE).replace("/* most */", "%(limit)s")
_FOR_ROOM = _OF_A_LANE.replace("/* which */", f"{FOR_A_LIMIT} AND e.reason = lane.reason").replace(
    "/* most */", "lane.room"
)
_LOCK = f"""
WITH locked AS MATERIALIZED (
    SELECT found.* FROM unnest(
        %(queues)s::text[], %(needs)s::text[], %(priorities)s::int[], %(reasons)s::text[], %(rooms)s::int[]
    ) AS lane (queue, needs, priority, reason, room), LATERAL (
        /* rows */
    ) AS found
    LIMIT %(limit)s
)
SELECT {ARE_THERE} AS are_limited, *, clock_timestamp() AS now FROM locked
"""
LOCK_LANES = _LOCK.replace("/* rows */", _FREELY)

# The same where some of the lanes are of rows that wait for a limit: of such a lane as many as there is room for.
LOCK_LIMITED_LANES = _LOCK.replace(
    "/* rows */",
    f"""SELECT * FROM ({_FREELY.replace("WHERE ", "WHERE lane.reason IS NULL AND ", 1)}) AS free
        UNION ALL
        SELECT * FROM ({_FOR_ROOM}) AS with_room""",
)

# Rows to be looked at, whoever could run them, locked with their schedules. Those of deleted schedules have nothing to
# be locked with, and are looked for among the first: NOT EXISTS asked of all would read the whole table.
_LOCK_TO_SETTLE = f"""
WITH locked AS MATERIALIZED (
    SELECT e.execution_id, {SCHEDULE} FROM job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
    WHERE /* which */ LIMIT %(limit)s FOR NO KEY UPDATE OF e, s SKIP LOCKED
), orphaned AS MATERIALIZED (
    SELECT e.execution_id, e.schedule_id FROM job_executions AS e
    WHERE {_BY_ITS_KEY} AND e.execution_id = ANY(ARRAY(
        SELECT first.execution_id FROM (
            SELECT e.execution_id, e.schedule_id FROM job_executions AS e WHERE /* which */ LIMIT 500
        ) AS first
        WHERE (SELECT s.schedule_id FROM schedules AS s WHERE s.schedule_id = first.schedule_id) IS NULL
    )) LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
), found AS (
    SELECT execution_id, schedule_id AS wanted FROM locked
    UNION ALL
    SELECT execution_id, schedule_id FROM orphaned
)
SELECT found.execution_id, found.wanted, {SCHEDULE}, clock_timestamp() AS now
FROM found LEFT JOIN locked AS s ON s.execution_id = found.execution_id
"""

LOCK_TO_SETTLE = _LOCK_TO_SETTLE.replace(
    "/* which */",
    """coalesce(e.status, 's') = 'pending'
       AND coalesce(e.settle_at, e.due_at) <= (SELECT clock_timestamp() - interval '1 second')
    ORDER BY coalesce(e.settle_at, e.due_at)""",
)
LOCK_CHANGED = _LOCK_TO_SETTLE.replace(
    "/* which */",
    """coalesce(e.status, 't') = 'pending' AND e.schedule_id = ANY(%(ids)s::uuid[])
       AND e.execution_id > %(after)s AND e.due_at <= (SELECT clock_timestamp())
    ORDER BY e.execution_id""",
)

# Schedules with waiting rows that were changed or deleted by a transaction which the snapshot of the last time did not
# show; the first time, so long ago that each of their rows has had its own look since.
_CHANGED = """
SELECT pg_current_snapshot()::text AS snapshot, array_agg(DISTINCT c.schedule_id) AS ids FROM schedule_changes AS c
WHERE EXISTS (SELECT FROM job_executions AS e
              WHERE e.schedule_id = c.schedule_id AND coalesce(e.status, 't') = 'pending') AND /* since */
"""
CHANGED = _CHANGED.replace(
    "/* since */",
    """c.txid >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)
       AND NOT pg_visible_in_snapshot(c.txid, %(snapshot)s::pg_snapshot)""",
)
CHANGED_LATELY = _CHANGED.replace("/* since */", f"c.changed_at > (SELECT clock_timestamp() - {LOOK_AGAIN})")

# Who could run it is asked of the needs under the schedule's lock, never of the copy on the row. Only a replica that
# has been alive itself may say that nobody is. A living one that says nothing is of the version before: it may be able.
_NOBODY_ABLE = f"""w.is_overdue AND {WE_LIVE} AND NOT EXISTS (
            SELECT FROM scheduler_instances AS i
            WHERE i.heartbeat_at > moment.now - make_interval(secs => %(timeout)s)
              AND (i.abilities IS NULL OR w.needs <@ i.abilities AND w.queue = ANY(i.queues)))"""

_GRACE = f"CASE WHEN {HAS_WAITED} THEN %(horizon)s ELSE a.grace_seconds END"
_AMONG_WAITING = {
    Situation.CANCEL_REQUESTED: "w.cancel_requested_at IS NOT NULL",
    Situation.DELETED: "w.enabled IS NULL",
    Situation.OFF: "NOT w.enabled",
    Situation.ENDED: "w.scheduled_for <= w.effective_from",
    Situation.NOBODY_ABLE: _NOBODY_ABLE,
    Situation.FOR_LIMIT: "w.waits_for_limit",
    Situation.OVERDUE: "w.is_overdue",
    Situation.NO_ROOM: "coalesce(live.n, 0) + w.rank > w.max_instances",
    Situation.UNABLE: "NOT w.able",
    Situation.LIMITED: "w.full_key IS NOT NULL",
}

# Again a younger snapshot than the locks. What may run and has a worker goes straight to `running`. To settle is the
# same judgement for a process that can run nothing: no row gets a token by it, and none takes the room of another.
# A row that stays is written only if it is settled, which says when to look again, or if its lane was wrong; then
# its new queue is announced at once. An overdue
# one ends as soon as nobody living is able to run it; only a settler that has lived for a timeout can tell. Dates that
# Python cannot read, written by SQL, are answered as the nearest that it can: one such row must not keep all others
# waiting.
_JUDGED = f"""
WITH {MOMENT}, asked AS (
    SELECT * FROM unnest(
        %(execution_ids)s::uuid[], %(schedule_ids)s::uuid[], %(limits)s::int[], %(graces)s::int[],
        %(enabled)s::boolean[], %(effective_from)s::timestamptz[], %(able)s::boolean[], %(starts)s::boolean[],
        %(queues)s::text[], %(needs)s::text[], %(priorities)s::int[], %(keys)s::text[], %(full_keys)s::text[]
    ) WITH ORDINALITY AS a (
        execution_id, schedule_id, max_instances, grace_seconds, enabled, effective_from, able, starts, queue, words,
        priority, key_words, full_key, place
    )
), live AS ({LIVE}), waiting AS (
    SELECT a.*, a.words::text[] AS needs, a.key_words::text[] AS keys, {WAITS_FOR_LIMIT} AS waits_for_limit,
           e.scheduled_for, e.cancel_requested_at, {_KIND} AS kind,
           e.due_at + make_interval(secs => {patience_seconds(_KIND, _GRACE, "%(horizon)s")}) AS ends_at,
           CASE WHEN a.able THEN row_number() OVER (PARTITION BY a.schedule_id ORDER BY a.place) ELSE 1 END AS rank
    FROM asked AS a JOIN job_executions AS e ON e.execution_id = a.execution_id AND {_BY_ITS_KEY}
), timed AS (
    SELECT waiting.*, moment.now, coalesce(moment.now > waiting.ends_at, false) AS is_overdue FROM waiting, moment
), decided AS (
    SELECT w.*, {as_case(Stage.WAITING, _AMONG_WAITING, "w.kind")} AS verdict
    FROM timed AS w CROSS JOIN moment LEFT JOIN live ON live.schedule_id = w.schedule_id
)"""
PREVIEW_WAITING = BY_INDEX + _JUDGED + PREVIEW

# What waits for a limit that its schedule no longer asks for goes back to the other rows.
_REASON_IS_OLD = f"({WAITS_FOR_LIMIT} AND substr(e.reason, {len(LIMIT) + 1}) <> ALL(d.keys))"
JUDGE_WAITING = f"""{_JUDGED}
UPDATE job_executions AS e SET
    status = CASE WHEN {CLAIMED} AND d.starts THEN 'running' ELSE {STATUS} END,
    error_message = CASE WHEN verdict = '{Reason.NOBODY_ABLE}'
        THEN 'no living replica can run it; it needs '
             || array_to_string(nullif(array['{QUEUE}' || d.queue], array['{QUEUE}{DEFAULT_QUEUE}']) || d.needs, ', ')
        ELSE e.error_message END,
    reason = CASE WHEN {CLAIMED} THEN NULL WHEN {LIMITED} THEN '{LIMIT}' || d.full_key
                  WHEN {WAITS} THEN CASE WHEN {_REASON_IS_OLD} THEN NULL ELSE e.reason END ELSE verdict END,
    metadata = CASE WHEN {LIMITED} THEN coalesce(e.metadata, '{{}}') || jsonb_build_object('{MARK}', d.full_key)
                    ELSE e.metadata END,
    limit_keys = coalesce(d.keys, e.limit_keys),
    claimed_at = CASE WHEN {CLAIMED} THEN clock_timestamp() END,
    started_at = CASE WHEN {CLAIMED} AND d.starts THEN clock_timestamp() END,
    completed_at = CASE WHEN NOT ({CLAIMED} OR {WAITS}) THEN clock_timestamp() END,
    instance_id = CASE WHEN NOT {WAITS} THEN %(instance_id)s END,
    incarnation = CASE WHEN NOT {WAITS} THEN %(incarnation)s::uuid END,
    fencing_token = CASE WHEN {CLAIMED} THEN nextval('fencing_token_seq') END,
    queue = CASE WHEN {CLAIMED} THEN '' ELSE coalesce(d.queue, e.queue) END,
    needs = CASE WHEN {CLAIMED} THEN '{{}}' ELSE coalesce(d.needs, e.needs) END,
    priority = coalesce(d.priority, e.priority),
    publish_at = CASE WHEN NOT {CLAIMED} AND e.queue = d.queue THEN e.publish_at END,
    settle_at = CASE WHEN {WAITS} AND (%(settling)s OR e.settle_at > d.ends_at)
                     THEN CASE WHEN d.ends_at > d.now THEN least(d.ends_at, d.now + {LOOK_AGAIN})
                               WHEN d.is_overdue THEN d.now + make_interval(secs => %(timeout)s)
                               ELSE d.now + {LOOK_AGAIN} END
                     WHEN {WAITS} THEN e.settle_at END
FROM decided AS d
WHERE d.execution_id = e.execution_id AND {_BY_ITS_KEY} AND (
    NOT {WAITS} OR %(settling)s OR {_REASON_IS_OLD}
    OR {LIMITED} AND e.reason IS DISTINCT FROM '{LIMIT}' || d.full_key OR d.ends_at > d.now AND e.settle_at > d.ends_at
    OR NOT d.able AND (e.queue, e.needs, e.priority) IS DISTINCT FROM (d.queue, d.needs, d.priority)
)
RETURNING e.execution_id, e.schedule_id, e.job_id, e.attempt, e.cause, e.status, e.fencing_token,
          {LIMITED} AS is_limited, {HAS_WAITED} AS has_waited, e.published_at IS NOT NULL AS is_announced,
          greatest('0001-01-02', least(e.scheduled_for, '9999-12-30')) AS scheduled_for,
          greatest('0001-01-02', least(e.due_at, '9999-12-30')) AS due_at
"""
