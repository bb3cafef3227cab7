"""Ended executions, in the order in which they ended, against all rules. Used by the notifier and by `rule try`."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from services.notifications.events.outcomes import outcomes
from services.notifications.events.rows import subject_of
from services.notifications.events.scans import scan_changes
from services.notifications.events.timing import LEAST_SLOW_SECONDS, RAN, Judged, timing
from services.notifications.incidents import Incidents, Over, apply
from services.notifications.rule_fields import Event
from services.notifications.rules import RuleRecord

OF_ENDED = frozenset(
    {Event.FAILED, Event.FAILING, Event.LATE, Event.SLOW, Event.NO_SUCCESS, Event.MISSED} | {Event.SCAN_CHANGED}
)
OF_SCHEDULES = (Event.FAILED, Event.FAILING, Event.LATE, Event.SLOW, Event.NO_SUCCESS, Event.MISSED, Event.PARKED)


def judge(
    incidents: Incidents,
    rules: Collection[RuleRecord],
    rows: Sequence[Row[Any]],
    usual: Mapping[UUID, float],
    at: datetime,
) -> None:
    timed = [rule for rule in rules if rule.tells(Event.LATE) or rule.tells(Event.SLOW)]
    known = {subject for _, _, subject in incidents.known}
    for row in rows:
        if timed:
            apply_judged(incidents, timing(row, timed, usual), at)
        if row.scan_changes:
            apply(incidents, rules, scan_changes(row), at)
        if row.status == "success" and subject_of(row) not in known:
            continue  # most rows: nothing began, and nothing is over
        apply(incidents, rules, outcomes(row), at)
        known.add(subject_of(row))


def thresholds(rules: Collection[RuleRecord]) -> dict[str, Any]:
    """For the walk: from when on the start or the duration of a success may matter to one of the rules."""
    slow = [float(rule.slower_than_seconds) for rule in rules if rule.slower_than_seconds is not None]
    slow += [LEAST_SLOW_SECONDS for rule in rules if rule.slower_than_usual is not None]
    return {
        "late": min((rule.late_seconds for rule in rules if rule.late_seconds is not None), default=None),
        "slow": min(slow, default=None),
        "scans": any(rule.tells(Event.SCAN_CHANGED) for rule in rules),
    }


def apply_judged(incidents: Incidents, found: Collection[Judged] | Any, at: datetime) -> None:
    for each in found:
        if isinstance(each.found, Over):
            incidents.end(each.rule, each.found, at)
        else:
            incidents.begin(each.rule, each.found, at)


def needs_usual(rows: Sequence[Row[Any]], rules: Collection[RuleRecord]) -> set[UUID]:
    """Schedules whose usual duration matters for these rows."""
    if not any(rule.slower_than_usual is not None for rule in rules):
        return set()
    return {
        row.schedule_id
        for row in rows
        if row.schedule_id is not None and row.status in RAN and (row.duration_seconds or 0) >= LEAST_SLOW_SECONDS
    }
