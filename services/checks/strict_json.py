"""Strict JSON for input: a duplicate key is ambiguous and therefore an error."""

import json
from collections import Counter
from typing import Any


class DuplicateKey(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key if len(key) <= 100 else f"{key[:99]}…"
        super().__init__(f"duplicate key {self.key!r}")


def loads(text: str | bytes) -> Any:
    """Like json.loads, but raises DuplicateKey, a ValueError."""
    return json.loads(text, object_pairs_hook=_object)


def repeated_keys(pairs: list[tuple[str, Any]]) -> list[str]:
    """The keys of one object that are there more than once."""
    counts = Counter(key for key, _ in pairs)
    return [key for key, count in counts.items() if count > 1]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateKey(repeated_keys(pairs)[0])
    return found
