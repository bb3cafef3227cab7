"""The statements of rules.py."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from sqlalchemy import Select, literal_column, or_, select

from database.models import NotificationRule as Rule

# By their present names, in the order of the rule; NULL for one that was deleted.
_NAMES = """ARRAY(
    SELECT c.name FROM unnest(notification_rules.channel_ids) WITH ORDINALITY AS w (id, place)
    LEFT JOIN notification_channels AS c ON c.channel_id = w.id ORDER BY w.place)"""
_KEPT = list(Rule.__table__.columns)

CHANNELS = "SELECT name, channel_id FROM notification_channels ORDER BY name"

COUNT_ENABLED = "SELECT count(*) FROM notification_rules WHERE enabled"

_FIELDS = (
    "name", "channel_ids", "events", "schedule_ids", "tags", "job_types", "queues", "after_failures", "late_seconds",
    "slower_than_seconds", "slower_than_usual", "no_success_seconds", "quiet_from", "quiet_to", "quiet_timezone",
    "quiet_errors_pass", "digest", "digest_at", "digest_day", "digest_timezone", "enabled", "note",
)  # fmt: skip
_TYPES = {"channel_ids": "::uuid[]", "schedule_ids": "::uuid[]", "tags": "::text[]", "job_types": "::text[]"}
_TYPES |= {"queues": "::text[]", "events": "::text[]"}
_VALUES = ", ".join(f"%({name})s{_TYPES.get(name, '')}" for name in _FIELDS)

ADD = f"""
INSERT INTO notification_rules ({", ".join(_FIELDS)}, created_by, updated_by)
VALUES ({_VALUES}, %(actor)s, %(actor)s)
"""

CHANGE = f"""
UPDATE notification_rules SET ({", ".join(_FIELDS)}) = ROW ({_VALUES}), updated_by = %(actor)s,
       updated_at = clock_timestamp()
WHERE rule_id = %(rule_id)s
"""

# Nothing is known about events that were not watched for a while: later reports begin anew.
FORGET = """
DELETE FROM notification_incidents
WHERE rule_id = %(rule_id)s
  AND (event = ANY(%(events)s::text[]) OR split_part(subject, ':', 1) = ANY(%(events)s::text[]))
"""


def select_rules() -> Select[Any]:
    return select(*_KEPT, literal_column(_NAMES).label("channels"))


def select_enabled(most: int) -> Select[Any]:
    return select_rules().where(Rule.enabled).order_by(Rule.created_at, Rule.rule_id).limit(most)


def select_one(name_or_id: str, *, lock: bool) -> Select[Any]:
    """By name, otherwise by id: a name may look like an id."""
    wanted = Rule.name == name_or_id
    with suppress(ValueError):
        wanted = or_(wanted, Rule.rule_id == UUID(name_or_id))
    query = select_rules().where(wanted).order_by(Rule.name != name_or_id).limit(1)
    return query.with_for_update() if lock else query
