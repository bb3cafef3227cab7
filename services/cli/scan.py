"""`manage.py scan`: one cookie scan now, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from config import get_settings
from database.connection import get_db_connection
from services.checks.hostnames import bare_host
from services.cli.output import INTERRUPTED, AsJson, console, error_console
from services.cli.scan_options import CustomPages, Depth, Engine, Pages, Selector, Set, given_settings, merged
from services.cli.scan_page import print_scan, printable
from services.errors import InvalidInput, Problem
from services.scanning.lookup import not_stored
from services.scanning.profiles import get_scan_profiles
from services.scanning.report.files import json_report
from services.scanning.scan import scan_domain
from services.scanning.store import get_scan_store
from services.scanning.watch import Watch
from services.wording.short_ids import ID_PREFIX


def scan(
    ctx: typer.Context,
    domain: Annotated[str, typer.Argument(help="The domain to scan, e.g. example.com.")],
    engine: Engine = None,
    pages: Pages = None,
    depth: Depth = None,
    page: CustomPages = None,
    selector: Selector = None,
    profile: Annotated[str | None, typer.Option(help="Start from the settings of this scan profile.")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="The site's actual address, e.g. of a test system; see FETCH_ALLOWED_NETWORKS.")
    ] = None,
    set_: Set = None,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Save the scan; the next one is compared with it.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Scan a site for cookies now, and show the cookies and the changes since the previous scan.

    Exit code 0 when the scan succeeded, whatever it found; 1 when it failed; 2 for bad input.

    Examples:

      manage.py scan example.com

      manage.py scan example.com --engine browser --selector "#accept" --pages 100

      manage.py scan example.com --profile thorough --no-save --json
    """
    name = _domain(domain)
    config = merged({} if profile is None else get_scan_profiles().find(profile).config, given_settings(ctx.params))
    get_scan_store().previous(name, config.engine_name)  # fails without a database before the scan, not after it
    try:
        with _progress(name) as watch:
            outcome = scan_domain(name, config, get_settings(), watch)
    except KeyboardInterrupt:
        error_console().print("interrupted; nothing was saved")
        raise typer.Exit(INTERRUPTED) from None
    found = get_scan_store().save(outcome) if save else not_stored(get_db_connection(), outcome)
    if as_json:
        typer.echo(json_report(found), nl=False)
        return
    print_scan(found)
    if save:
        short_id = str(found.scan_id)[:ID_PREFIX]
        console().print(f"\nsaved as {short_id}; a report for people: manage.py scans export {short_id} report.html")


def _domain(text: str) -> str:
    try:
        return bare_host(text)
    except ValueError as error:
        raise InvalidInput(Problem("domain", str(error))) from None


@contextmanager
def _progress(domain: str) -> Iterator[Watch]:
    """A progress bar on stderr, in a terminal only, with the latest page."""
    columns = (
        TextColumn("scanning"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(domain, total=None)
        yield Watch(
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            log=lambda line: bar.update(task, description=printable(line)),
        )
