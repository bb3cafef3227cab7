"""What a scan looks like on paper, in a spreadsheet and for a program; and that no cookie can break any of them."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from services.scanning.findings import Category, Consent, Cookie, EngineName, Party, Scan, Storage
from services.scanning.report.files import cell, csv_report, json_report
from services.scanning.report.page import html_report
from services.scanning.report.words import duration, lifetime, summary_sentences
from services.wording.visible import visible
from tests.support.sample_scan import HOSTILE, PREVIOUS_ID, a_cookie, a_rich_scan, a_scan, scan_full_of

DAY = 86_400


class Reader(HTMLParser):
    """The elements and the text of a page, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def words_of(scan: Scan) -> str:
    return Reader(html_report(scan)).words


def rows_of(scan: Scan) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_report(scan).removeprefix("\ufeff"))))


# --- lifetimes ---


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "none (deleted immediately)"),
        (1, "1 second"),
        (45, "45 seconds"),
        (60, "1 minute"),
        (1799, "30 minutes"),
        (90 * 60, "90 minutes"),
        (3600, "1 hour"),
        (DAY - 1, "1 day"),
        (36 * 3600, "36 hours"),
        (7 * DAY, "7 days"),
        (30 * DAY, "1 month"),
        (90 * DAY, "3 months"),
        (100 * DAY, "100 days"),
        (365 * DAY, "1 year"),
        (400 * DAY, "13 months"),
        (730 * DAY, "2 years"),
        (730 * DAY - 3, "2 years"),
        (3652 * DAY, "10 years"),
        (8000 * 366 * DAY, "more than 1,000 years"),
    ],
)
def test_a_lifetime_is_said_in_the_largest_unit_that_fits(seconds: int, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        (Storage.COOKIE, "until the browser is closed"),
        (Storage.LOCAL, "until it is deleted"),
        (Storage.SESSION, "until the tab is closed"),
    ],
)
def test_what_has_no_expiry_stays_as_long_as_its_place_keeps_it(storage: Storage, words: str) -> None:
    assert lifetime(a_cookie(storage=storage)) == words


# --- the summary ---


def test_the_summary_says_what_matters_in_a_few_sentences() -> None:
    assert summary_sentences(a_rich_scan()) == [
        "On 2 pages of shop.example the scan found 5 cookies and 1 local storage entry.",
        "4 were set before consent; 3 of these are not known to be necessary (1 analytics, 1 marketing, 1 unknown).",
        "2 of them belong to third parties.",
        "1 page could not be read.",
        "Since the previous scan: 1 new, 1 gone, 1 changed.",
    ]


@pytest.mark.parametrize(
    ("cookies", "sentence"),
    [
        ([a_cookie()], "All of them were set before consent; all of these are necessary."),
        ([a_cookie(consent=Consent.AFTER)], "None of them were set before consent."),
        (
            [a_cookie(category=Category.UNKNOWN), a_cookie("b", consent=Consent.AFTER)],
            "1 was set before consent; 1 of these is not known to be necessary (1 unknown).",
        ),
    ],
)
def test_the_summary_says_what_came_before_consent(cookies: list[Cookie], sentence: str) -> None:
    assert summary_sentences(a_scan(*cookies))[1] == sentence


def test_a_scan_that_stopped_early_says_so() -> None:
    assert "The scan stopped early" in words_of(a_scan(summary={"complete": False}))
    assert "The scan stopped early" not in words_of(a_scan(summary={"complete": True}))


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (0, "All of them belong to the site itself."),
        (1, "1 of them belongs to a third party."),
        (2, "2 of them belong to third parties."),
    ],
)
def test_the_summary_counts_third_parties(others: int, sentence: str) -> None:
    foreign = [a_cookie(f"c{number}", party=Party.THIRD) for number in range(others)]
    assert sentence in summary_sentences(a_scan(a_cookie(), *foreign))


def test_a_scan_that_found_nothing_says_so() -> None:
    assert summary_sentences(a_scan()) == [
        "On 1 page of shop.example the scan found no cookies.",
        "There is no earlier scan to compare with.",
    ]
    assert summary_sentences(a_scan(previous_scan_id=PREVIOUS_ID))[-1] == "Nothing has changed since the previous scan."


# --- the page ---


def test_the_page_shows_everything_and_begins_with_what_came_before_consent() -> None:
    words = words_of(a_rich_scan())
    titles = [
        "Cookie report for shop.example",
        "Before consent",
        "All findings by purpose",
        "Necessary (1)",
        "Preferences (1)",
        "Analytics (1)",
        "Marketing (2)",
        "Unknown (1)",
        "Third parties",
        "Changes since the previous scan",
        "Pages",
        "Method and limits",
    ]
    places = [words.find(title) for title in titles]
    assert -1 not in places
    assert places == sorted(places)
    for part in (
        "3 findings before consent not known to be necessary: 1 analytics, 1 marketing, 1 unknown.",
        "ads.example 2 2 marketing track, retarget",
        "lifetime: 1 year → 2 years; HTTPS only: no → yes; same site: not set → Lax",
        "https://shop.example/broken timed out 3",
        "cut after 5 MB",
        "robots.txt keeps 2 pages closed",
        "13 months",
        "a third party, after consent",
        "set by https://ads.example/pixel.gif",
        "accept_selector #accept",
        "then clicked the consent button",
    ):
        assert part in words, part


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"engine": EngineName.HTTP}, "without running their scripts"),
        ({"engine": EngineName.HTTP}, "without giving consent"),
        ({"engine": EngineName.BROWSER, "config": {}}, "clicked no consent button"),
        ({"engine": EngineName.BROWSER}, "headless browser that ran their scripts"),
    ],
)
def test_the_page_says_what_its_method_cannot_show(facts: dict[str, Any], words: str) -> None:
    assert words in words_of(a_rich_scan(**facts))


@pytest.mark.parametrize("scan", [a_scan(), a_scan(pages=(), config={})], ids=["no cookie", "no page"])
def test_a_page_about_nothing_is_still_a_whole_page(scan: Scan) -> None:
    words = words_of(scan)
    assert "Nothing that needs consent was found before consent." in words
    assert "Nothing was found." in words
    assert "No third party set anything." in words


def test_the_page_needs_no_script_and_asks_nobody_for_anything() -> None:
    page = html_report(a_rich_scan())
    assert page.startswith("<!DOCTYPE html>")
    assert not {"script", "img", "link", "iframe", "a", "form"} & set(Reader(page).tags)
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert not re.search(r"url\(|@import", page)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:30])
def test_no_name_can_become_part_of_the_page(name: str) -> None:
    page = html_report(scan_full_of(name))
    read, harmless = Reader(page), Reader(html_report(scan_full_of("name")))
    assert (read.tags, read.attributes, read.open) == (harmless.tags, harmless.attributes, [])
    assert all(character.isprintable() or character == "\n" for character in page)
    assert " ".join(visible(name).split())[:100] in read.words
    page.encode()


def test_a_cookie_without_a_name_is_called_so() -> None:
    assert "(no name)" in Reader(html_report(scan_full_of(""))).words


def test_the_page_is_the_same_every_time() -> None:
    assert html_report(a_rich_scan()) == html_report(a_rich_scan())


# --- the spreadsheet ---


def test_the_spreadsheet_has_one_line_for_each_cookie() -> None:
    rows = rows_of(a_rich_scan())
    assert [row["name"] for row in rows] == ["session_id", "_ga", "lang", "track", "retarget", "basket"]
    ga = rows[1]
    assert (ga["lifetime"], ga["lifetime_seconds"], ga["change"]) == ("2 years", "63072000", "new")
    assert (ga["category"], ga["consent"], ga["party"], ga["secure"]) == ("analytics", "before", "first", "yes")
    assert (rows[2]["change"], rows[5]["kind"], rows[5]["category_rule"]) == ("changed", "local_storage", "")


def test_a_spreadsheet_of_nothing_has_its_headings() -> None:
    assert rows_of(a_scan()) == []
    assert csv_report(a_scan()).startswith('\ufeff"name","kind","domain"')


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\uff1d1", "'\uff1d1"),
        (" =1", " '=1"),
        ('"=1', "\"'=1"),
        ("\t=1", "\\t=1"),
        ("\r\n=1", "\\r\\n=1"),
        ("a;=cmd()", "a;'=cmd()"),
        ("a; @x;-y", "a; '@x;'-y"),
        ("_ga=1", "_ga=1"),
        ("a-b", "a-b"),
        ("https://x.example/?a=1&b=-2", "https://x.example/?a=1&b=-2"),
    ],
)
def test_no_cell_is_a_formula(text: str, shown: str) -> None:
    assert cell(text) == shown
    (row,) = rows_of(a_scan(a_cookie(text)))
    assert row["name"] == shown


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:30])
def test_no_name_can_become_another_line_of_the_spreadsheet(name: str) -> None:
    scan = a_scan(a_cookie(name), a_cookie("next"))
    assert [row["name"] for row in rows_of(scan)] == [cell(name), "next"]
    assert len(csv_report(scan).splitlines()) == 3
    csv_report(scan).encode()


# --- the document ---


def test_the_document_has_everything_as_plain_json() -> None:
    scan = a_rich_scan()
    document = json.loads(json_report(scan))
    assert document["scan_id"] == str(scan.scan_id)
    assert document["started_at"] == "2026-05-03T14:02:00+00:00"
    assert document["cookies"][1] == {
        "name": "_ga", "domain": "shop.example", "path": "/", "storage": "cookie", "host_only": True,
        "expires_at": None, "lifetime_seconds": 63_072_000, "secure": True, "http_only": False, "same_site": None,
        "party": "first", "consent": "before", "category": "analytics", "category_rule": "_ga*",
        "page_url": "https://shop.example/", "request_url": "https://shop.example/", "pages_seen": 1,
    }  # fmt: skip
    assert document["changes"][2]["fields"]["secure"] == [False, True]
    assert len(document["pages"]) == 3


def test_half_a_character_does_not_break_the_document() -> None:
    json_report(a_scan(a_cookie("\ud800"))).encode()
