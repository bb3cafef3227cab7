"""The fields of a job type's job_config, derived from its model, for command line, forms and documentation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from enhanced_scheduler.jobs import ISOLATION_KEY, JobDefinition

ISOLATION = "thread: in the replica; process: in a separate process, which is killed on timeout or cancellation"
LONG = "textarea"  # the `format` of a text that may have several lines
KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


@dataclass(frozen=True, slots=True)
class JobField:
    """One field of a job_config. `default` is JSON text, empty for a field that is required or unset."""

    name: str
    kind: str
    required: bool
    default: str
    description: str


class Shape(StrEnum):
    """What a form asks for."""

    TEXT = "text"
    LONG_TEXT = "long text"
    NUMBER = "number"
    FLAG = "true or false"
    CHOICE = "one of some words"
    LINES = "list of texts"
    JSON = "anything else"


@dataclass(frozen=True, slots=True)
class Control:
    """How a form shows one field."""

    field: JobField
    shape: Shape
    limits: str = ""  # of a number
    choices: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        kind = self.field.kind if self.shape is Shape.JSON else self.limits
        default = f"default {self.field.default}" if self.field.default else ""
        return "; ".join(filter(None, (self.field.description, kind, default)))


def summary(definition: JobDefinition) -> str:
    """The first paragraph of the handler's docstring."""
    return " ".join(definition.doc.split("\n\n", 1)[0].split())


def fields_of(definition: JobDefinition) -> list[JobField]:
    """Those of its model, in their order, and `isolation`, which every job type has."""
    schema = json_schema(definition)
    required = schema.get("required", [])
    return [_field(name, item, schema, name in required) for name, item in schema["properties"].items()]


def controls_of(definition: JobDefinition) -> list[Control]:
    """One for each of `fields_of`, in the same order."""
    schema = json_schema(definition)
    items = schema["properties"].values()
    return [
        _control(field, item, schema.get("$defs", {})) for field, item in zip(fields_of(definition), items, strict=True)
    ]


def json_schema(definition: JobDefinition) -> dict[str, Any]:
    """Of the whole job_config. A type without a model takes any field."""
    schema = definition.config_schema() or {"type": "object", "properties": {}}
    isolation = {"enum": ["thread", "process"], "default": definition.isolation, "description": ISOLATION}
    return {**schema, "properties": {**schema.get("properties", {}), ISOLATION_KEY: isolation}}


def _field(name: str, item: Mapping[str, Any], schema: Mapping[str, Any], required: bool) -> JobField:
    default = item.get("default")
    return JobField(
        name=name,
        kind=_kind(item, schema.get("$defs", {})),
        required=required,
        default="" if required or default is None else json.dumps(default, ensure_ascii=False),
        description=" ".join(str(item.get("description", "")).split()),
    )


def _control(field: JobField, item: Mapping[str, Any], definitions: Mapping[str, Any]) -> Control:
    item = _only(item, definitions)
    words = item.get("enum", [item["const"]] if "const" in item else [])
    if words:
        return Control(field, Shape.CHOICE, choices=tuple(words)) if _are_texts(words) else Control(field, Shape.JSON)
    match item.get("type"):
        case "string":
            return Control(field, Shape.LONG_TEXT if item.get("format") == LONG else Shape.TEXT)
        case "integer" | "number":
            return Control(field, Shape.NUMBER, limits=_limits(item).strip(" ()"))
        case "boolean":
            return Control(field, Shape.FLAG)
        case "array" if _only(item.get("items", {}), definitions).get("type") == "string":
            return Control(field, Shape.LINES)
        case _:
            return Control(field, Shape.JSON)


def _only(item: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference refers to, and what an optional value is if it is there."""
    if "$ref" in item:
        return _only(definitions[item["$ref"].rpartition("/")[2]], definitions)
    some = [one for one in item.get("anyOf", []) if one.get("type") != "null"]
    return _only(some[0], definitions) if len(some) == 1 else item


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _kind(item: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """`whole number (1 to 50)`: the type as people say it, with its limits."""
    if "$ref" in item:
        return _kind(definitions[item["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in item:
        kinds = [_kind(one, definitions) for one in item["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in item or "const" in item:
        return ", ".join(map(str, item.get("enum", [item.get("const")])))
    match item.get("type"):
        case "array":
            return f"list of {_kind(item.get('items', {}), definitions)}"
        case "object":
            values = item.get("additionalProperties")
            return f"object of {_kind(values, definitions)}" if isinstance(values, Mapping) else "object"
        case str(kind) if kind in KINDS:
            return KINDS[kind] + _limits(item)
        case _:
            return "any JSON"


def _limits(item: Mapping[str, Any]) -> str:
    least, most = item.get("minimum"), item.get("maximum")
    above, below = item.get("exclusiveMinimum"), item.get("exclusiveMaximum")
    if least is not None and most is not None:
        return f" ({least:,} to {most:,})"
    limits = {"at least": least, "above": above, "at most": most, "below": below}
    words = [f"{word} {limit:,}" for word, limit in limits.items() if limit is not None]
    return f" ({', '.join(words)})" if words else ""
