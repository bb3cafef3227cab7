"""/api/v3/rules: which events are sent to which channels, and when."""

from typing import Annotated

from fastapi import Path, Query, Response

from services.notifications.trying import try_rule as run_trial
from services.web.auth.guard import Admin, IdempotencyKey, Operator, Viewer
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.rules import NewRule, RuleChanges, RuleList, RuleOut, TrialOut

rules = router(f"{API}/rules", "notifications")

RuleName = Annotated[str, Path(description="Name or id of the rule.", examples=["billing"])]


@rules.get("")
def list_rules(parts: PartsOf, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> RuleList:
    """A page of rules, by name."""
    page = parts.rules.page(limit=limit, cursor=cursor)
    return RuleList(items=[RuleOut.model_validate(record) for record in page.items], next_cursor=page.next_cursor)


@rules.post("", status_code=201)
def add_rule(body: NewRule, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> RuleOut:
    """Add a rule. It reports what happens from now on."""
    added = parts.rules.add(body.given(), who.actor)
    response.headers["Location"] = f"{API}/rules/{added.name}"
    return RuleOut.model_validate(added)


@rules.get("/{name}")
def read_rule(name: RuleName, parts: PartsOf, who: Viewer) -> RuleOut:
    return RuleOut.model_validate(parts.rules.find(name))


@rules.patch("/{name}")
def change_rule(name: RuleName, body: RuleChanges, parts: PartsOf, who: Operator) -> RuleOut:
    """Change individual fields. A rule forgets open problems that it no longer reports, or while it is disabled."""
    _, after = parts.rules.edit(name, body.given(), who.actor)
    return RuleOut.model_validate(after)


@rules.delete("/{name}", status_code=204)
def delete_rule(name: RuleName, parts: PartsOf, who: Admin) -> None:
    """Delete a rule. Messages it has already created are still sent and stay in the history."""
    parts.rules.delete(name, who.actor)


@rules.get("/{name}/trial")
def try_rule(
    name: RuleName,
    parts: PartsOf,
    who: Operator,
    hours: Annotated[float, Query(gt=0, le=24 * 7, description="How far it looks back.")] = 24,
) -> TrialOut:
    """A dry run: what this rule would have sent in the last hours. Nothing is written or sent."""
    record = parts.rules.find(name)
    return TrialOut.model_validate(run_trial(parts.db, record, parts.settings.heartbeat_timeout_seconds, hours))
