"""`manage.py limit …`: how many executions may run at once, of all schedules that share a key."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from database.connection import get_db_connection
from services.cli.output import AsJson, ClearErrors, actor, console, moment, print_json
from services.cli.tables import (
    Cursor,
    PageSize,
    Yes,
    confirm,
    plain_table,
    print_changes,
    print_facts,
    print_page,
    require_changes,
)
from services.insight.limits import KeyUse, LimitedExecution, LimitUse, LimitUses
from services.schedules.limits import LimitRecord, Limits, differences
from services.wording.counts import counted
from services.wording.durations import duration
from services.wording.short_ids import ID_PREFIX

app = typer.Typer(
    cls=ClearErrors,
    no_args_is_help=True,
    help="Limits across schedules: how many executions with the same key may run at once.",
)

NONE_YET = 'no limit exists; add one: manage.py limit add "customer:*" --max 2'

Name = Annotated[
    str,
    typer.Argument(
        metavar="LIMIT",
        help='A key (customer:42, job:cookie_scan), or a pattern for all keys with this beginning ("customer:*").',
    ),
]
Note = Annotated[str | None, typer.Option(help="Why it exists; shown wherever the limit is shown.")]
Most = typer.Option("--max", help="How many may run at once, over all replicas; 0 stops them.")


@app.command("add")
def add(
    name: Name,
    max_running: Annotated[int, Most],
    note: Note = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it disabled: it limits nothing yet.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a limit. It applies from the next start on; running executions are not stopped.

    A pattern gives each of its keys a limit of its own. A key's own limit overrides a pattern, a longer pattern
    overrides a shorter one.

    Examples:

      manage.py limit add customer:42 --max 2 --note "their server is small"

      manage.py limit add "customer:*" --max 5

      manage.py limit add job:cookie_scan --max 20
    """
    given = {"name": name, "max_running": max_running, "note": note, "enabled": not disabled}
    added = _limits().add(given, actor())
    if as_json:
        print_json(added)
        return
    console().print(f"added {added.name}: {_most(added)}")
    schedules = LimitUses(get_db_connection()).schedules().get(added.name, 0)
    console().print(f"it applies to {counted(schedules, 'schedule')} now")


@app.command("list")
def list_(
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List limits: running and waiting executions, the longest wait, and the number of schedules.

    Examples:

      manage.py limit list

      manage.py limit list --json
    """
    page, uses = _limits().page(limit=limit, cursor=cursor), LimitUses(get_db_connection())
    found, schedules = uses.look(), uses.schedules()
    rows = [(record, found.get(record.name, LimitUse()), schedules.get(record.name, 0)) for record in page.items]
    print_page([_as_row(*row) for row in rows], page.next_cursor, as_json, lambda: _table(rows), NONE_YET)


@app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one limit: its keys, the executions that run and wait, and who changed it.

    Examples:

      manage.py limit show customer:42

      manage.py limit show "customer:*"
    """
    record, uses = _limits().find(name), LimitUses(get_db_connection())
    use, schedules = uses.look().get(record.name, LimitUse()), uses.schedules().get(record.name, 0)
    executions = uses.executions(key.key for key in use.keys)
    changes = _limits().changes(record.name)
    if as_json:
        shown = {"limit": _as_row(record, use, schedules), "keys": use.keys, "executions": executions}
        print_json({**shown, "changes": changes})
        return
    _print_facts(record, use, schedules)
    if record.is_pattern and use.keys:
        console().print(_key_table(use.keys))
    if executions:
        console().print(_execution_table(executions))
    for change in changes:
        changed = ", ".join(f"{field}: {old} -> {new}" for field, (old, new) in change.differences.items())
        console().print(f"{moment(change.changed_at)}  {change.operation} by {change.changed_by}  {changed}")


@app.command("edit")
def edit(
    name: Name,
    max_running: Annotated[int | None, Most] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="A disabled limit limits nothing.")] = None,
    note: Annotated[str | None, typer.Option(help="Why it exists; an empty text removes the note.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change a limit. The change applies from the next start on; running executions are not stopped.

    Examples:

      manage.py limit edit customer:42 --max 4

      manage.py limit edit customer:42 --max 0 --note "their server moves until Friday"

      manage.py limit edit "customer:*" --disable
    """
    given = {"max_running": max_running, "enabled": enabled, "note": note}
    changes = {field: value for field, value in given.items() if value is not None}
    require_changes(changes)
    before, after = _limits().edit(name, changes, actor())
    if as_json:
        print_json(after)
        return
    changed = differences(_fields(before), _fields(after))
    print_changes("limit", [f"{field}: {old} -> {new}" for field, (old, new) in changed.items()])


@app.command("delete")
def delete(
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would free; delete nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a limit. Executions that wait for it start as soon as nothing else holds them back.

    Examples:

      manage.py limit delete customer:42 --dry-run

      manage.py limit delete customer:42 --yes
    """
    record = _limits().find(name)
    freed = LimitUses(get_db_connection()).freed_without(record)
    if not dry_run:
        confirm(f"{freed.words}. Delete limit {record.name}?", yes)
        _limits().delete(record.name, actor())
    if as_json:
        facts = {"schedules": freed.schedules, "then": freed.then, "words": freed.words}
        print_json({"name": record.name, "deleted": not dry_run, **facts})
    else:
        console().print(freed.words if dry_run else f"deleted {record.name}; {freed.words}")


def _limits() -> Limits:
    return Limits(get_db_connection())


def _fields(record: LimitRecord) -> Mapping[str, Any]:
    return {"max_running": record.max_running, "enabled": record.enabled, "note": record.note}


def _most(record: LimitRecord) -> str:
    if not record.enabled:
        return f"disabled (at most {record.max_running} at once)"
    return "stopped: nothing starts (max_running 0)" if record.stops else f"at most {record.max_running} at once"


def _as_row(record: LimitRecord, use: LimitUse, schedules: int) -> dict[str, Any]:
    return {
        **{field: getattr(record, field) for field in record.__dataclass_fields__},
        "running": use.running,
        "waiting": use.waiting,
        "waiting_is_cut": use.waiting_is_cut,
        "oldest_wait_seconds": use.oldest_seconds,
        "schedules": schedules,
    }


def _table(rows: list[tuple[LimitRecord, LimitUse, int]]) -> Table:
    table = plain_table("limit")
    for column in ("max", "running", "waiting", "oldest wait", "schedules"):
        table.add_column(column, justify="right")
    table.add_column("note")
    for record, use, schedules in rows:
        most = str(record.max_running) if record.enabled else f"{record.max_running} (disabled)"
        counts = (str(use.running), use.waiting_words, _waited(use.oldest_seconds), f"{schedules:,}")
        style = "red" if record.stops else None if record.enabled else "dim"
        table.add_row(record.name, most, *counts, record.note or "", style=style)
    return table


def _print_facts(record: LimitRecord, use: LimitUse, schedules: int) -> None:
    facts = {
        "limit": record.name,
        "state": _most(record),
        "running": f"{use.running}",
        "waiting": use.waiting_words + (f", the oldest for {_waited(use.oldest_seconds)}" if use.waiting else ""),
        "schedules": f"{schedules:,}",
        "note": record.note or "-",
        "changed": moment(record.updated_at),
    }
    print_facts(facts)


def _key_table(keys: list[KeyUse]) -> Table:
    table = plain_table("key", "running", "waiting", "oldest wait")
    for key in keys:
        table.add_row(key.key, f"{key.running} of {key.max_running}", f"{key.waiting:,}", _waited(key.oldest_seconds))
    return table


def _execution_table(executions: list[LimitedExecution]) -> Table:
    table = plain_table("execution", "schedule", "key", "status", "since")
    for each in executions:
        words = "waiting" if each.status == "pending" else each.status
        since = moment(each.started_at or each.due_at)
        table.add_row(str(each.execution_id)[:ID_PREFIX], each.label, each.key, words, since)
    return table


def _waited(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)
