"""Values of Google's responses, converted for our columns. Pure; an undocumented form counts as unknown."""

from collections.abc import Iterable, Mapping
from typing import Any

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MOST = 2**31 - 1  # the range of an integer column
PRICES = ("Free", "$", "$$", "$$$", "$$$$")


def text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def number(value: object) -> float | None:
    """Infinity and NaN are outside of the limit."""
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST else None
    )


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST else None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def offset(minutes: object) -> str | None:
    """Google's utc_offset is in minutes: 330 -> `UTC+05:30`."""
    known = whole(minutes)
    if known is None:
        return None
    hours, rest = divmod(abs(known), 60)
    return f"UTC{'-' if known < 0 else '+'}{hours:02}:{rest:02}"


def price(level: object) -> str | None:
    known = whole(level)
    return PRICES[known] if known is not None and 0 <= known < len(PRICES) else None


def hours(descriptions: object) -> dict[str, str]:
    """`["Monday: 9:00 AM - 5:00 PM", …]` by column."""
    found = {}
    for line in items(descriptions):
        day, colon, said = str(line).partition(":")
        if colon and day.strip().lower() in DAYS and said.strip():
            found[f"{day.strip().lower()}_hours"] = said.strip()
    return found


def address_parts(components: Iterable[Any], long: str, short: str) -> dict[str, str | None]:
    """`long` and `short`: the API's keys for the two spellings of a part."""
    by_type: dict[str, Mapping[str, Any]] = {}
    for component in map(mapping, components):
        for kind in items(component.get("types")):
            by_type.setdefault(str(kind), component)

    def part(spelling: str, *kinds: str) -> str | None:
        return next((said for kind in kinds if (said := text(by_type.get(kind, {}).get(spelling)))), None)

    street = [part(long, "street_number"), part(long, "route")]
    return {
        "street_address": " ".join(filter(None, street)) or None,
        "city": part(long, "locality", "postal_town", "sublocality", "administrative_area_level_3"),
        "state": part(short, "administrative_area_level_1"),
        "zip": part(long, "postal_code"),
        "country": part(short, "country"),
    }


def categories(types: object, main: object = None) -> tuple[str | None, list[str]]:
    known = [said for said in map(text, items(types)) if said]
    first = text(main) or next(iter(known), None)
    return first, [kind for kind in known if kind != first]


def without_nothing(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
