"""The statements of outbox.py. Each comment says what a statement relies on."""

from services.ledger.limits_sql import LIMIT

FIRST_PAUSE_SECONDS = 30
LONGEST_PAUSE_SECONDS = 600

# As the index spells it.
_WAITS_IN_QUEUE = "coalesce(e.status, 'o') = 'pending' AND e.queue <> ''"

# Each pause doubles the one before, which the row still shows (greatest() passes over NULL). While a replica of the
# version before lives, it takes what it meets, and nothing is announced. No row is waited for: whoever holds one is
# about to take it.
TAKE = f"""
WITH chosen AS MATERIALIZED (
    SELECT found.* FROM unnest(%(queues)s::text[]) AS q (queue), LATERAL (
        SELECT e.execution_id FROM job_executions AS e
        WHERE {_WAITS_IN_QUEUE} AND e.queue = q.queue
          AND coalesce(e.publish_at, e.due_at) <= (SELECT clock_timestamp())
          AND e.due_at <= (SELECT clock_timestamp())
        ORDER BY coalesce(e.publish_at, e.due_at) LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    WHERE NOT EXISTS (
        SELECT FROM scheduler_instances AS i WHERE i.kind = 'replica' AND i.abilities IS NULL
          AND i.heartbeat_at > (SELECT clock_timestamp() - make_interval(secs => %(timeout)s))
    )
    LIMIT %(limit)s
)
UPDATE job_executions AS e SET
    published_at = clock_timestamp(),
    publish_at = clock_timestamp() + least(
        greatest(2 * (e.publish_at - e.published_at), make_interval(secs => {FIRST_PAUSE_SECONDS})),
        make_interval(secs => {LONGEST_PAUSE_SECONDS}))
FROM chosen WHERE e.execution_id = chosen.execution_id AND {_WAITS_IN_QUEUE}
RETURNING e.execution_id, e.queue
"""

# Counts no further than it matters.
COUNT_WAITING = f"""
SELECT count(*) AS waiting FROM (
    SELECT FROM job_executions AS e
    WHERE {_WAITS_IN_QUEUE} AND e.queue = %(queue)s AND e.due_at <= (SELECT clock_timestamp()) LIMIT %(most)s
) AS counted
"""

# The broker did not get them: due at once, as if nothing had been announced. A row that somebody holds is being taken.
PUT_BACK = f"""
WITH free AS MATERIALIZED (
    SELECT e.execution_id FROM job_executions AS e
    WHERE e.execution_id = ANY(%(ids)s::uuid[]) AND {_WAITS_IN_QUEUE} FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE job_executions AS e SET published_at = NULL, publish_at = NULL FROM free
WHERE e.execution_id = free.execution_id
"""

# What waited for room of these schedules, or of these limit keys, has it now: as many rows of each are announced as
# places are free.
ANNOUNCE_NEXT = f"""
WITH sibling AS MATERIALIZED (
    SELECT found.execution_id FROM unnest(%(schedule_ids)s::uuid[], %(siblings)s::int[]) AS s (id, n), LATERAL (
        SELECT e.execution_id FROM job_executions AS e
        WHERE coalesce(e.status, 't') = 'pending' AND e.schedule_id = s.id AND e.queue <> ''
          AND e.publish_at IS NOT NULL
        ORDER BY e.due_at LIMIT s.n FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
), limited AS MATERIALIZED (
    SELECT found.execution_id FROM unnest(%(keys)s::text[], %(places)s::int[]) AS k (key, n), LATERAL (
        SELECT e.execution_id FROM job_executions AS e
        WHERE coalesce(e.status, 'l') = 'pending' AND e.reason IS NOT NULL AND e.reason = '{LIMIT}' || k.key
          AND e.queue <> '' AND e.publish_at IS NOT NULL AND e.due_at <= (SELECT clock_timestamp())
        ORDER BY e.queue, e.needs, e.priority DESC, e.due_at LIMIT k.n FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
)
UPDATE job_executions AS e SET published_at = NULL, publish_at = NULL
FROM (SELECT * FROM sibling UNION SELECT * FROM limited) AS next
WHERE e.execution_id = next.execution_id AND {_WAITS_IN_QUEUE} RETURNING 1
"""

# Of what is announced the row whose time comes next: later than now, so that what is still to be announced is not read.
ANNOUNCE_ANOTHER = f"""
WITH another AS MATERIALIZED (
    SELECT found.execution_id FROM unnest(%(queues)s::text[]) AS q (queue), LATERAL (
        SELECT e.execution_id FROM job_executions AS e
        WHERE {_WAITS_IN_QUEUE} AND e.queue = q.queue AND e.publish_at IS NOT NULL
          AND coalesce(e.publish_at, e.due_at) > (SELECT clock_timestamp())
        ORDER BY coalesce(e.publish_at, e.due_at) LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    LIMIT 1
)
UPDATE job_executions AS e SET published_at = NULL, publish_at = NULL FROM another
WHERE e.execution_id = another.execution_id AND {_WAITS_IN_QUEUE} RETURNING 1
"""

# Changes with every insert, update and delete. The newest change alone would not: one that began before it may commit
# after it.
STATE_OF_LIMITS = "SELECT count(*) AS n, sum(extract(epoch FROM updated_at)) AS stamps FROM limits"
