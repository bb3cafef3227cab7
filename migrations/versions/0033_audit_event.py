"""rules may tell what the hourly audit found"""

from alembic import op

revision = "0033"
down_revision = "0032"

EVENTS = """ARRAY['failed', 'failing', 'recovered', 'late', 'slow', 'no_success', 'missed', 'parked', 'nobody_able',
    'replica_lost', 'queue_open', 'scan_changed', 'audit_failed']"""
EVENTS_BEFORE = EVENTS.replace(", 'audit_failed'", "")


def upgrade() -> None:
    _allow(EVENTS)


def downgrade() -> None:
    """A rule that tells nothing else is deleted: it may not be without events."""
    op.execute("DELETE FROM notification_rules WHERE array_remove(events, 'audit_failed') <@ ARRAY['recovered']")
    op.execute(
        """UPDATE notification_rules SET events = array_remove(events, 'audit_failed')
        WHERE 'audit_failed' = ANY(events)"""
    )
    _allow(EVENTS_BEFORE)


def _allow(events: str) -> None:
    op.execute("ALTER TABLE notification_rules DROP CONSTRAINT notification_rules_events_check")
    op.execute(
        f"""
        ALTER TABLE notification_rules ADD CONSTRAINT notification_rules_events_check
        CHECK (cardinality(events) >= 1 AND events <@ {events})
        """
    )
