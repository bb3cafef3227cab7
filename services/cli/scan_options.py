"""The options of a cookie scan, shared by `scan` and `scan-profile`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from services.cli.assignments import with_assignments
from services.errors import InvalidInput
from services.scanning.config import CookieScanConfig, config_problems, one_spelling
from services.scanning.findings import EngineName

Engine = Annotated[
    str | None, typer.Option(help=f"{' or '.join(EngineName)}: plain requests, or Chromium, which runs scripts.")
]
Pages = Annotated[int | None, typer.Option(help="Visit at most this many pages.")]
Depth = Annotated[int | None, typer.Option(help="Follow at most this many links from the start page.")]
CustomPages = Annotated[
    list[str] | None, typer.Option("--page", help="Visit this path first, e.g. /basket; may be given several times.")
]
Selector = Annotated[
    str | None, typer.Option(help="CSS selector of the button that accepts cookies; the browser engine clicks it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help=f"Any other setting ({', '.join(CookieScanConfig.model_fields)}); an empty value restores the default.",
    ),
]

OPTION_FIELDS = {
    "engine": "engine",
    "pages": "max_pages",
    "depth": "scan_depth",
    "page": "custom_pages",
    "selector": "accept_selector",
    "base_url": "base_url",
}


def given_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only the given settings, normalised; None restores the default."""
    named = {field: options.get(option) for option, field in OPTION_FIELDS.items()}
    named["custom_pages"] = list(named["custom_pages"] or []) or None
    given = {field: value for field, value in named.items() if value is not None}
    return one_spelling(with_assignments(given, options["set_"] or [], lambda fields: []))


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> CookieScanConfig:
    """A profile's settings, overridden by those of the command line."""
    together = {name: value for name, value in {**one_spelling(base), **given}.items() if value is not None}
    if problems := config_problems(together):
        raise InvalidInput(*problems)
    return CookieScanConfig.model_validate(together)
