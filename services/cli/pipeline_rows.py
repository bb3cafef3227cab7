"""`manage.py businesses`, `domains`, `sitemap-files`, `pages`: rows of the pipeline, with their ids for curators."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from database.connection import get_db_connection
from services.cli.output import AsJson, moment
from services.cli.tables import Cursor, PageSize, plain_table, print_page
from services.workflows.row_lists import (
    BUSINESSES,
    DOMAINS,
    PAGES,
    SITEMAP_FILES,
    RowFilter,
    RowList,
    RowPage,
    list_rows,
)

Search = Annotated[
    str | None, typer.Option("--search", "-s", help="Only rows whose name, address or URL contains this.")
]
Domain = Annotated[str | None, typer.Option("--domain", "-d", help="Filter by domain.")]
CuratorsWord = Annotated[str | None, typer.Option("--status", help="Filter by curation status, e.g. New.")]
State = Annotated[str | None, typer.Option("--queue-status", help="Filter by queue status, e.g. Error.")]


def businesses(
    search: Search = None,
    status: CuratorsWord = None,
    queue_status: State = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List businesses, newest first: places with their details.

    Examples:

      manage.py businesses --search bakery

      manage.py businesses --queue-status Error --json
    """
    where = RowFilter(search=search, words={"status": status, "domain_extraction_status": queue_status})
    show(BUSINESSES, where, limit, cursor, as_json, ("business_name", "city", "website_url"), BUSINESS_STATES)


def domains(
    search: Search = None,
    status: CuratorsWord = None,
    metadata: Annotated[str | None, typer.Option(help="Filter by metadata status, e.g. error.")] = None,
    queue_status: State = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List domains, newest first; --queue-status is the status of their sitemap search.

    Examples:

      manage.py domains --metadata error

      manage.py domains --search bakery --status New
    """
    words = {"status": metadata, "sitemap_curation_status": status, "sitemap_analysis_status": queue_status}
    where = RowFilter(search=search, words=words)
    show(DOMAINS, where, limit, cursor, as_json, ("domain", "title", "total_sitemaps"), DOMAIN_STATES)


def sitemap_files(
    search: Search = None,
    domain: Domain = None,
    status: CuratorsWord = None,
    queue_status: State = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List sitemap files, newest first.

    Example:

      manage.py sitemap-files --domain example.com
    """
    words = {"sitemap_import_curation_status": status, "sitemap_import_status": queue_status}
    where = RowFilter(search=search, domain=domain, words=words)
    show(SITEMAP_FILES, where, limit, cursor, as_json, ("url", "sitemap_type", "page_count"), SITEMAP_STATES)


def pages(
    search: Search = None,
    domain: Domain = None,
    status: CuratorsWord = None,
    queue_status: State = None,
    contacts: Annotated[
        str | None, typer.Option(help="Filter by result of the contact search, e.g. ContactFound.")
    ] = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List pages of the sites, newest first.

    Example:

      manage.py pages --domain example.com --contacts ContactFound
    """
    words = {
        "page_curation_status": status,
        "page_processing_status": queue_status,
        "contact_scrape_status": contacts,
    }
    where = RowFilter(search=search, domain=domain, words=words)
    show(PAGES, where, limit, cursor, as_json, ("url", "page_type"), PAGE_STATES)


# Columns for a row's state: curation status, queue status, and the queue's error.
PLACE_STATES = {"status": "status", "deep_scan_status": "deep scan", "deep_scan_error": "error"}
BUSINESS_STATES = {"status": "status", "domain_extraction_status": "extraction", "domain_extraction_error": "error"}
DOMAIN_STATES = {
    "sitemap_curation_status": "status",
    "status": "metadata",
    "sitemap_analysis_status": "sitemaps",
    "last_error": "error",
}
SITEMAP_STATES = {
    "sitemap_import_curation_status": "status",
    "sitemap_import_status": "import",
    "sitemap_import_error": "error",
}
PAGE_STATES = {
    "page_curation_status": "status",
    "page_processing_status": "search",
    "contact_scrape_status": "contacts",
    "page_processing_error": "error",
}


def show(
    rows: RowList,
    where: RowFilter,
    limit: int,
    cursor: str | None,
    as_json: bool,
    facts: tuple[str, ...],
    states: Mapping[str, str],
) -> None:
    page: RowPage = list_rows(get_db_connection(), rows, where, limit=limit, cursor=cursor)
    columns = {name: name.replace("_", " ") for name in facts} | dict(states)
    print_page(page.items, page.next_cursor, as_json, lambda: _table(page.items, columns), f"no {rows.name} match")


def _table(items: list[dict[str, Any]], columns: Mapping[str, str]) -> Table:
    """The whole id: curators use it with the API, which accepts no abbreviation."""
    table = plain_table(Column("id", no_wrap=True), *columns.values(), "since (UTC)")
    for item in items:
        since = moment(item["created_at"]).removesuffix(" UTC")
        table.add_row(str(item["id"]), *(_cell(item, name) for name in columns), since)
    return table


def _cell(item: Mapping[str, Any], name: str) -> str:
    value = item[name]
    return "-" if value is None else str(value).split("\n", 1)[0]
