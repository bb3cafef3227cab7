"""The objects in a page's JSON-LD, at any depth. Pure; invalid JSON is ignored."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_OBJECTS = 2_000


def objects_in(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Outer objects first."""
    waiting: deque[Any] = deque(value for text in texts for value in _json_values(text))
    found = 0
    while waiting and found < MAX_OBJECTS:
        match waiting.popleft():
            case dict() as thing:
                found += 1
                yield thing
                waiting.extend(thing.values())
            case list() as things:
                waiting.extend(things[:MAX_OBJECTS])
            case _:
                pass


def text_of(thing: Mapping[str, Any], name: str) -> str:
    """A text, or the first text of a list; otherwise empty."""
    value = thing.get(name)
    if isinstance(value, list) and value:
        value = value[0]
    return value.strip() if isinstance(value, str) else ""


def texts_of(thing: Mapping[str, Any], name: str) -> list[str]:
    value = thing.get(name)
    values = value if isinstance(value, list) else [value]
    return [item.strip() for item in values if isinstance(item, str) and item.strip()]


def _json_values(text: str) -> list[Any]:
    try:
        return [json.loads(text.strip().removeprefix("<!--").removesuffix("-->"), strict=False)]
    except (ValueError, RecursionError):
        return []
