"""Removals: schedules that vanished from the API are disabled, never deleted, and only if the response is credible.

An item that is present but invalid has not vanished. If an item cannot be identified, it may be any of the missing
ones, so nothing is disabled. The same holds when too many are missing at once, or all of them: that is usually an error
of the API.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from services.api_sync.items import ApiItems, plain_line

# Ids as bytes and text: converting them to UUIDs would take longer than everything else here.
API_SCHEDULES = text(
    """
    SELECT CAST(schedules.schedule_id AS text), uuid_send(domain_config_id), domain, enabled,
           item.vanished_at IS NOT NULL AS is_vanished
    FROM schedules LEFT JOIN api_sync_items AS item ON item.schedule_id = schedules.schedule_id
    WHERE schedules.source = 'api'
    ORDER BY schedules.schedule_id
    """
)
LOCK = text("SELECT FROM schedules WHERE schedule_id = ANY(CAST(:ids AS uuid[])) ORDER BY schedule_id FOR UPDATE")
SWITCH_OFF = text(
    """
    WITH off AS (
        UPDATE schedules SET enabled = false, next_run = NULL, disabled_note = 'vanished from the API at '
            || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
        WHERE schedule_id = ANY(CAST(:ids AS uuid[])) AND source = 'api' AND enabled
        RETURNING schedule_id, revision
    )
    INSERT INTO api_sync_items AS item (schedule_id, revision, vanished_at, disabled_revision)
    SELECT schedules.schedule_id, coalesce(off.revision, schedules.revision), clock_timestamp(), off.revision
    FROM schedules LEFT JOIN off ON off.schedule_id = schedules.schedule_id
    WHERE schedules.schedule_id = ANY(CAST(:ids AS uuid[])) AND schedules.source = 'api'
    ON CONFLICT (schedule_id) DO UPDATE SET
        revision = EXCLUDED.revision, vanished_at = coalesce(item.vanished_at, EXCLUDED.vanished_at),
        disabled_revision = EXCLUDED.disabled_revision, kept = '{}'
    """
)


@dataclass(frozen=True, slots=True)
class Missing:
    schedule_id: UUID
    label: str


@dataclass(frozen=True, slots=True)
class Removals:
    known: int  # schedules that were in the API until now
    missing: tuple[Missing, ...]  # those that are missing now
    switched_on: tuple[Missing, ...]  # vanished earlier, and enabled by an operator since


def find_missing(connection: Connection, items: ApiItems) -> Removals:
    known = 0
    missing: list[Missing] = []
    switched_on: list[Missing] = []
    found = connection.execution_options(yield_per=1000).execute(API_SCHEDULES)
    for schedule_id, config, domain, enabled, is_vanished in found:
        known += not is_vanished
        if bytes(config) in items or (is_vanished and not enabled):
            continue
        (switched_on if is_vanished else missing).append(Missing(UUID(schedule_id), plain_line(domain)))
    return Removals(known, tuple(missing), tuple(switched_on))


def refusal(removals: Removals, *, answered: int, unidentified: int, max_percent: int, allowed: bool) -> str | None:
    """Why nothing may be disabled; None if it may, or if nothing vanished. `allowed`: an operator confirmed the
    removals.
    """
    missing = len(removals.missing)
    if not missing:
        return None
    if unidentified:
        return f"{unidentified} of the items cannot be identified: any of the {missing} missing schedules may be meant"
    if allowed:
        return None
    if not answered:
        return f"the response is an empty list, but {removals.known} schedules were in it before"
    if missing * 100 > max_percent * removals.known:
        share = f"{missing} of {removals.known} schedules are missing"
        return f"{share}, more than {max_percent} % (API_SYNC_MAX_REMOVALS_PERCENT)"
    return None


def switch_off(connection: Connection, schedule_ids: Sequence[UUID]) -> None:
    ids = {"ids": [str(schedule_id) for schedule_id in schedule_ids]}
    connection.execute(LOCK, ids)
    connection.execute(SWITCH_OFF, ids)
