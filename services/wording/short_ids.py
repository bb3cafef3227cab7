"""Ids as people see and give them: by their first characters."""

from uuid import UUID

ID_PREFIX = 8  # characters that are shown, and are enough


def ids_that_begin(text: str) -> tuple[UUID, UUID] | None:
    """The first and the last id that begin like this; None: no id does, or it is too short to mean one."""
    digits = text.strip().lower().replace("-", "")
    if not ID_PREFIX <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
