"""The statements of hourly_audit.py."""

WRONG = ("duplicates", "unexplained", "extra", "contradicted")
PAUSE = "interval '10 minutes'"
LONGEST_AUDIT_SECONDS = 1800
_WRONG = f"{' + '.join(WRONG)} > 0"

# The oldest hour that is due. One that another replica audits is left out, and so is one whose audit was put off.
CLAIM = f"""
INSERT INTO audited_hours (since, claimed_until, instance_id)
SELECT hour, clock_timestamp() + interval '{LONGEST_AUDIT_SECONDS} seconds', %(instance_id)s
FROM generate_series(
    date_trunc('hour', clock_timestamp(), 'UTC') - interval '24 hours',
    date_trunc('hour', clock_timestamp() - make_interval(secs => %(certain)s), 'UTC') - interval '1 hour',
    interval '1 hour'
) AS hour LEFT JOIN audited_hours AS a ON a.since = hour
WHERE a.since IS NULL OR a.claimed_until < clock_timestamp() AND (
    a.audited_at IS NULL
    OR {_WRONG} AND a.audited_at < clock_timestamp() - greatest({PAUSE}, a.audited_at - a.since - interval '1 hour')
)
ORDER BY hour LIMIT 1
ON CONFLICT (since) DO UPDATE SET claimed_until = EXCLUDED.claimed_until, instance_id = EXCLUDED.instance_id
WHERE audited_hours.claimed_until < clock_timestamp()
RETURNING since, claimed_until
"""

RECORD = """
UPDATE audited_hours SET
    claimed_until = clock_timestamp(), audited_at = clock_timestamp(), schedules = %(schedules)s,
    expected = %(expected)s, accounted = %(accounted)s, duplicates = %(duplicates)s, unexplained = %(unexplained)s,
    extra = %(extra)s, contradicted = %(contradicted)s, seconds = %(seconds)s
WHERE since = %(since)s AND claimed_until = %(claimed_until)s
"""

PUT_OFF = f"""
UPDATE audited_hours SET claimed_until = clock_timestamp() + {PAUSE}
WHERE since = %(since)s AND claimed_until = %(claimed_until)s
"""

FACT = f"""
SELECT count(*) AS hours, max(since) + interval '1 hour' AS until, coalesce(sum(expected), 0)::bigint AS expected,
       coalesce(sum(accounted), 0)::bigint AS accounted, coalesce(sum(duplicates), 0)::bigint AS duplicates,
       coalesce(sum(unexplained), 0)::bigint AS unexplained, coalesce(sum(extra), 0)::bigint AS extra,
       coalesce(sum(contradicted), 0)::bigint AS contradicted, min(since) FILTER (WHERE {_WRONG}) AS wrong_since,
       extract(epoch FROM clock_timestamp() - max(since) - interval '1 hour') AS age_seconds
FROM audited_hours
WHERE audited_at IS NOT NULL AND since >= date_trunc('hour', clock_timestamp(), 'UTC') - interval '24 hours'
"""

# Each audited hour of the last day. One that is audited again keeps its figures until the end of that audit.
HOURS = """
SELECT since, expected, accounted, duplicates, unexplained, extra, contradicted, clock_timestamp() AS now
FROM audited_hours
WHERE audited_at IS NOT NULL AND since >= date_trunc('hour', clock_timestamp(), 'UTC') - interval '24 hours'
ORDER BY since
"""

FORGET = "DELETE FROM audited_hours WHERE since < clock_timestamp() - make_interval(days => %(days)s)"
