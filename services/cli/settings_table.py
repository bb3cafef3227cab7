"""`manage.py settings`: the effective values; also generates docs/settings.md and .env.example."""

from typing import Annotated

import typer

from config import get_settings, knob_group, knobs, masked, shown_default
from services.checks.celery_apps import BROKER_URL, CELERY_APP_VARIABLES, TASKS, variable
from services.cli.output import AsJson, console, print_json
from services.cli.settings_page import settings_page
from services.cli.tables import plain_table


def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="The page docs/settings.md.")] = False,
    env: Annotated[bool, typer.Option("--env", help="The contents of .env.example.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every setting with its effective value; secrets are masked.

    Examples:

      manage.py settings

      manage.py settings --env > .env.example

      manage.py settings --markdown > docs/settings.md
    """
    if markdown or env:
        typer.echo(settings_page() if markdown else env_example())
        return
    values = {name: getattr(get_settings(), name.lower()) for name in knobs()}
    shown = {name: None if value is None else masked(value) for name, value in values.items()}
    apps = {
        variable(app.name, suffix): value
        for app in get_settings().celery_apps.values()
        for suffix, value in ((BROKER_URL, masked(app.broker_url)), (TASKS, ", ".join(app.tasks)))
    }
    if as_json:
        print_json({**shown, **apps})
        return
    table = plain_table("setting", "value", "what it does")
    for name, field in knobs().items():
        table.add_row(name, shown[name] or "", field.description)
    for name, value in apps.items():
        table.add_row(name, value, "of a Celery app that jobs may call")
    console().print(table)


def env_example() -> str:
    lines, group = ["# Copy to .env and change what you need; every line shows the default."], ""
    for name, field in knobs().items():
        if knob_group(field) != group:
            group = knob_group(field)
            lines += ["", f"# --- {group} ---"]
        lines += [f"# {field.description}", f"# {name}={shown_default(field)}"]
    lines += ["", "# --- Celery apps ---"]
    for name, (_, about) in CELERY_APP_VARIABLES.items():
        lines += [f"# {about}", f"# {name}="]
    return "\n".join(lines)
