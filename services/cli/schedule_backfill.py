"""`manage.py schedule backfill`: runs past fires that did not succeed."""

from typing import Annotated

import typer

from config import get_settings
from database.connection import get_db_connection
from services.cli.output import AsJson, actor, console, id_column, moment, print_json
from services.cli.tables import plain_table
from services.insight.explain.explainer import parse_moment
from services.ledger.backfill import HIGHEST_LIMIT, USUAL_LIMIT, Backfill, Backfills
from services.schedule_repository import get_schedule_repository

LEFT_OUT = {"succeeded": "succeeded", "open": "waiting or running", "not_due": "not due yet"}


def backfill(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its id, its name or its domain.")],
    since: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="The start of the range, in the schedule's time zone: 2027-01-28T00:00."
        ),
    ],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="The end of the range (exclusive).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run.")] = False,
    limit: Annotated[int, typer.Option(help=f"Refuse if there are more fires; at most {HIGHEST_LIMIT}.")] = USUAL_LIMIT,
    as_json: AsJson = False,
) -> None:
    """Run the past fires of a schedule that did not succeed, oldest first, even if it is disabled.

    Each is the next attempt at its fire: the job sees that fire's time and idempotency key.

    Examples:

      manage.py schedule backfill nightly --from 2027-01-28T00:00 --to 2027-01-31T00:00 --dry-run

      manage.py schedule backfill example.com --from 2027-01-01T00:00+01:00 --to 2027-01-31T00:00+01:00 --limit 1000
    """
    record = get_schedule_repository().find_schedule(schedule)
    found = Backfills.from_settings(get_db_connection(), get_settings()).request(
        record.schedule_id,
        parse_moment(since, record.timezone, "from"),
        parse_moment(until, record.timezone, "to"),
        actor(),
        limit=limit,
        dry_run=dry_run,
    )
    if as_json:
        print_json(found)
    else:
        _print(found, record.timezone)


def _print(found: Backfill, timezone: str) -> None:
    if found.fires:
        table = plain_table(id_column(), "scheduled for", "attempt")
        for fire in found.fires:
            short_id = "-" if fire.execution_id is None else str(fire.execution_id)[:8]
            table.add_row(short_id, moment(fire.scheduled_for, timezone), str(fire.attempt))
        console().print(table)
    left_out = [f"{count} {words}" for name, words in LEFT_OUT.items() if (count := getattr(found, name))]
    console().print(f"{len(found.fires)} fires {'would run' if found.dry_run else 'will run'}")
    if left_out:
        console().print(f"left out: {', '.join(left_out)}")
