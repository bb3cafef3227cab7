"""The client's types, from our OpenAPI: python -m tests.support.client_shapes > enhanced_scheduler/client/shapes.py"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from config import Settings

ROOTS = (
    "ScheduleOut", "SchedulePage", "NewSchedule", "ScheduleChanges", "ExecutionOut", "ExecutionDetail", "ExecutionPage",
    "RunRequested", "CancelRequested", "PreviewOut", "ExplanationOut", "ReplicaList",
)  # fmt: skip
KINDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEAD = '''"""The schemas of the HTTP API that the client takes and returns. Instants are ISO 8601 texts, ids are texts.

Generated from the OpenAPI document: python -m tests.support.client_shapes > enhanced_scheduler/client/shapes.py
"""

from typing import Any, Literal, NotRequired, TypedDict
'''


def document() -> dict[str, Any]:
    """Of this program; making it needs no server."""
    from services.web.app import create_app

    settings = Settings(database_url="postgresql://nowhere/x", redis_url="redis://nowhere", _env_file=None)
    return create_app(settings).openapi()


def shapes(openapi: Mapping[str, Any]) -> str:
    schemas = openapi["components"]["schemas"]
    text = HEAD + "".join(f"\n\n{_class(name, schemas[name])}" for name in sorted(_reached(schemas)))
    unused = [name for name in ("Literal", "NotRequired") if f"{name}[" not in text]
    return text if not unused else text.replace(f"{unused[0]}, ", "", 1)


def _reached(schemas: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(ROOTS)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += _references(schemas[name])
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _class(name: str, schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"{name} = {_type(schema)}\n"
    required = schema.get("required", [])
    lines = [
        f"    {field}: {_type(each)}" if field in required else f"    {field}: NotRequired[{_type(each)}]"
        for field, each in schema["properties"].items()
    ]
    return "\n".join((f"class {name}(TypedDict):", *lines, ""))


def _type(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            return f'"{reference.rpartition("/")[2]}"'
        case {"anyOf": list(options)}:
            return _union([_type(option) for option in options])
        case {"enum": list(values)}:
            return f"Literal[{', '.join(map(_quoted, values))}]"
        case {"const": value}:
            return f"Literal[{_quoted(value)}]"
        case {"type": "array"}:
            return f"list[{_type(schema.get('items', {}))}]"
        case {"type": "object"}:
            inside = schema.get("additionalProperties")
            return f"dict[str, {_type(inside)}]" if isinstance(inside, Mapping) else "dict[str, Any]"
        case {"type": str(kind)}:
            return KINDS[kind]
        case _:
            return "Any"


def _union(options: list[str]) -> str:
    plain = list(dict.fromkeys(options))
    if any(option.startswith('"') for option in plain):  # a forward reference joins no union at run time
        return f'"{" | ".join(option.strip(chr(34)) for option in plain)}"'
    return " | ".join(plain)


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    sys.stdout.write(shapes(document()))
