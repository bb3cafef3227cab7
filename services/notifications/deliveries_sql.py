"""The statements of deliveries.py and sender.py. Each comment says what a statement relies on.

A transaction that locks rows of both tables locks the delivery first, or skips locked rows.
"""

# When a delivery is due, as the index spells it. While a replica sends it, this is when its claim expires.
_DUE = "coalesce(d.next_at, d.due_at)"
_PAUSE = "least(%(first)s * 2 ^ least({failures}, 30), %(longest)s) * (0.9 + 0.2 * random()) * interval '1 s'"

WRITE = """
INSERT INTO notification_deliveries (channel_id, rule_id, event, subject, message, due_at)
SELECT channel_id, rule_id, event, subject, message, coalesce(due_at, clock_timestamp())
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (
    channel_id uuid, rule_id uuid, event text, subject text, message jsonb, due_at timestamptz)
ORDER BY rule_id, event, subject
ON CONFLICT (rule_id, event, subject) DO NOTHING
"""

_READY = """
    c.enabled AND coalesce(c.resume_at, '-infinity') <= (SELECT clock_timestamp())
"""
_NEXT = f"""
    SELECT d.delivery_id, {_DUE} AS since FROM notification_deliveries AS d
    WHERE d.state = 'waiting' AND d.channel_id = c.channel_id AND {_DUE} <= (SELECT clock_timestamp())
    ORDER BY {_DUE} LIMIT 1
"""

# The only statement of an idle replica: one probe of the index for each channel.
LOOK = f"""
SELECT count(*) AS channels FROM (
    SELECT FROM notification_channels AS c WHERE {_READY} AND EXISTS ({_NEXT}) LIMIT %(most)s) AS found
"""

# One delivery of the channel that has waited longest; channels that fail come last. The lock on the channel makes sure
# that one replica at a time tries a failing one: until that attempt ends, `resume_at` is when its claim expires. What
# still carries a token was being sent by a process that has died since. Nothing waits for a lock here.
CLAIM = f"""
WITH chosen AS MATERIALIZED (
    SELECT c.channel_id, c.failures FROM notification_channels AS c, LATERAL ({_NEXT}) AS next
    WHERE {_READY} AND c.channel_id <> ALL (%(busy)s::uuid[]) AND (c.failures = 0 OR %(probes)s)
    ORDER BY c.failures > 0, next.since LIMIT 1 FOR NO KEY UPDATE OF c SKIP LOCKED
), found AS MATERIALIZED (
    SELECT next.delivery_id FROM chosen AS c, LATERAL ({_NEXT} FOR NO KEY UPDATE SKIP LOCKED) AS next
), claimed AS (
    UPDATE notification_deliveries AS d SET
        attempts = d.attempts + 1, claim_token = gen_random_uuid(), claim_owner = %(owner)s,
        next_at = clock_timestamp() + %(seconds)s * interval '1 s',
        failures = d.failures + (d.claim_token IS NOT NULL)::int,
        tried_since = coalesce(d.tried_since, CASE WHEN d.claim_token IS NOT NULL THEN clock_timestamp() END)
    FROM found WHERE d.delivery_id = found.delivery_id
    RETURNING d.delivery_id, d.channel_id, d.event, d.message, d.created_at, d.attempts, d.claim_token
), lost AS (
    UPDATE notification_attempts AS a SET ended_at = clock_timestamp(), outcome = 'lost',
        answer = 'the process that sent it ended, or lost its database, before it noted the result'
    FROM found WHERE a.delivery_id = found.delivery_id AND a.outcome IS NULL
    RETURNING a.number
), begun AS (
    INSERT INTO notification_attempts (delivery_id, number, claim_token, instance_id)
    SELECT delivery_id, attempts, claim_token, %(owner)s FROM claimed
), probing AS (
    UPDATE notification_channels AS c SET resume_at = clock_timestamp() + %(seconds)s * interval '1 s'
    FROM claimed WHERE c.channel_id = claimed.channel_id AND c.failures > 0
)
SELECT claimed.*, c.name, c.kind, c.config, c.failures > 0 AS is_probe, (SELECT count(*) FROM lost) AS lost
FROM claimed JOIN notification_channels AS c USING (channel_id)
"""

# Fenced by the token: whoever was too slow has lost the delivery, and changes nothing of it.
SENT = """
WITH settled AS (
    UPDATE notification_deliveries SET state = 'sent', ended_at = clock_timestamp(), next_at = NULL,
        claim_token = NULL, claim_owner = NULL, last_error = NULL
    WHERE delivery_id = %(delivery_id)s AND claim_token = %(token)s AND state = 'waiting'
    RETURNING delivery_id, channel_id
), attempt AS (
    UPDATE notification_attempts SET ended_at = clock_timestamp(), outcome = 'sent', answer = %(answer)s
    WHERE delivery_id = %(delivery_id)s AND claim_token = %(token)s AND outcome IS NULL
), former AS MATERIALIZED (
    SELECT c.channel_id, c.failing_since FROM notification_channels AS c JOIN settled USING (channel_id)
), channel AS (
    UPDATE notification_channels AS c SET failures = 0, failing_since = NULL, resume_at = NULL, last_error = NULL,
        last_sent_at = clock_timestamp()
    FROM settled WHERE c.channel_id = settled.channel_id
)
SELECT settled.delivery_id, former.failing_since FROM settled LEFT JOIN former USING (channel_id)
"""

# A delivery is given up when it was tried for so long, or was due for so long while its channel failed.
FAILED = f"""
WITH settled AS (
    UPDATE notification_deliveries AS d SET
        failures = d.failures + 1, tried_since = coalesce(d.tried_since, clock_timestamp()), last_error = %(answer)s,
        claim_token = NULL, claim_owner = NULL,
        state = f.state, ended_at = CASE WHEN f.state <> 'waiting' THEN clock_timestamp() END,
        next_at = CASE WHEN f.state = 'waiting' THEN clock_timestamp() + {_PAUSE.format(failures="d.failures")} END
    FROM notification_deliveries AS o LEFT JOIN notification_channels AS c USING (channel_id), LATERAL (
        SELECT CASE
            WHEN c.channel_id IS NULL THEN 'cancelled'
            WHEN o.event = 'test' THEN 'failed'
            WHEN o.tried_since <= long_ago OR (o.due_at <= long_ago AND c.failing_since <= long_ago) THEN 'failed'
            ELSE 'waiting' END AS state
        FROM (SELECT clock_timestamp() - %(give_up)s * interval '1 s' AS long_ago) AS l) AS f
    WHERE o.delivery_id = %(delivery_id)s AND d.delivery_id = o.delivery_id
        AND d.claim_token = %(token)s AND d.state = 'waiting'
    RETURNING d.delivery_id, d.channel_id, d.state
), attempt AS (
    UPDATE notification_attempts SET ended_at = clock_timestamp(), outcome = 'failed', answer = %(answer)s
    WHERE delivery_id = %(delivery_id)s AND claim_token = %(token)s AND outcome IS NULL
), channel AS (
    UPDATE notification_channels AS c SET failures = c.failures + 1, last_error = %(answer)s,
        failing_since = coalesce(c.failing_since, clock_timestamp()),
        resume_at = clock_timestamp() + greatest(
            {_PAUSE.format(failures="c.failures")}, coalesce(%(retry_after)s, 0) * interval '1 s')
    FROM settled WHERE c.channel_id = settled.channel_id
    RETURNING c.channel_id, c.failures, c.failing_since <= clock_timestamp() - %(give_up)s * interval '1 s' AS is_old
)
SELECT settled.state, channel.failures, channel.is_old FROM settled LEFT JOIN channel USING (channel_id)
"""

# What waited behind a channel that has failed for so long, and was not tried itself.
GIVE_UP = f"""
UPDATE notification_deliveries SET state = 'failed', ended_at = clock_timestamp(), next_at = NULL, claim_token = NULL,
    claim_owner = NULL, last_error = %(reason)s
WHERE delivery_id = ANY(ARRAY(
    SELECT d.delivery_id FROM notification_deliveries AS d
    WHERE d.state = 'waiting' AND d.channel_id = %(channel_id)s
      AND greatest({_DUE}, d.due_at) <= (SELECT clock_timestamp() - %(give_up)s * interval '1 s')
    ORDER BY {_DUE} LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED))
"""

# `next_at` before all others: what a person waits for does not stand in line.
_REPEATED = """
    state = 'waiting', due_at = clock_timestamp(), next_at = 'epoch', failures = 0, tried_since = NULL,
    claim_token = NULL, claim_owner = NULL, ended_at = NULL, repeated_by = %(actor)s
"""

# Not what is being sent at this moment; what waits for its next attempt is tried at once.
REPEAT = f"""
UPDATE notification_deliveries AS d SET {_REPEATED}
WHERE d.delivery_id = %(delivery_id)s AND (d.state <> 'waiting' OR d.claim_token IS NULL)
  AND EXISTS (SELECT FROM notification_channels AS c WHERE c.channel_id = d.channel_id)
RETURNING d.channel_id
"""
WRITE_TEST = """
INSERT INTO notification_deliveries (channel_id, event, subject, message, next_at)
VALUES (%(channel_id)s, 'test', %(subject)s, %(message)s, 'epoch') RETURNING delivery_id
"""
REPEAT_FAILED = f"""
UPDATE notification_deliveries SET {_REPEATED}
WHERE delivery_id = ANY(ARRAY(
    SELECT delivery_id FROM notification_deliveries
    WHERE channel_id = %(channel_id)s AND state = 'failed' AND event <> 'test'
    ORDER BY created_at, delivery_id LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED))
"""
# A person has asked: a failing channel is tried now, not after its pause.
TRY_NOW = """
UPDATE notification_channels SET resume_at = NULL WHERE channel_id = %(channel_id)s AND resume_at IS NOT NULL
"""
CANCEL = """
UPDATE notification_deliveries SET state = 'cancelled', ended_at = clock_timestamp(), next_at = NULL,
    claim_token = NULL, claim_owner = NULL, last_error = 'the channel was deleted'
WHERE delivery_id = ANY(ARRAY(
    SELECT delivery_id FROM notification_deliveries WHERE channel_id = %(channel_id)s AND state = 'waiting'
    LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED))
"""

# What was written for a channel while it was being deleted.
CANCEL_ORPHANS = """
UPDATE notification_deliveries SET state = 'cancelled', ended_at = clock_timestamp(), next_at = NULL,
    claim_token = NULL, claim_owner = NULL, last_error = 'the channel was deleted'
WHERE delivery_id = ANY(ARRAY(
    SELECT d.delivery_id FROM notification_deliveries AS d
    WHERE d.state = 'waiting' AND NOT EXISTS (SELECT FROM notification_channels AS c WHERE c.channel_id = d.channel_id)
    LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED))
"""

# By the index on created_at. Of what still waits, only what a disabled channel has kept for as long.
DELETE = """
WITH deleted AS (
    DELETE FROM notification_deliveries WHERE delivery_id = ANY(ARRAY(
        SELECT d.delivery_id FROM notification_deliveries AS d
        WHERE d.created_at < %(limit)s AND d.created_at >= %(since)s AND (d.state <> 'waiting' OR EXISTS (
            SELECT FROM notification_channels AS c WHERE c.channel_id = d.channel_id AND NOT c.enabled))
        ORDER BY d.created_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED
    )) RETURNING created_at
)
SELECT count(*) AS n, max(created_at) AS place FROM deleted
"""

# Of enabled channels. The oldest is what has waited longest although it was due.
FACTS = f"""
SELECT
    coalesce(sum(w.waiting), 0)::bigint AS waiting,
    coalesce(max(w.oldest_seconds), 0)::float AS oldest_seconds,
    count(c.failing_since) AS failing,
    coalesce(max(date_part('epoch', clock_timestamp() - c.failing_since)), 0)::float AS failing_seconds
FROM notification_channels AS c, LATERAL (
    SELECT count(*) AS waiting, max(date_part('epoch', clock_timestamp() - due_at)) AS oldest_seconds FROM (
        SELECT d.due_at FROM notification_deliveries AS d
        WHERE d.state = 'waiting' AND d.channel_id = c.channel_id AND d.due_at <= (SELECT clock_timestamp())
        ORDER BY {_DUE} LIMIT %(most)s) AS few) AS w
WHERE c.enabled
"""
