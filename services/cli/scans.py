"""`manage.py scans`: list scans, show one on the screen, export one to a file."""

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from database.connection import get_db_connection
from services.cli.durations import EXAMPLES, ago
from services.cli.executions import schedule_id_of
from services.cli.file_writing import replacing
from services.cli.output import AsJson, ClearErrors, console, id_column, moment
from services.cli.scan_page import print_scan
from services.cli.tables import Cursor, PageSize, plain_table, print_page
from services.errors import InvalidInput, Problem
from services.scanning.findings import EngineName, Scan
from services.scanning.listing import ScanFilter, ScanRecord
from services.scanning.lookup import find_scan
from services.scanning.report.files import csv_report, json_report
from services.scanning.report.page import html_report
from services.scanning.store import get_scan_store
from services.wording.short_ids import ID_PREFIX

app = typer.Typer(cls=ClearErrors, invoke_without_command=True)

Reference = Annotated[
    str,
    typer.Argument(metavar="SCAN", help="Its id (the first 8 characters are enough), or a domain for its newest scan."),
]


class Format(StrEnum):
    HTML = "html"
    CSV = "csv"
    JSON = "json"


WRITERS: dict[Format, Callable[[Scan], str]] = {
    Format.HTML: html_report,
    Format.CSV: csv_report,
    Format.JSON: json_report,
}


@app.callback()
def list_(
    ctx: typer.Context,
    domain: Annotated[str | None, typer.Option(help="Filter by domain.")] = None,
    engine: Annotated[str | None, typer.Option(help=f"Filter by engine: {' or '.join(EngineName)}.")] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", "-s", help="Filter by schedule (id, name or domain).")
    ] = None,
    since: Annotated[str | None, typer.Option(help=f"Newer than {EXAMPLES}.")] = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List cookie scans, newest first; show or export one.

    Examples:

      manage.py scans --domain example.com --since 7d

      manage.py scans show example.com

      manage.py scans export 3f2a90c1 report.html
    """
    if ctx.invoked_subcommand is not None:
        return
    where = ScanFilter(
        domain=domain,
        engine=engine,
        schedule_id=None if schedule is None else schedule_id_of(schedule),
        since=None if since is None else ago(since),
    )
    page = get_scan_store().list_scans(where, limit=limit, cursor=cursor)
    none = "no scan matches; start one: manage.py scan example.com"
    print_page(page.items, page.next_cursor, as_json, lambda: scan_table(page.items), none)


@app.command("show")
def show(scan: Reference, as_json: AsJson = False) -> None:
    """Show a scan's cookies, and the changes since the previous scan.

    Examples:

      manage.py scans show 3f2a90c1

      manage.py scans show example.com --json
    """
    found = find_scan(get_db_connection(), scan)
    typer.echo(json_report(found), nl=False) if as_json else print_scan(found)


@app.command("export")
def export(
    scan: Reference,
    file: Annotated[Path | None, typer.Argument(help="The file to write; default: standard output.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", "-f", help=f"{', '.join(Format)}; default: the file's extension.")
    ] = None,
) -> None:
    """Export a scan as a readable page (html), for a spreadsheet (csv) or for a program (json).

    Examples:

      manage.py scans export example.com report.html

      manage.py scans export 3f2a90c1 --format csv > cookies.csv
    """
    chosen = _format(format_, file)
    text = WRITERS[chosen](find_scan(get_db_connection(), scan))
    if file is None:
        sys.stdout.write(text)
        return
    with replacing(file) as stream:
        stream.write(text)
    console().print(f"written to {file}")


def _format(given: str | None, file: Path | None) -> Format:
    word = given if given is not None else "" if file is None else file.suffix.removeprefix(".")
    try:
        return Format(word.lower())
    except ValueError:
        got = f", got {word!r}" if word else ""
        raise InvalidInput(Problem("format", f"must be one of {', '.join(Format)}{got}")) from None


def scan_table(records: list[ScanRecord]) -> Table:
    table = plain_table(
        id_column(), "domain", "engine", "finished (UTC)", "pages", "cookies", "before consent",
        "since the previous scan"
    )  # fmt: skip
    for record in records:
        table.add_row(*_cells(record))
    return table


def _cells(record: ScanRecord) -> tuple[str, ...]:
    summary = record.summary
    pages, consent = summary.get("pages", {}), summary.get("consent", {})
    failed = f" (+{pages['failed']} failed)" if pages.get("failed") else ""
    return (
        str(record.scan_id)[:ID_PREFIX],
        record.domain,
        record.engine,
        moment(record.finished_at).removesuffix(" UTC"),
        f"{pages.get('seen', '')}{failed}",
        str(summary.get("cookies", "")),
        str(consent.get("before", "")),
        changes_in_words(summary, first=record.previous_scan_id is None),
    )


def changes_in_words(summary: Any, *, first: bool) -> str:
    """`1 new, 2 gone`, from the stored summary of a scan."""
    counts = {kind: count for kind, count in summary.get("changes", {}).items() if count}
    if first:
        return "first scan"
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing changed"
