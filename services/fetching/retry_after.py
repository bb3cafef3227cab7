"""Parsing of the Retry-After header."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_SECONDS = 86_400.0


def parse_retry_after(value: str | None) -> float | None:
    """Seconds or a date; None if the header is absent or not readable."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return min(float(value), MAX_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
