"""The statements of logs.py."""

# One round trip. A batch whose answer was lost is sent again: its lines are found by their keys. Nobody waits for the
# disk; what a server that lost its power forgets of a log is less than a second.
WRITE = """
SET LOCAL synchronous_commit = off;
WITH lines AS (
    INSERT INTO execution_logs (execution_id, fencing_token, line, at, level, text)
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(lines)s::bigint[], %(ats)s::timestamptz[],
                         %(levels)s::text[], %(texts)s::text[])
    ON CONFLICT DO NOTHING
)
INSERT INTO execution_progress AS known (execution_id, fencing_token, done, total, is_complete)
SELECT * FROM unnest(%(of)s::uuid[], %(of_tokens)s::bigint[], %(done)s::float8[], %(totals)s::float8[],
                     %(complete)s::boolean[])
ON CONFLICT (execution_id, fencing_token) DO UPDATE SET
    done = coalesce(excluded.done, known.done),
    total = CASE WHEN excluded.done IS NULL THEN known.total ELSE excluded.total END,
    is_complete = known.is_complete OR excluded.is_complete
"""

READ = """
SELECT execution_id, fencing_token, line, at, level, text FROM execution_logs
WHERE execution_id = %(execution_id)s AND (fencing_token, line) > (%(token)s, %(line)s)
ORDER BY fencing_token, line LIMIT %(limit)s
"""

LAST = """
SELECT * FROM (
    SELECT execution_id, fencing_token, line, at, level, text FROM execution_logs WHERE execution_id = %(execution_id)s
    ORDER BY fencing_token DESC, line DESC LIMIT %(limit)s
) AS last ORDER BY fencing_token, line
"""

# Of several executions at once, each after its own position.
NEWS = """
SELECT news.* FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(lines)s::bigint[]) AS seen (id, token, line),
LATERAL (
    SELECT execution_id, fencing_token, line, at, level, text FROM execution_logs AS said
    WHERE said.execution_id = seen.id AND (said.fencing_token, said.line) > (seen.token, seen.line)
    ORDER BY said.fencing_token, said.line LIMIT %(limit)s
) AS news ORDER BY news.at, news.execution_id, news.fencing_token, news.line
"""

ENDS = """
SELECT last.* FROM unnest(%(ids)s::uuid[]) AS wanted (id),
LATERAL (
    SELECT execution_id, fencing_token, line FROM execution_logs WHERE execution_id = wanted.id
    ORDER BY fencing_token DESC, line DESC LIMIT 1
) AS last
"""

STATE = """
SELECT done, total, is_complete FROM execution_progress WHERE execution_id = %(execution_id)s
ORDER BY fencing_token DESC LIMIT 1
"""

# Any last lines would have been written by now.
LONG_OVER = """
SELECT completed_at < clock_timestamp() - make_interval(secs => %(seconds)s) AS long_over FROM job_executions
WHERE execution_id = %(execution_id)s
"""

# --- retention ---

OLDEST = """
SELECT execution_id, fencing_token FROM execution_progress WHERE began_at < %(limit)s ORDER BY began_at LIMIT 100
"""

DELETE_LINES = """
DELETE FROM execution_logs WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM execution_logs WHERE execution_id = %(execution_id)s AND fencing_token = %(fencing_token)s
    LIMIT %(batch_size)s
))
"""

DELETE_PROGRESS = """
DELETE FROM execution_progress WHERE execution_id = %(execution_id)s AND fencing_token = %(fencing_token)s
"""
