"""`manage.py schedule explain`: why did it run, not run, or run late?"""

from typing import Annotated
from uuid import UUID

import typer

from config import get_settings
from database.connection import get_db_connection
from services.cli.output import AsJson, console, print_json
from services.errors import ScheduleNotFound
from services.insight.explain.explainer import Explainer
from services.ledger.fires import Policy
from services.schedule_repository import get_schedule_repository


def explain_fire(
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="Its id, name or domain; for a deleted schedule its whole id.")
    ],
    at: Annotated[
        str | None,
        typer.Option(help="The fire's time in the schedule's time zone: 2027-01-31T02:00; default: the latest fire."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a fire of a schedule ran, did not run, or ran late.

    Examples:

      manage.py schedule explain nightly

      manage.py schedule explain example.com --at 2027-01-31T02:00
    """
    settings = get_settings()
    explainer = Explainer.from_settings(get_db_connection(), Policy.from_settings(settings), settings)
    explanation = explainer.explain_text(_schedule_id(schedule), at)
    if as_json:
        print_json(explanation)
        return
    for sentence in explanation.sentences:
        console().print(sentence)


def _schedule_id(reference: str) -> UUID:
    try:
        return get_schedule_repository().find_schedule(reference).schedule_id
    except ScheduleNotFound as error:
        try:
            return UUID(reference)
        except ValueError:
            raise error from None
