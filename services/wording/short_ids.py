"""Short ids: people read and type the first characters of an id."""

from uuid import UUID

ID_PREFIX = 8  # characters that are shown, and that suffice as input


def ids_that_begin(text: str) -> tuple[UUID, UUID] | None:
    """The lowest and the highest id with this prefix; None if the text is not a prefix of an id, or is too short."""
    digits = text.strip().lower().replace("-", "")
    if not ID_PREFIX <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
