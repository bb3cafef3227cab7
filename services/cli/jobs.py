"""`manage.py jobs`: the job types of this installation, with the fields of their job_config."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Column

from config import get_settings
from services.cli.output import AsJson, console, print_json
from services.cli.tables import plain_table
from services.errors import InvalidInput, Problem, UnknownJobType
from services.jobs import BUILT_IN_JOB_TYPES, JobDefinition, default_registry
from services.jobs.schema import fields_of, json_schema, summary
from services.jobs.users import load_users_jobs

MORE = "docs/jobs.md explains secrets, isolation, retries and jobs of your own."


def jobs(
    job_type: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Only this type, with its fields.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The tables of docs/jobs.md.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the job types, including your own (JOB_MODULES); with TYPE: every field of its job_config.

    Examples:

      manage.py jobs

      manage.py jobs http_request

      manage.py jobs http_request --json
    """
    load_users_jobs(get_settings())
    if markdown:
        typer.echo(markdown_tables())
    elif job_type is not None:
        definition = _definition(job_type)
        print_json(_facts(definition)) if as_json else _print_one(definition)
    else:
        known = [default_registry.get(name) for name in sorted(default_registry.job_types())]
        print_json([_facts(definition) for definition in known]) if as_json else _print_list(known)


def markdown_tables() -> str:
    """The built-in types only, so that the page does not depend on the installation."""
    return "\n\n".join("\n".join(_markdown(default_registry.get(name))) for name in sorted(BUILT_IN_JOB_TYPES))


def _markdown(definition: JobDefinition) -> Iterator[str]:
    yield from (f"### `{definition.name}`", "", summary(definition), "")
    yield from ("| field | kind | default | meaning |", "|---|---|---|---|")
    for field in fields_of(definition):
        default = "**required**" if field.required else f"`{field.default}`" if field.default else ""
        yield f"| `{field.name}` | {field.kind} | {default} | {field.description} |"


def _definition(job_type: str) -> JobDefinition:
    try:
        return default_registry.get(job_type)
    except UnknownJobType as error:
        raise InvalidInput(Problem("type", str(error))) from None


def _facts(definition: JobDefinition) -> dict[str, Any]:
    return {
        "job_type": definition.name,
        "summary": summary(definition),
        "handler": definition.where,
        "isolation": definition.isolation,
        "job_config": json_schema(definition),
    }


def _print_list(definitions: list[JobDefinition]) -> None:
    table = plain_table(Column("type", no_wrap=True), "what it does")
    for definition in definitions:
        table.add_row(definition.name, summary(definition) or definition.where)
    console().print(table)
    console().print("\nThe fields of one type: python manage.py jobs TYPE")


def _print_one(definition: JobDefinition) -> None:
    out = console()
    out.print(f"{definition.name}: {summary(definition) or 'its handler has no docstring'}")
    out.print(f"handler: {definition.where}\n")
    if definition.config_schema() is None:
        out.print("It declares no model: job_config may have any fields, and the handler receives all of them.\n")
    name = Column("job_config", no_wrap=True)
    table = plain_table(name, "kind", "default", "meaning")
    for field in fields_of(definition):
        table.add_row(field.name, field.kind, "required" if field.required else field.default, field.description)
    out.print(table)
    out.print(f"\n{MORE}")
