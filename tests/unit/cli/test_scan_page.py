"""One scan on the screen: nothing that a site chose may command the terminal or hide there."""

import pytest

from services.cli.scan_page import SHOWN_NOTES, flags, print_scan
from services.scanning.findings import Storage
from services.wording.visible import visible
from tests.support.sample_scan import HOSTILE, a_cookie, a_page, a_rich_scan, a_scan, scan_full_of


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:30])
def test_no_name_commands_the_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_scan(scan_full_of(name))
    shown = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert visible(name)[:20] in shown


def test_a_scan_on_the_screen_has_cookies_changes_failures_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    print_scan(a_rich_scan())
    shown = capsys.readouterr().out
    for part in (
        "On 2 pages of shop.example the scan found 5 cookies and 1 local storage entry.",
        "track       ads.example   marketing    a third party    before   13 months",
        "+ _ga (shop.example, analytics)",
        "- old_banner (shop.example, unknown)",
        "~ lang (shop.example, preferences): lifetime: 1 year → 2 years; HTTPS only: no → yes",
        "https://shop.example/broken: timed out",
        "note: robots.txt keeps 2 pages closed",
        "note: https://shop.example/basket: cut after 5 MB",
    ):
        assert part in shown, part


def test_a_remark_about_many_pages_is_one_line_and_many_remarks_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [a_page(f"https://shop.example/{n}", notes=("slow", f"odd {n}", "told")) for n in range(30)]
    print_scan(a_scan(pages=tuple(pages), summary={"notes": ["on every page: told"]}))
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert notes[:2] == ["note: on every page: told", "note: https://shop.example/0 and 29 more: slow"]
    assert (len(notes), notes[-1]) == (1 + SHOWN_NOTES + 1, "note: and 21 more notes about pages")


def test_a_scan_of_nothing_is_one_sentence_and_its_date(capsys: pytest.CaptureFixture[str]) -> None:
    print_scan(a_scan())
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_flags_are_named_as_in_the_header() -> None:
    assert flags(a_cookie(same_site="None")) == "Secure HttpOnly SameSite=None"
    assert flags(a_cookie(secure=False, http_only=False, same_site=None)) == ""
    assert flags(a_cookie(storage=Storage.LOCAL)) == "local storage entry"
