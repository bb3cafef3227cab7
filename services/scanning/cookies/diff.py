"""Diff of two scans: new, gone and changed cookies. Pure.

Instants differ in every scan and are not compared. Lifetimes are, with a tolerance for the seconds between two scans
and for sites that let all their cookies expire on one day.
"""

from collections.abc import Iterable
from typing import Any

from services.scanning.findings import ChangeKind, Cookie, CookieChange

COMPARED = ("host_only", "secure", "http_only", "same_site", "party", "consent", "category")
LIFETIME_TOLERANCE_SECONDS, LIFETIME_TOLERANCE_RATIO = 60, 0.1


def compare(previous: Iterable[Cookie], cookies: Iterable[Cookie]) -> tuple[CookieChange, ...]:
    """Ordered by kind, then in the order of the cookies."""
    before = {cookie.key: cookie for cookie in previous}
    now = {cookie.key: cookie for cookie in cookies}
    new = [_change(ChangeKind.NEW, cookie) for key, cookie in now.items() if key not in before]
    gone = [_change(ChangeKind.GONE, cookie) for key, cookie in before.items() if key not in now]
    pairs = [(before[key], cookie) for key, cookie in now.items() if key in before]
    differing = [(cookie, fields) for former, cookie in pairs if (fields := _differences(former, cookie))]
    return (*new, *gone, *(_change(ChangeKind.CHANGED, cookie, fields) for cookie, fields in differing))


def _change(kind: ChangeKind, cookie: Cookie, fields: dict[str, tuple[Any, Any]] | None = None) -> CookieChange:
    return CookieChange(
        kind=kind,
        name=cookie.name,
        domain=cookie.domain,
        path=cookie.path,
        storage=cookie.storage,
        category=cookie.category,
        fields=fields or {},
    )


def _differences(before: Cookie, after: Cookie) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in COMPARED}
    found = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    lifetimes = (before.lifetime_seconds, after.lifetime_seconds)
    return found | ({"lifetime_seconds": lifetimes} if _differ(*lifetimes) else {})


def _differ(before: int | None, after: int | None) -> bool:
    if before is None or after is None:
        return before is not after
    tolerance = max(LIFETIME_TOLERANCE_SECONDS, LIFETIME_TOLERANCE_RATIO * max(before, after))
    return abs(before - after) > tolerance
