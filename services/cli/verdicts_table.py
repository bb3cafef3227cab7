"""`manage.py verdicts`: every reason in the history, its meaning and its remedy."""

from typing import Annotated

import typer

from services.cli.output import AsJson, console, print_json
from services.cli.tables import plain_table
from services.cli.verdicts_page import reasons, verdicts_page


def verdicts(
    markdown: Annotated[bool, typer.Option("--markdown", help="The page docs/verdicts.md.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every reason why a fire did not run: what it means and what to do.

    Examples:

      manage.py verdicts

      manage.py verdicts --markdown > docs/verdicts.md
    """
    if markdown:
        typer.echo(verdicts_page())
    elif as_json:
        print_json([each._asdict() for each in reasons()])
    else:
        table = plain_table("status", "reason", "what it means", "what to do")
        for each in reasons():
            table.add_row(*each)
        console().print(table)
