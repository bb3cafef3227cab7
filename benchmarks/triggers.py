"""Fire times per second: a million next_after calls per trigger family, each starting from the previous fire."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import Any

from rich.table import Table

from benchmarks.scale import Scale
from benchmarks.sheet import Sheet, from_table
from services.triggers import Trigger, parse_trigger

CALLS = 1_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)
RESTART_YEAR = 2100  # rare fires would run past the end of the calendar

FAMILIES: list[tuple[str, dict[str, Any], str]] = [
    ("interval", {"minutes": 15}, "UTC"),
    ("hourly", {"minute": 5}, "UTC"),
    ("hourly", {"minute": 5}, "Europe/Berlin"),
    ("daily", {"hour": 2, "minute": 30}, "UTC"),
    ("daily", {"hour": 2, "minute": 30}, "Europe/Berlin"),
    ("weekly", {"day": "monday", "hour": 2}, "Europe/Berlin"),
    ("monthly", {"day": 31, "hour": 2}, "Europe/Berlin"),
    ("cron", {"expression": "*/5 * * * *"}, "UTC"),
    ("cron", {"expression": "*/5 * * * *"}, "Europe/Berlin"),
    ("cron", {"expression": "30 2 * * *"}, "Europe/Berlin"),
    ("cron", {"expression": "0 2 * * 1"}, "Europe/Berlin"),
]


def run(scale: Scale) -> Iterator[Sheet]:
    table = Table("calls", "trigger", "µs per call", "calls per second", title="triggers")
    for column in table.columns[2:]:
        column.justify = "right"
    for frequency, time_config, timezone in FAMILIES:
        trigger = parse_trigger(frequency, time_config, timezone)
        _add(table, "next_after, walking", trigger.describe(), partial(_walk, trigger))
    shared = parse_trigger("cron", {"expression": "0 2 * * 1"}, "Europe/Berlin")
    _add(table, "next_after, same instant", shared.describe(), partial(_ask_again, shared))
    _add(table, "parse_trigger", shared.describe(), partial(_parse, "cron", {"expression": "0 2 * * 1"}))
    daily = parse_trigger("daily", {"hour": 2, "minute": 30}, "Europe/Berlin")
    _add(table, "parse_trigger", daily.describe(), partial(_parse, "daily", {"hour": 2, "minute": 30}))
    yield from_table("triggers", table)


def _add(table: Table, calls: str, what: str, measured: Callable[[], None]) -> None:
    start = perf_counter()
    measured()
    seconds = perf_counter() - start
    table.add_row(calls, what, f"{seconds / CALLS * 1e6:.2f}", f"{CALLS / seconds:,.0f}")


def _walk(trigger: Trigger) -> None:
    instant = START
    for _ in range(CALLS):
        fire = trigger.next_after(instant)
        instant = START if fire is None or fire.year >= RESTART_YEAR else fire


def _ask_again(trigger: Trigger) -> None:
    for _ in range(CALLS):
        trigger.next_after(START)


def _parse(frequency: str, time_config: dict[str, Any]) -> None:
    for _ in range(CALLS):
        parse_trigger(frequency, time_config, "Europe/Berlin")
