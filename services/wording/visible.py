"""Untrusted text for display: invisible and direction-changing characters become escapes."""


def visible(text: str) -> str:
    """One line without characters that control a terminal."""
    return text if text.isprintable() else "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
