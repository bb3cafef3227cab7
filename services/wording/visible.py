"""Text of strangers for the eyes of people: what cannot be seen, or turns the text around it, as an escape."""


def visible(text: str) -> str:
    """In one line that no terminal obeys."""
    return text if text.isprintable() else "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
