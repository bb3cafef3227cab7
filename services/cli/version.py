"""`manage.py --version`: the versions that a bug report needs."""

import platform
from typing import Annotated

import typer


def _print_version(wanted: bool) -> None:
    if wanted:
        from config import VERSION
        from services.triggers import tzdata_version

        typer.echo(f"enhanced-scheduler {VERSION} (Python {platform.python_version()}, tzdata {tzdata_version()})")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """`--version` is an option of the program, not of a command."""
