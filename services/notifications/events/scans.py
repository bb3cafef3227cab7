"""Cookie scans: a scan that found new or changed cookies is reported once; it has no end."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Row

from services.notifications.events.rows import about, facts_of, fire_of
from services.notifications.incidents import Occurrence
from services.notifications.rule_fields import Event
from services.wording.counts import counted

TOLD_CHANGES = ("new", "changed")
LINES = 20


def scan_changes(row: Row[Any]) -> Iterator[Occurrence]:
    changes = [each for each in row.scan_changes or () if each.get("kind") in TOLD_CHANGES]
    if not changes:
        return
    counts = {kind: sum(each["kind"] == kind for each in changes) for kind in TOLD_CHANGES}
    words = " and ".join(f"{counted(count, f'{kind} cookie')}" for kind, count in counts.items() if count)
    lines = [f"{each['kind']}: {each.get('name')} ({each.get('domain')})" for each in changes[:LINES]]
    if len(changes) > LINES:
        lines.append(f"and {len(changes) - LINES:,} more")
    yield Occurrence(
        event=Event.SCAN_CHANGED,
        subject=str(row.scan_id),
        key=str(row.execution_id),
        at=row.completed_at,
        about=about(row),
        words=f"has {words} since the previous scan",
        pattern=str(row.execution_id),  # each differs: what was found is the message
        severity="info",
        fire=fire_of(row),
        is_instant=True,
        text="\n".join(lines),
        facts=facts_of(row),
        data={"scan_id": str(row.scan_id), "schedule_id": str(row.schedule_id), **counts},
        path=f"/scans/{row.scan_id}",
    )
