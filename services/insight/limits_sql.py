"""The statements of limits.py. Each reads a bounded part of the history, whatever waits, but for SCHEDULES."""

from services.insight.overview_sql import LABEL
from services.ledger.limits_sql import FOR_A_LIMIT, LIMIT, STRIPES, WAITS_FOR_LIMIT, is_kept

MOST_KEYS = 500  # with waiting executions that one look counts
MOST_WAITING = 1000  # of one key that are counted; the rest is "more than"
MOST_OLD = 1000  # of those that wait longest, which are told by key

# Only limits give a waiting row a reason. The index has its rows in lanes, not by age.
WAITS = f"{FOR_A_LIMIT} AND starts_with(e.reason, '{LIMIT}')"
LIVE = "e.status IN ('claimed', 'running')"

# key -> the limit that counts for it: its own, otherwise the longest pattern.
PATTERNS = """
SELECT p.name, p.max_running, left(p.name, -1) AS beginning FROM limits AS p WHERE p.enabled AND right(p.name, 1) = '*'
"""
GOVERNOR = """
SELECT * FROM (
    (SELECT own.name, own.max_running FROM limits AS own WHERE own.name = k.key AND own.enabled)
    UNION ALL
    (SELECT p.name, p.max_running FROM patterns AS p WHERE starts_with(k.key, p.beginning)
     ORDER BY length(p.beginning) DESC LIMIT 1)
) AS found LIMIT 1
"""

# What runs and waits by key, with the limit that counts for it now. Keys that wait are found by one step in the index
# each. Without a limit, and with nothing that waits, a key is not worth telling.
USES = f"""
WITH RECURSIVE patterns AS MATERIALIZED ({PATTERNS}), reasons AS (
    (SELECT e.reason FROM job_executions AS e WHERE {WAITS} ORDER BY e.reason LIMIT 1)
    UNION ALL
    SELECT (SELECT e.reason FROM job_executions AS e WHERE {WAITS} AND e.reason > r.reason ORDER BY e.reason LIMIT 1)
    FROM reasons AS r WHERE r.reason IS NOT NULL
), waiting AS (
    SELECT substr(r.reason, {len(LIMIT) + 1}) AS key, n.waiting, n.due_at
    FROM (SELECT reason FROM reasons WHERE reason IS NOT NULL LIMIT {MOST_KEYS}) AS r
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting, min(few.due_at) AS due_at FROM (
            SELECT e.due_at FROM job_executions AS e WHERE {WAITS} AND e.reason = r.reason LIMIT {MOST_WAITING} + 1
        ) AS few
    ) AS n
), running AS (
    SELECT key, count(*) AS running FROM job_executions AS e, unnest(e.limit_keys) AS key WHERE {LIVE} GROUP BY key
)
SELECT k.key, found.name, found.max_running, k.running, k.waiting, k.due_at AS oldest_due_at,
       date_part('epoch', now() - k.due_at) AS oldest_seconds
FROM (SELECT key, coalesce(running, 0) AS running, coalesce(waiting, 0) AS waiting, due_at
      FROM running FULL JOIN waiting USING (key)) AS k
LEFT JOIN LATERAL ({GOVERNOR}) AS found ON true
WHERE found.name IS NOT NULL OR k.waiting > 0
ORDER BY k.due_at, k.key
"""

# The executions of some keys: what runs, then what waits, longest first; of very many that wait, those in its lanes'
# beginning.
_FACTS = f"""e.execution_id, e.schedule_id, {LABEL} AS label, e.status, e.instance_id, e.started_at, e.due_at"""
EXECUTIONS = f"""
SELECT * FROM (
    (SELECT {_FACTS}, key FROM job_executions AS e, unnest(e.limit_keys) AS key
     WHERE {LIVE} AND key = ANY(%(keys)s) ORDER BY e.started_at NULLS LAST LIMIT %(limit)s)
    UNION ALL
    (SELECT few.* FROM unnest(%(keys)s::text[]) AS wanted (key) CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT {_FACTS}, wanted.key FROM job_executions AS e
             WHERE {WAITS} AND e.reason = '{LIMIT}' || wanted.key LIMIT {MOST_WAITING} + 1
         ) AS few ORDER BY due_at LIMIT %(limit)s) AS few
     ORDER BY few.due_at LIMIT %(limit)s)
) AS found ORDER BY found.status = 'pending', coalesce(found.started_at, found.due_at) LIMIT %(limit)s
"""

# What has waited too long, by key: from the beginning of the index of all that waits, whatever its key.
HELD = f"""
WITH patterns AS MATERIALIZED ({PATTERNS}), oldest AS (
    SELECT substr(e.reason, {len(LIMIT) + 1}) AS key, e.due_at FROM job_executions AS e
    WHERE e.status = 'pending' AND e.due_at < now() - make_interval(secs => %(seconds)s)
      AND {WAITS_FOR_LIMIT}
    ORDER BY e.due_at LIMIT {MOST_OLD}
)
SELECT k.key, found.name, found.max_running, k.waiting, k.due_at AS since,
       date_part('epoch', now() - k.due_at) AS seconds
FROM (SELECT key, count(*) AS waiting, min(due_at) AS due_at FROM oldest GROUP BY key) AS k
LEFT JOIN LATERAL ({GOVERNOR}) AS found ON true
ORDER BY k.due_at LIMIT %(limit)s
"""

STOPPED = """
SELECT name, updated_at AS since, note FROM limits WHERE enabled AND max_running = 0 ORDER BY name LIMIT %(limit)s
"""

# The limit of one key, what runs by it, and for whom a place of it is kept.
OF_KEY = f"""
WITH patterns AS MATERIALIZED ({PATTERNS})
SELECT found.name, found.max_running,
       (SELECT count(*) FROM job_executions AS e WHERE {LIVE} AND k.key = ANY(e.limit_keys)) AS running,
       (SELECT l.kept -> k.key ->> 'execution_id' FROM limit_stripes AS l
        WHERE l.stripe = (hashtextextended(k.key, 0) & {STRIPES - 1})::smallint AND {is_kept("l.kept -> k.key")}
       ) AS kept_for
FROM (SELECT %(key)s::text AS key) AS k CROSS JOIN LATERAL ({GOVERNOR}) AS found
"""

# How many schedules each limit counts for. The only one that reads all schedules, once.
SCHEDULES = f"""
WITH patterns AS MATERIALIZED ({PATTERNS}), used AS MATERIALIZED (
    SELECT s.limit_keys || ('job:' || s.job_type) AS keys, count(*) AS schedules FROM schedules AS s GROUP BY 1
), governed AS MATERIALIZED (
    SELECT k.key, found.name FROM (SELECT DISTINCT key FROM used, unnest(used.keys) AS key) AS k
    CROSS JOIN LATERAL ({GOVERNOR}) AS found
)
SELECT g.name, sum(u.schedules)::bigint AS schedules
FROM used AS u CROSS JOIN LATERAL (
    SELECT DISTINCT governed.name FROM unnest(u.keys) AS key JOIN governed USING (key)
) AS g
GROUP BY g.name
"""

# The limit that would count for the keys of this one, if it were not there.
NEXT = f"""
WITH patterns AS MATERIALIZED ({PATTERNS})
SELECT p.name FROM patterns AS p WHERE starts_with(%(beginning)s, p.beginning) AND p.name <> %(name)s
ORDER BY length(p.beginning) DESC LIMIT 1
"""
