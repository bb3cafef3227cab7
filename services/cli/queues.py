"""`manage.py queues` and `queue …`: show, pause, resume and requeue the queues of the workflows."""

from typing import Annotated, Any

import typer
from rich.table import Table

from config import get_settings
from database.connection import get_db_connection
from services.cli.durations import EXAMPLES, ago
from services.cli.output import AsJson, ClearErrors, actor, console, moment, print_json
from services.cli.tables import Yes, confirm, plain_table, print_facts
from services.queues.overview import QueueOverview, QueueView
from services.queues.queue_state import QueueStates
from services.queues.queue_table import FailedFilter
from services.queues.requeue import Requeue
from services.wording.durations import whole_units
from services.workflows import queues as all_queues

app = typer.Typer(
    cls=ClearErrors, no_args_is_help=True, help="One queue: show, pause or resume it, requeue its failed rows."
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name or its job's id; see `manage.py queues`.")]
Rate = Annotated[float, typer.Option(help="Rows that become due per second; 0: all at once.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


def queues(as_json: AsJson = False) -> None:
    """List the queues of the workflows, in the order of the pipeline.

    Example:

      manage.py queues
    """
    views = _overview().look()
    if as_json:
        print_json(views)
    else:
        console().print(_table(views))


@app.command("show")
def show(queue: Name, as_json: AsJson = False) -> None:
    """Show one queue: its rows, its limits, its last run.

    Example:

      manage.py queue show deep_scan
    """
    view = _overview().look_at(all_queues.find(queue))
    if as_json:
        print_json(view)
        return
    print_facts(_facts(view))


@app.command("pause")
def pause(
    queue: Name,
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="The reason, shown wherever the queue is shown.")
    ] = "paused manually",
    as_json: AsJson = False,
) -> None:
    """Pause a queue: its runs are recorded as skipped, and a current run claims no further item.

    Example:

      manage.py queue pause deep_scan --reason "the API is under repair"
    """
    found = all_queues.find(queue)
    state = QueueStates(get_db_connection()).pause(found.name, reason, actor())
    if as_json:
        print_json(state)
    else:
        console().print(f"{found.name} has been paused since {moment(state.paused_at)}: {state.paused_reason}")


@app.command("resume")
def resume(queue: Name, as_json: AsJson = False) -> None:
    """Resume a paused queue with its next run; also closes its circuit breaker.

    Example:

      manage.py queue resume deep_scan
    """
    found = all_queues.find(queue)
    state = QueueStates(get_db_connection()).resume(found.name)
    if as_json:
        print_json(state)
    else:
        console().print(f"{found.name} resumes with its next run")


@app.command("requeue")
def requeue(
    queue: Name,
    keys: Annotated[list[str] | None, typer.Option("--key", help="Only this row; may be given several times.")] = None,
    error: Annotated[str | None, typer.Option(help="Only errors that contain this text.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Only failures newer than this: {EXAMPLES}.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many, oldest first.")] = 1000,
    rate: Rate = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Requeue failed rows, dead letters included; each gets all of its attempts again.

    Examples:

      manage.py queue requeue page_curation --error "timed out" --dry-run

      manage.py queue requeue page_curation --since 24h --rate 2
    """
    found, requeuing = all_queues.find(queue), Requeue(get_db_connection(), actor())
    which = FailedFilter(keys=keys, error=error, since=None if since is None else ago(since), limit=limit)
    count = requeuing.count(found, which)
    if not dry_run and count:
        confirm(f"Requeue {count} failed rows of {found.name}?", yes)
    done = 0 if dry_run else requeuing.failed(found, which, rate)
    if as_json:
        print_json({"queue": found.name, "found": count, "requeued": done, "dry_run": dry_run})
    elif dry_run:
        console().print(f"{count} failed rows of {found.name}; nothing was changed")
    else:
        console().print(f"requeued {done} rows of {found.name}")


def _overview() -> QueueOverview:
    return QueueOverview(get_db_connection(), get_settings())


def _table(views: list[QueueView]) -> Table:
    table = plain_table(
        "queue", "waiting", "oldest", "processing", "stale", "failed", "dead", "batch", "circuit", "paused"
    )  # fmt: skip
    for view in views:
        numbers = (view.processing, view.stale, view.failed, view.dead, view.batch_size or "-")
        table.add_row(
            view.name, str(view.depth), _age(view.oldest_seconds), *map(str, numbers), view.circuit,
            view.paused_reason or ("yes" if view.paused_at else ""),
            style="yellow" if view.paused_at or view.circuit != "closed" else None,
        )  # fmt: skip
    return table


def _facts(view: QueueView) -> dict[str, str | None]:
    facts: dict[str, Any] = {
        "queue": view.name,
        "job": f"{view.job_id} ({view.display_name})",
        "waiting": f"{view.depth}, {view.due} of them due, the oldest for {_age(view.oldest_seconds)}",
        "processing": f"{view.processing}, {view.stale} of them stale",
        "failed": f"{view.failed} rows, {view.dead} open dead letters",
        "circuit": view.circuit,
        "batch": view.batch_size or "-",
        "a run": f"{view.concurrency} items at once, claims for {view.run_budget_seconds:g} s",
        "an item": f"{view.item_timeout_seconds:g} s, {view.max_attempts} attempts",
        "last run": moment(view.last_run_at),
        "in total": ", ".join(f"{value} {name}" for name, value in view.totals.items()) or "-",
    }
    if view.paused_at:
        facts["paused"] = f"since {moment(view.paused_at)} by {view.paused_by or '-'}: {view.paused_reason or '-'}"
    return {name: str(value) for name, value in facts.items()}


def _age(seconds: float) -> str:
    return "-" if seconds < 1 else whole_units(round(seconds))
