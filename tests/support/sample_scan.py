"""A scan as values, for tests without a site: each part can be replaced."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from services.scanning.findings import (
    Category,
    ChangeKind,
    Consent,
    Cookie,
    CookieChange,
    EngineName,
    Page,
    Party,
    Scan,
    Storage,
)

STARTED_AT = datetime(2026, 5, 3, 14, 2, 0, tzinfo=UTC)
SCAN_ID = UUID("3f2a90c1-0000-4000-8000-000000000001")
PREVIOUS_ID = UUID("3f2a90c1-0000-4000-8000-000000000000")

# Names that a site may give its cookies.
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>1</script>",
    "'; DROP TABLE scans; --",
    "a\u202egnp.exe",
    "\x1b[2J\x1b]0;owned\x07",
    "line\nbreak\r\n\x00",
    "\ud800",
    "&lt;b&gt;",
    "x" * 5000,
]


def a_cookie(name: str = "session_id", **more: Any) -> Cookie:
    facts: dict[str, Any] = {
        "name": name,
        "domain": "shop.example",
        "path": "/",
        "storage": Storage.COOKIE,
        "host_only": True,
        "expires_at": None,
        "lifetime_seconds": None,
        "secure": True,
        "http_only": True,
        "same_site": "Lax",
        "party": Party.FIRST,
        "consent": Consent.BEFORE,
        "category": Category.NECESSARY,
        "category_rule": "session",
        "page_url": "https://shop.example/",
        "request_url": "https://shop.example/",
        "pages_seen": 1,
    }
    return Cookie(**{**facts, **more})


def a_page(url: str = "https://shop.example/", **more: Any) -> Page:
    facts: dict[str, Any] = {
        "url": url,
        "final_url": url,
        "depth": 0,
        "attempts": 1,
        "status_code": 200,
        "error": None,
        "elapsed_ms": 120,
    }
    return Page(**{**facts, **more})


def a_change(kind: ChangeKind, name: str, **more: Any) -> CookieChange:
    facts: dict[str, Any] = {
        "domain": "shop.example",
        "path": "/",
        "storage": Storage.COOKIE,
        "category": Category.UNKNOWN,
    }
    return CookieChange(kind=kind, name=name, **{**facts, **more})


def a_scan(*cookies: Cookie, **more: Any) -> Scan:
    facts: dict[str, Any] = {
        "scan_id": SCAN_ID,
        "execution_id": None,
        "schedule_id": None,
        "domain": "shop.example",
        "engine": EngineName.HTTP,
        "started_at": STARTED_AT,
        "finished_at": STARTED_AT + timedelta(seconds=12),
        "previous_scan_id": None,
        "config": {"max_pages": 50},
        "summary": {},
        "pages": (a_page(),),
        "changes": (),
    }
    return Scan(**{**facts, "cookies": cookies, **more})


def a_rich_scan(**more: Any) -> Scan:
    """One example of everything, compared with an earlier scan."""
    year = 31_536_000
    analytics = {"category": Category.ANALYTICS, "category_rule": "_ga*", "http_only": False, "same_site": None}
    marketing = {
        "domain": "ads.example",
        "party": Party.THIRD,
        "category": Category.MARKETING,
        "category_rule": "ads",
        "request_url": "https://ads.example/pixel.gif",
        "same_site": "None",
    }
    facts: dict[str, Any] = {
        "engine": EngineName.BROWSER,
        "previous_scan_id": PREVIOUS_ID,
        "config": {"max_pages": 50, "accept_selector": "#accept", "custom_pages": ["/basket"], "allow_deep_scan": True},
        "summary": {"notes": ["robots.txt keeps 2 pages closed"]},
        "pages": (
            a_page(),
            a_page("https://shop.example/basket", depth=1, notes=("cut after 5 MB",)),
            a_page(
                "https://shop.example/broken", final_url=None, depth=1, attempts=3, status_code=None, error="timed out"
            ),
        ),
        "changes": (
            a_change(ChangeKind.NEW, "_ga", category=Category.ANALYTICS),
            a_change(ChangeKind.GONE, "old_banner"),
            a_change(
                ChangeKind.CHANGED,
                "lang",
                category=Category.PREFERENCES,
                fields={"lifetime_seconds": (year, 2 * year), "secure": (False, True), "same_site": (None, "Lax")},
            ),
        ),
    }
    return a_scan(
        a_cookie(pages_seen=2),
        a_cookie("_ga", lifetime_seconds=2 * year, **analytics),
        a_cookie("lang", lifetime_seconds=2 * year, category=Category.PREFERENCES, consent=Consent.AFTER),
        a_cookie("track", lifetime_seconds=400 * 86_400, **marketing),
        a_cookie("retarget", lifetime_seconds=90 * 86_400, **{**marketing, "consent": Consent.AFTER}),
        a_cookie("basket", storage=Storage.LOCAL, category=Category.UNKNOWN, category_rule=None, secure=False),
        **{**facts, **more},
    )


def scan_full_of(name: str) -> Scan:
    """A scan in which every value that a site controls is this text."""
    evil = a_cookie(
        name, domain=name, path=name, same_site=name, category_rule=name, page_url=name, request_url="x" + name,
        party=Party.THIRD, category=Category.MARKETING,
    )  # fmt: skip
    return a_rich_scan(
        domain=name,
        cookies=(evil,),
        changes=tuple(a_change(kind, name, domain=name, fields={name: (name, name)}) for kind in ChangeKind),
        pages=(a_page(name, notes=(name,)), a_page(name, error=name)),
        config={name: name, "custom_pages": [name]},
        summary={"notes": [name]},
    )
