"""The browser engine with a real Chromium: what it sees of a page, before and after consent."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from config import load_settings
from services.scanning.config import CookieScanConfig
from services.scanning.engines.browser_engine import BrowserEngine
from services.scanning.findings import Consent, PageFailed, Storage
from services.scanning.scan import scan_domain
from tests.support.browsers import PATIENT, html, plenty, setters
from tests.support.scan_site import Answer, ScanSite, WebServer
from tests.support.scanning import DOMAIN, cookie, page, scan

ACCEPT = "button[data-role='accept']"
VEIL = '<div style="position: fixed; inset: 0; z-index: 9"></div>'
Make = Callable[..., BrowserEngine]


@pytest.fixture
def site() -> Iterator[ScanSite]:
    with ScanSite() as site:
        yield site


def test_cookies_and_storage_of_all_kinds_are_seen_with_who_set_them_and_the_side_of_the_consent(
    site: ScanSite, browser: Make
) -> None:
    engine = browser(ACCEPT, **PATIENT)
    first = engine.visit(f"{site.url}/", plenty)
    assert setters(first, Consent.BEFORE) == {
        ("cookie", "session_id"): "",
        ("cookie", "_ga"): "",
        ("cookie", "_fbp"): "app.js",
        ("cookie", "track_id"): "pixel.gif",
        ("local_storage", "theme_choice"): "",
        ("session_storage", "cart"): "",
    }
    assert setters(first, Consent.AFTER) == {
        ("cookie", "consent"): "app.js",
        ("cookie", "_gcl_au"): "app.js",
        ("local_storage", "consent_at"): "",
    }
    assert first.notes == ()
    second = engine.visit(f"{site.url}/about", plenty)
    assert setters(second, Consent.BEFORE)["cookie", "theme"] == "about"
    assert setters(second, Consent.AFTER)["cookie", "member_since"] == "about"
    assert ("cookie", "track_id") not in setters(second, Consent.BEFORE), "this page embeds nothing of the tracker"


def test_the_attributes_of_a_cookie_are_the_browsers(site: ScanSite, any_browser: BrowserEngine) -> None:
    cookies = {cookie.name: cookie for cookie in any_browser.visit(f"{site.url}/", plenty).cookies}
    session, tracker, analytics = cookies["session_id"], cookies["track_id"], cookies["_ga"]
    assert (session.expires_at, session.http_only, session.secure, session.same_site) == (None, True, False, "Lax")
    assert (tracker.domain, tracker.secure, tracker.same_site) == ("localhost", True, "None")
    assert analytics.expires_at is not None
    assert (analytics.same_site, analytics.host_only, analytics.path) == (None, True, "/")
    assert analytics.page_url == f"{site.url}/"


def test_no_value_of_a_cookie_gets_out(site: ScanSite, any_browser: BrowserEngine) -> None:
    seen = repr(any_browser.visit(f"{site.url}/", plenty))
    assert "GA1.2.3" not in seen
    assert "fb.1.2" not in seen


def test_links_are_absolute_and_the_last_page_of_a_redirect_counts(site: ScanSite, any_browser: BrowserEngine) -> None:
    start = any_browser.visit(f"{site.url}/", plenty)
    assert start.links[:2] == (f"{site.url}/about", f"{site.url}/about#team")
    assert not [link for link in start.links if not link.startswith("http")]
    moved = any_browser.visit(f"{site.url}/old", plenty)
    assert (moved.final_url, moved.status_code) == (f"{site.url}/about", 200)
    assert setters(moved, Consent.BEFORE)["cookie", "moved"] == "old"


def test_a_redirect_by_script_is_followed(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/", html('<script>document.cookie = "left=1"; location = "/next"</script>'))
    web.answer("/next", Answer("<a href='x'>x</a>", cookies=("arrived=1",), status=404))
    seen = any_browser.visit(f"{web.url}/", plenty)
    assert (seen.final_url, seen.status_code, seen.links) == (f"{web.url}/next", 404, (f"{web.url}/x",))
    assert setters(seen).items() >= {("cookie", "left"): "", ("cookie", "arrived"): "next"}.items()


def test_frames_of_other_sites_have_storage_of_their_own(site: ScanSite, any_browser: BrowserEngine) -> None:
    site.tracker.answer("/frame", html("<script>localStorage.visitor = 1</script>"))
    found = [cookie for cookie in any_browser.visit(f"{site.url}/", plenty).cookies if cookie.name == "visitor"]
    assert [(cookie.storage, cookie.domain, cookie.request_url) for cookie in found] == [
        (Storage.LOCAL, "localhost", f"{site.tracker.url}/frame")
    ]


def test_an_empty_answer_with_an_error_status_is_an_answer(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/gone", Answer("", status=410))
    seen = any_browser.visit(f"{web.url}/gone", plenty)
    assert (seen.status_code, seen.final_url) == (410, f"{web.url}/gone")


def test_a_server_that_asks_for_patience_is_asked_later(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/", Answer("busy", status=503, headers={"Retry-After": "7"}))
    with pytest.raises(PageFailed, match="answered 503") as failure:
        any_browser.visit(f"{web.url}/", plenty)
    assert (failure.value.retryable, failure.value.retry_after_seconds) == (True, 7.0)


# --- consent --------------------------------------------------------------------------------------------------------


def test_a_domain_may_be_reached_elsewhere(site: ScanSite) -> None:
    settings = load_settings().model_copy(
        update={
            "fetch_allowed_networks": "127.0.0.0/8",
            "fetch_connect_to": f"{DOMAIN}={site.url.removeprefix('http://')}",
        }
    )
    outcome = scan_domain(DOMAIN, CookieScanConfig(engine="browser", scan_depth=0, max_retries=0), settings)
    assert (outcome.start_url, page(outcome, "/").error) == (f"http://{DOMAIN}/", None)
    assert cookie(outcome, "_fbp").domain == DOMAIN


def test_the_address_of_a_finding_is_kept_short(web: WebServer) -> None:
    far = "'/s.js?' + 'x'.repeat(9000)"
    load = f"const s = document.createElement('script'); s.src = {far}; document.head.append(s)"
    web.answer("/", html(f"<script>history.replaceState(0, '', '/' + 'y'.repeat(9000)); {load}</script>"))
    web.answer("/s.js", Answer("", content_type="text/javascript", cookies=("far=1; Path=/",)))
    outcome = scan(web.url, engine="browser", scan_depth=0)
    assert len(page(outcome, "/").final_url or "") == len(cookie(outcome, "far").request_url) == 2_048


def test_without_a_selector_nobody_agrees(site: ScanSite, browser: Make) -> None:
    seen = browser().visit(f"{site.url}/", plenty)
    assert setters(seen, Consent.AFTER) == {}
    assert len(site.requests("/")) == 1


def test_a_selector_that_matches_nothing_is_a_note(site: ScanSite, browser: Make) -> None:
    seen = browser("#no-such-button", banner_seconds=0.3).visit(f"{site.url}/", plenty)
    assert seen.notes == ("accept_selector '#no-such-button' matched no visible element",)
    assert setters(seen, Consent.AFTER) == {}
    assert ("cookie", "_ga") in setters(seen)


def test_a_selector_that_is_none_fails_every_page_for_good(site: ScanSite, browser: Make) -> None:
    engine = browser("button[[")
    for path in ("/", "/about"):
        with pytest.raises(PageFailed, match=r"accept_selector 'button\[\[' is not a selector") as failure:
            engine.visit(f"{site.url}{path}", plenty)
        assert not failure.value.retryable
    assert site.requests() == []


def test_a_banner_that_comes_late_and_in_a_frame_is_found(web: WebServer, browser: Make) -> None:
    click = "parent.document.cookie = 'agreed=1'; this.remove()"
    web.answer("/banner", html(f'<button id="yes" onclick="{click}">Yes</button>'))
    late = "const f = document.createElement('iframe'); f.src = '/banner'; document.body.append(f)"
    web.answer("/", html(f"<script>setTimeout(() => {{ {late} }}, 700)</script>"))
    seen = browser("#yes", **PATIENT).visit(f"{web.url}/", plenty)
    assert setters(seen, Consent.AFTER).keys() == {("cookie", "agreed")}


def test_a_button_under_a_veil_is_clicked_all_the_same(web: WebServer, browser: Make) -> None:
    web.answer("/", html(f"{VEIL}<button id=yes onclick=\"document.cookie = 'agreed=1'\">Yes</button>"))
    # The last look may take longer than the wait for a banner, and a busy machine a second to press.
    no_time = {**PATIENT, "banner_seconds": 0.001, "press_seconds": 3.0}
    seen = browser("#yes", **no_time).visit(f"{web.url}/", plenty)
    assert ("cookie", "agreed") in setters(seen, Consent.AFTER)


def test_a_button_that_goes_away_when_it_is_reached_for_is_a_note(web: WebServer, browser: Make) -> None:
    far_below = '<div style="height: 9000px"></div><button id=yes>Yes</button>'
    flee = "addEventListener('scroll', () => document.getElementById('yes').remove())"
    web.answer("/", html(f"{VEIL}{far_below}<script>document.cookie = 'a=1'; {flee}</script>"))
    seen = browser("#yes", banner_seconds=30.0).visit(f"{web.url}/", plenty)
    assert seen.notes == ("accept_selector '#yes' could not be clicked",)
    assert setters(seen).keys() == {("cookie", "a")}
    assert setters(seen, Consent.AFTER) == {}


def test_what_only_the_second_visitor_gets_before_the_click_was_set_without_consent(
    web: WebServer, browser: Make
) -> None:
    count = itertools.count()
    page = html("<button id=yes onclick=\"document.cookie = 'agreed=1'\">Yes</button>")
    web.answer("/", lambda _: Answer(page.body, cookies=("unasked=1",) if next(count) else ()))
    seen = browser("#yes", **PATIENT).visit(f"{web.url}/", plenty)
    assert setters(seen).keys() == {("cookie", "unasked")}
    assert setters(seen, Consent.AFTER).keys() == {("cookie", "agreed")}
