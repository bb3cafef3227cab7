"""The client's types, from our OpenAPI; client_methods.py writes them."""

from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword
from typing import Any

from config import Settings

SCHEMA = "#/components/schemas/"
KINDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEAD = '''"""The schemas of the HTTP API that the client takes and returns. Instants are ISO 8601 texts, ids are texts.

Generated from the OpenAPI document: python -m tests.support.client_methods
"""

from typing import Any, Literal, NotRequired, TypedDict
'''


def document() -> dict[str, Any]:
    """Of this program; making it needs no server."""
    from services.web.app import create_app

    settings = Settings(database_url="postgresql://nowhere/x", redis_url="redis://nowhere", _env_file=None)
    return create_app(settings).openapi()


def shapes(openapi: Mapping[str, Any], roots: Iterable[str]) -> str:
    schemas = openapi["components"]["schemas"]
    text = HEAD + "".join(f"\n\n{_class(name, schemas[name])}" for name in sorted(_reached(schemas, roots)))
    unused = [name for name in ("Literal", "NotRequired") if f"{name}[" not in text]
    return text if not unused else text.replace(f"{unused[0]}, ", "", 1)


def _reached(schemas: Mapping[str, Any], roots: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(roots)
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
        return f"{name} = {type_of(schema)}\n"
    required = schema.get("required", [])
    fields = {
        field: type_of(each) if field in required else f"NotRequired[{type_of(each)}]"
        for field, each in schema["properties"].items()
    }
    if any(map(iskeyword, fields)):
        inside = ", ".join(f'"{field}": {kind}' for field, kind in fields.items())
        return f'{name} = TypedDict("{name}", {{{inside}}})\n'
    return "\n".join((f"class {name}(TypedDict):", *(f"    {field}: {kind}" for field, kind in fields.items()), ""))


def type_of(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            return f'"{reference.rpartition("/")[2]}"'
        case {"anyOf": list(options)}:
            return _union([type_of(option) for option in options])
        case {"enum": list(values)}:
            return f"Literal[{', '.join(map(_quoted, values))}]"
        case {"const": value}:
            return f"Literal[{_quoted(value)}]"
        case {"type": "array"}:
            return f"list[{type_of(schema.get('items', {}))}]"
        case {"type": "object"}:
            inside = schema.get("additionalProperties")
            return f"dict[str, {type_of(inside)}]" if isinstance(inside, Mapping) else "dict[str, Any]"
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
