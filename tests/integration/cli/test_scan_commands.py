"""`manage.py scan` and `manage.py scans` as their users meet them, against a real site on this machine."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import manage
from config import PROJECT_ROOT, get_settings
from database.connection import DatabaseConnection
from services.scanning.profiles import ScanProfiles
from services.schedule_repository import ScheduleRepository
from tests.support.documentation import blocks, manage_commands
from tests.support.scan_site import ScanSite
from tests.support.schedules import VALID
from tests.support.terminals import InTerminal
from tests.support.waiting import eventually

Cli = Callable[..., Result]
LOOPBACK = "127.0.0.1,::1"


@pytest.fixture
def cli(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("FETCH_ALLOWED_NETWORKS", LOOPBACK)
    get_settings.cache_clear()
    return lambda *arguments: CliRunner().invoke(manage.app, list(arguments))


@pytest.fixture
def site() -> Iterator[ScanSite]:
    with ScanSite() as site:
        yield site


def scan(cli: Cli, site: ScanSite, *more: str) -> Result:
    return cli("scan", "shop.example", "--base-url", site.url, "--set", "delay_seconds=0", *more)


def scan_document(cli: Cli, site: ScanSite, *more: str) -> dict[str, Any]:
    result = scan(cli, site, "--json", *more)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def count(db: DatabaseConnection) -> int:
    with db.transaction() as connection:
        number: int = connection.exec_driver_sql("SELECT count(*) FROM scans").scalar_one()
    return number


# --- one scan now ---


def test_a_scan_shows_what_it_found_and_is_kept(cli: Cli, site: ScanSite, db: DatabaseConnection) -> None:
    result = scan(cli, site)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("On ")
    assert "of shop.example the scan found" in lines[0]
    assert "There is no earlier scan to compare with." in lines[0]
    (ga,) = [line.split() for line in lines if line.startswith("_ga ")]
    assert ga[1:] == ["127.0.0.1", "analytics", "the", "site", "itself", "before", "2", "years"]
    (track,) = [line for line in lines if line.startswith("track_id ")]
    assert "a third party" in track
    assert "/missing: answered 404" in result.stdout
    assert lines[-1].startswith("saved as ")
    assert count(db) == 1


def test_the_second_scan_shows_what_changed(cli: Cli, site: ScanSite) -> None:
    scan(cli, site)
    site.new_release()
    shown = scan(cli, site).stdout
    assert "Since the previous scan: 1 new, 1 gone, 1 changed." in shown
    assert "+ promo (127.0.0.1, " in shown
    assert "- _ga (127.0.0.1, analytics)" in shown
    assert "~ session_id (127.0.0.1, necessary): hidden from scripts: yes → no" in shown


def test_a_scan_that_is_not_kept_is_compared_all_the_same(cli: Cli, site: ScanSite, db: DatabaseConnection) -> None:
    first = scan_document(cli, site)
    site.new_release()
    second = scan_document(cli, site, "--no-save")
    assert second["previous_scan_id"] == first["scan_id"]
    assert [change["name"] for change in second["changes"]] == ["promo", "_ga", "session_id"]
    assert count(db) == 1
    assert "saved as" not in scan(cli, site, "--no-save").stdout


def test_the_options_reach_the_scan(cli: Cli, site: ScanSite) -> None:
    document = scan_document(cli, site, "--pages", "2", "--depth", "1", "--page", "/unlinked", "--engine", "http")
    assert [page["url"] for page in document["pages"]] == [f"{site.url}/unlinked", f"{site.url}/"]
    assert document["config"]["custom_pages"] == ["/unlinked"]
    assert (document["config"]["scan_depth"], document["engine"]) == (1, "http")


def test_a_profile_is_the_beginning_and_the_command_line_wins(cli: Cli, site: ScanSite, db: DatabaseConnection) -> None:
    ScanProfiles(db).add("small", {"max_pages": 1, "scan_depth": 0, "custom_pages": ["/about"]})
    document = scan_document(cli, site, "--profile", "small", "--pages", "2", "--set", "custom_pages=")
    assert document["config"]["max_pages"] == 2
    assert document["config"]["scan_depth"] == 0
    assert [page["url"] for page in document["pages"]] == [f"{site.url}/"]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["https://example.com/x"], 2, "domain: must be the bare domain without a scheme: 'example.com'"),
        (["localhost"], 2, "domain: 'localhost' has no dot"),
        (["169.254.169.254"], 2, "domain: 169.254.169.254 is an IP address"),
        (["exam ple.com"], 2, "domain: 'exam ple.com' contains whitespace"),
        (["a.example", "--engine", "lynx"], 2, "engine: "),
        (["a.example", "--pages", "0"], 2, "max_pages: "),
        (["a.example", "--profile", "nobody"], 2, "profile: there is no profile nobody"),
        (["a.example", "--base-url", "ftp://a.example"], 2, "base_url: "),
        (["a.example", "--set", "colour=1"], 2, "colour: is not a field of a cookie scan"),
        (["a.example", "--base-url", "http://169.254.169.254/"], 1, "a.example cannot be scanned: "),
        (
            ["a.example", "--base-url", "http://127.0.0.1:1/", "--set", "max_retries=0"],
            1,
            "a.example cannot be scanned",
        ),
    ],
)
def test_a_scan_that_cannot_be_made_says_why(
    cli: Cli, db: DatabaseConnection, arguments: list[str], code: int, line: str
) -> None:
    result = cli("scan", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(line)
    assert count(db) == 0


def test_a_missing_browser_is_said_with_what_to_install(
    cli: Cli, site: ScanSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAN_BROWSER", "no-such-browser")
    get_settings.cache_clear()
    result = scan(cli, site, "--engine", "browser")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "install" in result.stderr


def test_without_tables_no_scan_is_begun(cli: Cli, site: ScanSite, db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE scans CASCADE")
    result = scan(cli, site)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "the database schema is missing or outdated; run: python run_migrations.py\n"
    assert site.requests() == []


def test_ctrl_c_ends_a_scan_with_nothing_kept(
    own_process: dict[str, str], site: ScanSite, db: DatabaseConnection
) -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "scan", "shop.example", "--base-url", site.url, "--set", "delay_seconds=30"],
        cwd=PROJECT_ROOT,
        env={**own_process, "FETCH_ALLOWED_NETWORKS": LOOPBACK, "PATH": os.defpath},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: site.requests("/"), 60)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (130, "", "interrupted; nothing was saved\n")
    assert count(db) == 0


def test_a_terminal_shows_a_progress_bar_and_takes_no_address_for_markup(
    own_process: dict[str, str], site: ScanSite
) -> None:
    options = ["--base-url", site.url, "--set", "delay_seconds=0.1", "--page", "/[/red]"]
    command = InTerminal(["scan", "shop.example", *options], {**own_process, "FETCH_ALLOWED_NETWORKS": LOOPBACK})
    code, output, bar = command.finish()
    assert code == 0
    assert "scanning" in bar
    assert "/[/red]: answered 404" in bar
    assert "\x1b" not in output


# --- the scans that were made ---


def test_scans_are_listed_newest_first_and_paged(cli: Cli, site: ScanSite) -> None:
    made = [scan_document(cli, site, "--depth", "0")["scan_id"] for _ in range(3)]
    lines = cli("scans").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [scan_id[:8] for scan_id in reversed(made)]
    assert lines[-1].rstrip().endswith("first scan")
    assert lines[-2].rstrip().endswith("nothing changed")
    narrowed = ["scans", "--domain", "Shop.Example", "--engine", "http", "--since", "1h", "--limit", "2", "--json"]
    first = json.loads(cli(*narrowed).stdout)
    second = json.loads(cli(*narrowed, "--cursor", first["next_cursor"]).stdout)
    assert [item["scan_id"] for item in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None
    assert "next page: --cursor " in cli("scans", "--limit", "1").stdout
    assert cli("scans", "--engine", "browser").stdout.startswith("no scan matches; start one: ")


def test_scans_of_a_schedule_are_found_by_its_name(cli: Cli, repository: ScheduleRepository) -> None:
    repository.create_schedule(**{**VALID, "name": "nightly"})
    assert cli("scans", "--schedule", "nightly").stdout.startswith("no scan matches")
    assert cli("scans", "--schedule", "weekly").stderr == "there is no schedule weekly\n"


def test_a_scan_is_shown_by_the_beginning_of_its_id_or_by_its_domain(cli: Cli, site: ScanSite) -> None:
    first = scan_document(cli, site)
    site.new_release()
    second = scan_document(cli, site)
    assert json.loads(cli("scans", "show", first["scan_id"][:8], "--json").stdout) == first
    assert json.loads(cli("scans", "show", "Shop.Example", "--json").stdout) == second
    assert "- _ga (127.0.0.1, analytics)" in cli("scans", "show", "shop.example").stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--engine", "lynx"], "engine: must be one of http, browser, got 'lynx'"),
        (["--since", "soon"], "since: cannot read 'soon'"),
        (["--limit", "0"], "limit: must be between 1 and 1000, got 0"),
        (["--cursor", "x"], "cursor: must come from an earlier page of this list"),
        (["show", "00000000"], "scan: there is no scan 00000000"),
        (["show", "nobody.example"], "scan: there is no scan of nobody.example"),
        (["show", "a\x00b"], "domain: must not contain control characters"),
        (["export", "00000000", "--format", "pdf"], "format: must be one of html, csv, json, got 'pdf'"),
        (["export", "00000000"], "format: must be one of html, csv, json"),
        (["export", "00000000", "report.docx"], "format: must be one of html, csv, json, got 'docx'"),
        (["export", "00000000", "report.html"], "scan: there is no scan 00000000"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered(cli: Cli, arguments: list[str], line: str) -> None:
    result = cli("scans", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(line)


def test_a_scan_is_exported_for_people_spreadsheets_and_programs(cli: Cli, site: ScanSite, tmp_path: Path) -> None:
    made = scan_document(cli, site)
    for name in ("report.html", "report.csv", "report.json"):
        result = cli("scans", "export", made["scan_id"], str(tmp_path / name))
        assert (result.exit_code, result.stdout) == (0, f"written to {tmp_path / name}\n")
    assert "Cookie report for shop.example" in (tmp_path / "report.html").read_text()
    rows = csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text(encoding="utf-8-sig")))
    assert {row["name"] for row in rows} == {cookie["name"] for cookie in made["cookies"]}
    assert json.loads((tmp_path / "report.json").read_text()) == made
    assert cli("scans", "export", "shop.example", "-f", "HTML").stdout == (tmp_path / "report.html").read_text()


def test_an_export_that_cannot_be_written_says_why_and_leaves_nothing(cli: Cli, site: ScanSite, tmp_path: Path) -> None:
    scan(cli, site, "--depth", "0")
    (tmp_path / "old.html").write_text("old")
    result = cli("scans", "export", "shop.example", str(tmp_path / "missing" / "report.html"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be written: no such file or directory" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]


def test_the_examples_of_the_documentation_work(
    cli: Cli, site: ScanSite, repository: ScheduleRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.create_schedule(**VALID)
    page = PROJECT_ROOT / "docs" / "cookie-scans.md"
    (block,) = [block for block in blocks(page, "bash") if "scans export" in block]
    commands = manage_commands(block)
    assert len(commands) == 8
    monkeypatch.chdir(tmp_path)
    here = ["--base-url", site.url, "--set", "delay_seconds=0"]
    for command in commands:
        plain = ["http" if word == "browser" else word for word in command]  # the browser has tests of its own
        result = cli(*plain, *(here if command[0] == "scan" else []))
        assert result.exit_code == 0, (command, result.output)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "cookies.csv"}


@pytest.mark.parametrize("command", ["scan", "scans", "scans show", "scans export"])
def test_every_command_explains_itself_with_an_example(cli: Cli, command: str) -> None:
    result = cli(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"manage.py {command}" in result.stdout


def test_a_clean_up_deletes_old_scans_and_leaves_the_newest(cli: Cli, site: ScanSite, db: DatabaseConnection) -> None:
    older, newest = (scan_document(cli, site, "--pages", "1")["scan_id"] for _ in range(2))
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE scans SET finished_at = finished_at - interval '100 days'")
    assert "0 schedule changes and 1 scans older than 90 days" in cli("cleanup", "--dry-run").stdout
    assert json.loads(cli("cleanup", "--yes", "--json").stdout)["scans"] == 1
    assert cli("scans", "show", newest).exit_code == 0
    assert cli("scans", "show", older).exit_code == 2
