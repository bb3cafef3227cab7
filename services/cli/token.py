"""`manage.py token …`: API tokens: create, list, revoke."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from database.connection import get_db_connection
from services.cli.durations import parse_duration
from services.cli.output import AsJson, ClearErrors, actor, console, error_console, id_column, moment, print_json
from services.cli.tables import plain_table
from services.errors import InvalidInput, Problem
from services.web.auth.roles import Role
from services.web.auth.tokens import ApiTokens, TokenRecord

app = typer.Typer(cls=ClearErrors, no_args_is_help=True, help="Tokens of the HTTP API, with their roles.")


@app.command("create")
def create(
    name: Annotated[
        str, typer.Option(help="Name of the person or program that uses it; the audit trail shows token:NAME.")
    ],
    role: Annotated[Role, typer.Option(help="viewer reads, operator also runs and edits, admin does everything.")],
    expires: Annotated[str | None, typer.Option(help="Lifetime: 30d, 12h; default: unlimited.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It is shown only this once: the database keeps its digest.

    Examples:

      manage.py token create --name ci --role operator --expires 90d

      export TOKEN=$(manage.py token create --name grafana --role viewer)
    """
    expires_at = None if expires is None else datetime.now(UTC) + parse_duration(expires, "expires")
    made = ApiTokens(get_db_connection()).create(name, role, actor(), expires_at)
    if as_json:
        print_json({**_as_dict(made.record), "token": made.text})
        return
    until = "without expiry" if expires_at is None else f"until {moment(expires_at)}"
    error_console().print(f"token {made.record.token_id} for {made.record.name} ({role}) works {until}:")
    typer.echo(made.text)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all tokens, newest first, without their secrets.

    Example:

      manage.py token list
    """
    records = ApiTokens(get_db_connection()).list()
    if as_json:
        print_json([_as_dict(record) for record in records])
        return
    if not records:
        console().print("no token; create one: manage.py token create --name me --role admin")
        return
    table = plain_table(id_column(12), "name", "role", "state", "expires", "last used", "created by")
    for record in records:
        table.add_row(
            record.token_id,
            record.name,
            record.role,
            record.state,
            moment(record.expires_at),
            moment(record.last_used_at),
            record.created_by,
            style=None if record.state == "active" else "dim",
        )
    console().print(table)


@app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id or its name.")], as_json: AsJson = False
) -> None:
    """Revoke a token at once, including the browser sessions that it opened.

    Example:

      manage.py token revoke ci
    """
    record = ApiTokens(get_db_connection()).revoke(token, actor())
    if record is None:
        raise InvalidInput(Problem("token", f"no valid token {token!r}; see: manage.py token list"))
    print_json(_as_dict(record)) if as_json else console().print(f"revoked {record.token_id} ({record.name})")


def _as_dict(record: TokenRecord) -> dict[str, object]:
    return {**asdict(record), "state": record.state}
