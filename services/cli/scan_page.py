"""One scan on the screen: cookies, pages and changes. Text from scanned sites is escaped."""

from rich.table import Table
from rich.text import Text

from services.cli.output import console, moment
from services.cli.tables import plain_table
from services.scanning.findings import ChangeKind, Consent, Cookie, CookieChange, Scan, Storage
from services.scanning.report.words import (
    PARTIES,
    PLACES,
    called,
    change_words,
    lifetime,
    not_necessary,
    short,
    summary_sentences,
)
from services.wording.visible import visible

SHOWN_NOTES = 10  # notes about single pages
SIGNS = {ChangeKind.NEW: ("+", "green"), ChangeKind.GONE: ("-", "red"), ChangeKind.CHANGED: ("~", "yellow")}


def print_scan(scan: Scan) -> None:
    out = console()
    out.print(Text(" ".join(map(visible, summary_sentences(scan)))))
    out.print(f"{moment(scan.started_at)}, {scan.engine} engine", style="dim")
    if scan.cookies:
        out.print()
        out.print(cookie_table(scan))
    if scan.changes:
        out.print("\nsince the previous scan", style="bold")
        for change in scan.changes:
            out.print(change_line(change))
    _print_pages(scan)


def cookie_table(scan: Scan) -> Table:
    """Highlights cookies set before consent that are not necessary."""
    table = plain_table(
        "name",
        "domain",
        "purpose",
        "set by",
        "consent",
        "stays",
        "flags",
    )
    for cookie in scan.cookies:
        alarming = cookie.consent is Consent.BEFORE and bool(not_necessary([cookie]))
        table.add_row(*map(printable, _cells(cookie)), style="yellow" if alarming else None)
    return table


def _cells(cookie: Cookie) -> tuple[str, ...]:
    where = cookie.domain if cookie.path == "/" else cookie.domain + cookie.path
    consent, stays = str(cookie.consent), lifetime(cookie)
    return (called(cookie.name), where, cookie.category, PARTIES[cookie.party], consent, stays, flags(cookie))


def flags(cookie: Cookie) -> str:
    """`Secure HttpOnly SameSite=Lax`"""
    if cookie.storage is not Storage.COOKIE:
        return PLACES[cookie.storage]
    words = [
        ("Secure", cookie.secure),
        ("HttpOnly", cookie.http_only),
        (f"SameSite={cookie.same_site}", cookie.same_site),
    ]
    return " ".join(word for word, is_set in words if is_set)


def change_line(change: CookieChange) -> Text:
    sign, style = SIGNS[change.kind]
    details = f": {'; '.join(change_words(change))}" if change.fields else ""
    return Text(
        f"{sign} {visible(called(change.name))} ({printable(change.domain)}, {change.category}){printable(details)}",
        style,
    )


def printable(text: str) -> str:
    return visible(short(text))


def _print_pages(scan: Scan) -> None:
    out = console()
    failed = [page for page in scan.pages if page.error is not None]
    if failed:
        out.print("\npages that could not be visited", style="bold")
    for page in failed:
        out.print(Text(f"{printable(page.url)}: {printable(page.error or '')}", "red"))
    notes = list(map(str, scan.summary.get("notes", [])))
    for note in notes + _page_notes(scan, notes):
        out.print(Text(f"note: {printable(note)}", "yellow"))


def _page_notes(scan: Scan, scan_notes: list[str]) -> list[str]:
    """The notes of single pages, each text once; the reports have them page by page."""
    found: dict[str, list[str]] = {}
    for page in scan.pages:
        for note in page.notes:
            found.setdefault(note, []).append(page.url)
    new = [(note, urls) for note, urls in found.items() if not any(note in one for one in scan_notes)]
    notes = [f"{short(urls[0])}{f' and {len(urls) - 1} more' * (len(urls) > 1)}: {note}" for note, urls in new]
    more = [f"and {len(notes) - SHOWN_NOTES} more notes about pages"] if len(notes) > SHOWN_NOTES else []
    return notes[:SHOWN_NOTES] + more
