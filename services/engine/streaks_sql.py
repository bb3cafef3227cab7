"""The statements of streaks.py. Each comment says what a statement relies on."""

WALKED = 200  # rows of a schedule's newest fires; a longer streak is counted on from what is noted
PAGE = 1000
FAILING_PAGE = 5000  # of the schedules that fail
LANDSLIDE_WINDOW = "interval '10 minutes'"
FAILED = "('failed', 'timed_out', 'abandoned')"

NOW = "SELECT now() AS now"

# Spelled as its index is. A transaction may commit a while after the time that it wrote, so the last minute is read
# again at each look.
FAILURES = f"""
SELECT execution_id, schedule_id, completed_at FROM job_executions
WHERE coalesce(status, 'f') IN {FAILED} AND (completed_at, execution_id) > (%(since)s, %(after)s)
ORDER BY completed_at, execution_id LIMIT {PAGE}
"""

# Those whose streak a success may have ended, among so many that fail: in an outage that may be all schedules.
RECOVERED = f"""
SELECT count(*) AS seen, (array_agg(schedule_id ORDER BY schedule_id DESC))[1] AS last,
       coalesce(array_agg(schedule_id) FILTER (WHERE enabled AND last_status = 'success'), '{{}}') AS recovered
FROM (
    SELECT schedule_id, enabled, last_status FROM schedules WHERE failures_in_a_row > 0 AND schedule_id > %(after)s
    ORDER BY schedule_id LIMIT {FAILING_PAGE}
) AS failing
"""

# In id order and without waiting, like every writer. What is missing is held by another session, off or deleted.
LOCK = """
SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[]) AND enabled
ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
"""

PRESENT = "SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[]) AND enabled"

# A schedule's rows are read from its newest one on, along the index. The planner, which knows only how many rows a
# schedule has on the average, would rather fetch all of them and sort: minutes of work for one with a long history.
ALONG_THE_INDEX = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off"

# Under the locks, so that no finish comes between the count and what is made of it; no row before the newest success
# is read. A fire is as its last attempt is. What did not run, and what has not ended, neither counts nor ends a streak;
# the same holds for a failure that a person asked for, whose instant has fractions of a second or whose cause is a
# backfill. Nothing before `effective_from` counts.
COUNT = f"""
SELECT s.schedule_id, coalesce(s.name, s.domain) AS label, s.job_type, s.failures_in_a_row, s.last_failed_for,
       s.backoff_until, s.pause_after_failures, s.backoff_after_failures, fires.*, latest.status, latest.error_message
FROM schedules AS s CROSS JOIN LATERAL (
    SELECT max(scheduled_for) AS succeeded_for FROM (
        SELECT scheduled_for FROM (
            SELECT scheduled_for, status FROM job_executions AS e
            WHERE e.schedule_id = s.schedule_id AND e.scheduled_for > s.effective_from
            ORDER BY scheduled_for DESC, attempt DESC LIMIT {WALKED}
        ) AS newest_rows WHERE status = 'success' LIMIT 1
    ) AS success
) AS latest_success CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE counts) AS counted, max(scheduled_for) FILTER (WHERE counts) AS newest,
           count(*) FILTER (WHERE counts AND scheduled_for > s.last_failed_for) AS more,
           max(walked) AS walked, coalesce(bool_or(has_success), false) AS has_success
    FROM (
        SELECT scheduled_for, walked, has_success, NOT has_success AND status IN {FAILED} AND cause <> 'backfill'
               AND scheduled_for = date_trunc('second', scheduled_for) AS counts
        FROM (
            SELECT *, bool_or(status = 'success') OVER (ORDER BY scheduled_for DESC) AS has_success
            FROM (
                SELECT DISTINCT ON (scheduled_for) scheduled_for, status, cause, max(n) OVER () AS walked
                FROM (
                    SELECT scheduled_for, attempt, status, cause, row_number() OVER () AS n FROM (
                        SELECT scheduled_for, attempt, status, cause FROM job_executions AS e
                        WHERE e.schedule_id = s.schedule_id AND e.scheduled_for > s.effective_from
                          AND e.scheduled_for >= coalesce(succeeded_for, '-infinity')
                        ORDER BY scheduled_for DESC, attempt DESC LIMIT {WALKED}
                    ) AS newest_rows
                ) AS numbered
                ORDER BY scheduled_for DESC, attempt DESC
            ) AS last_attempts
        ) AS told
    ) AS judged
) AS fires LEFT JOIN LATERAL (
    SELECT status, error_message FROM job_executions AS e
    WHERE e.schedule_id = s.schedule_id AND e.scheduled_for = fires.newest ORDER BY attempt DESC LIMIT 1
) AS latest ON true
WHERE s.schedule_id = ANY(%(ids)s::uuid[]) ORDER BY s.schedule_id
"""

NOTE = """
UPDATE schedules AS s SET failures_in_a_row = n.failures, last_failed_for = n.newest, backoff_until = n.until
FROM unnest(%(ids)s::uuid[], %(failures)s::int[], %(newest)s::timestamptz[], %(until)s::timestamptz[])
     AS n (schedule_id, failures, newest, until)
WHERE s.schedule_id = n.schedule_id
"""

PAUSE = """
UPDATE schedules AS s SET enabled = false, next_run = NULL, disabled_note = p.note, failures_in_a_row = p.failures
FROM unnest(%(ids)s::uuid[], %(notes)s::text[], %(failures)s::int[]) AS p (schedule_id, note, failures)
WHERE s.schedule_id = p.schedule_id AND s.enabled
"""

# Of each job type of these schedules: how many of its schedules ran at their time or later and have ended, and how many
# of them failed, be it that they will try again.
SHARES = f"""
WITH asked AS (
    SELECT job_type, coalesce(min(last_run), now()) - {LANDSLIDE_WINDOW} AS since FROM schedules
    WHERE schedule_id = ANY(%(ids)s::uuid[]) GROUP BY job_type
)
SELECT s.job_type, count(*) AS ended, count(*) FILTER (WHERE s.last_status IN {FAILED}) AS failed
FROM schedules AS s JOIN asked USING (job_type)
WHERE s.last_run >= asked.since AND s.last_status IN ('success', 'failed', 'timed_out', 'abandoned')
GROUP BY s.job_type
"""

JOB_TYPES = "SELECT schedule_id, job_type FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[]) AND enabled"

FIGURES = """
SELECT count(*) AS schedules, coalesce(max(failures_in_a_row), 0) AS longest FROM schedules
WHERE failures_in_a_row > 0 AND enabled
"""
