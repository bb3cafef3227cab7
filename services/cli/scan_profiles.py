"""`manage.py scan-profile …`: settings of a cookie scan that several schedules share."""

import json
import shlex
from typing import Annotated, Any

import typer
from rich.table import Table

from services.cli.output import AsJson, ClearErrors, console, id_column, moment, print_json
from services.cli.scan_options import CustomPages, Depth, Engine, Pages, Selector, Set, given_settings
from services.cli.tables import Yes, confirm, plain_table, print_changes, require_changes
from services.scanning.profiles import ProfileRecord, get_scan_profiles
from services.wording.counts import counted
from services.wording.short_ids import ID_PREFIX
from services.wording.visible import visible

app = typer.Typer(cls=ClearErrors, no_args_is_help=True, help="Settings of cookie scans that several schedules share.")

Reference = Annotated[
    str, typer.Argument(metavar="PROFILE", help="Its name, or its id (the first 8 characters are enough).")
]


@app.command("add")
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="A unique name.")],
    engine: Engine = None,
    pages: Pages = None,
    depth: Depth = None,
    page: CustomPages = None,
    selector: Selector = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Add a profile for `schedule add --profile` and `scan --profile`; their own settings win.

    Examples:

      manage.py scan-profile add thorough --engine browser --pages 200 --depth 5 --selector "#accept"

      manage.py scan-profile add polite --set delay_seconds=5
    """
    settings = {field: value for field, value in given_settings(ctx.params).items() if value is not None}
    record = get_scan_profiles().add(name, settings)
    if as_json:
        print_json(record)
        return
    console().print(f"added {record.label}: {_settings(record)}")
    console().print(f"use it: manage.py schedule edit SCHEDULE --profile {shlex.quote(record.label)}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all profiles.

    Example:

      manage.py scan-profile list
    """
    records = get_scan_profiles().list_all()
    if as_json:
        print_json({"items": records})
    elif not records:
        console().print("no profile exists; add one: manage.py scan-profile add thorough --pages 200")
    else:
        console().print(profile_table(records))


@app.command("show")
def show(profile: Reference, as_json: AsJson = False) -> None:
    """Show one profile, with its errors if it is invalid.

    Example:

      manage.py scan-profile show thorough
    """
    record = get_scan_profiles().find(profile)
    if as_json:
        print_json({"profile": record, "problems": [str(problem) for problem in record.problems]})
        return
    table = Table.grid(padding=(0, 2))
    table.add_row("id", str(record.profile_id))
    table.add_row("name", record.name or "-")
    for field, value in record.config.items():
        table.add_row(field, json.dumps(value, ensure_ascii=False))
    table.add_row("used by", counted(record.schedules, "schedule"))
    table.add_row("changed", moment(record.updated_at))
    console().print(table)
    for problem in record.problems:
        console().print(f"! {problem}", style="red")


@app.command("edit")
def edit(
    ctx: typer.Context,
    profile: Reference,
    name: Annotated[str | None, typer.Option(help="Rename it.")] = None,
    engine: Engine = None,
    pages: Pages = None,
    depth: Depth = None,
    page: CustomPages = None,
    selector: Selector = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Change some settings of a profile; they apply to scans that start later.

    Examples:

      manage.py scan-profile edit thorough --pages 500

      manage.py scan-profile edit thorough --set delay_seconds=2 --set accept_selector=
    """
    given = given_settings(ctx.params)
    require_changes(given if name is None else {"name": name}, "setting")
    changes = {field: value for field, value in given.items() if value is not None}
    unset = [field for field, value in given.items() if value is None]
    before, after = get_scan_profiles().edit(profile, name=name, changes=changes, unset=unset)
    if as_json:
        print_json(after)
        return
    print_changes("profile", differences(before, after))


@app.command("delete")
def delete(
    profile: Reference,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a profile; refused while a schedule uses it.

    Example:

      manage.py scan-profile delete thorough --yes
    """
    profiles = get_scan_profiles()
    found = profiles.find(profile)
    confirm(f"Delete {found.label}?", yes)
    deleted = profiles.delete(found.profile_id)
    print_json({"deleted": deleted.profile_id}) if as_json else console().print(f"deleted {deleted.label}")


def profile_table(records: list[ProfileRecord]) -> Table:
    table = plain_table(id_column(), "name", "schedules", "settings")
    for record in records:
        wrong = "; ".join(str(problem) for problem in record.problems)
        words = f"invalid: {wrong}" if wrong else _settings(record)
        row = (str(record.profile_id)[:ID_PREFIX], visible(record.name or ""), str(record.schedules), words)
        table.add_row(*row, style="red" if wrong else None)
    return table


def differences(before: ProfileRecord, after: ProfileRecord) -> list[str]:
    """`max_pages: 50 -> 200`, one line for each field that changed."""
    old: dict[str, Any] = {"name": before.name, **before.config}
    new: dict[str, Any] = {"name": after.name, **after.config}
    names = [field for field in {**old, **new} if old.get(field) != new.get(field)]
    return [f"{field}: {old.get(field, 'default')} -> {new.get(field, 'default')}" for field in names]


def _settings(record: ProfileRecord) -> str:
    return visible(", ".join(f"{field}={value}" for field, value in record.config.items())) or "all defaults"
