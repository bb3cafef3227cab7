"""`manage.py delivery …`: notifications that were sent, wait or have failed."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table

from database.connection import get_db_connection
from services.cli.output import AsJson, ClearErrors, actor, console, id_column, moment, print_json
from services.cli.tables import Cursor, PageSize, plain_table, print_facts, print_page
from services.errors import InvalidInput, Problem
from services.notifications.channel_rows import Channels
from services.notifications.deliveries import Attempt, Deliveries, DeliveryFilter, DeliveryRecord, DeliveryState
from services.wording.counts import counted

app = typer.Typer(cls=ClearErrors, no_args_is_help=True, help="Deliveries of notifications: sent, waiting or failed.")

STYLES = {"failed": "red", "cancelled": "dim"}

Id = Annotated[UUID, typer.Argument(metavar="DELIVERY", help="Its id, as `delivery list` shows it.")]
Channel = Annotated[str | None, typer.Option(help="Only deliveries of this channel.")]


@app.command("list")
def list_(
    channel: Channel = None,
    state: Annotated[DeliveryState | None, typer.Option(help="waiting, sent, failed or cancelled.")] = None,
    event: Annotated[str | None, typer.Option(help="Only deliveries of this event, such as failed or test.")] = None,
    limit: PageSize = 20,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first.

    Examples:

      manage.py delivery list --state failed

      manage.py delivery list --channel ops --json
    """
    asked = DeliveryFilter(channel=channel, state=state, event=event)
    page = Deliveries(get_db_connection()).page(asked, limit=limit, cursor=cursor)
    items = [as_dict(record) for record in page.items]
    print_page(items, page.next_cursor, as_json, lambda: delivery_table(page.items), "no delivery")


@app.command("show")
def show(delivery: Id, as_json: AsJson = False) -> None:
    """Show one delivery: its message and every attempt to send it.

    Example:

      manage.py delivery show 0e4b2c1a-4a3e-4f0c-9f2e-2f1d3c4b5a69
    """
    deliveries = Deliveries(get_db_connection())
    record, attempts = deliveries.find(delivery), deliveries.attempts(delivery)
    if as_json:
        print_json({**as_dict(record), "attempts": attempts})
        return
    facts = {
        "delivery": str(record.delivery_id),
        "channel": record.channel or "deleted",
        "event": record.event,
        "state": _state(record),
        "written": moment(record.created_at),
        "next attempt": None if record.next_at is None else moment(record.next_at),
        "last error": record.last_error,
        "repeated by": record.repeated_by,
        "title": record.message.title,
    }
    print_facts(facts)
    console().print(record.message.lines)
    if attempts:
        console().print(_attempt_table(attempts))


@app.command("repeat")
def repeat(
    delivery: Annotated[list[UUID] | None, typer.Argument(metavar="DELIVERY", help="One or more ids.")] = None,
    failed_of: Annotated[
        str | None, typer.Option("--failed-of", metavar="CHANNEL", help="All failed deliveries of this channel.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a delivery again at once, whatever its state. Its id stays the same: receivers can drop duplicates.

    Examples:

      manage.py delivery repeat 0e4b2c1a-4a3e-4f0c-9f2e-2f1d3c4b5a69

      manage.py delivery repeat --failed-of ops
    """
    if bool(delivery) == (failed_of is not None):
        raise InvalidInput(Problem("repeat", "give ids, or --failed-of with the name of a channel"))
    db = get_db_connection()
    if failed_of is not None:
        repeated = Deliveries(db).repeat_failed(Channels(db).find(failed_of).channel_id, actor())
    else:
        repeated = len([Deliveries(db).repeat(each, actor()) for each in delivery or ()])
    if as_json:
        print_json({"repeated": repeated})
    else:
        console().print(f"{counted(repeated, 'delivery', 'deliveries')} will be sent again")


def as_dict(record: DeliveryRecord) -> dict[str, Any]:
    return {**asdict(record), "message": record.message.to_json()}


def delivery_table(records: list[DeliveryRecord]) -> Table:
    table = plain_table(id_column(36), "written", "channel", "event", "state")
    table.add_column("attempts", justify="right")
    for column in ("title", "last error"):
        table.add_column(column)
    for record in records:
        table.add_row(
            str(record.delivery_id),
            moment(record.created_at),
            record.channel or "deleted",
            record.event,
            _state(record),
            str(record.attempts),
            record.message.title,
            record.last_error or "",
            style=STYLES.get(record.state),
        )
    return table


def _state(record: DeliveryRecord) -> str:
    return "being sent" if record.is_being_sent else record.state


def _attempt_table(attempts: list[Attempt]) -> Table:
    table = plain_table("attempt", "began", "outcome", "replica", "answer")
    for each in attempts:
        cells = (moment(each.started_at), each.outcome or "on its way", each.instance_id, each.answer or "")
        table.add_row(str(each.number), *cells)
    return table
