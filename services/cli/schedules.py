"""`manage.py schedule …`: add, list, show, edit, enable, disable, delete, preview, run, backfill, import, export."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from textwrap import shorten
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Column, Table

from config import get_settings
from database.connection import get_db_connection
from services.cli.assignments import split_off, with_assignments
from services.cli.json_input import json_value
from services.cli.lazy import Later, lazy
from services.cli.output import (
    AsJson,
    actor,
    console,
    disabled_state,
    id_column,
    moment,
    print_json,
    print_note,
    until,
)
from services.cli.schedule_page import show_page
from services.cli.tables import Cursor, PageSize, Yes, confirm, plain_table, print_page, require_changes
from services.errors import InvalidInput, InvalidSchedule, Problem
from services.insight.unhandled_jobs import unoffered
from services.jobs import BUILT_IN_JOB_TYPES, default_registry
from services.jobs.credentials import credential_warnings
from services.scanning.profiles import get_scan_profiles
from services.schedule_repository import get_schedule_repository
from services.schedules.batch import ScheduleRecord
from services.schedules.field_rules import RULES
from services.schedules.listing import SORT_KEYS, ScheduleFilter
from services.schedules.spec import ScheduleFields, ScheduleSpec, parse_spec, unknown_fields
from services.triggers.when import EXAMPLES, parse_when
from services.wording.short_ids import ID_PREFIX
from services.wording.streaks import with_streak

OTHER_FILES = lazy(
    Later(
        "run",
        "services.cli.schedule_run:run_now",
        "Run a schedule once now, even if it is disabled; its next fire stays as it is.",
    ),
    Later(
        "fires",
        "services.cli.schedule_fires:fires",
        "List every fire of a timing between two instants. Needs no server.",
    ),
    Later(
        "backfill",
        "services.cli.schedule_backfill:backfill",
        "Run the past fires of a schedule that did not succeed, oldest first, even if it is disabled.",
    ),
    Later(
        "explain",
        "services.cli.schedule_explain:explain_fire",
        "Explain why a fire of a schedule ran, did not run, or ran late.",
    ),
    Later(
        "import",
        "services.cli.schedule_files:import_file",
        "Create or update schedules from YAML; an item matches an existing schedule by schedule_id, otherwise by name.",
    ),
    Later(
        "export",
        "services.cli.schedule_files:export_file",
        "Export schedules as YAML (or one JSON array), without fields at their default.",
    ),
)
app = typer.Typer(cls=OTHER_FILES, no_args_is_help=True, help="Create, change and inspect schedules.")

Reference = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE", help="Its id (the first 8 characters are enough), its name, or its domain if unambiguous."
    ),
]
References = Annotated[list[str], typer.Argument(metavar="SCHEDULE…", help="Ids, names or domains.")]
When = Annotated[str | None, typer.Option("--when", "-w", help=f"The timing in words: {EXAMPLES}.")]
Frequency = Annotated[
    str | None, typer.Option(help="hourly, daily, weekly, monthly, interval, cron or once (with --time-config).")
]
TimeConfig = Annotated[str | None, typer.Option(help="""The timing as JSON, e.g. '{"hour": 2, "minute": 0}'.""")]
Timezone = Annotated[
    str | None, typer.Option("--timezone", "-z", help="IANA time zone of the timing, e.g. Europe/Berlin.")
]
Name = Annotated[str | None, typer.Option(help="A unique name; history uses it as the job id.")]
JobType = Annotated[
    str | None,
    typer.Option(help=f"What to run: {', '.join(sorted(BUILT_IN_JOB_TYPES))}, or one of your own (JOB_MODULES)."),
]
JobConfig = Annotated[str | None, typer.Option(help="The job's settings as a JSON object.")]
Profile = Annotated[str | None, typer.Option(help="The scan profile whose settings it starts from: name or id.")]
ConfigId = Annotated[
    str | None, typer.Option("--config-id", help="Id of the domain's configuration in another system.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be given several times, replaces all tags.")]
Requires = Annotated[
    str | None,
    typer.Option(help="Labels that a replica must offer (ABILITIES), e.g. gpu,eu; an empty text requires none."),
]
Queue = Annotated[
    str | None, typer.Option(help="The queue that a replica must serve (QUEUES); an empty text means default.")
]
LimitKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--limit-key",
        help="A key by which limits count it (manage.py limit); several replace all; an empty text removes them.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any other field, e.g. --set max_retries=3, or one of the job, e.g. --set job_config.max_pages=9; "
        "an empty value unsets it.",
    ),
]

ROOMY = 120  # terminal columns from which notes are shown

OPTION_FIELDS = {
    "timezone": "timezone",
    "name": "name",
    "job_type": "job_type",
    "config_id": "domain_config_id",
    "tag": "tags",
}


@app.command("add")
def add(
    ctx: typer.Context,
    domain: Annotated[str, typer.Argument(help="The domain to scan, or a readable name for other jobs.")],
    when: When = None,
    frequency: Frequency = None,
    time_config: TimeConfig = None,
    timezone: Timezone = None,
    name: Name = None,
    job_type: JobType = None,
    job_config: JobConfig = None,
    profile: Profile = None,
    config_id: ConfigId = None,
    tag: Tags = None,
    requires: Requires = None,
    queue: Queue = None,
    limit_key: LimitKeys = None,
    set_: Set = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it disabled.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a schedule.

    Examples:

      manage.py schedule add example.com --when "daily 02:00" --timezone Europe/Berlin

      manage.py schedule add "nightly report" --when "cron 0 3 * * 1-5" --job-type http_request --job-config '{"url": "https://example.com/run"}'

      manage.py schedule add example.com --when "every 15m" --set max_retries=3 --set timeout_seconds=120

      manage.py schedule add example.com --when "daily 04:00" --queue browser --requires eu

      manage.py schedule add example.com --when "every 1h" --limit-key customer:42
    """
    given = _fields_from(ctx.params, {"domain": domain, **({"enabled": False} if disabled else {})})
    repository = get_schedule_repository()
    schedule_id = repository.create_schedule(actor=actor(), **given)
    record = repository.find_schedule(schedule_id)
    if as_json:
        print_json(record)
        return
    console().print(f"added {record.schedule_id}: {record.domain}, {record.trigger.describe()}")
    console().print(_next_run(record))
    _print_warnings(record)


@app.command("list")
def list_(
    search: Annotated[str | None, typer.Option("--search", "-s", help="Part of the domain or the name.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Only enabled, or only disabled schedules.")
    ] = None,
    job_type: Annotated[str | None, typer.Option(help="Filter by job type.")] = None,
    source: Annotated[str | None, typer.Option(help="Filter by source: manual, api or system.")] = None,
    tag: Annotated[str | None, typer.Option(help="Filter by tag.")] = None,
    status: Annotated[str | None, typer.Option(help="Filter by last status, e.g. failed or invalid.")] = None,
    sort: Annotated[str, typer.Option(help=f"{', '.join(SORT_KEYS)}; with a leading - descending.")] = "domain",
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List schedules.

    Examples:

      manage.py schedule list --search shop --sort next_run

      manage.py schedule list --status invalid
    """
    where = ScheduleFilter(
        search=search, enabled=enabled, job_type=job_type, source=source, tag=tag, last_status=status
    )
    repository = get_schedule_repository()
    page = repository.list_schedules(where, sort=sort, limit=limit, cursor=cursor)

    def counts() -> str:
        return f"{len(page.items)} of {repository.count_schedules(where)}"

    none = 'no schedule matches; add one: manage.py schedule add example.com --when "daily 02:00"'
    print_page(page.items, page.next_cursor, as_json, lambda: Group(schedule_table(page.items), counts()), none)


@app.command("show")
def show(schedule: Reference, as_json: AsJson = False) -> None:
    """Show one schedule: its next fires, its last executions, its changes and their authors.

    Example:

      manage.py schedule show example.com
    """
    show_page(get_schedule_repository(), get_schedule_repository().find_schedule(schedule), as_json)


@app.command("edit")
def edit(
    ctx: typer.Context,
    schedule: Reference,
    when: When = None,
    frequency: Frequency = None,
    time_config: TimeConfig = None,
    timezone: Timezone = None,
    name: Name = None,
    job_type: JobType = None,
    job_config: JobConfig = None,
    profile: Profile = None,
    config_id: ConfigId = None,
    tag: Tags = None,
    requires: Requires = None,
    queue: Queue = None,
    limit_key: LimitKeys = None,
    set_: Set = None,
    expected_revision: Annotated[int | None, typer.Option(help="Refuse if it was changed since this revision.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change some fields of a schedule; the change takes effect in every replica at once.

    Examples:

      manage.py schedule edit example.com --when "weekly monday 02:00"

      manage.py schedule edit nightly --set timeout_seconds=600 --set max_retries=

      manage.py schedule edit process_deep_scan_queue --set job_config.concurrency=8
    """
    before = get_schedule_repository().find_schedule(schedule)
    given = _fields_from(ctx.params, {}, before.job_config)
    require_changes(given)
    if "job_config" in given and job_config is None and expected_revision is None:
        expected_revision = before.revision  # job_config is written as a whole: never undo a concurrent change
    after = get_schedule_repository().update_schedule(
        before.schedule_id, expected_revision=expected_revision, actor=actor(), **given
    )
    if as_json:
        print_json(after)
        return
    if after.revision == before.revision:
        console().print("nothing changed: the schedule already has these values")
        return
    for field in RULES:
        if getattr(before, field) != getattr(after, field):
            console().print(f"{field}: {getattr(before, field)} -> {getattr(after, field)}")
    console().print(_next_run(after))
    _print_warnings(after, timing=after.enabled)  # a disabled schedule may have an invalid timing


@app.command("enable")
def enable(schedules: References, as_json: AsJson = False) -> None:
    """Enable schedules. Fires that came due while they were disabled are not caught up.

    Example:

      manage.py schedule enable example.com nightly
    """
    _switch(schedules, {"enabled": True}, as_json)


@app.command("disable")
def disable(
    schedules: References,
    note: Annotated[
        str | None, typer.Option(help="The reason, shown with the schedule until it is enabled again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Disable schedules; running executions finish.

    Examples:

      manage.py schedule disable example.com nightly

      manage.py schedule disable example.com --note "supplier migrates until Friday"
    """
    _switch(schedules, {"enabled": False} if note is None else {"enabled": False, "disabled_note": note}, as_json)


@app.command("delete")
def delete(
    schedules: References,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete schedules. Their executions and changes stay in the history.

    Examples:

      manage.py schedule delete example.com

      manage.py schedule delete nightly --yes
    """
    repository = get_schedule_repository()
    records = [repository.find_schedule(reference) for reference in schedules]
    confirm(f"Delete {', '.join(record.name or record.domain for record in records)}?", yes)
    deleted = [
        record.schedule_id for record in records if repository.delete_schedule(record.schedule_id, actor=actor())
    ]
    if as_json:
        print_json({"deleted": deleted})
        return
    for schedule_id in deleted:
        console().print(f"deleted {schedule_id}")


@app.command("preview")
def preview(
    schedule: Annotated[
        str | None, typer.Argument(metavar="[SCHEDULE]", help="Id, name or domain; or give --when.")
    ] = None,
    when: When = None,
    timezone: Timezone = None,
    n: Annotated[int, typer.Option("-n", help="Number of fires.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show the next fire times of a schedule, or of a timing given by --when.

    Examples:

      manage.py schedule preview example.com -n 10

      manage.py schedule preview --when "monthly 31 02:30" --timezone Europe/Berlin
    """
    if (schedule is None) == (when is None):
        raise InvalidInput(Problem("preview", "give either a schedule or --when"))
    repository = get_schedule_repository()
    if when is not None:
        given = {
            "domain": "preview.example",
            **_timing(when, None, None),
            **({} if timezone is None else {"timezone": timezone}),
        }
        spec = parse_spec(given, default_registry)
    else:
        spec = repository.find_schedule(schedule or "")
        spec = spec if timezone is None else replace(spec, timezone=timezone)
    fires = repository.preview(spec, n)
    if as_json:
        print_json({"fires": fires, "description": spec.trigger.describe()})
        return
    console().print(spec.trigger.describe())
    for fire in fires:
        console().print(f"  {moment(fire, spec.timezone)}   {until(fire)}")
    _print_warnings(spec)


def schedule_table(records: list[ScheduleRecord]) -> Table:
    columns = (id_column(), "domain", "name", "timing", Column("next run (UTC)", no_wrap=True), "last")
    table = plain_table(*columns)
    for record in records:
        table.add_row(
            str(record.schedule_id)[:ID_PREFIX],
            record.domain,
            record.name or "",
            describe(record),
            moment(record.next_run).removesuffix(" UTC") if record.enabled else _disabled_cell(record),
            with_streak(record.last_status or "", record.failures_in_a_row),
            style=None if record.enabled else "dim",
        )
    return table


def _disabled_cell(record: ScheduleRecord) -> str:
    """Includes the beginning of the note where the terminal is wide enough."""
    note = record.disabled_note if console().width >= ROOMY else None
    return disabled_state(note and shorten(note, 40, placeholder="…"))


def describe(record: ScheduleRecord) -> str:
    try:
        return record.trigger.describe()
    except InvalidSchedule as error:
        return f"invalid: {error}"


def _print_warnings(spec: ScheduleSpec, *, timing: bool = True) -> None:
    about_timing = spec.trigger.warnings(datetime.now(UTC)) if timing else []
    for warning in [*about_timing, *credential_warnings(spec.job_config), *_unoffered(spec)]:
        print_note(warning)


def _unoffered(spec: ScheduleSpec) -> list[str]:
    timeout = get_settings().heartbeat_timeout_seconds
    return unoffered(get_db_connection(), spec, default_registry, timeout) if spec.enabled else []


def _next_run(record: ScheduleRecord) -> str:
    if not record.enabled:
        return disabled_state(record.disabled_note)
    return f"next run: {moment(record.next_run, record.timezone)}" if record.next_run else "it has no further fires"


def _switch(references: list[str], change: ScheduleFields, as_json: bool) -> None:
    repository = get_schedule_repository()
    found = [repository.find_schedule(reference) for reference in references]
    after = [repository.update_schedule(record.schedule_id, actor=actor(), **change) for record in found]
    if as_json:
        print_json(after)
        return
    for before, record in zip(found, after, strict=True):
        state = "enabled" if record.enabled else "disabled"
        already = " already" if before.enabled == record.enabled else ""
        following = f": {record.disabled_note}" if record.disabled_note else ""
        if record.enabled:
            then = moment(record.next_run, record.timezone)
            following = f", next run {then}" if record.next_run else ", but it has no further fires"
        console().print(f"{record.name or record.domain} is{already} {state}{following}")


def _fields_from(
    options: Mapping[str, Any], positional: Mapping[str, Any], job_config: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Only the fields given on the command line; a field may be given only once.

    `job_config` is the schedule's present one, for assignments to single fields of it.
    """
    assignments, job_fields = split_off(options["set_"] or [], "job_config")
    given: dict[str, Any] = {
        **positional,
        **_timing(options["when"], options["frequency"], options["time_config"]),
    }
    for option, field in OPTION_FIELDS.items():
        if options[option] or options[option] == "":  # an empty text was given, too
            given[field] = options[option]
    if options["requires"] is not None:
        given["requires"] = [label.strip() for label in options["requires"].split(",") if label.strip()]
    if options["queue"] is not None:
        given["queue"] = options["queue"].strip() or None
    if options["limit_key"]:  # Typer gives an empty list if the option is missing
        given["limit_keys"] = [key for key in options["limit_key"] if key.strip()]
    if options["job_config"] is not None:
        given["job_config"] = json_value("job_config", options["job_config"])
    if options["profile"] is not None:
        given["profile_id"] = get_scan_profiles().find(options["profile"]).profile_id
    if job_fields and "job_config" in given:
        raise InvalidInput(Problem("job_config", "is given twice: as a whole, and one of its fields"))
    if job_fields:
        unset = {field for field, value in job_fields.items() if value is None}
        merged = {**job_config, **job_fields}
        given["job_config"] = {field: value for field, value in merged.items() if field not in unset}
    return with_assignments(given, assignments, unknown_fields)


def _timing(when: str | None, frequency: str | None, time_config: str | None) -> dict[str, Any]:
    if when is not None:
        if frequency is not None or time_config is not None:
            raise InvalidInput(Problem("when", "give either --when or --frequency with --time-config"))
        words, config = parse_when(when)
        return {"frequency": words, "time_config": config}
    given: dict[str, Any] = {}
    if frequency is not None:
        given["frequency"] = frequency
    if time_config is not None:
        given["time_config"] = json_value("time_config", time_config)
    return given
