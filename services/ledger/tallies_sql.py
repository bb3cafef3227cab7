"""The statements of tallies.py. An hour is aggregated once nothing can be added to it:

it ended an hour ago, none of its executions is live, and every transaction that was running when the marker (the row at
-infinity) was set, an hour after its end or later, has ended. Triggers discard the aggregate after later changes.
"""

from services.ledger.history_sql import LIVE, RAN
from services.ledger.limits_sql import HAS_WAITED

LOCK = 7_236_411_902
GROWTH = 1.04  # each place is 4 % wider than the one before: its middle is off by 2 % at most
SMALLEST = 1e-6  # seconds; what is shorter, or negative, counts as nothing

ALONE = f"SELECT pg_try_advisory_xact_lock({LOCK})"

_DURATION = f"CASE WHEN e.status IN {RAN} THEN e.duration_seconds END"
# Only an ordinary first attempt can be late, unless it had to wait for a limit.
_LATENESS = f"""CASE WHEN e.cause = 'schedule' AND e.attempt = 1 AND NOT {HAS_WAITED}
                    THEN date_part('epoch', e.started_at - coalesce(e.due_at, e.scheduled_for)) END"""


def _place(value: str) -> str:
    return f"ceil(ln(greatest({value}, {SMALLEST})) / ln({GROWTH}::float8))::int"


COUNT_HOURS = f"""
WITH mark AS (
    SELECT counted_at FROM execution_hours
    WHERE hour = '-infinity' AND horizon <= pg_snapshot_xmin(pg_current_snapshot())
), wanted AS MATERIALIZED (
    SELECT hour FROM generate_series(
        date_trunc('hour', (SELECT min(created_at) FROM job_executions), 'UTC'),
        (SELECT counted_at - interval '2 hours' FROM mark), interval '1 hour'
    ) AS hour WHERE NOT EXISTS (SELECT FROM execution_hours AS known WHERE known.hour = hour.hour)
    ORDER BY hour LIMIT %(hours)s
), ran AS MATERIALIZED (
    SELECT w.hour, e.status, {_DURATION} AS duration, {_LATENESS} AS lateness
    FROM wanted AS w JOIN job_executions AS e ON e.created_at >= w.hour AND e.created_at < w.hour + interval '1 hour'
), outcomes AS (
    SELECT hour, jsonb_object_agg(status, n) AS outcomes, bool_or(status IN {LIVE}) AS is_live
    FROM (SELECT hour, status, count(*) AS n FROM ran GROUP BY hour, status) AS counted GROUP BY hour
), totals AS (
    SELECT hour, count(duration) AS n, sum(duration) AS total, min(duration) AS least, max(duration) AS most
    FROM ran GROUP BY hour
), durations AS (
    SELECT hour, array_agg(place) AS places, array_agg(n) AS counts FROM (
        SELECT hour, {_place("duration")} AS place, count(*)::int AS n FROM ran WHERE duration IS NOT NULL GROUP BY 1, 2
    ) AS counted GROUP BY hour
), latenesses AS (
    SELECT hour, array_agg(place) AS places, array_agg(n) AS counts FROM (
        SELECT hour, {_place("lateness")} AS place, count(*)::int AS n FROM ran WHERE lateness IS NOT NULL GROUP BY 1, 2
    ) AS counted GROUP BY hour
), inserted AS (
    INSERT INTO execution_hours (hour, outcomes, duration_count, duration_sum, duration_min, duration_max,
                                 duration_places, duration_counts, lateness_places, lateness_counts)
    SELECT w.hour, coalesce(o.outcomes, '{{}}'), coalesce(t.n, 0), coalesce(t.total, 0), t.least, t.most,
           coalesce(d.places, '{{}}'), coalesce(d.counts, '{{}}'),
           coalesce(l.places, '{{}}'), coalesce(l.counts, '{{}}')
    FROM wanted AS w LEFT JOIN outcomes AS o USING (hour) LEFT JOIN totals AS t USING (hour)
    LEFT JOIN durations AS d USING (hour) LEFT JOIN latenesses AS l USING (hour)
    WHERE o.is_live IS NOT TRUE
    RETURNING 1
)
SELECT count(*) FROM inserted
"""

# A mark stays until the transactions of its time are over, and for a minute: most readers write nothing.
SET_MARK = """
INSERT INTO execution_hours (hour) SELECT '-infinity' WHERE NOT EXISTS (
    SELECT FROM execution_hours WHERE hour = '-infinity' AND (
        horizon > pg_snapshot_xmin(pg_current_snapshot()) OR counted_at > now() - interval '1 minute'))
ON CONFLICT (hour) DO UPDATE SET counted_at = excluded.counted_at, horizon = excluded.horizon
"""

# The planner cannot know that all hours together have a few hundred places: it would sort a million numbers.
HASHED = "SET LOCAL enable_sort = off"

# The counted hours since `since`, and the gaps before, between and after them, which are read from the rows themselves.
_COUNTED = """hours AS MATERIALIZED (
    SELECT h.* FROM execution_hours AS h, since WHERE h.hour >= since.at AND h.hour > '-infinity'
), gaps AS (
    SELECT begins, coalesce(lead(hour) OVER (ORDER BY begins), 'infinity') AS ends
    FROM (SELECT at AS begins, NULL::timestamptz AS hour FROM since
          UNION ALL SELECT hour + interval '1 hour', hour FROM hours) AS bounds
)"""

# One row with all totals.
READ = f"""
WITH since AS (
    SELECT now() - make_interval(days => %(days)s) AS at
), {_COUNTED}, rest AS MATERIALIZED (
    SELECT e.status, {_DURATION} AS duration, {_LATENESS} AS lateness
    FROM gaps AS g JOIN job_executions AS e ON e.created_at >= g.begins AND e.created_at < g.ends
    WHERE g.begins < g.ends
), outcomes AS (
    SELECT status, sum(n)::bigint AS n FROM (
        SELECT key AS status, value::bigint AS n FROM hours, jsonb_each_text(outcomes)
        UNION ALL SELECT status, count(*) FROM rest GROUP BY status
    ) AS each GROUP BY status
), totals AS (
    SELECT sum(n)::bigint AS n, sum(total) AS total, min(least) AS least, max(most) AS most FROM (
        SELECT duration_count AS n, duration_sum AS total, duration_min AS least, duration_max AS most FROM hours
        UNION ALL SELECT count(duration), coalesce(sum(duration), 0), min(duration), max(duration) FROM rest
    ) AS each
), durations AS (
    SELECT place, sum(n) AS n FROM (
        SELECT unnest(duration_places) AS place, unnest(duration_counts) AS n FROM hours
        UNION ALL SELECT {_place("duration")}, count(*)::int FROM rest WHERE duration IS NOT NULL GROUP BY 1
    ) AS each GROUP BY place
), latenesses AS (
    SELECT place, sum(n) AS n FROM (
        SELECT unnest(lateness_places) AS place, unnest(lateness_counts) AS n FROM hours
        UNION ALL SELECT {_place("lateness")}, count(*)::int FROM rest WHERE lateness IS NOT NULL GROUP BY 1
    ) AS each GROUP BY place
)
SELECT EXISTS (SELECT FROM hours WHERE outcomes <> '{{}}') AS is_counted,
       (SELECT coalesce(jsonb_object_agg(status, n), '{{}}') FROM outcomes) AS outcomes, totals.*,
       (SELECT coalesce(jsonb_object_agg(place, n), '{{}}') FROM durations) AS durations,
       (SELECT coalesce(jsonb_object_agg(place, n), '{{}}') FROM latenesses) AS latenesses
FROM totals
"""

# The same hour by hour, for charts. An hour without executions has no row; the first one is whole.
HOURLY = f"""
WITH since AS (
    SELECT date_trunc('hour', now(), 'UTC') - make_interval(hours => %(hours)s) AS at
), {_COUNTED}, rest AS MATERIALIZED (
    SELECT date_trunc('hour', e.created_at, 'UTC') AS hour, e.status, {_LATENESS} AS lateness
    FROM gaps AS g JOIN job_executions AS e ON e.created_at >= g.begins AND e.created_at < g.ends
    WHERE g.begins < g.ends
), outcomes AS (
    SELECT hour, jsonb_object_agg(status, n) AS outcomes
    FROM (SELECT hour, status, count(*) AS n FROM rest GROUP BY hour, status) AS counted GROUP BY hour
), latenesses AS (
    SELECT hour, array_agg(place) AS places, array_agg(n) AS counts FROM (
        SELECT hour, {_place("lateness")} AS place, count(*)::int AS n
        FROM rest WHERE lateness IS NOT NULL GROUP BY 1, 2
    ) AS counted GROUP BY hour
)
SELECT hour, outcomes, lateness_places AS places, lateness_counts AS counts FROM hours WHERE outcomes <> '{{}}'
UNION ALL
SELECT hour, o.outcomes, coalesce(l.places, '{{}}'), coalesce(l.counts, '{{}}')
FROM outcomes AS o LEFT JOIN latenesses AS l USING (hour)
ORDER BY hour
"""
