"""HTML of any quality -> the parts that workflows read: head, links, visible lines, structured data. Pure.

Every list is bounded.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin

from services.fetching.sites.html import HtmlReader, feed_html

PIECE_BYTES = 64 * 1024
MAX_ITEMS = 5_000  # of each list
MAX_BASE = 2_048  # characters of <base href>, to which every link is joined
MAX_LINES, MAX_LINE = 20_000, 10_000

_NOT_SHOWN = frozenset({"script", "style", "noscript", "template", "head", "svg", "iframe", "object"})
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "option", "p",
    "pre", "section", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")


@dataclass(frozen=True, slots=True)
class Anchor:
    href: str
    text: str
    line: int  # the visible line next to it


@dataclass(frozen=True, slots=True)
class Tag:
    """An element that is defined by its attributes: <link>, <script src>, <img>."""

    name: str
    attributes: Mapping[str, str]

    def get(self, name: str) -> str:
        return self.attributes.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class Protected:
    """An address protected by Cloudflare: `data-cfemail`."""

    code: str
    line: int


@dataclass(slots=True)
class PageContent:
    base_url: str
    title: str = ""
    language: str = ""
    body_class: str = ""
    metas: dict[str, str] = field(default_factory=dict)  # by name or property, lower case; the first one counts
    tags: list[Tag] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)
    protected: list[Protected] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    structured: list[str] = field(default_factory=list)  # JSON-LD, not parsed
    properties: list[Mapping[str, str]] = field(
        default_factory=list
    )  # microdata in attributes: <meta itemprop content>

    def absolute(self, address: str) -> str | None:
        try:
            url = urljoin(self.base_url, address.strip())
        except ValueError:
            return None
        return url if url.startswith(("http://", "https://")) else None


def read_page(html: str, url: str, check: Callable[[], object] = lambda: None) -> PageContent:
    """`check` is called between pieces and may raise."""
    reader = _Reader(url)

    def may_go_on() -> bool:
        check()
        return True

    feed_html(html, reader, PIECE_BYTES, may_go_on)
    reader.end_line()
    return reader.page


class _Reader(HtmlReader):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.page = PageContent(url)
        self._line: list[str] = []
        self._line_length = 0
        self._hidden: list[str] = []  # open elements, from the outermost hidden one on
        self._hidden_tags: Counter[str] = Counter()  # as a set, for a fast lookup of end tags
        self._kept: list[str] | None = None  # text of a title or of structured data
        self._anchor: tuple[str, list[str]] | None = None

    # --- the parser's events ---

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        super().start(tag, attributes)
        self._note(tag, attributes)
        if tag in _BLOCKS:
            self.end_line()
        if tag not in _VOID and (self._hidden or tag in _NOT_SHOWN or _is_hidden(attributes)):
            self._hidden.append(tag)
            self._hidden_tags[tag] += 1
        if tag == "title" or (tag == "script" and "ld+json" in attributes.get("type", "").lower()):
            self._kept = []

    def data(self, text: str) -> None:
        if self._kept is not None:
            self._kept.append(text)
        elif not self._hidden:
            if self._line_length < MAX_LINE:
                self._line.append(text)
                self._line_length += len(text)
            if self._anchor is not None:
                self._anchor[1].append(text)

    def end(self, tag: str) -> None:
        super().end(tag)
        if self._kept is not None and tag in ("title", "script"):
            self._keep(tag, self._kept)
        if tag == "a":
            self._end_anchor()
        if self._hidden_tags[tag]:
            self._show_again(tag)
        if tag in _BLOCKS:
            self.end_line()

    def end_line(self) -> None:
        if not self._line:
            return
        text = _one_line(self._line)
        if text and len(self.page.lines) < MAX_LINES:
            self.page.lines.append(text)
        self._line, self._line_length = [], 0

    # --- inside ---

    def _note(self, tag: str, attributes: Mapping[str, str]) -> None:
        page = self.page
        match tag:
            case "html":
                page.language = page.language or attributes.get("lang", "").strip()
            case "body":
                page.body_class = page.body_class or attributes.get("class", "")
            case "base":
                base = page.absolute(attributes.get("href", "")[: MAX_BASE + 1])
                page.base_url = base if base and len(base) <= MAX_BASE else page.base_url
            case "meta":
                name = attributes.get("name") or attributes.get("property") or ""
                if name and len(page.metas) < MAX_ITEMS:
                    page.metas.setdefault(name.strip().lower(), attributes.get("content", "").strip())
            case "link" | "script" | "img" if len(page.tags) < MAX_ITEMS:
                page.tags.append(Tag(tag, dict(attributes)))
            case "a" if not self._hidden:
                self._end_anchor()
                self._anchor = (attributes.get("href", "").strip(), [])
            case _:
                pass
        if "data-cfemail" in attributes and len(page.protected) < MAX_ITEMS:
            page.protected.append(Protected(attributes["data-cfemail"], len(page.lines)))
        if "itemprop" in attributes and attributes.get("content") and len(page.properties) < MAX_ITEMS:
            page.properties.append({attributes["itemprop"].strip(): attributes["content"]})

    def _show_again(self, tag: str) -> None:
        ended = ""
        while ended != tag:
            ended = self._hidden.pop()
            self._hidden_tags[ended] -= 1

    def _end_anchor(self) -> None:
        if self._anchor is not None and self._anchor[0] and len(self.page.anchors) < MAX_ITEMS:
            href, texts = self._anchor
            self.page.anchors.append(Anchor(href, _one_line(texts), len(self.page.lines)))
        self._anchor = None

    def _keep(self, tag: str, texts: list[str]) -> None:
        if tag == "title":
            self.page.title = self.page.title or _one_line(texts)
        elif len(self.page.structured) < MAX_ITEMS:
            self.page.structured.append("".join(texts))
        self._kept = None


def _one_line(texts: list[str]) -> str:
    return _BLANKS.sub(" ", _INVISIBLE.sub("", "".join(texts))).strip()


def _is_hidden(attributes: Mapping[str, str]) -> bool:
    return "hidden" in attributes or bool(_HIDDEN_STYLE.search(attributes.get("style", "")))
