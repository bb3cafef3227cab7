"""What this process knows about Postgres while it does not answer: since when, and what that means."""

from datetime import UTC, datetime, tzinfo

from services.errors import Unavailable

MEANING = (
    "Nothing starts until it is back. What runs finishes, and its result is written then. "
    "Fires that come due meanwhile run late or are recorded as missed."
)
REFUSES = "The database refuses to answer"


class _Noted:
    """One for all pages of the process: whoever asks first notices, and everybody is told the same."""

    since: datetime | None = None


def note_answer() -> None:
    _Noted.since = None


def note_silence() -> datetime:
    """Since when, as far as this process knows."""
    if _Noted.since is None:
        _Noted.since = datetime.now(UTC)
    return _Noted.since


def headline(error: Exception | None, zone: tzinfo) -> str:
    """`Postgres has not answered since 14:03:22`; without an error the answer is only late so far."""
    since = f"{note_silence().astimezone(zone):%H:%M:%S}"
    if error is None or isinstance(error, Unavailable):
        return f"{error.server if error else 'Postgres'} has not answered since {since}"
    return f"{REFUSES} since {since}"
