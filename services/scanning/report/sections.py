"""The sections of the HTML report in page order; findings before consent come first. Pure."""

from collections.abc import Collection, Iterator
from typing import Any

from services.scanning.findings import Category, ChangeKind, Cookie, CookieChange, EngineName, Page, Scan, Storage
from services.scanning.report.markup import Markup, bullets, join, lines, table, tag
from services.scanning.report.words import (
    CATEGORIES,
    CHANGES,
    CONSENTS,
    PARTIES,
    PLACES,
    before_consent,
    by_category,
    called,
    category_counts,
    change_sentence,
    change_words,
    changes_of,
    lifetime,
    not_necessary,
    protections,
    short,
    third_party,
)
from services.wording.counts import counted

MOST_NAMES = 20


def before_consent_section(scan: Scan) -> Markup:
    early = before_consent(scan)
    doubtful = not_necessary(early)
    fine = [cookie for cookie in early if cookie.category is Category.NECESSARY]
    parts: list[str] = [tag("p", _how_consent_was_tested(scan))]
    if doubtful:
        what = f"{counted(len(doubtful), 'finding')} before consent not known to be necessary"
        parts += [
            tag("p", f"{what}: {category_counts(doubtful)}.", class_="alarm"),
            _early_table(what, doubtful, titled=False),
        ]
    else:
        parts.append(tag("p", "Nothing that needs consent was found before consent.", class_="fine"))
    if fine:
        parts.append(_early_table(f"Necessary, before consent: {len(fine):,}", fine))
    return _section("Before consent", *parts)


def categories_section(scan: Scan) -> Markup:
    parts: list[str] = []
    for category, cookies in by_category(scan.cookies).items():
        title, explanation = CATEGORIES[category]
        parts += [tag("h3", f"{title} ({len(cookies):,})"), tag("p", explanation)]
        parts.append(_cookie_table(f"{title}: findings", cookies, scan))
    return _section("All findings by purpose", *(parts or [tag("p", "Nothing was found.")]))


def third_parties_section(scan: Scan) -> Markup:
    companies: dict[str, list[Cookie]] = {}
    for cookie in third_party(scan):
        companies.setdefault(cookie.domain, []).append(cookie)
    if not companies:
        return _section("Third parties", tag("p", "No third party set anything."))
    rows = [
        (short(domain), f"{len(cookies):,}", category_counts(cookies), _names(cookies))
        for domain, cookies in sorted(companies.items())
    ]
    note = "These domains belong to third parties, which learn of the visit when a page is opened."
    headings = ("Domain", "Findings", "Purpose", "Names")
    return _section("Third parties", tag("p", note), table("Findings by domain", headings, rows, titled=False))


def changes_section(scan: Scan) -> Markup:
    found = {cookie.key: cookie for cookie in scan.cookies}
    parts: list[str] = [tag("p", change_sentence(scan))]
    for kind, title in CHANGES.items():
        changes = [change for change in scan.changes if change.kind is kind]
        if changes:
            rows = ((_change_name(change), CATEGORIES[change.category][0], _what(change, found)) for change in changes)
            parts.append(table(f"{title}: {len(changes):,}", ("Name", "Purpose", "Change"), rows))
    return _section("Changes since the previous scan", *parts)


def pages_section(scan: Scan) -> Markup:
    failed = [page for page in scan.pages if page.error is not None]
    seen = [page for page in scan.pages if page.error is None]
    parts: list[str] = []
    if failed:
        reasons = ((short(page.url), short(page.error or ""), f"{page.attempts:,}") for page in failed)
        parts.append(table(f"Could not be read: {len(failed):,}", ("Page", "Reason", "Attempts"), reasons))
    if seen:
        visits = (
            (_page_name(page), _answer(page), _distance(page), "; ".join(map(short, page.notes))) for page in seen
        )
        parts.append(table(f"Read: {len(seen):,}", ("Page", "Status", "Distance", "Notes"), visits))
    return _section("Pages", *(parts or [tag("p", "No page was visited.")]))


def method_section(scan: Scan) -> Markup:
    limits = [
        *_limits_of_the_engine(scan),
        "Only the pages above were visited, once and from one location. A site may respond differently to other "
        "visitors, and pages behind a login were not visited.",
        "The purpose comes from a table of known names. It is an informed guess, not a verdict; the operator of the "
        "site can extend the table.",
        "Lifetimes are as requested by the site. Browsers may shorten them.",
        "Cookie values are never stored.",
    ]
    parts: list[str] = [bullets(limits)]
    if notes := scan.summary.get("notes"):
        parts += [tag("h3", "Notes on this scan"), bullets(short(str(note)) for note in notes)]
    if settings := [(name, _setting(value)) for name, value in scan.config.items()]:
        parts += [tag("h3", "Settings"), table("Settings of the scan", ("Setting", "Value"), settings, titled=False)]
    return _section("Method and limits", *parts)


SECTIONS = (
    before_consent_section,
    categories_section,
    third_parties_section,
    changes_section,
    pages_section,
    method_section,
)


def _section(title: str, *parts: str) -> Markup:
    return tag("section", tag("h2", title), *parts)


def _how_consent_was_tested(scan: Scan) -> str:
    if scan.engine is EngineName.HTTP:
        return "This scan requested pages without giving consent, so everything it found was set before consent."
    if not scan.config.get("accept_selector"):
        return (
            "This scan clicked no consent button, because none was configured (accept_selector), so everything it "
            "found was set before consent."
        )
    return "This scan first visited the pages without giving consent, then clicked the consent button."


def _early_table(caption: str, cookies: Collection[Cookie], *, titled: bool = True) -> Markup:
    headings = ("Name", "Purpose", "Lifetime", "Set by", "First seen on")
    return table(caption, headings, (_early_row(cookie) for cookie in cookies), titled=titled)


def _early_row(cookie: Cookie) -> tuple[str, ...]:
    return (
        _name(cookie),
        CATEGORIES[cookie.category][0],
        lifetime(cookie),
        PARTIES[cookie.party],
        short(cookie.page_url),
    )


def _cookie_table(caption: str, cookies: Collection[Cookie], scan: Scan) -> Markup:
    changes = changes_of(scan)
    headings = ("Name", "Lifetime", "Set by", "Protection", "First seen on")
    return table(caption, headings, (_cookie_row(cookie, changes.get(cookie.key)) for cookie in cookies), titled=False)


def _cookie_row(cookie: Cookie, change: ChangeKind | None) -> tuple[str, ...]:
    seen = lines_below(short(cookie.page_url), *_sighting(cookie))
    return (
        _name(cookie, change),
        lifetime(cookie),
        f"{PARTIES[cookie.party]}, {CONSENTS[cookie.consent]}",
        ", ".join(protections(cookie)),
        seen,
    )


def _sighting(cookie: Cookie) -> Iterator[str]:
    if cookie.request_url != cookie.page_url:
        yield f"set by {short(cookie.request_url)}"
    if cookie.pages_seen > 1:
        yield f"on {counted(cookie.pages_seen, 'page')}"


def lines_below(first: str, *rest: str) -> Markup:
    return join([first, *(tag("small", part) for part in rest)])


def _name(cookie: Cookie, change: ChangeKind | None = None) -> Markup:
    where = f"{cookie.domain}{cookie.path}" if cookie.storage is Storage.COOKIE else cookie.domain
    kind = () if cookie.storage is Storage.COOKIE else (PLACES[cookie.storage],)
    rule = () if cookie.category_rule in (None, cookie.name) else (f"matches {short(str(cookie.category_rule))}",)
    badge = () if change is None else (tag("mark", change),)
    return join([lines(called(cookie.name), short(where), *kind, *rule), *badge])


def _change_name(change: CookieChange) -> Markup:
    return lines(called(change.name), short(f"{change.domain}{change.path}"))


def _what(change: CookieChange, found: dict[tuple[str, str, str, str], Cookie]) -> str:
    if change.kind is ChangeKind.CHANGED:
        return "; ".join(change_words(change))
    cookie = found.get((change.storage, change.name, change.domain, change.path))
    return "" if cookie is None else f"{CONSENTS[cookie.consent]}, {lifetime(cookie)}, by {PARTIES[cookie.party]}"


def _names(cookies: list[Cookie]) -> str:
    names = [called(cookie.name) for cookie in cookies[:MOST_NAMES]]
    more = len(cookies) - len(names)
    return ", ".join([*names, *([f"and {more:,} more"] if more else [])])


def _page_name(page: Page) -> Markup:
    moved = page.final_url is not None and page.final_url != page.url
    return lines_below(short(page.url), *([f"redirected to {short(page.final_url or '')}"] if moved else []))


def _answer(page: Page) -> str:
    return "" if page.status_code is None else str(page.status_code)


def _distance(page: Page) -> str:
    return "start" if page.depth == 0 else counted(page.depth, "link") + " away"


def _setting(value: Any) -> str:
    match value:
        case None | "" | []:
            return "not set"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(short, map(str, value)))
        case _:
            return short(str(value))


def _limits_of_the_engine(scan: Scan) -> list[str]:
    if scan.engine is EngineName.HTTP:
        return [
            "The pages were fetched without running their scripts. Cookies set by scripts, browser storage, and most "
            "third-party cookies are missing here; a scan with the browser engine finds them."
        ]
    return ["The pages were opened in a headless browser that ran their scripts. It did not scroll, type or sign in."]
