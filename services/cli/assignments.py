"""`--set FIELD=VALUE`: sets any field of a definition."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.checks import strict_json
from services.errors import InvalidInput, Problem


def with_assignments(
    given: Mapping[str, Any], assignments: Iterable[str], unknown: Callable[[list[str]], list[Problem]]
) -> dict[str, Any]:
    """The given fields and the assigned ones; a field may be set only once."""
    together = dict(given)
    for assignment in assignments:
        field, equals, value = assignment.partition("=")
        field = field.strip()
        if not equals:
            raise InvalidInput(Problem("--set", f"must look like FIELD=VALUE, got {assignment!r}"))
        if problems := unknown([field]):
            raise InvalidInput(*problems)
        if field in together:
            raise InvalidInput(Problem(field, "is given twice"))
        together[field] = _value(value)
    return together


def split_off(assignments: Iterable[str], owner: str) -> tuple[list[str], dict[str, Any]]:
    """`job_config.max_pages=9` sets one field of the owner; returns the other assignments, and the owner's fields."""
    others, fields = list[str](), dict[str, Any]()
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        field = name.strip().removeprefix(f"{owner}.")
        if not equals or field in ("", name.strip()):
            others.append(assignment)
        elif field in fields:
            raise InvalidInput(Problem(f"{owner}.{field}", "is given twice"))
        else:
            fields[field] = _value(value)
    return others, fields


def _value(text: str) -> Any:
    """`3` is a number, `true` a boolean, `[1, 2]` a list, an empty value NULL, everything else text."""
    if text == "":
        return None
    try:
        return strict_json.loads(text)
    except strict_json.DuplicateKey as error:
        raise InvalidInput(Problem("--set", str(error))) from None
    except (ValueError, RecursionError):
        return text
