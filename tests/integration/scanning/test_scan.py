"""Scans of a small local shop with the http engine: which pages are seen, in which order, and what is found."""

import socket
from collections.abc import Iterator

import pytest

from config import Settings
from services.fetching.sites.robots import Robots
from services.jobs import JobCancelled
from services.scanning.config import CookieScanConfig
from services.scanning.crawl.start import candidates
from services.scanning.failures import ScanFailed
from services.scanning.findings import Category, Consent, EngineName, Party, Storage
from services.scanning.scan import scan_domain
from services.scanning.watch import Watch
from tests.support.scan_site import Answer, Request, ScanSite, WebServer, zipped
from tests.support.scanning import DOMAIN, cookie, page, paths, scan


@pytest.fixture
def site() -> Iterator[ScanSite]:
    with ScanSite() as site:
        yield site


def test_every_cookie_is_found_with_its_facts(site: ScanSite) -> None:
    outcome = scan(site.url)
    assert {found.name for found in outcome.cookies} == {"session_id", "_ga", "theme", "moved", "track_id", "embed_id"}
    analytics = cookie(outcome, "_ga")
    assert (analytics.domain, analytics.path, analytics.host_only) == ("127.0.0.1", "/", True)
    assert (analytics.storage, analytics.party, analytics.consent) == (Storage.COOKIE, Party.FIRST, Consent.BEFORE)
    assert (analytics.category, analytics.category_rule) == (Category.ANALYTICS, "_ga (Google Analytics)")
    assert 63_071_000 <= (analytics.lifetime_seconds or 0) <= 63_072_000
    assert (analytics.page_url, analytics.request_url) == (f"{site.url}/", f"{site.url}/")
    session = cookie(outcome, "session_id")
    assert (session.http_only, session.same_site, session.expires_at, session.lifetime_seconds) == (
        *(True, "Lax"),
        *(None, None),
    )


def test_a_third_partys_cookie_is_found_by_what_the_page_embeds(site: ScanSite) -> None:
    tracker = cookie(scan(site.url), "track_id")
    assert (tracker.domain, tracker.party, tracker.secure, tracker.same_site) == (
        "localhost",
        Party.THIRD,
        True,
        "None",
    )
    assert (tracker.page_url, tracker.request_url) == (f"{site.url}/", f"{site.tracker.url}/pixel.gif")


def test_a_cookie_of_a_redirect_is_found(site: ScanSite) -> None:
    moved = cookie(scan(site.url), "moved")
    assert (moved.page_url, moved.request_url) == (f"{site.url}/old", f"{site.url}/old")


def test_pages_are_seen_breadth_first_and_the_sitemaps_after_the_links(site: ScanSite) -> None:
    outcome = scan(site.url)
    assert paths(outcome) == [
        *("/", "/about", "/products", "/old", "/missing", "/only-in-the-sitemap"),
        *("/products/1", "/products/2", "/products/2/details"),
    ]
    assert [found.depth for found in outcome.pages] == [0, 1, 1, 1, 1, 1, 2, 2, 3]
    assert outcome.is_complete


def test_custom_pages_come_first_and_count(site: ScanSite) -> None:
    outcome = scan(
        site.url, custom_pages=["/unlinked", f"{site.url}/products/1", "https://other.example/"], max_pages=3
    )
    assert paths(outcome) == ["/unlinked", "/products/1", "/"]
    assert "custom page https://other.example/ is not a page of 127.0.0.1" in outcome.notes


def test_depth_and_number_of_pages_are_limits(site: ScanSite) -> None:
    assert paths(scan(site.url, scan_depth=0)) == ["/"]
    assert site.requests("/sitemap.xml") == []
    assert set(paths(scan(site.url, scan_depth=1))) >= {"/", "/about", "/only-in-the-sitemap"}
    assert "/products/1" not in paths(scan(site.url, scan_depth=1))
    assert len(scan(site.url, max_pages=4).pages) == 4


def test_an_embedded_address_is_asked_for_once_in_a_scan(site: ScanSite) -> None:
    scan(site.url)
    assert len(site.requests("/app.js")) == len(site.tracker.requests("/pixel.gif")) == 1
    [pixel] = site.tracker.requests("/pixel.gif")
    assert pixel.headers["referer"] == f"{site.url}/"


def test_the_site_sees_one_visitor_who_brings_the_cookies_back(site: ScanSite) -> None:
    scan(site.url)
    [first], [about] = site.requests("/"), site.requests("/products")
    assert first.cookies == ""
    assert "session_id=abc" in about.cookies
    assert first.headers["user-agent"] == "Mozilla/5.0 (compatible; enhanced-scheduler)"


def test_another_user_agent_can_be_chosen(site: ScanSite) -> None:
    scan(site.url, user_agent="mine/1.0", scan_depth=0)
    assert site.requests("/")[0].headers["user-agent"] == "mine/1.0"


def test_cookies_that_robots_txt_sets_are_not_taken_from_the_visitor(site: ScanSite) -> None:
    def once(request: Request) -> Answer:
        return Answer("<p>hi</p>", cookies=() if "lb=" in request.cookies else ("lb=1; Path=/",))

    site.answer("/robots.txt", Answer("", cookies=("lb=1; Path=/",)))
    site.answer("/", once)
    assert cookie(scan(site.url, scan_depth=0), "lb").page_url == f"{site.url}/"


def test_the_summary_counts_what_was_found(site: ScanSite) -> None:
    summary = scan(site.url).summary(())
    assert summary["pages"] == {"seen": 8, "failed": 1}
    assert (summary["cookies"], summary["parties"]) == (6, {"first": 4, "third": 2})
    assert summary["categories"] == {"necessary": 1, "preferences": 1, "analytics": 1, "marketing": 0, "unknown": 3}
    assert summary["consent"] == {"before": 6, "after": 0}
    assert summary["changes"] == {"new": 0, "gone": 0, "changed": 0}
    assert summary["notes"] == ["pages left out because robots.txt forbids them: 1"]


def test_what_is_remarked_about_every_page_is_a_note_of_the_scan(site: ScanSite) -> None:
    odd, remark = ("a\x01=1",), "Set-Cookie headers that browsers refuse: 1 (contains control characters)"
    site.answer("/", Answer('<a href="/good">', cookies=odd))
    site.answer("/good", Answer(""))
    assert scan(site.url, scan_depth=0).notes == (f"on every page: {remark}",)
    assert page(scan(site.url, max_pages=2), "/").notes == (remark,)
    assert scan(site.url, max_pages=2).notes == ()


def test_a_selector_without_a_browser_is_remarked(site: ScanSite) -> None:
    outcome = scan(site.url, scan_depth=0, accept_selector="#accept")
    assert outcome.engine is EngineName.HTTP
    assert "accept_selector has no effect: only the browser engine can click" in outcome.notes


def test_progress_and_a_line_for_each_page_are_told(site: ScanSite) -> None:
    steps: list[tuple[int, int]] = []
    lines: list[str] = []
    outcome = scan(site.url, Watch(progress=lambda done, total: steps.append((done, total)), log=lines.append))
    assert [done for done, _ in steps] == list(range(1, len(outcome.pages) + 1))
    assert steps[-1] == (9, 9)
    assert f"{site.url}/missing: answered 404, 6 cookies so far" in lines


def test_between_two_pages_there_is_a_delay(site: ScanSite, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Watch, "wait", lambda _watch, seconds: waits.append(seconds))
    scan(site.url, delay_seconds=5, max_pages=3)
    assert waits[0] == 0
    assert all(4 < seconds <= 5 for seconds in waits[1:])
    assert len(waits) == 3


# --- robots.txt ---


def test_what_robots_txt_forbids_is_not_visited(site: ScanSite) -> None:
    assert "/private/account" not in paths(scan(site.url))
    assert site.requests("/private/account") == []


def test_an_owner_may_ignore_robots_txt(site: ScanSite) -> None:
    assert "/private/account" in paths(scan(site.url, respect_robots=False))


def test_a_site_that_forbids_everything_is_refused_for_good(site: ScanSite) -> None:
    site.answer("/robots.txt", Answer("User-agent: *\nDisallow: /"))
    with pytest.raises(ScanFailed) as caught:
        scan(site.url)
    assert str(caught.value) == (
        f"no page of {DOMAIN} could be visited: {site.url}/: robots.txt forbids it; "
        "if the site is yours, set respect_robots to false"
    )
    assert not caught.value.retryable


def test_rules_may_address_this_scanner(site: ScanSite) -> None:
    site.answer("/robots.txt", Answer("User-agent: enhanced-scheduler\nDisallow: /about\n\nUser-agent: *\nDisallow: /"))
    assert "/about" not in paths(scan(site.url))
    assert "/products" in paths(scan(site.url))


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_without_a_robots_txt_everything_is_allowed(site: ScanSite, status: int) -> None:
    site.answer("/robots.txt", Answer("no", status=status))
    assert "/private/account" in paths(scan(site.url))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_robots_txt_that_fails_is_a_site_that_is_down(site: ScanSite, status: int) -> None:
    site.answer("/robots.txt", Answer("no", status=status, headers={"Retry-After": "120"}))
    with pytest.raises(ScanFailed, match=f"robots.txt answered {status}, so it is unknown") as caught:
        scan(site.url)
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (True, 120)
    assert "/about" in paths(scan(site.url, respect_robots=False))


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Answer(status=302, headers={"Location": "/robots.txt"}), "more than 5 redirects"),
        (Answer(status=302, headers={"Location": "http://10.0.0.1/"}), "10.0.0.1 is not a public address; "),
        (Answer("no gzip", headers={"Content-Encoding": "gzip"}), "the body cannot be decompressed"),
    ],
)
def test_a_robots_txt_that_cannot_be_read_is_blamed_and_stops_only_who_respects_it(
    site: ScanSite, answer: Answer, cause: str
) -> None:
    site.answer("/robots.txt", answer)
    with pytest.raises(ScanFailed) as caught:
        scan(site.url)
    blamed = f"{DOMAIN} cannot be scanned: {site.url}/robots.txt cannot be read: {cause}"
    assert str(caught.value).startswith(blamed)
    assert str(caught.value).endswith(", so it is unknown what may be visited")
    assert "/about" in paths(scan(site.url, respect_robots=False))


def test_a_server_that_is_not_ready_is_asked_again_when_it_says_and_not_after_an_hour(
    site: ScanSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Watch, "wait", lambda _watch, seconds: waits.append(seconds))
    for asked, expected in (("9", [9.0, 9.0]), ("0", [1.0, 2.0]), ("3600", [])):
        site.answer("/robots.txt", Answer("no", status=503, headers={"Retry-After": asked}))
        with pytest.raises(ScanFailed):
            scan(site.url, max_retries=2)
        assert waits == expected
        waits.clear()


def test_the_backoff_has_an_end(site: ScanSite, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Watch, "wait", lambda _watch, seconds: waits.append(seconds))
    site.answer("/robots.txt", Answer("no", status=503))
    with pytest.raises(ScanFailed):
        scan(site.url, max_retries=9)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_site_may_ask_for_a_longer_delay(site: ScanSite, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Watch, "wait", lambda _watch, seconds: waits.append(seconds))
    site.answer("/robots.txt", Answer("User-agent: *\nCrawl-delay: 7"))
    scan(site.url, max_pages=2)
    assert 6 < waits[1] <= 7
    site.answer("/robots.txt", Answer("User-agent: *\nCrawl-delay: 86400"))
    scan(site.url, max_pages=2)
    assert 9 < waits[3] <= 10


# --- sitemaps ---


def test_an_index_of_zipped_sitemaps_is_followed(site: ScanSite) -> None:
    index = f"<sitemapindex><sitemap><loc>{site.url}/1.xml.gz</loc></sitemap></sitemapindex>"
    urls = f"<urlset><url><loc>{site.url}/unlinked</loc></url><url><loc>https://other.example/</loc></url></urlset>"
    site.answer("/sitemap.xml", Answer(index, content_type="application/xml"))
    site.answer("/1.xml.gz", Answer(zipped(urls), content_type="application/gzip"))
    assert "/unlinked" in paths(scan(site.url))


@pytest.mark.parametrize("before", ["", "a fault "], ids=["sound", "broken"])
def test_an_entity_that_a_sitemap_declares_leads_nowhere(site: ScanSite, before: str) -> None:
    declared = f'<!DOCTYPE urlset [<!ENTITY page "{site.url}/declared">]>'
    body = f"{before}{declared}<urlset><url><loc>&page;</loc></url></urlset>"
    site.answer("/sitemap.xml", Answer(body, content_type="application/xml"))
    found = paths(scan(site.url))
    assert "/about" in found
    assert "/declared" not in found


def test_a_sitemap_that_names_itself_ends(site: ScanSite) -> None:
    for path in ("/sitemap.xml", "/sitemap*"):
        site.answer(path, lambda _: Answer(_index(site, f"{len(site.requests())}"), content_type="text/xml"))
    outcome = scan(site.url)
    assert len([request for request in site.requests() if request.path.startswith("/sitemap")]) == 10
    assert outcome.is_complete


def _index(site: ScanSite, name: str) -> str:
    entries = "".join(f"<sitemap><loc>{site.url}/sitemap{part}.xml</loc></sitemap>" for part in ("", name, name + "b"))
    return f"<sitemapindex>{entries}</sitemapindex>"


# --- trouble ---


def test_a_page_that_fails_once_is_tried_again(site: ScanSite, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Watch, "wait", lambda _watch, seconds: waits.append(seconds))
    answers: Iterator[Answer] = iter(
        [
            Answer("no", status=503, headers={"Retry-After": "9"}, cookies=("only_at_first=1; Path=/",)),
            Answer("no", status=500),
            Answer("<p>fine</p>"),
        ]
    )
    site.answer("/about", lambda _: next(answers))
    outcome = scan(site.url, max_retries=2, max_pages=2)
    assert (page(outcome, "/about").attempts, page(outcome, "/about").error) == (3, None)
    assert [seconds for seconds in waits if seconds] == [9.0, 2.0]


def test_the_next_attempt_is_given_the_cookies_of_the_failed_one_again(site: ScanSite) -> None:
    def only_to_strangers(request: Request) -> Answer:
        fresh = "visitor=" not in request.cookies
        status = 503 if len(site.requests("/")) == 1 else 200
        return Answer("<p>hi</p>", status=status, cookies=("visitor=1; Path=/",) if fresh else ())

    site.answer("/", only_to_strangers)
    assert cookie(scan(site.url, max_retries=1, scan_depth=0), "visitor").pages_seen == 1
    assert [request.cookies for request in site.requests("/")] == ["", ""]


def test_a_page_that_asks_for_an_hour_is_not_waited_for(site: ScanSite) -> None:
    site.answer("/about", Answer("no", status=429, headers={"Retry-After": "3600"}))
    outcome = scan(site.url, max_retries=5)
    assert (page(outcome, "/about").attempts, page(outcome, "/about").error) == (1, "answered 429")
    assert "/products" in paths(outcome)


@pytest.mark.parametrize(("status", "retryable"), [(403, False), (404, False), (500, True), (429, True)])
def test_a_site_without_a_single_page_is_no_clean_site(site: ScanSite, status: int, retryable: bool) -> None:
    site.answer("/", Answer("no", status=status))
    with pytest.raises(ScanFailed) as caught:
        scan(site.url)
    assert str(caught.value) == f"no page of {DOMAIN} could be visited: {site.url}/: answered {status}"
    assert caught.value.retryable is retryable


def test_a_site_that_is_down_fails_with_the_cause_and_may_be_tried_again() -> None:
    with ScanSite() as gone:
        url = gone.url
    with pytest.raises(ScanFailed) as caught:
        scan(url)
    assert str(caught.value) == f"{DOMAIN} cannot be scanned: {url}/: the connection was refused"
    assert caught.value.retryable


def test_a_name_that_does_not_exist_is_said_once_with_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ScanFailed) as caught:
        scan_domain("a.example", CookieScanConfig(max_retries=0), Settings(_env_file=None))
    addresses = "https://a.example/, http://a.example/, https://www.a.example/, http://www.a.example/"
    assert str(caught.value) == f"a.example cannot be scanned: {addresses}: the host name cannot be resolved"


def test_an_address_that_may_not_be_called_is_refused_for_good(site: ScanSite) -> None:
    with pytest.raises(ScanFailed, match="is not a public address") as caught:
        scan(site.url, settings=Settings(_env_file=None))
    assert not caught.value.retryable


def test_a_domain_is_asked_over_https_then_http_then_its_www_twin() -> None:
    config = CookieScanConfig()
    assert candidates("example.com", config) == [
        *("https://example.com/", "http://example.com/", "https://www.example.com/", "http://www.example.com/")
    ]
    assert candidates("shop.example.com", config) == ["https://shop.example.com/", "http://shop.example.com/"]


def test_a_domain_may_be_reached_elsewhere(site: ScanSite) -> None:
    settings = Settings(
        _env_file=None,
        fetch_allowed_networks="127.0.0.0/8",
        fetch_connect_to=f"{DOMAIN}={site.url.removeprefix('http://')}",
    )
    outcome = scan_domain(DOMAIN, CookieScanConfig(max_pages=2, delay_seconds=0, max_retries=0), settings)
    assert outcome.start_url == f"http://{DOMAIN}/"
    assert paths(outcome) == ["/", "/about"]
    assert cookie(outcome, "_ga").domain == DOMAIN


def test_a_page_that_a_redirect_led_to_is_not_visited_again(site: ScanSite) -> None:
    site.answer("/", Answer(status=302, headers={"Location": "/home"}))
    site.answer("/home", Answer('<a href="/home">Home</a><a href="/">Start</a>'))
    assert paths(scan(site.url)) == ["/", "/only-in-the-sitemap"]
    assert len(site.requests("/home")) == 1


def test_a_redirect_to_another_site_is_told_and_not_followed_further(site: ScanSite) -> None:
    site.answer("/", Answer(status=302, headers={"Location": f"{site.tracker.url}/home"}))
    site.tracker.answer("/home", Answer('<a href="/more">more</a>', cookies=("foreign=1",)))
    outcome = scan(site.url)
    assert page(outcome, "/").notes == (f"it leads to {site.tracker.url}, which is another site",)
    assert cookie(outcome, "foreign").party is Party.THIRD
    assert site.tracker.requests("/more") == []


def test_a_redirect_to_the_inside_is_refused_and_the_scan_goes_on(site: ScanSite) -> None:
    site.answer("/about", Answer(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"}))
    outcome = scan(site.url)
    assert "169.254.169.254 is not a public address" in str(page(outcome, "/about").error)
    assert "/products" in paths(outcome)


def test_embedded_addresses_that_fail_are_counted_and_a_dead_server_is_left_alone(site: ScanSite) -> None:
    def hang_up(_request: Request) -> Answer:
        raise ConnectionResetError

    with WebServer() as dead:
        dead.answer("/*", hang_up)
        images = "".join(f'<img src="{dead.url}/{number}.gif">' for number in range(50))
        site.answer("/", Answer(f'{images}<img src="{site.tracker.url}/pixel.gif"><img src="http://10.0.0.1/x.gif">'))
        outcome = scan(site.url, scan_depth=0)
        assert len(dead.requests()) == 2
    assert page(outcome, "/").notes == ("embedded addresses that could not be loaded: 51 of 52",)
    assert cookie(outcome, "track_id").party is Party.THIRD


def test_a_scan_gives_up_when_the_site_goes_away_in_the_middle(site: ScanSite) -> None:
    site.answer("/", Answer("".join(f'<a href="/page-{letter}">' for letter in "abcdefghijklmnop")))
    site.answer("/page-*", Answer("no", status=500))
    outcome = scan(site.url)
    assert len(outcome.pages) == 11
    assert not outcome.is_complete
    assert "stopped: 10 pages in a row could not be visited" in outcome.notes


def test_pages_that_can_never_be_seen_do_not_end_the_scan(site: ScanSite) -> None:
    site.answer("/", Answer("".join(f'<a href="/page-{letter}">' for letter in "abcdefghijkl") + '<a href="/about">'))
    site.answer("/page-*", lambda request: Answer(status=302, headers={"Location": request.path}))
    outcome = scan(site.url)
    assert outcome.is_complete
    assert page(outcome, "/about").error is None


def test_what_was_seen_is_kept_when_the_time_is_nearly_over(site: ScanSite) -> None:
    left = iter([60.0] * 200)
    outcome = scan(site.url, Watch(remaining_seconds=lambda: 0.0 if site.requests("/about") else next(left)))
    assert not outcome.is_complete
    assert "stopped after 2 pages: the time for this run is nearly over" in outcome.notes
    assert cookie(outcome, "_ga").page_url == f"{site.url}/"


def test_a_stop_passes_through_and_ends_the_scan_at_once(site: ScanSite) -> None:
    def stop_after_the_start() -> float:
        if site.requests("/"):
            raise JobCancelled("somebody")
        return 60.0

    with pytest.raises(JobCancelled):
        scan(site.url, Watch(remaining_seconds=stop_after_the_start))
    assert site.requests("/about") == []


def test_a_stop_is_noticed_among_pages_that_robots_txt_forbids(site: ScanSite, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    allows = Robots.allows

    def counted(robots: Robots, url: str) -> bool:
        asked.append(url)
        return allows(robots, url)

    def stop_after_the_third() -> float:
        if len(asked) > 3:
            raise JobCancelled("somebody")
        return 60.0

    monkeypatch.setattr(Robots, "allows", counted)
    site.answer("/", Answer("".join(f'<a href="/private/{"x" * number}">' for number in range(1, 100))))
    with pytest.raises(JobCancelled):
        scan(site.url, Watch(remaining_seconds=stop_after_the_third))
    assert len(asked) == 4


def test_nothing_seen_in_time_is_a_failure_that_may_be_tried_again(site: ScanSite) -> None:
    def over_after_robots() -> float:
        return 0.0 if site.requests("/robots.txt") else 60.0

    with pytest.raises(ScanFailed) as caught:
        scan(site.url, Watch(remaining_seconds=over_after_robots))
    assert caught.value.retryable


def test_the_scan_remembers_what_it_was_told(site: ScanSite) -> None:
    outcome = scan(site.url, scan_depth=0, description="nightly")
    told = {"scan_depth": 0, "description": "nightly"}
    assert outcome.config == {"base_url": site.url, "delay_seconds": 0, "max_retries": 0, **told}
    assert (outcome.domain, outcome.start_url) == (DOMAIN, f"{site.url}/")
