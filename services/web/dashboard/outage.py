"""An outage of Postgres: since when it lasts, and what it means for the user."""

from datetime import UTC, datetime, tzinfo

from services.errors import Unavailable

MEANING = (
    "No job starts until Postgres is back. Running jobs finish, and their results are recorded then. "
    "Fires that fall due in the meantime run late or are recorded as missed."
)
REFUSES = "The database has refused requests"


class _Noted:
    """Shared by all pages of the process, so that all of them show the same time."""

    since: datetime | None = None


def note_answer() -> None:
    _Noted.since = None


def note_silence() -> datetime:
    """The start of the outage, as far as this process knows."""
    if _Noted.since is None:
        _Noted.since = datetime.now(UTC)
    return _Noted.since


def headline(error: Exception | None, zone: tzinfo) -> str:
    """`Postgres has not answered since 14:03:22`; `error` is None while the answer is only late."""
    since = f"{note_silence().astimezone(zone):%H:%M:%S}"
    if error is None or isinstance(error, Unavailable):
        return f"{error.server if error else 'Postgres'} has not answered since {since}"
    return f"{REFUSES} since {since}"
