"""`manage.py places`: list places, search the directory for more, import them from a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from config import get_settings
from database.connection import get_db_connection
from services.cli.output import (
    INTERRUPTED,
    INVALID_INPUT,
    AsJson,
    ClearErrors,
    actor,
    console,
    error_console,
    print_json,
)
from services.cli.pipeline_rows import PLACE_STATES, CuratorsWord, Search, State, show
from services.cli.place_files import Format, PlaceFile, place_file
from services.cli.queues import DryRun
from services.cli.tables import Cursor, PageSize, plain_table
from services.wording.counts import counted
from services.workflows.place_search import MOST_FOUND, PlaceSearch, SearchResult
from services.workflows.place_staging import PlaceStaging, StagedPlace
from services.workflows.row_lists import PLACES, RowFilter

app = typer.Typer(cls=ClearErrors, invoke_without_command=True)

SHOWN = 20  # problems of a file; the rest is counted


@app.callback()
def list_(
    ctx: typer.Context,
    search_: Search = None,
    status: CuratorsWord = None,
    queue_status: State = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List places, newest first; search the directory for more, or import them from a file.

    Examples:

      manage.py places --status New

      manage.py places search "dentists in Berlin"

      manage.py places import places.csv --dry-run
    """
    if ctx.invoked_subcommand is not None:
        return
    where = RowFilter(search=search_, words={"status": status, "deep_scan_status": queue_status})
    show(PLACES, where, limit, cursor, as_json, ("place_id", "name", "formatted_address"), PLACE_STATES)


@app.command("search")
def search(
    query: Annotated[str, typer.Argument(help='What to search for, e.g. "dentists in Berlin".')],
    limit: Annotated[int, typer.Option(help="At most this many places.", min=1, max=MOST_FOUND)] = MOST_FOUND,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Query the directory, but stage nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search the directory (Google's Text Search), all pages, and stage the results as `New`.

    Known places stay as they are. Every page costs one request of the quota, even in a dry run.

    Examples:

      manage.py places search "dentists in Berlin"

      manage.py places search "bakeries in Buffalo, NY" --dry-run --json
    """
    place_search = PlaceSearch(get_db_connection(), get_settings(), actor())
    with _progress("searching the directory") as advance:
        result = place_search.run(query, limit=limit, dry_run=dry_run, on_page=advance)
    if as_json:
        counts = {"created": result.created, "known": result.known, "requests": result.requests}
        facts = {"query": result.query, "dry_run": dry_run, "incomplete": result.incomplete}
        print_json({**facts, **counts, "places": result.places})
    else:
        _print_found(result, dry_run)


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(help="CSV with a header, a JSON list, or one JSON object per line; - is stdin.")
    ],
    format_: Annotated[Format | None, typer.Option("--format", "-f", help="Default: the file's extension.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Stage the places of a file as `New`. Known places stay as they are; a bad line is reported and skipped.

    Fields: place_id (required), name, formatted_address (or address), latitude, longitude (or lat, lng), rating,
    user_ratings_total, tenant_id. Exit code 2 when a line was skipped.

    Examples:

      manage.py places import places.csv --dry-run

      manage.py places import places.json
    """
    places = place_file(file, format_)
    staging = PlaceStaging(get_db_connection(), actor(), get_settings().default_tenant_id)
    created = known = 0
    try:
        with _progress("checking" if dry_run else "importing") as advance:
            for portion in staging.add(places, dry_run=dry_run):
                new = sum(place.created for place in portion)
                created, known = created + new, known + len(portion) - new
                advance(created + known)
    except KeyboardInterrupt:
        error_console().print(f"interrupted; staged so far: {created}; import the same file again to continue")
        raise typer.Exit(INTERRUPTED) from None
    _print_imported(places, created, known, dry_run=dry_run, as_json=as_json)
    if places.problems:
        raise typer.Exit(INVALID_INPUT)


def _print_found(result: SearchResult, dry_run: bool) -> None:
    if result.places:
        console().print(_found_table(result.places))
    verb = "would be staged" if dry_run else "staged as New"
    counts = f"{len(result.places)} found: {result.created} {verb}, {result.known} already known"
    console().print(f"{counts}; used {counted(result.requests, 'request')} of the quota")
    if result.incomplete:
        error_console().print(f"there may be more: {result.incomplete}", style="yellow")


def _found_table(places: list[StagedPlace]) -> Table:
    table = plain_table("id", "place id", "name", "address", "")
    for place in places:
        new = "new" if place.created else "known"
        number = "-" if place.id is None else str(place.id)
        table.add_row(number, place.place_id, place.name or "-", place.formatted_address or "-", new)
    return table


def _print_imported(places: PlaceFile, created: int, known: int, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        problems = [{"where": where, "problem": problem} for where, problem in places.problems]
        counts = {"created": created, "known": known, "refused": len({where for where, _ in places.problems})}
        print_json({"dry_run": dry_run, **counts, "ignored": places.ignored, "problems": problems})
        return
    for where, problem in places.problems[:SHOWN]:
        error_console().print(f"! {where}: {problem}", style="red")
    if len(places.problems) > SHOWN:
        error_console().print(f"… and {len(places.problems) - SHOWN} more problems", style="red")
    if places.ignored:
        error_console().print(f"unknown columns, ignored: {', '.join(places.ignored)}", style="yellow")
    line = f"{created} new, {known} already known, {len({where for where, _ in places.problems})} refused"
    console().print(f"{'would be: ' if dry_run else ''}{line}")


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, only in a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done: bar.update(task, completed=done)
