"""The statements of deliveries.py and sender.py. Each comment says what a statement relies on."""

WRITE = """
INSERT INTO notification_deliveries (channel_id, rule_id, event, subject, message, due_at)
SELECT channel_id, rule_id, event, subject, message, coalesce(due_at, clock_timestamp())
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (
    channel_id uuid, rule_id uuid, event text, subject text, message jsonb, due_at timestamptz)
ORDER BY rule_id, event, subject
ON CONFLICT (rule_id, event, subject) DO NOTHING
"""
