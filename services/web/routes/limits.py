"""/api/v3/limits: how many executions with the same key may run at once, and what runs and waits."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Path, Response

from services.insight.limits import LimitUse, LimitUses
from services.schedules.limits import LimitRecord
from services.web.auth.guard import Admin, IdempotencyKey, Operator, Viewer
from services.web.parts import Parts
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.limits import (
    LimitChangeOut,
    LimitChanges,
    LimitDetail,
    LimitedExecutionOut,
    LimitKeyOut,
    LimitList,
    LimitOut,
    NewLimit,
)

limits = router(f"{API}/limits", "limits")

# A key may contain slashes.
LimitName = Annotated[str, Path(description="Key or pattern of the limit.", examples=["customer:42"])]


@limits.get("")
def list_limits(parts: PartsOf, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> LimitList:
    """A page of limits, by name, with their running and waiting executions."""
    page, uses = parts.schedule_limits.page(limit=limit, cursor=cursor), LimitUses(parts.db)
    found, schedules = uses.look(), uses.schedules()
    items = [LimitOut(**_facts(record, found.get(record.name), schedules)) for record in page.items]
    return LimitList(items=items, next_cursor=page.next_cursor)


@limits.post("", status_code=201)
def add_limit(
    body: NewLimit, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> LimitDetail:
    """Add a limit. It applies from the next start on; running executions are not stopped."""
    added = parts.schedule_limits.add(body.given(), who.actor)
    response.headers["Location"] = f"{API}/limits/{quote(added.name)}"
    return _detail(parts, added)


@limits.get("/{name:path}")
def read_limit(name: LimitName, parts: PartsOf, who: Viewer) -> LimitDetail:
    """A limit with its keys, the executions that run and wait, and its changes."""
    return _detail(parts, parts.schedule_limits.find(name))


@limits.patch("/{name:path}")
def change_limit(name: LimitName, body: LimitChanges, parts: PartsOf, who: Operator) -> LimitDetail:
    """Change individual fields. The change applies from the next start on."""
    _, after = parts.schedule_limits.edit(name, body.given(), who.actor)
    return _detail(parts, after)


@limits.delete("/{name:path}", status_code=204)
def delete_limit(name: LimitName, parts: PartsOf, who: Admin) -> None:
    """Delete a limit. Executions that wait for it start as soon as nothing else holds them back."""
    parts.schedule_limits.delete(name, who.actor)


def _detail(parts: Parts, record: LimitRecord) -> LimitDetail:
    uses = LimitUses(parts.db)
    use, freed = uses.look().get(record.name, LimitUse()), uses.freed_without(record)
    return LimitDetail(
        **_facts(record, use, {record.name: freed.schedules}),
        next_limit=freed.then,
        keys=[LimitKeyOut.model_validate(key) for key in use.keys],
        executions=[LimitedExecutionOut.model_validate(one) for one in uses.executions(key.key for key in use.keys)],
        changes=[LimitChangeOut.model_validate(change) for change in parts.schedule_limits.changes(record.name)],
    )


def _facts(record: LimitRecord, use: LimitUse | None, schedules: dict[str, int]) -> dict[str, Any]:
    use = use or LimitUse()
    return {
        **{field: getattr(record, field) for field in record.__dataclass_fields__},
        "running": use.running,
        "waiting": use.waiting,
        "waiting_is_cut": use.waiting_is_cut,
        "oldest_wait_seconds": use.oldest_seconds,
        "schedules": schedules.get(record.name, 0),
    }
