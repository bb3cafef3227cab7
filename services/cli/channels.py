"""`manage.py channel …`: where notifications go: webhooks, e-mail, and what apprise knows."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table

from config import get_settings
from database.connection import get_db_connection
from services.cli.output import (
    FAILED,
    AsJson,
    ClearErrors,
    actor,
    console,
    error_console,
    moment,
    print_json,
    print_note,
)
from services.cli.tables import (
    Cursor,
    PageSize,
    Yes,
    confirm,
    plain_table,
    print_deleted,
    print_facts,
    print_page,
    require_changes,
)
from services.errors import InvalidInput, Problem
from services.insight.replicas import list_replicas
from services.notifications.channel_rows import ChannelKind, ChannelRecord, Channels
from services.notifications.channels.email import MOST_RECIPIENTS
from services.notifications.deliveries import Deliveries, DeliveryState
from services.wording.counts import counted

app = typer.Typer(
    cls=ClearErrors,
    no_args_is_help=True,
    help="Notification channels: webhooks, e-mail, chats and pagers.",
)

NONE_YET = "no channel exists; add one: manage.py channel add ops webhook --url https://…"
STYLES = {"failing": "red", "disabled": "dim"}
SHOWN_DELIVERIES = 10
TEST_SECONDS, LOOK_SECONDS = 30, 0.5

Name = Annotated[str, typer.Argument(metavar="CHANNEL", help="Name of the channel.")]
Url = Annotated[
    str | None, typer.Option(help="webhook: URL to call with POST; apprise: its URL, such as ntfy://topic.")
]
Secret = Annotated[
    str | None,
    typer.Option(help="webhook: whsec_… or ${env:NAME}; signs each message. Default: a new one, shown once."),
]
Header = Annotated[
    list[str] | None, typer.Option("--header", help="webhook: 'Name: value', sent in addition; repeatable.")
]
Host = Annotated[str | None, typer.Option(help="email: SMTP server.")]
Port = Annotated[int | None, typer.Option(help="email: its port; default: 587, 465 with tls, 25 with none.")]
Security = Annotated[str | None, typer.Option(help="email: starttls (default), tls or none.")]
User = Annotated[str | None, typer.Option(help="email: login; needs --password.")]
Password = Annotated[str | None, typer.Option(help="email: a reference ${env:NAME}; JOB_SECRETS must list the name.")]
From = Annotated[str | None, typer.Option("--from", help="email: address of the sender.")]
To = Annotated[
    list[str] | None, typer.Option("--to", help=f"email: a recipient; repeatable, at most {MOST_RECIPIENTS}.")
]
Note = Annotated[str | None, typer.Option(help="What it is for; shown wherever the channel is shown.")]


@app.command("add")
def add(
    name: Name,
    kind: Annotated[ChannelKind, typer.Argument(help="webhook, email or apprise.")],
    url: Url = None,
    secret: Secret = None,
    header: Header = None,
    host: Host = None,
    port: Port = None,
    security: Security = None,
    user: User = None,
    password: Password = None,
    sender: From = None,
    to: To = None,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Add a channel. Keep passwords and keys in the environment of the replicas, and write ${env:NAME} here.

    Examples:

      manage.py channel add ops webhook --url https://example.com/hooks/scheduler

      manage.py channel add mail email --host smtp.example.com --user robot --password '${env:SMTP_PASSWORD}'
      --from robot@example.com --to ops@example.com

      manage.py channel add chat apprise --url 'slack://${env:SLACK_TOKEN}/#ops'
    """
    config = _config(url, secret, header, host, port, security, user, password, sender, to)
    added = Channels(get_db_connection()).add({"name": name, "kind": kind, "config": config, "note": note}, actor())
    if as_json:
        print_json({**_as_dict(added.record), "secret": added.secret})
        return
    error_console().print(f"added {added.record.name}; try it: manage.py channel test {added.record.name}")
    if added.secret is not None:
        error_console().print("the receiver checks the signatures with this secret, which is shown only once:")
        typer.echo(added.secret)


@app.command("list")
def list_(
    limit: PageSize = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List channels: whether they work, what waits, and the last error. Secrets are not shown.

    Examples:

      manage.py channel list

      manage.py channel list --json
    """
    page = Channels(get_db_connection()).page(limit=limit, cursor=cursor)
    items = [_as_dict(record) for record in page.items]
    print_page(items, page.next_cursor, as_json, lambda: _table(page.items), NONE_YET)


@app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one channel with its configuration, without secrets, and its newest deliveries.

    Example:

      manage.py channel show ops
    """
    from services.cli.deliveries import as_dict, delivery_table
    from services.notifications.deliveries import DeliveryFilter

    record = Channels(get_db_connection()).find(name)
    page = Deliveries(get_db_connection()).page(DeliveryFilter(channel=record.name), limit=SHOWN_DELIVERIES)
    if as_json:
        print_json({"channel": _as_dict(record), "deliveries": [as_dict(each) for each in page.items]})
        return
    _print_facts(record)
    if page.items:
        console().print(delivery_table(page.items))


@app.command("edit")
def edit(
    name: Name,
    url: Url = None,
    secret: Secret = None,
    header: Header = None,
    host: Host = None,
    port: Port = None,
    security: Security = None,
    user: User = None,
    password: Password = None,
    sender: From = None,
    to: To = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A field of the configuration to remove, such as user.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="An empty text removes the note.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the fields that are given. A channel that failed is tried again at once.

    --header and --to replace all previous values.

    Examples:

      manage.py channel edit ops --url https://example.com/hooks/new

      manage.py channel edit mail --to ops@example.com --to ann@example.com

      manage.py channel edit mail --unset user --unset password
    """
    config = _config(url, secret, header, host, port, security, user, password, sender, to)
    config |= dict.fromkeys(unset or (), None)
    changes = {**({"config": config} if config else {}), **({} if note is None else {"note": note})}
    require_changes(changes)
    _, after = Channels(get_db_connection()).edit(name, changes, actor())
    print_json(_as_dict(after)) if as_json else _print_facts(after)


@app.command("enable")
def enable(name: Name, as_json: AsJson = False) -> None:
    """Enable a channel: its waiting messages are sent, and all new ones.

    Example:

      manage.py channel enable ops
    """
    _switch(name, True, as_json)


@app.command("disable")
def disable(name: Name, note: Note = None, as_json: AsJson = False) -> None:
    """Disable a channel: nothing is sent through it. Its messages wait until it is enabled.

    Example:

      manage.py channel disable ops --note "their server moves until Friday"
    """
    _switch(name, False, as_json, note)


@app.command("test")
def send_test(
    name: Name,
    seconds: Annotated[int, typer.Option("--wait", min=0, help="How long to wait for the result.")] = TEST_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Send a test message through a channel, and wait for the result. A replica sends it, with its own environment.

    Exit code 0 when it was sent, 1 otherwise.

    Example:

      manage.py channel test ops
    """
    delivery_id = Channels(get_db_connection()).send_test(name, actor())
    state, words = _result(delivery_id, seconds)
    if as_json:
        print_json({"delivery_id": delivery_id, "state": state, "answer": words})
    else:
        console().print(f"{state}: {words}" if words else state)
    if state != DeliveryState.SENT:
        raise typer.Exit(FAILED)


@app.command("delete")
def delete(
    name: Name,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a channel. Its waiting messages are cancelled; the history of its deliveries stays.

    Example:

      manage.py channel delete ops --yes
    """
    record = Channels(get_db_connection()).find(name)
    words = f"{record.waiting_words} waiting {'message' if record.waiting == 1 else 'messages'} will be cancelled"
    confirm(f"{words}. Delete channel {record.name}?", yes)
    Channels(get_db_connection()).delete(record.name, actor())
    print_deleted(record.name, as_json)


def _config(
    url: str | None,
    secret: str | None,
    header: list[str] | None,
    host: str | None,
    port: int | None,
    security: str | None,
    user: str | None,
    password: str | None,
    sender: str | None,
    to: list[str] | None,
) -> dict[str, Any]:
    given = {
        "url": url,
        "secret": secret,
        "headers": _headers(header) if header else None,
        "host": host,
        "port": port,
        "security": security,
        "user": user,
        "password": password,
        "from": sender,
        "to": to or None,
    }
    return {field: value for field, value in given.items() if value is not None}


def _headers(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, colon, value = each.partition(":")
        if not colon:
            raise InvalidInput(Problem("header", "must be written as 'Name: value'"))
        found[name.strip()] = value.strip()
    return found


def _switch(name: str, enabled: bool, as_json: bool, note: str | None = None) -> None:
    changes = {"enabled": enabled, **({} if note is None else {"note": note})}
    _, after = Channels(get_db_connection()).edit(name, changes, actor())
    if as_json:
        print_json(_as_dict(after))
        return
    waiting = f"; {after.waiting_words} waiting" if after.waiting else ""
    console().print(f"{after.name} is {'enabled' if enabled else 'disabled'}{waiting}")


def _result(delivery_id: UUID, seconds: int) -> tuple[str, str]:
    """The state, and what the other side answered."""
    deliveries, until = Deliveries(get_db_connection()), time.monotonic() + seconds
    while True:
        found = deliveries.find(delivery_id)
        if found.state != DeliveryState.WAITING:
            attempts = deliveries.attempts(delivery_id)
            return found.state, (attempts[0].answer or "") if attempts else found.last_error or ""
        if time.monotonic() >= until:
            break
        time.sleep(LOOK_SECONDS)
    replicas = list_replicas(get_db_connection(), get_settings().heartbeat_timeout_seconds)
    if not replicas.live:
        print_note("no replica is running; the next one that starts sends it")
    return found.state, f"no result after {seconds} s; see: manage.py delivery show {delivery_id}"


def _as_dict(record: ChannelRecord) -> dict[str, Any]:
    return {**asdict(record), "state": record.state}


def _table(records: list[ChannelRecord]) -> Table:
    table = plain_table("channel", "kind", "state")
    table.add_column("waiting", justify="right")
    for column in ("last sent", "last error", "note"):
        table.add_column(column)
    for record in records:
        cells = (record.name, record.kind, record.state, record.waiting_words, moment(record.last_sent_at))
        table.add_row(*cells, record.last_error or "", record.note or "", style=STYLES.get(record.state))
    return table


def _print_facts(record: ChannelRecord) -> None:
    failing = f"since {moment(record.failing_since)}, {counted(record.failures, 'failure')} in a row"
    facts = {
        "channel": record.name,
        "kind": record.kind,
        "state": f"failing {failing}" if record.state == "failing" else record.state,
        "last error": record.last_error,
        "next attempt": moment(record.resume_at) if record.state == "failing" else None,
        "last sent": moment(record.last_sent_at),
        "waiting": record.waiting_words,
        "note": record.note,
        "changed": f"{moment(record.updated_at)} by {record.updated_by}",
        **_shown(record.config),
    }
    print_facts(facts)


def _shown(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in config.items()}
