"""The findings of a scan in plain words, for readers who do not program. Pure."""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from services.scanning.findings import Category, ChangeKind, Consent, Cookie, CookieChange, Party, Scan, Storage
from services.wording.counts import counted

DAY_SECONDS = 86_400
UNITS = (
    (365.25 * DAY_SECONDS, "year"),
    (365.25 / 12 * DAY_SECONDS, "month"),
    (DAY_SECONDS, "day"),
    (3600, "hour"),
    (60, "minute"),
    (1, "second"),
)
ROUNDING = 0.03  # two years of 365 days are "2 years", 400 days are "13 months", 100 days stay "100 days"
LONGEST_YEARS = 1000
LONGEST_TEXT = 200  # of a name or a URL; the JSON report has the full text

CATEGORIES = {
    Category.NECESSARY: (
        "Necessary",
        "The site needs them to work: sign-in, shopping basket, security, storing the consent choice. They usually "
        "need no consent.",
    ),
    Category.PREFERENCES: (
        "Preferences",
        "They remember choices such as the language. The site works without them, so they usually need consent.",
    ),
    Category.ANALYTICS: (
        "Analytics",
        "They measure how visitors use the site: pages viewed, time spent, paths taken. They usually need consent.",
    ),
    Category.MARKETING: (
        "Marketing",
        "They recognise visitors, often across many sites, to select or measure advertising. They need consent.",
    ),
    Category.UNKNOWN: (
        "Unknown",
        "No rule matches them. The operator of the site has to determine their purpose.",
    ),
}
PARTIES = {Party.FIRST: "the site itself", Party.THIRD: "a third party"}
CONSENTS = {Consent.BEFORE: "before consent", Consent.AFTER: "after consent"}
CHANGES = {
    ChangeKind.NEW: "New",
    ChangeKind.GONE: "Gone",
    ChangeKind.CHANGED: "Changed",
}
VALUES: dict[str, dict[Any, str]] = {
    "party": {party: f"of {words}" for party, words in PARTIES.items()},
    "consent": {**CONSENTS},
}
SESSIONS = {
    Storage.COOKIE: "until the browser is closed",
    Storage.LOCAL: "until it is deleted",
    Storage.SESSION: "until the tab is closed",
}
PLACES = {
    Storage.COOKIE: "cookie",
    Storage.LOCAL: "local storage entry",
    Storage.SESSION: "session storage entry",
}


def called(name: str) -> str:
    """The name; browsers also store cookies without one."""
    return short(name) or "(no name)"


def short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def listed(parts: Collection[str]) -> str:
    """`a, b and c`"""
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last


def day(instant: datetime) -> str:
    return f"{instant.astimezone(UTC).day} {instant.astimezone(UTC):%B %Y}"


def minute(instant: datetime) -> str:
    return f"{day(instant)}, {instant.astimezone(UTC):%H:%M} UTC"


def lifetime(cookie: Cookie) -> str:
    """How long the browser keeps it."""
    if cookie.lifetime_seconds is None:
        return SESSIONS[cookie.storage]
    return duration(cookie.lifetime_seconds)


def duration(seconds: float) -> str:
    """In the largest unit that is almost exact."""
    if seconds < 1:
        return "none (deleted immediately)"
    if seconds > LONGEST_YEARS * UNITS[0][0]:
        return f"more than {LONGEST_YEARS:,} years"
    for size, unit in UNITS:
        count = round(seconds / size)
        if count and abs(count * size - seconds) <= ROUNDING * seconds:
            return counted(count, unit)
    return counted(round(seconds), "second")


def protections(cookie: Cookie) -> list[str]:
    """Its attributes in plain words."""
    if cookie.storage is not Storage.COOKIE:
        return ["readable by every script of the site"]
    return [
        "HTTPS only" if cookie.secure else "also sent over HTTP",
        "hidden from scripts" if cookie.http_only else "readable by scripts",
        f"SameSite {cookie.same_site}" if cookie.same_site else "SameSite not set",
    ]


def not_necessary(cookies: Collection[Cookie]) -> list[Cookie]:
    """Cookies that no rule classifies as necessary, including unknown ones."""
    return [cookie for cookie in cookies if cookie.category is not Category.NECESSARY]


def before_consent(scan: Scan) -> list[Cookie]:
    return [cookie for cookie in scan.cookies if cookie.consent is Consent.BEFORE]


def third_party(scan: Scan) -> list[Cookie]:
    return [cookie for cookie in scan.cookies if cookie.party is Party.THIRD]


def by_category(cookies: Collection[Cookie]) -> dict[Category, list[Cookie]]:
    """In the order of the categories, without empty ones."""
    found = {category: [cookie for cookie in cookies if cookie.category is category] for category in Category}
    return {category: members for category, members in found.items() if members}


def changes_of(scan: Scan) -> dict[tuple[str, str, str, str], ChangeKind]:
    """Changes since the previous scan, by the key of the cookie."""
    return {(change.storage, change.name, change.domain, change.path): change.kind for change in scan.changes}


def category_counts(cookies: Collection[Cookie]) -> str:
    """`2 analytics, 1 unknown`"""
    return ", ".join(f"{len(members):,} {category}" for category, members in by_category(cookies).items())


def change_counts(changes: Collection[CookieChange]) -> str:
    """`3 new, 1 gone`"""
    counts = Counter(change.kind for change in changes)
    return ", ".join(f"{counts[kind]:,} {kind}" for kind in ChangeKind if counts[kind])


def summary_sentences(scan: Scan) -> list[str]:
    """The report in a few sentences."""
    seen = sum(page.error is None for page in scan.pages)
    where = f"On {counted(seen, 'page')} of {scan.domain} the scan found"
    if not scan.cookies:
        said = [f"{where} no cookies."]
    else:
        said = [f"{where} {found_words(scan.cookies)}.", _before_consent_sentence(scan)]
        said.append(_third_party_sentence(scan))
    if failed := len(scan.pages) - seen:
        said.append(f"{counted(failed, 'page')} could not be read.")
    if not scan.summary.get("complete", True):
        said.append("The scan stopped early, so cookies listed as gone may only not have been reached.")
    return [*said, change_sentence(scan)]


def found_words(cookies: Collection[Cookie]) -> str:
    """`3 cookies and 1 local storage entry`"""
    counts = Counter(cookie.storage for cookie in cookies)
    return listed([counted(counts[place], noun, _plural(noun)) for place, noun in PLACES.items() if counts[place]])


def change_sentence(scan: Scan) -> str:
    if scan.previous_scan_id is None:
        return "There is no earlier scan to compare with."
    if not scan.changes:
        return "Nothing has changed since the previous scan."
    return f"Since the previous scan: {change_counts(scan.changes)}."


def change_words(change: CookieChange) -> list[str]:
    """`lifetime: 1 year → 2 years`, one for each field that changed."""
    return [
        f"{_field_name(name)}: {_value_words(name, before)} → {_value_words(name, after)}"
        for name, (before, after) in change.fields.items()
    ]


def _before_consent_sentence(scan: Scan) -> str:
    early = before_consent(scan)
    doubtful = not_necessary(early)
    if not early:
        return "None of them were set before consent."
    what = "All of them were" if len(early) == len(scan.cookies) else f"{len(early):,} {_was(len(early))}"
    if not doubtful:
        return f"{what} set before consent; all of these are necessary."
    return (
        f"{what} set before consent; {len(doubtful):,} of these {_is(len(doubtful))} not known to be "
        f"necessary ({category_counts(doubtful)})."
    )


def _third_party_sentence(scan: Scan) -> str:
    match len(third_party(scan)):
        case 0:
            return "All of them belong to the site itself."
        case 1:
            return "1 of them belongs to a third party."
        case others:
            return f"{others:,} of them belong to third parties."


def _plural(noun: str) -> str:
    return noun.replace("entry", "entries") if "entry" in noun else noun + "s"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _field_name(name: str) -> str:
    known = {"lifetime_seconds": "lifetime", "http_only": "hidden from scripts", "secure": "HTTPS only"}
    return known.get(name, short(name).replace("_", " "))


def _value_words(name: str, value: Any) -> str:
    match value:
        case None:
            return "until the browser is closed" if name in ("lifetime_seconds", "expires_at") else "not set"
        case bool():
            return "yes" if value else "no"
        case int() | float() if name == "lifetime_seconds":
            return duration(value)
        case datetime():
            return minute(value)
        case _:
            return VALUES.get(name, {}).get(value) or short(str(value))
