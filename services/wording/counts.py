"""Numbers of things for people: `1 schedule`, `2,000 schedules`."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
