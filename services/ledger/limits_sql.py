"""The statements of limits.py, and what the claim statements say about limits. Each comment says what it relies on."""

LIMIT = "limit:"  # and a key: the reason of a row that waits for a limit
MARK = "waited_for_limit"  # in the metadata of what waited for one: the key, the last of several
STRIPES = 1024

# One look at an index; while the table is empty, nothing else here is asked.
ARE_THERE = "EXISTS (SELECT FROM limits)"

HAS_WAITED = f"coalesce(e.metadata ? '{MARK}', false)"
WAITS_FOR_LIMIT = f"coalesce(starts_with(e.reason, '{LIMIT}'), false)"
FOR_A_LIMIT = "coalesce(e.status, 'l') = 'pending' AND e.reason IS NOT NULL"

# Of the keys of `asked` those that have a limit: their own, else that of the longest pattern.
_LIMITED = """limited AS MATERIALIZED (
    SELECT asked.key, coalesce(own.max_running, pattern.max_running) AS most
    FROM asked LEFT JOIN limits AS own ON own.name = asked.key AND own.enabled LEFT JOIN LATERAL (
        SELECT p.max_running FROM limits AS p
        WHERE own.name IS NULL AND "right"(p.name, 1) = '*' AND p.enabled AND starts_with(asked.key, left(p.name, -1))
        ORDER BY length(p.name) DESC LIMIT 1
    ) AS pattern ON true
    WHERE coalesce(own.max_running, pattern.max_running) IS NOT NULL
)"""


def is_kept(kept: str) -> str:
    """Is a place kept for an execution that still waits?"""
    return f"""(({kept} ->> 'until')::timestamptz > clock_timestamp() AND EXISTS (
        SELECT FROM job_executions AS e
        WHERE e.execution_id = ({kept} ->> 'execution_id')::uuid AND coalesce(e.status, '') = 'pending'))"""


# The stripes of limited keys are locked in one order and without waiting: a key whose stripe is missing here is being
# decided by another session. `limits` is only read: whoever edits a limit and forgets to commit stops nobody.
LOCK_STRIPES = f"""
WITH asked AS (SELECT DISTINCT unnest(%(keys)s::text[]) AS key), {_LIMITED}, held AS MATERIALIZED (
    SELECT stripe, kept FROM limit_stripes
    WHERE stripe = ANY(ARRAY(SELECT DISTINCT (hashtextextended(key, 0) & {STRIPES - 1})::smallint FROM limited))
    ORDER BY stripe FOR UPDATE SKIP LOCKED
)
SELECT key, most, held.stripe IS NOT NULL AS is_ours, held.kept -> key AS kept,
       CASE WHEN held.kept ? key THEN {is_kept("held.kept -> key")} END AS is_kept, clock_timestamp() AS now
FROM limited LEFT JOIN held ON held.stripe = (hashtextextended(key, 0) & {STRIPES - 1})::smallint
"""

# Places are kept, or let go, on stripes that this transaction holds. What is long over is forgotten.
KEEP = f"""
UPDATE limit_stripes AS l SET kept = new.kept || coalesce((
    SELECT jsonb_object_agg(old.key, old.value) FROM jsonb_each(l.kept) AS old
    WHERE NOT new.kept ? old.key AND (old.value ->> 'rests_until')::timestamptz > clock_timestamp()
), '{{}}')
FROM (SELECT (hashtextextended(key, 0) & {STRIPES - 1})::smallint AS stripe, jsonb_object_agg(key, kept::jsonb) AS kept
      FROM unnest(%(keys)s::text[], %(kept)s::text[]) AS n (key, kept) GROUP BY 1) AS new
WHERE l.stripe = new.stripe
"""


# Before a statement that counts what runs: it walks the index of live rows, and only so are dead entries marked in it.
BY_INDEX = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; "


def running(keys: str) -> str:
    """What runs of each of these keys, without those whose rows list none."""
    return f"""
    SELECT k.key, count(*) AS n FROM (
        SELECT e.limit_keys FROM job_executions AS e
        WHERE e.status IN ('claimed', 'running') AND e.limit_keys && {keys} ORDER BY e.schedule_id OFFSET 0
    ) AS live, unnest(live.limit_keys) AS k (key) GROUP BY k.key
"""


# Which rows of a batch would run but for limits, and what runs of the limited keys: in a statement that is younger than
# the locks of the stripes. Follows the part of a claim statement that ends with `decided`.
PREVIEW = f"""
SELECT ARRAY(SELECT d.place FROM decided AS d WHERE d.verdict = 'claimed') AS places,
       (SELECT coalesce(jsonb_object_agg(n.key, n.n), '{{}}') FROM ({running("%(limited)s::text[]")}) AS n) AS running
"""

MOST_KEYS = 200  # that are looked at together; the next look begins after them

# The lanes of rows that wait for a limit, of keys with room: a key whose limit is gone has any. One step in the index
# per key, and per lane of a key with room. The keys are those given, and the next ones after `after`.
LIMIT_LANES = f"""{BY_INDEX}
WITH RECURSIVE reasons AS (
    SELECT %(after)s::text AS reason, 0 AS n
    UNION ALL
    SELECT (SELECT e.reason FROM job_executions AS e WHERE {FOR_A_LIMIT} AND e.reason > r.reason
            ORDER BY e.reason LIMIT 1), r.n + 1
    FROM reasons AS r WHERE r.reason IS NOT NULL AND r.n < {MOST_KEYS}
), asked AS MATERIALIZED (
    SELECT reason, substr(reason, {len(LIMIT) + 1}) AS key
    FROM (SELECT reason FROM reasons UNION SELECT unnest(%(reasons)s::text[])) AS all_of_them WHERE reason <> ''
), {_LIMITED}, running AS MATERIALIZED ({running("ARRAY(SELECT key FROM limited)")}), roomy AS MATERIALIZED (
    SELECT asked.reason, CASE WHEN %(are_ignored)s OR limited.most IS NULL THEN %(limit)s
                              ELSE least(limited.most - coalesce(running.n, 0), %(limit)s) END AS room
    FROM asked LEFT JOIN limited USING (key) LEFT JOIN running USING (key)
), lanes AS (
    SELECT n.*, roomy.room FROM roomy, LATERAL (
        SELECT e.reason, e.queue, e.needs, e.priority, e.due_at FROM job_executions AS e
        WHERE {FOR_A_LIMIT} AND e.reason = roomy.reason ORDER BY e.queue, e.needs, e.priority DESC, e.due_at LIMIT 1
    ) AS n WHERE roomy.room > 0
    UNION ALL
    SELECT n.*, l.room FROM lanes AS l, LATERAL (
        SELECT * FROM (
            (SELECT e.reason, e.queue, e.needs, e.priority, e.due_at FROM job_executions AS e
             WHERE {FOR_A_LIMIT} AND e.reason = l.reason AND e.queue = l.queue AND e.needs = l.needs
               AND e.priority < l.priority
             ORDER BY e.priority DESC, e.due_at LIMIT 1)
            UNION ALL
            (SELECT e.reason, e.queue, e.needs, e.priority, e.due_at FROM job_executions AS e
             WHERE {FOR_A_LIMIT} AND e.reason = l.reason AND (e.queue, e.needs) > (l.queue, l.needs)
             ORDER BY e.queue, e.needs, e.priority DESC, e.due_at LIMIT 1)
        ) AS next LIMIT 1
    ) AS n
)
SELECT seen.*, found.* FROM (SELECT max(reason) AS last, max(n) AS seen FROM reasons) AS seen LEFT JOIN (
    SELECT reason, queue, needs, priority, room, greatest('0001-01-02', due_at) AS due_at FROM lanes
    WHERE due_at <= clock_timestamp() LIMIT %(most_lanes)s
) AS found ON true
"""
