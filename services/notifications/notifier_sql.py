"""The statements of notifier.py. Each comment says what a statement relies on; docs/decisions.md has the proof."""

from services.insight.overview_sql import LABEL
from services.ledger.fate_sql import FAILED, PASSED_OVER
from services.ledger.limits_sql import HAS_WAITED, WAITS_FOR_LIMIT

MOST = 1000  # rows of one look
STILL_MOST = 500
OPEN_MOST = 5000  # of an event, that a look may end

# Whoever takes the lease gets a new token; a former holder's writes compare the old one.
TAKE = """
UPDATE notifier SET token = token + 1, holder = %(holder)s,
       held_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE only_row AND held_until < clock_timestamp()
  AND EXISTS (SELECT FROM notifier WHERE held_until < clock_timestamp() FOR UPDATE SKIP LOCKED)
RETURNING token
"""

# Locks the row until the commit: the next holder waits for it, or for the server to end a session that froze.
FENCE = """
UPDATE notifier SET held_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE only_row AND token = %(token)s
RETURNING position, clock_timestamp() AS now
"""

GIVE_BACK = "UPDATE notifier SET held_until = '-infinity', holder = NULL WHERE only_row AND token = %(token)s"

MOVE = """
UPDATE notifier SET position = %(position)s::jsonb,
       walked_at = CASE WHEN %(is_round)s THEN clock_timestamp() ELSE walked_at END
WHERE only_row AND token = %(token)s
"""

AGE = "SELECT date_part('epoch', clock_timestamp() - walked_at) AS seconds, holder FROM notifier WHERE only_row"

NOW = "SELECT pg_current_snapshot()::text AS snapshot, clock_timestamp() AS now"

_XID = """(pg_snapshot_xmax(pg_current_snapshot())::text::bigint & ~4294967295) | e.xmin::text::bigint"""

# A page of the index of ends, whatever the transactions; then those that no former look saw. xmin has 32 bits: it is
# completed by the snapshot's upper half, and belongs to the epoch before if it would lie in the future.
_PAGE = f"""
WITH page AS MATERIALIZED (
    SELECT execution_id, schedule_id, {LABEL} AS label, status, reason, scheduled_for, attempt, cause, due_at,
           started_at, completed_at, duration_seconds, instance_id, scan_id, left(error_message, 2000) AS error_message,
           CASE WHEN cause = 'schedule' AND attempt = 1 AND NOT {HAS_WAITED}
                THEN date_part('epoch', started_at - coalesce(due_at, scheduled_for)) END AS lateness,
           {_XID} AS xid, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS horizon
    FROM job_executions AS e
    WHERE (completed_at, execution_id) > (%(at)s::timestamptz, %(id)s::uuid) AND completed_at IS NOT NULL
      AND completed_at <= %(until)s::timestamptz
    ORDER BY completed_at, execution_id LIMIT %(most)s
), numbered AS (
    SELECT page.*, CASE WHEN xid > horizon THEN xid - 4294967296 ELSE xid END AS full_xid,
           row_number() OVER (ORDER BY completed_at, execution_id) AS place, count(*) OVER () AS looked,
           bool_or(status <> 'success' OR lateness > %(late)s OR duration_seconds > %(slow)s
                   OR (scan_id IS NOT NULL AND %(scans)s)) OVER (PARTITION BY schedule_id) AS begins
    FROM page
)"""

# What becomes of a failed attempt is known by what follows it; a retry that ran nothing leaves the fire to the failure
# before it.
_FAILURE = f"""CASE
    WHEN n.status IN {FAILED} AND NOT EXISTS (
        SELECT FROM job_executions AS later
        WHERE later.schedule_id = n.schedule_id AND later.scheduled_for = n.scheduled_for
          AND later.attempt > n.attempt AND later.status NOT IN {PASSED_OVER} OFFSET 0
    ) THEN coalesce(n.error_message, n.reason, n.status)
    WHEN n.status IN {PASSED_OVER} AND n.attempt > 1 AND NOT EXISTS (
        SELECT FROM job_executions AS later
        WHERE later.schedule_id = n.schedule_id AND later.scheduled_for = n.scheduled_for
          AND later.attempt > n.attempt AND later.status NOT IN {PASSED_OVER} OFFSET 0
    ) THEN (
        SELECT coalesce(left(before.error_message, 2000), before.reason, before.status) FROM job_executions AS before
        WHERE before.schedule_id = n.schedule_id AND before.scheduled_for = n.scheduled_for
          AND before.attempt < n.attempt AND before.status IN {FAILED}
        ORDER BY before.attempt DESC LIMIT 1
    ) END"""

# Most executions succeed in time, and nothing is open of their schedules: those stay where they are. Whatever begins in
# a page may end in it, too. `all`: for a walk whose incidents are not in the table.
WALK = f"""{_PAGE}
SELECT n.*, is_new, CASE WHEN is_new THEN {_FAILURE} END AS failure, clock_timestamp() AS now,
       s.tags, s.job_type, s.queue, CASE WHEN is_new AND n.scan_id IS NOT NULL AND %(scans)s THEN (
           SELECT scans.changes FROM scans WHERE scans.scan_id = n.scan_id AND scans.previous_scan_id IS NOT NULL
       ) END AS scan_changes
FROM numbered AS n
CROSS JOIN LATERAL (
    SELECT n.full_xid >= %(from)s AND pg_visible_in_snapshot(n.full_xid::text::xid8, %(target)s::pg_snapshot)
       AND (n.begins OR %(all)s OR n.schedule_id IS NULL OR EXISTS (
           SELECT FROM notification_incidents AS i
           WHERE i.subject = n.schedule_id::text AND i.phase <> 'over' OFFSET 0)) AS is_new
) AS judged
LEFT JOIN schedules AS s ON s.schedule_id = n.schedule_id AND is_new
WHERE is_new OR n.place = n.looked
ORDER BY n.place
"""

# Of at most the last 100 executions of each, at least 10 of them successes.
USUAL = """
SELECT w.schedule_id, usual.seconds
FROM unnest(%(ids)s::uuid[]) AS w (schedule_id), LATERAL (
    SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY duration_seconds) AS seconds, count(*) AS successes FROM (
        SELECT status, duration_seconds FROM job_executions AS e
        WHERE e.schedule_id = w.schedule_id ORDER BY scheduled_for DESC LIMIT 100
    ) AS latest WHERE status = 'success' AND duration_seconds IS NOT NULL
) AS usual
WHERE usual.successes >= 10
"""

_STILL = """execution_id, e.schedule_id, {label} AS label, e.status, e.reason, e.scheduled_for, e.attempt, e.due_at,
       e.instance_id, e.completed_at, clock_timestamp() AS now, s.tags, s.job_type, s.queue"""
_LABEL = "CASE WHEN e.job_id = e.schedule_id::text THEN e.domain ELSE e.job_id END"
_STILL = _STILL.format(label=_LABEL)

# Both walk along what runs or waits, some at a time: many of no concern must not hide the one that hangs.
RUNNING = f"""
SELECT {_STILL}, e.started_at AS place, date_part('epoch', clock_timestamp() - e.started_at) AS seconds
FROM job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
WHERE e.status IN ('claimed', 'running') AND e.status = 'running'
  AND e.started_at < clock_timestamp() - make_interval(secs => %(seconds)s)
  AND (e.started_at, e.execution_id) > (%(at)s::timestamptz, %(id)s::uuid)
ORDER BY e.started_at, e.execution_id LIMIT %(most)s
"""

WAITING = f"""
SELECT {_STILL}, e.due_at AS place, date_part('epoch', clock_timestamp() - e.due_at) AS seconds
FROM job_executions AS e JOIN schedules AS s ON s.schedule_id = e.schedule_id
WHERE e.status = 'pending' AND e.due_at < now() - make_interval(secs => %(seconds)s)
  AND e.cause = 'schedule' AND e.attempt = 1 AND NOT {HAS_WAITED}
  AND NOT {WAITS_FOR_LIMIT}
  AND (e.due_at, e.execution_id) > (%(at)s::timestamptz, %(id)s::uuid)
ORDER BY e.due_at, e.execution_id LIMIT %(most)s
"""

_SCHEDULE = "schedule_id, coalesce(name, domain) AS label, tags, job_type, coalesce(queue, 'default') AS queue"

PARKED = f"""
SELECT {_SCHEDULE}, revision, invalid_reason, clock_timestamp() AS now FROM schedules
WHERE invalid_reason IS NOT NULL ORDER BY updated_at LIMIT {MOST}
"""

# Nobody is lost while nobody has been seen alive for a whole timeout: the silence may be the server's.
LOST = f"""
WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS now), seen AS (
    SELECT i.*, row_number() OVER (PARTITION BY instance_id ORDER BY started_at DESC) AS rank
    FROM scheduler_instances AS i WHERE kind = 'replica'
)
SELECT instance_id, incarnation, heartbeat_at, host, running, moment.now,
       date_part('epoch', moment.now - heartbeat_at) AS age
FROM seen, moment
WHERE rank = 1 AND heartbeat_at < moment.now - make_interval(secs => %(timeout)s)
ORDER BY instance_id LIMIT {MOST}
"""
SOMEBODY_LIVES = """
SELECT EXISTS (
    SELECT FROM scheduler_instances
    WHERE kind = 'replica' AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
      AND alive_since < clock_timestamp() - make_interval(secs => %(timeout)s)
) AS lives
"""
REPLICAS = """
SELECT instance_id, bool_or(heartbeat_at >= clock_timestamp() - make_interval(secs => %(timeout)s)) AS lives
FROM scheduler_instances WHERE kind = 'replica' GROUP BY instance_id
"""

OPEN_QUEUES = f"""
SELECT queue, circuit, circuit_changed_at, clock_timestamp() AS now FROM workflow_queues
WHERE circuit <> 'closed' ORDER BY queue LIMIT {MOST}
"""

# A page of the enabled schedules, with those whose last execution was no success, or is too old. A definition that is
# younger than the time gets that time first. `told`: the rules that have said so already.
NO_SUCCESS = f"""
WITH page AS MATERIALIZED (
    SELECT {_SCHEDULE}, effective_from, next_run,
           coalesce(last_status = 'success' AND last_run > clock_timestamp() - make_interval(secs => %(seconds)s),
                    false) AS is_fresh
    FROM schedules WHERE schedule_id > %(after)s::uuid AND enabled AND invalid_reason IS NULL
    ORDER BY schedule_id LIMIT %(most)s
)
SELECT page.*, clock_timestamp() AS now, is_due, CASE WHEN is_due THEN ARRAY(
    SELECT rule_id FROM notification_incidents AS i
    WHERE i.subject = page.schedule_id::text AND i.event = 'no_success' AND i.phase <> 'over') END AS told
FROM page CROSS JOIN LATERAL (
    SELECT effective_from < clock_timestamp() - make_interval(secs => %(seconds)s) AND NOT is_fresh AS is_due
) AS judged
ORDER BY page.schedule_id
"""

# The last success among the newest executions of each, and the first fire that was due since. The walk along the index
# ends at the success; `is_long` says that there were more than it looks at. Skips change no last_status.
LAST_SUCCESS = """
SELECT s.schedule_id, success.completed_at AS success_at, greatest(s.effective_from, success.completed_at) AS since,
       success.completed_at IS NULL AND EXISTS (
           SELECT FROM job_executions AS e WHERE e.schedule_id = s.schedule_id
           ORDER BY e.scheduled_for DESC OFFSET %(lookback)s LIMIT 1) AS is_long,
       coalesce((SELECT e.scheduled_for FROM job_executions AS e WHERE e.schedule_id = s.schedule_id
                   AND e.scheduled_for > greatest(s.effective_from, success.scheduled_for)
                 ORDER BY e.scheduled_for LIMIT 1),
                CASE WHEN s.next_run <= clock_timestamp() THEN s.next_run END) AS first_due
FROM schedules AS s LEFT JOIN LATERAL (
    SELECT scheduled_for, completed_at FROM (
        SELECT status, scheduled_for, completed_at FROM job_executions AS e
        WHERE e.schedule_id = s.schedule_id ORDER BY scheduled_for DESC LIMIT %(lookback)s) AS latest
    WHERE status = 'success' LIMIT 1
) AS success ON true
WHERE s.schedule_id = ANY(%(ids)s::uuid[])
"""

_INCIDENT = """rule_id, event, subject, phase, began_at, key, pattern, streak, fire_at, attempt, flush_at, storm,
       content"""

OF_SUBJECTS = f"SELECT {_INCIDENT} FROM notification_incidents WHERE subject = ANY(%(subjects)s::text[])"

# All of what was found, in whatever phase; of what is open a bounded number, the rest after these have ended.
OF_LOOK = f"""
SELECT {_INCIDENT} FROM notification_incidents
WHERE subject = ANY(%(subjects)s::text[]) AND event = %(event)s
UNION ALL (
    SELECT {_INCIDENT} FROM notification_incidents
    WHERE event = %(event)s AND phase <> 'over' AND subject <> ALL(%(subjects)s::text[])
    ORDER BY subject LIMIT %(most)s)
"""

# The groups of which something is due, with all that was gathered for them. The CASE keeps the IN a hashed subplan: a
# join would compare each of ten thousand different errors with each other, whenever the statistics are old.
DUE = f"""
WITH due AS (
    SELECT DISTINCT rule_id, event, phase, CASE WHEN phase = 'gathering' THEN pattern ELSE '' END AS pattern
    FROM (SELECT * FROM notification_incidents
          WHERE flush_at <= clock_timestamp() ORDER BY flush_at LIMIT %(most)s) AS first
), gathered AS (
    SELECT i.* FROM notification_incidents AS i
    WHERE i.flush_at IS NOT NULL AND CASE WHEN
        (i.rule_id, i.event, i.phase, CASE WHEN i.phase = 'gathering' THEN i.pattern ELSE '' END)
        IN (SELECT rule_id, event, phase, pattern FROM due) THEN true ELSE false END
    ORDER BY i.flush_at LIMIT %(most)s
)
SELECT {_INCIDENT} FROM gathered
UNION ALL
SELECT {_INCIDENT} FROM notification_incidents WHERE event = 'storm' AND phase <> 'over'
"""

DIGESTS = f"""
SELECT {_INCIDENT} FROM notification_incidents
WHERE event = 'digest' AND subject = 'digest' AND rule_id = ANY(%(rules)s::uuid[])
"""

# One look at the index of what is gathered, and one at the storms, of which there are few.
IS_DUE = """
SELECT EXISTS (SELECT FROM notification_incidents WHERE flush_at <= clock_timestamp()) AS gathered,
       EXISTS (SELECT FROM notification_incidents WHERE event = 'storm' AND phase <> 'over') AS storms
"""

# Storms of which nothing is open any more, as of this moment.
STORMS_OVER = f"""
SELECT {_INCIDENT}, EXISTS (
    SELECT FROM notification_incidents AS i
    WHERE i.rule_id = storm.rule_id AND i.storm = storm.key AND i.content ? 'ended_at') AS has_recovered
FROM notification_incidents AS storm
WHERE event = 'storm' AND phase <> 'over' AND NOT EXISTS (
    SELECT FROM notification_incidents AS i
    WHERE i.rule_id = storm.rule_id AND i.storm = storm.key AND i.phase <> 'over')
LIMIT {MOST}
"""

# Of schedules that are gone or disabled. Collected problems have happened and are reported.
UNWATCHED = f"""
SELECT {_INCIDENT} FROM notification_incidents AS i
WHERE phase IN ('counting', 'told') AND event = ANY(%(events)s::text[])
  AND CASE WHEN subject ~ '^[0-9a-f]{{8}}-[0-9a-f-]{{27}}$' THEN NOT EXISTS (
      SELECT FROM schedules AS s WHERE s.schedule_id = i.subject::uuid AND s.enabled) ELSE false END
LIMIT {MOST}
"""

SAVE = """
INSERT INTO notification_incidents (
    rule_id, event, subject, phase, began_at, key, pattern, streak, fire_at, attempt, flush_at, storm, content)
SELECT r.rule_id, r.event, r.subject, r.phase, r.began_at, r.key, r.pattern, r.streak, r.fire_at, r.attempt, r.flush_at,
       r.storm, r.content
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (
    rule_id uuid, event text, subject text, phase text, began_at timestamptz, key text, pattern text, streak integer,
    fire_at timestamptz, attempt integer, flush_at timestamptz, storm text, content jsonb)
JOIN notification_rules AS known ON known.rule_id = r.rule_id
ORDER BY r.rule_id, r.event, r.subject
ON CONFLICT (rule_id, event, subject) DO UPDATE SET
    phase = EXCLUDED.phase, began_at = EXCLUDED.began_at, key = EXCLUDED.key, pattern = EXCLUDED.pattern,
    streak = EXCLUDED.streak, fire_at = EXCLUDED.fire_at, attempt = EXCLUDED.attempt, flush_at = EXCLUDED.flush_at,
    storm = EXCLUDED.storm, content = EXCLUDED.content,
    updated_at = CASE WHEN notification_incidents.phase = EXCLUDED.phase THEN notification_incidents.updated_at
                      ELSE clock_timestamp() END
"""

# Not while it is being sent, and not what was sent: that has been read.
UPDATE_WAITING = """
UPDATE notification_deliveries SET message = %(message)s::jsonb
WHERE rule_id = %(rule_id)s AND event = %(event)s AND subject = ANY(%(subjects)s::text[])
  AND state = 'waiting' AND claim_token IS NULL
"""

FORGET = """
DELETE FROM notification_incidents WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM notification_incidents
    WHERE phase = 'over' AND updated_at < clock_timestamp() - interval '2 days'
    ORDER BY updated_at LIMIT %(most)s))
"""
