"""An instant in a request. Schemas import it from here: routing.py knows the guard, which knows what serves schemas."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator


def _in_utc(instant: datetime) -> datetime:
    """To UTC: Postgres accepts no offset beyond sixteen hours. The services refuse a time without an offset."""
    try:
        return instant.astimezone(UTC) if instant.tzinfo else instant
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC") from None


Instant = Annotated[datetime, AfterValidator(_in_utc)]
