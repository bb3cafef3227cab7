"""Browser engines for tests: a real Chromium with shorter limits, and pages for it."""

from typing import Any

from config import load_settings
from services.fetching import Guard
from services.scanning.engines.browser.limits import BrowserLimits
from services.scanning.engines.browser.process import find_browser
from services.scanning.engines.browser_engine import BrowserEngine
from services.scanning.findings import Consent, PageVisit
from tests.support.scan_site import Answer

QUICK = {
    "settle_seconds": 2.0,
    "quiet_seconds": 0.2,
    "banner_seconds": 2.0,
    "press_seconds": 0.5,
    "collect_seconds": 3.0,
}
PATIENT = {"banner_seconds": 30.0, "collect_seconds": 30.0}  # for a busy machine: the elements will appear


def new_engine(accept_selector: str | None = None, allowed: str = "127.0.0.0/8", **limits: Any) -> BrowserEngine:
    guard = Guard.parse(False, allowed)
    return BrowserEngine(
        find_browser(load_settings().scan_browser), guard, BrowserLimits(**{**QUICK, **limits}), accept_selector
    )


def plenty() -> float:
    """The remaining time of an execution."""
    return 600.0


def setters(visit: PageVisit, consent: Consent = Consent.BEFORE) -> dict[tuple[str, str], str]:
    """(storage, name) -> the request or script that set it, without the origin."""
    return {
        (cookie.storage, cookie.name): cookie.request_url.split("/", 3)[3]
        for cookie in visit.cookies
        if cookie.consent is consent
    }


def html(body: str) -> Answer:
    return Answer(f"<!DOCTYPE html><title>Page</title><body>{body}</body>")
