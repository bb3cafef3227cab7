"""`manage.py rule …`: which events are sent to which channels, and when."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from config import get_settings
from database.connection import get_db_connection
from services.cli.durations import parse_duration
from services.cli.output import AsJson, ClearErrors, actor, console, moment, print_json, print_note
from services.cli.tables import (
    Cursor,
    PageSize,
    Yes,
    confirm,
    plain_table,
    print_changes,
    print_deleted,
    print_facts,
    print_page,
    require_changes,
)
from services.errors import InvalidInput, Problem
from services.notifications.rule_fields import MEANINGS
from services.notifications.rule_words import filters, thresholds, when
from services.notifications.rules import RuleRecord, Rules, differences
from services.notifications.trying import Trial, try_rule
from services.schedule_repository import get_schedule_repository
from services.wording.counts import counted

app = typer.Typer(
    cls=ClearErrors,
    no_args_is_help=True,
    help="Notification rules: which events are sent to which channels.",
)

NONE_YET = "no rule exists; add one: manage.py rule add failures --channel ops"
NONE = ""  # given on the command line, it removes a value
NAMED = ", ".join(MEANINGS)

Name = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")]
Channel = Annotated[list[str] | None, typer.Option("--channel", "-c", help="A channel; repeatable.")]
Events = Annotated[
    list[str] | None, typer.Option("--event", "-e", help=f"An event; repeatable. Default: failed, recovered. {NAMED}.")
]
Schedule = Annotated[
    list[str] | None, typer.Option("--schedule", help="Only this schedule, by name or id; repeatable.")
]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Only schedules with this tag; repeatable.")]
JobType = Annotated[list[str] | None, typer.Option("--job-type", help="Only this job type; repeatable.")]
Queue = Annotated[list[str] | None, typer.Option("--queue", help="Only this queue; repeatable.")]
After = Annotated[int | None, typer.Option("--after", help="failing: after this many failures in a row.")]
Late = Annotated[str | None, typer.Option("--late", help="late: by more than this, such as 5m.")]
Slower = Annotated[str | None, typer.Option("--slower-than", help="slow: longer than this, such as 10m.")]
Usual = Annotated[
    float | None, typer.Option("--slower-than-usual", help="slow: longer than this many times the usual (95 %).")
]
NoSuccess = Annotated[str | None, typer.Option("--no-success", help="no_success: for this long, such as 26h.")]
Quiet = Annotated[str | None, typer.Option("--quiet", help="Quiet hours, such as 22:00-07:00; '' removes them.")]
QuietZone = Annotated[
    str | None, typer.Option("--quiet-timezone", help="Time zone of the quiet hours, such as Europe/Berlin.")
]
ErrorsPass = Annotated[
    bool | None, typer.Option("--quiet-errors-pass/--quiet-errors-wait", help="Send errors during quiet hours, too.")
]
Digest = Annotated[
    str | None, typer.Option("--digest", help="none, daily or weekly: one message with all notifications.")
]
DigestAt = Annotated[str | None, typer.Option("--digest-at", help="Time of day of the digest, such as 08:00.")]
DigestDay = Annotated[str | None, typer.Option("--digest-day", help="weekly: the day, such as monday.")]
DigestZone = Annotated[
    str | None, typer.Option("--digest-timezone", help="Time zone of the digest, such as Europe/Berlin.")
]
Note = Annotated[str | None, typer.Option(help="Why it exists; an empty text removes the note.")]


@app.command("add")
def add(
    name: Name,
    channel: Channel = None,
    event: Events = None,
    schedule: Schedule = None,
    tag: Tag = None,
    job_type: JobType = None,
    queue: Queue = None,
    after: After = None,
    late: Late = None,
    slower_than: Slower = None,
    slower_than_usual: Usual = None,
    no_success: NoSuccess = None,
    quiet: Quiet = None,
    quiet_timezone: QuietZone = None,
    quiet_errors_pass: ErrorsPass = None,
    digest: Digest = None,
    digest_at: DigestAt = None,
    digest_day: DigestDay = None,
    digest_timezone: DigestZone = None,
    note: Note = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it disabled: it sends nothing yet.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a rule. It reports each problem from now on, once when it begins and once when it is over.

    Without a filter it covers every schedule. Of several values of a filter one must match; all filters must match.

    Examples:

      manage.py rule add failures --channel ops

      manage.py rule add billing -c ops -c mail -e failing -e late -e recovered --after 3 --late 5m --tag billing

      manage.py rule add nights -c mail --quiet 22:00-07:00 --quiet-timezone Europe/Berlin --quiet-errors-pass

      manage.py rule add week -c mail -e missed --digest weekly --digest-day monday --digest-at 08:00
    """
    given = _given(locals())
    added = _rules().add({"name": name, "enabled": not disabled, **given}, actor())
    if as_json:
        print_json(_as_dict(added))
        return
    console().print(f"added {added.name}: {', '.join(added.events)} to {', '.join(added.channels)}")
    print_note(f"what it would have sent lately: manage.py rule try {added.name}")


@app.command("list")
def list_(
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List rules, by name.

    Examples:

      manage.py rule list

      manage.py rule list --json
    """
    page = _rules().page(limit=limit, cursor=cursor)
    items = [_as_dict(record) for record in page.items]
    print_page(items, page.next_cursor, as_json, lambda: _table(page.items), NONE_YET)


@app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one rule.

    Example:

      manage.py rule show billing
    """
    record = _rules().find(name)
    if as_json:
        print_json(_as_dict(record))
        return
    print_facts(_facts(record))


@app.command("edit")
def edit(
    name: Name,
    new_name: Annotated[str | None, typer.Option("--name", help="Another name.")] = None,
    channel: Channel = None,
    event: Events = None,
    schedule: Schedule = None,
    tag: Tag = None,
    job_type: JobType = None,
    queue: Queue = None,
    after: After = None,
    late: Late = None,
    slower_than: Slower = None,
    slower_than_usual: Usual = None,
    no_success: NoSuccess = None,
    quiet: Quiet = None,
    quiet_timezone: QuietZone = None,
    quiet_errors_pass: ErrorsPass = None,
    digest: Digest = None,
    digest_at: DigestAt = None,
    digest_day: DigestDay = None,
    digest_timezone: DigestZone = None,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Change the fields that are given. A list replaces the former one; '' empties it, or removes a value.

    Examples:

      manage.py rule edit billing --after 5

      manage.py rule edit billing --tag billing --tag shop

      manage.py rule edit billing --event failed --event recovered --after 0 --late ''
    """
    changes = _given(locals()) | ({} if new_name is None else {"name": new_name})
    require_changes(changes)
    _print_change(*_rules().edit(name, changes, actor()), as_json)


@app.command("enable")
def enable(name: Name, as_json: AsJson = False) -> None:
    """Enable a rule: it reports what happens from now on.

    Example:

      manage.py rule enable billing
    """
    _print_change(*_rules().edit(name, {"enabled": True}, actor()), as_json)


@app.command("disable")
def disable(name: Name, note: Note = None, as_json: AsJson = False) -> None:
    """Disable a rule: it reports nothing and forgets open problems. Messages already created are still sent.

    Example:

      manage.py rule disable billing --note "they move until Friday"
    """
    changes = {"enabled": False} | ({} if note is None else {"note": note})
    _print_change(*_rules().edit(name, changes, actor()), as_json)


@app.command("delete")
def delete(
    name: Name,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a rule. Messages it has already created are still sent and stay in the history.

    Example:

      manage.py rule delete billing --yes
    """
    record = _rules().find(name)
    confirm(f"Delete rule {record.name}?", yes)
    _rules().delete(record.name, actor())
    print_deleted(record.name, as_json)


@app.command("try")
def try_(
    name: Name,
    since: Annotated[str, typer.Option(help="How far to look back, such as 24h.")] = "24h",
    as_json: AsJson = False,
) -> None:
    """Show what this rule would have sent lately, as a dry run. Nothing is written or sent.

    Ended executions are judged as of their end; parked schedules, unmet needs, lost replicas and open queues as of now.

    Examples:

      manage.py rule try billing

      manage.py rule try billing --since 7d
    """
    hours = parse_duration(since).total_seconds() / 3600
    trial = try_rule(get_db_connection(), _rules().find(name), get_settings().heartbeat_timeout_seconds, hours)
    if as_json:
        print_json(trial)
    else:
        _print_trial(trial)


def _rules() -> Rules:
    return Rules(get_db_connection())


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the options that were given."""
    lists = {"channels": "channel", "events": "event", "tags": "tag", "job_types": "job_type", "queues": "queue"}
    given: dict[str, Any] = {
        field: [each for each in options[option] if each != NONE]
        for field, option in lists.items()
        if options[option] is not None
    }
    if options["schedule"] is not None:
        find = get_schedule_repository().find_schedule
        given["schedule_ids"] = [find(each).schedule_id for each in options["schedule"] if each != NONE]
    durations = {"late_seconds": "late", "slower_than_seconds": "slower_than", "no_success_seconds": "no_success"}
    for field, option in durations.items():
        if (text := options[option]) is not None:
            given[field] = None if text == NONE else int(parse_duration(text, option).total_seconds())
    if options["after"] is not None:
        given["after_failures"] = options["after"] or None
    if options["slower_than_usual"] is not None:
        given["slower_than_usual"] = options["slower_than_usual"] or None
    plain = ("quiet_timezone", "quiet_errors_pass", "digest", "digest_at", "digest_day", "digest_timezone", "note")
    given |= {field: options[field] for field in plain if options[field] is not None}
    return given | _quiet(options["quiet"])


def _quiet(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    if text == NONE:
        return {"quiet_from": None, "quiet_to": None}
    begin, dash, end = text.partition("-")
    if not dash:
        raise InvalidInput(Problem("quiet", f"cannot read {text!r}; write it as 22:00-07:00"))
    return {"quiet_from": begin.strip(), "quiet_to": end.strip()}


def _as_dict(record: RuleRecord) -> dict[str, Any]:
    return asdict(record)


def _print_change(before: RuleRecord, after: RuleRecord, as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(after))
        return
    changed = differences(before, after)
    print_changes("rule", [f"{field}: {_words(old)} -> {_words(new)}" for field, (old, new) in changed.items()])


def _table(records: list[RuleRecord]) -> Table:
    table = plain_table("rule", "events", "for", "channels", "when", "note")
    for record in records:
        cells = (record.name, ", ".join(record.events), filters(record), ", ".join(record.channels), when(record))
        table.add_row(*cells, record.note or "", style=None if record.enabled else "dim")
    return table


def _facts(record: RuleRecord) -> dict[str, str | None]:
    return {
        "rule": record.name,
        "state": "enabled" if record.enabled else "disabled",
        "channels": ", ".join(record.channels),
        "events": ", ".join(record.events),
        **thresholds(record),
        "for": filters(record),
        "when": when(record),
        "note": record.note or "-",
        "changed": f"{moment(record.updated_at)} by {record.updated_by}",
    }


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) or "-" if isinstance(value, list) else "-" if value is None else str(value)


def _print_trial(trial: Trial) -> None:
    table = plain_table("at", "event", "message", "due")
    for each in trial.told:
        due = "at once" if each.due_at <= each.at else moment(each.due_at)
        table.add_row(moment(each.at), each.message.event, each.message.title, due)
    if trial.told:
        console().print(table)
    judged = f"{counted(trial.walked, 'execution')} since {moment(trial.since)}"
    console().print(f"{counted(len(trial.told), 'message')} from {judged}; nothing was written or sent")
    if not trial.is_complete:
        print_note(f"there is more: executions were judged only until {moment(trial.walked_until)}")
