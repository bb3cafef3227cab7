"""`--since 24h`: parses durations of the command line."""

import re
from datetime import UTC, datetime, timedelta

from services.errors import InvalidInput, Problem

EXAMPLES = "30m, 24h, 7d, 1h30m"
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST = timedelta(days=36_500)

_PART = r"(\d{1,9})\s*([smhdw])"


def parse_duration(text: str, field: str = "since") -> timedelta:
    """The sum of whole numbers with units; at least a second."""
    cleaned = text.strip().lower()
    if not re.fullmatch(rf"(?:{_PART}\s*)+", cleaned):
        raise InvalidInput(Problem(field, f"cannot read {text!r}; examples: {EXAMPLES}"))
    try:
        duration = sum((timedelta(**{UNITS[unit]: int(n)}) for n, unit in re.findall(_PART, cleaned)), timedelta())
    except OverflowError:
        duration = timedelta.max
    if not timedelta(seconds=1) <= duration <= LONGEST:
        raise InvalidInput(Problem(field, f"must be between 1s and {LONGEST.days}d, got {text!r}"))
    return duration


def ago(text: str, field: str = "since") -> datetime:
    return datetime.now(UTC) - parse_duration(text, field)
