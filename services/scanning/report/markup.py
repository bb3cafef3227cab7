"""HTML building blocks that escape everything except markup made by this module."""

from collections.abc import Iterable, Sequence
from html import escape

from services.wording.visible import visible

VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """`tag("td", "<b>", class_="x")` -> `<td class="x">&lt;b&gt;</td>`"""
    named = "".join(f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"' for key, value in attributes.items())
    inside = join(children)
    return Markup(f"<{name}{named}>" if name in VOID else f"<{name}{named}>{inside}</{name}>")


def safe(text: str) -> Markup:
    """Escape text that is not markup, and make control characters visible; names and URLs are untrusted."""
    return text if isinstance(text, Markup) else Markup(escape(visible(text)))


def join(parts: Iterable[str], separator: str = "") -> Markup:
    return Markup(Markup(separator).join(safe(part) for part in parts))


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, titled: bool = True) -> Markup:
    """On a phone each row becomes a card whose lines are labelled with the headings.

    `titled=False`: the caption is for screen readers only, because the text above says the same.
    """
    head = tag("tr", *(tag("th", heading, scope="col", role="columnheader") for heading in headings), role="row")
    body = [
        tag("tr", *(tag("td", value, role="cell", data_label=heading) for heading, value in cells), role="row")
        for cells in (zip(headings, row, strict=True) for row in rows)
    ]
    parts = [
        tag("caption", caption, class_="title" if titled else "unseen"),
        tag("thead", head, role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
    ]
    return tag("table", *parts, role="table")


def bullets(items: Iterable[str]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def lines(*parts: str) -> Markup:
    """One below the other: the first line is emphasised, the others explain it."""
    first, *rest = parts
    return join([tag("strong", first), *(tag("small", part) for part in rest)])
