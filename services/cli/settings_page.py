"""docs/settings.md, generated: every setting with its unit, limits, default and reason. A test compares the file."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from config import Settings, knob_group, knobs, shown_default
from services.checks.celery_apps import CELERY_APP_VARIABLES

HEAD = """\
# Settings

<!-- Generated: python manage.py settings --markdown > docs/settings.md -->

Settings come from the environment or from a `.env` file (`.env.example` lists them all; `ENV_FILE` names another
file). The environment wins. A bad value ends the program with one line that names it. `python manage.py settings`
prints the effective values with secrets masked; `python manage.py doctor` names variables of the `.env` file that no
setting has.

A setting without a default is unset. The *Job defaults* hold for schedules that leave the policy open
([schedules.md](schedules.md#policies))."""

UNITS = ("seconds", "minutes", "hours", "days", "bytes", "percent")
# Names kept from the first scheduler, which do not end in their unit.
IN_SECONDS = (
    "SCHEDULE_CHECK_INTERVAL",
    "JOB_MISFIRE_GRACE_TIME",
    "LOCK_TIMEOUT",
    "API_SYNC_INTERVAL",
    "REQUEST_TIMEOUT",
)
FORMATS = {"password": "secret", "uuid": "UUID", "path": "path"}


def settings_page() -> str:
    return "\n".join([HEAD, *_tables(), *_celery_apps()])


def _tables() -> Iterator[str]:
    schema = Settings.model_json_schema()["properties"]
    for group, members in groupby(knobs().items(), key=lambda item: knob_group(item[1])):
        yield from ("", f"## {group}", "", "| variable | value | default | what it does |", "|---|---|---|---|")
        for name, field in members:
            default = f"`{shown}`" if (shown := shown_default(field)) else ""
            about = str(field.description).replace("|", r"\|")
            yield f"| `{name}` | {_value(name, schema[name.lower()])} | {default} | {about} |"


def _celery_apps() -> Iterator[str]:
    yield from (
        "",
        "## Celery apps",
        "",
        "Two variables for each app ([jobs.md](jobs.md#tasks-of-your-own-celery-apps)).",
    )
    yield from ("", "| variable | value | default | what it does |", "|---|---|---|---|")
    for name, (kind, about) in CELERY_APP_VARIABLES.items():
        yield f"| `{name}` | {kind} |  | {about} |"


def _value(name: str, item: Mapping[str, Any]) -> str:
    """The allowed values: `seconds (1 to 60)`, `` `keep`, `overwrite` ``, `secret`."""
    if "anyOf" in item:
        return _value(name, next(one for one in item["anyOf"] if one.get("type") != "null"))
    if "enum" in item:
        return ", ".join(f"`{word}`" for word in item["enum"])
    match item["type"]:
        case "boolean":
            return "true or false"
        case "integer" | "number":
            return _unit(name) + _limits(item)
        case _:
            return FORMATS.get(item.get("format", ""), "text")


def _unit(name: str) -> str:
    if name in IN_SECONDS:
        return "seconds"
    return next((unit for unit in UNITS if name.endswith(f"_{unit.upper()}")), "number")


def _limits(item: Mapping[str, Any]) -> str:
    least, most, above = item.get("minimum"), item.get("maximum"), item.get("exclusiveMinimum")
    if above is not None:
        return f" (above {above})"
    if most is not None:
        return f" ({least} to {most:,})"
    return "" if least is None else f" (at least {least})"
