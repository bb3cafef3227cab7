"""One setting, with the facts that the README table and .env.example are made from."""

from typing import Any

from pydantic import Field


def knob(default: Any, group: str, text: str, *, shown: str | None = None, **limits: Any) -> Any:
    return Field(default, description=text, json_schema_extra={"group": group, "shown": shown}, **limits)
