"""`manage.py schedule fires`: every fire of a timing between two instants, computed without any server."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from services.cli.json_input import json_value
from services.cli.output import AsJson, console, moment, print_json, print_note
from services.errors import InvalidInput, Problem
from services.insight.explain.explainer import parse_moment
from services.triggers import Trigger, parse_trigger
from services.triggers.when import parse_when

MOST = 100_000
BEFORE = timedelta(microseconds=1)


def fires(
    since: Annotated[str, typer.Option("--from", help="ISO 8601; without an offset it is in the time zone.")],
    until: Annotated[str, typer.Option("--to", help="The first instant that is not included.")],
    when: Annotated[str | None, typer.Option("--when", "-w", help='The timing in words: "daily 02:00".')] = None,
    frequency: Annotated[str | None, typer.Option(help="Instead of --when, with --time-config.")] = None,
    time_config: Annotated[str, typer.Option(help="The timing as JSON.")] = "{}",
    timezone: Annotated[str, typer.Option("--timezone", "-z", help="IANA time zone of the timing.")] = "UTC",
    start_at: Annotated[str | None, typer.Option(help="No fire before this instant.")] = None,
    end_at: Annotated[str | None, typer.Option(help="No fire from this instant on.")] = None,
    as_json: AsJson = False,
) -> None:
    """List every fire of a timing between two instants. Needs no server.

    Examples:

      manage.py schedule fires --when "daily 02:30" -z Europe/Berlin --from 2027-03-27 --to 2027-03-30
    """
    if (when is None) == (frequency is None):
        raise InvalidInput(Problem("fires", "give either --when or --frequency with --time-config"))
    kind, config = parse_when(when) if when is not None else (frequency or "", json_value("time_config", time_config))
    bounds = [None if text is None else parse_moment(text, timezone) for text in (start_at, end_at)]
    trigger = parse_trigger(kind, config, timezone, *bounds)
    found = list(islice(_between(trigger, parse_moment(since, timezone), parse_moment(until, timezone)), MOST + 1))
    if len(found) > MOST:
        raise InvalidInput(Problem("--to", f"there are more than {MOST:,} fires until then"))
    if as_json:
        print_json({"fires": found})
        return
    for fire in found:
        console().print(moment(fire, timezone))
    print_note(f"{len(found):,} fires")


def _between(trigger: Trigger, since: datetime, until: datetime) -> Iterator[datetime]:
    return (fire for fire in trigger.between(since - BEFORE, until) if since <= fire < until)
