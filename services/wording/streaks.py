"""How failures in a row read."""


def with_streak(status: str, failures: int) -> str:
    """`failed, 4 in a row`; one failure is no row."""
    return f"{status}, {failures:,} in a row" if failures > 1 else status
