"""How long a scan waits before it asks again."""

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0


def backoff_seconds(attempt: int, asked_seconds: float | None) -> float | None:
    """After this attempt, from 1; None: the other side asks for more patience than a scan has."""
    asked = asked_seconds or 0.0
    return None if asked > LONGEST_SECONDS else max(asked, min(FIRST_SECONDS * 2.0 ** (attempt - 1), LONGEST_SECONDS))
