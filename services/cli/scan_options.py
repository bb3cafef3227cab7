"""What a scan may be told on the command line; `scan` and `scan-profile` understand the same words."""

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
Pages = Annotated[int | None, typer.Option(help="Most pages to visit.")]
Depth = Annotated[int | None, typer.Option(help="Most links away from the start page.")]
CustomPages = Annotated[
    list[str] | None, typer.Option("--page", help="Visit this path first, e.g. /basket; may be given several times.")
]
Selector = Annotated[
    str | None, typer.Option(help="CSS of the button that agrees to cookies; the browser engine presses it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help=f"Any other setting ({', '.join(CookieScanConfig.model_fields)}); an empty value means its default.",
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
    """Only what was said, in the one spelling; None for what shall go back to its default."""
    named = {field: options.get(option) for option, field in OPTION_FIELDS.items()}
    named["custom_pages"] = list(named["custom_pages"] or []) or None
    given = {field: value for field, value in named.items() if value is not None}
    return one_spelling(with_assignments(given, options["set_"] or [], lambda fields: []))


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> CookieScanConfig:
    """A profile's settings with what was said on the command line over them."""
    together = {name: value for name, value in {**one_spelling(base), **given}.items() if value is not None}
    if problems := config_problems(together):
        raise InvalidInput(*problems)
    return CookieScanConfig.model_validate(together)
