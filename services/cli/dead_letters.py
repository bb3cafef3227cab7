"""`manage.py dead-letters …`: items whose last attempt failed: list, show, requeue."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from database.connection import get_db_connection
from services.cli.durations import EXAMPLES, ago
from services.cli.output import AsJson, ClearErrors, actor, console, id_column, moment, print_json
from services.cli.queues import DryRun, Rate
from services.cli.tables import PageSize, Yes, confirm, plain_table, print_facts
from services.errors import InvalidInput, Problem
from services.queues.dead_letters import DeadLetters, Letter, LetterFilter
from services.queues.requeue import Requeue
from services.workflows import queues

app = typer.Typer(cls=ClearErrors, no_args_is_help=True, help="Items whose last attempt failed.")

Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Filter by queue (its name).")]
Error = Annotated[str | None, typer.Option(help="Only errors that contain this text.")]
Since = Annotated[str | None, typer.Option(help=f"Newer than {EXAMPLES}.")]


@app.command("list")
def list_(
    queue: Queue = None,
    error: Error = None,
    since: Since = None,
    closed: Annotated[bool, typer.Option("--closed", help="List those that were requeued instead.")] = False,
    limit: PageSize = 50,
    before: Annotated[int | None, typer.Option(help="Only ids below this one, for the next page.")] = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first.

    Examples:

      manage.py dead-letters list --queue page_curation

      manage.py dead-letters list --error "timed out" --since 24h
    """
    where = _filter(queue, error, since, closed=closed)
    letters = DeadLetters(get_db_connection()).page(where, limit=limit, before=before)
    if as_json:
        print_json(letters)
    elif not letters:
        console().print("no dead letter matches")
    else:
        console().print(_table(letters))
        if len(letters) == limit:
            console().print(f"next page: --before {letters[-1].id}")


@app.command("show")
def show(letter: Annotated[int, typer.Argument(metavar="ID", help="Its id.")], as_json: AsJson = False) -> None:
    """Show one dead letter with its traceback.

    Example:

      manage.py dead-letters show 42
    """
    found = _find(letter)
    if as_json:
        print_json(found)
        return
    values = {name: value for name, value in asdict(found).items() if value is not None}
    print_facts({name: moment(value) if name.endswith("_at") else str(value) for name, value in values.items()})


@app.command("requeue")
def requeue(
    ids: Annotated[
        list[int] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters; or use the filters.")
    ] = None,
    queue: Queue = None,
    error: Error = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(help="At most this many, oldest first.")] = 1000,
    rate: Rate = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Requeue dead letters; each gets all of its attempts again.

    Examples:

      manage.py dead-letters requeue 42 43

      manage.py dead-letters requeue --queue deep_scan --error OVER_QUERY_LIMIT --rate 5 --dry-run
    """
    for letter in ids or ():
        _find(letter)
    where = _filter(queue, error, since, ids=ids)
    requeue = Requeue(get_db_connection(), actor())
    found = requeue.count_letters(where, limit)
    if not dry_run and found:
        confirm(f"Requeue {found} items?", yes)
    done = {} if dry_run else requeue.letters(where, limit, rate)
    if as_json:
        print_json({"found": found, "requeued": done, "dry_run": dry_run})
    elif dry_run:
        console().print(f"{found} dead letters; nothing was changed")
    else:
        counts = ", ".join(f"{count} of {name}" for name, count in done.items())
        console().print(f"requeued: {counts or 'nothing'}")


def _find(letter: int) -> Letter:
    found = DeadLetters(get_db_connection()).get(letter)
    if found is None:
        raise InvalidInput(Problem("letter", f"there is no dead letter {letter}"))
    return found


def _filter(
    queue: str | None, error: str | None, since: str | None, *, ids: list[int] | None = None, closed: bool = False
) -> LetterFilter:
    return LetterFilter(
        queue=None if queue is None else queues.find(queue).name,
        error=error,
        since=None if since is None else ago(since),
        ids=ids or None,
        closed=closed,
    )


def _table(letters: list[Letter]) -> Table:
    table = plain_table(id_column(), "queue", "item", "attempts", "died (UTC)", "error")
    for letter in letters:
        died = moment(letter.died_at).removesuffix(" UTC")
        error = letter.error.split("\n", 1)[0]
        table.add_row(str(letter.id), letter.queue, letter.item_key, str(letter.attempts), died, error)
    return table
