"""The statements of history.py. Each comment states the assumptions of its statement."""

from services.ledger.verdicts import Reason
from services.schedules.buckets import bucket_of

_DEFINITION = ", ".join(
    f"s.{name}"
    for name in (
        "enabled", "frequency", "time_config", "timezone", "start_at", "end_at", "spread_seconds", "effective_from",
        "name", "domain", "max_instances", "coalesce", "misfire_grace_seconds", "timeout_seconds", "max_retries",
        "retry_backoff_seconds", "catchup", "disabled_note", "requires", "queue", "limit_keys",
        "backoff_after_failures",
    )
)  # fmt: skip

# A fire belongs to the definition in effect before it: at the exact moment of a change, the old one still applies.
# A change without a schedule is a TRUNCATE, which ended all schedules.
CHANGE_BEFORE = f"""
SELECT c.operation, c.changed_at, c.changed_by, c.revision, c.old, c.new, {_DEFINITION}
FROM schedule_changes AS c, jsonb_populate_record(NULL::schedules, c.new) AS s
WHERE (c.schedule_id = %(id)s OR c.schedule_id IS NULL) AND c.changed_at < %(at)s
ORDER BY c.change_id DESC LIMIT 1
"""

CHANGE_AFTER = f"""
SELECT c.operation, c.changed_at, c.changed_by, c.revision, c.old, c.new, {_DEFINITION}
FROM schedule_changes AS c, jsonb_populate_record(NULL::schedules, c.old) AS s
WHERE c.schedule_id = %(id)s AND c.changed_at >= %(at)s
ORDER BY c.change_id LIMIT 1
"""

PRESENT = f"""
SELECT {_DEFINITION}, s.created_at, s.failures_in_a_row, s.backoff_until, s.invalid_reason
FROM schedules AS s WHERE s.schedule_id = %(id)s
"""

# The newest change before that moment that touched this field.
CHANGE_OF_FIELD = """
SELECT operation, changed_at, changed_by, revision, old, new FROM schedule_changes
WHERE schedule_id = %(id)s AND changed_at < %(at)s AND old->%(field)s IS DISTINCT FROM new->%(field)s
ORDER BY change_id DESC LIMIT 1
"""

# Always one row. `earliest` is the start of the oldest live replica; in the `watched` stretches gap scans of the
# schedule's bucket, or of all buckets, have verified every fire.
CIRCUMSTANCES = f"""
SELECT clock_timestamp() AS now, count(*) FILTER (WHERE is_live) AS live, min(started_at) FILTER (WHERE is_live) AS
       earliest, max(heartbeat_at) AS last_heartbeat_at,
       ARRAY(SELECT ARRAY[since, until] FROM fires_watched UNION ALL
             SELECT ARRAY[since, until] FROM fires_watched_by_bucket
             WHERE bucket = {bucket_of("%(id)s::uuid")} AND until IS NOT NULL) AS watched
FROM (
    SELECT started_at, heartbeat_at,
           heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s) AS is_live
    FROM scheduler_instances WHERE kind = 'replica'
) AS seen
"""

# Executions of the same schedule that occupied a slot when this one needed it. A backfill's fire may be of any age.
BLOCKERS = """
SELECT execution_id, scheduled_for, started_at, completed_at, instance_id, status FROM job_executions
WHERE schedule_id = %(id)s AND execution_id <> %(execution_id)s
  AND (scheduled_for >= %(at)s::timestamptz - make_interval(secs => %(reach)s) AND scheduled_for <= %(at)s
       OR cause = 'backfill' AND created_at <= %(at)s)
  AND claimed_at <= %(at)s AND (completed_at IS NULL OR completed_at > %(at)s)
ORDER BY scheduled_for DESC LIMIT 5
"""

# Newest first by the index of what went wrong.
FAILED_BEFORE = """
SELECT scheduled_for, error_message FROM job_executions
WHERE schedule_id = %(id)s AND scheduled_for < %(at)s AND status IN ('failed', 'timed_out', 'abandoned')
ORDER BY scheduled_for DESC, attempt DESC LIMIT 1
"""

# The fire that ran for it. Rows of one claim share the time of its transaction.
COALESCED_INTO = f"""
SELECT scheduled_for, status FROM job_executions
WHERE schedule_id = %(id)s AND scheduled_for > %(at)s AND attempt = 1 AND created_at = %(created_at)s
  AND reason IS DISTINCT FROM '{Reason.COALESCED}'
ORDER BY scheduled_for LIMIT 1
"""

# The fire whose row waited when it came due; what it waits for is in its reason, or in its metadata after it started.
COALESCED_BEHIND = f"""
SELECT execution_id, scheduled_for, status FROM job_executions
WHERE schedule_id = %(id)s AND scheduled_for < %(at)s AND attempt = 1 AND cause IN ('schedule', 'catchup')
  AND created_at < %(created_at)s AND (claimed_at IS NULL OR claimed_at > %(created_at)s)
  AND (completed_at IS NULL OR completed_at > %(created_at)s) AND reason IS DISTINCT FROM '{Reason.COALESCED}'
ORDER BY scheduled_for DESC LIMIT 1
"""

# Only executions created in the hour before: cheap, and enough to tell whether the replicas were busy.
BUSY = """
SELECT count(*) AS running, count(DISTINCT instance_id) AS replicas FROM job_executions
WHERE created_at > %(at)s::timestamptz - interval '1 hour' AND created_at <= %(at)s
  AND started_at <= %(at)s AND (completed_at IS NULL OR completed_at > %(at)s)
"""

SUMMARY = f"""
SELECT execution_id FROM job_executions
WHERE schedule_id = %(id)s AND scheduled_for <= %(at)s AND reason = '{Reason.CATCHUP_CAP}'
  AND (metadata->>'last')::timestamptz >= %(at)s
ORDER BY scheduled_for DESC LIMIT 1
"""
