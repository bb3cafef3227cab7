"""What a page links to and what it embeds, from HTML of any quality.

lxml's event interface: no tree is built, so a page cannot make one that is larger than itself, and it is fed in pieces,
so that a scan can be stopped between two of them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from lxml import etree

from services.fetching import MAX_URL_CHARACTERS
from services.sites.urls import normal_url

MAX_LINKS, MAX_RESOURCES = 5_000, 1_000
PIECE_BYTES = 4 * 1024  # a thousand tags that close nothing, in a page that is nested deeply, take a second
MAX_DEPTH = 2_000  # the parser compares an end tag without a beginning with every open element

# Attributes whose address a browser fetches by itself.
_EMBEDDED = {
    "img": ("src",),
    "script": ("src",),
    "iframe": ("src",),
    "frame": ("src",),
    "embed": ("src",),
    "source": ("src",),
    "track": ("src",),
    "audio": ("src",),
    "video": ("src", "poster"),
    "object": ("data",),
    "input": ("src",),
}
_FETCHED_RELATIONS = frozenset({"stylesheet", "icon", "apple-touch-icon", "manifest", "preload", "modulepreload"})
# Possessive (`*+`): a page full of blanks must not keep this process busy with trying them in every partition.
_REFRESH = re.compile(r"\s*+[\d.]*+\s*+[;,]?+\s*+url\s*+=\s*+['\"]?+([^'\"]+)", re.IGNORECASE)
_WEB = re.compile(r"\s*+(https?:|/)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Markup:
    links: tuple[str, ...] = ()  # in the normal spelling
    resources: tuple[str, ...] = ()
    too_long: int = 0  # of the addresses that it embeds
    is_whole: bool = True  # False: there was no time for the rest, or it is a trap


def read_markup(text: str, page_url: str, may_go_on: Callable[[], bool]) -> Markup:
    """`may_go_on` is asked before every piece, and may raise."""
    reader = _Reader(page_url)
    target: Any = reader  # the stubs ask for more methods than lxml does
    parser = etree.HTMLParser(target=target, encoding="utf-8", recover=True, no_network=True)
    octets = text.encode(errors="replace")
    try:
        for start in range(0, len(octets), PIECE_BYTES):
            if not may_go_on():
                return reader.markup(is_whole=False)
            parser.feed(octets[start : start + PIECE_BYTES])
        parser.close()
    except _TooDeep:
        return reader.markup(is_whole=False)
    except etree.LxmlError:  # an empty page, or rubbish: what was found before stands
        pass
    return reader.markup(is_whole=True)


class _TooDeep(Exception):
    """No page of a person is nested like that."""


class _Reader:
    """Collects addresses in the order of the page; a dict, because each counts once."""

    def __init__(self, page_url: str) -> None:
        self._base, self._base_is_given = page_url, False
        self.links: dict[str, None] = {}
        self.resources: dict[str, None] = {}
        self._too_long = 0
        self._depth = 0

    def markup(self, *, is_whole: bool) -> Markup:
        return Markup(tuple(self.links), tuple(self.resources), self._too_long, is_whole)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeep
        match tag:
            case "a" | "area":
                self._link(attributes.get("href"))
            case "base":
                self._rebase(attributes.get("href"))
            case "meta" if attributes.get("http-equiv", "").lower() == "refresh":
                found = _REFRESH.match(attributes.get("content", ""))
                self._link(found[1] if found else None)
            case "link" if _FETCHED_RELATIONS & set(attributes.get("rel", "").lower().split()):
                self._embed(attributes.get("href"))
            case _:
                for name in _EMBEDDED.get(tag, ()):
                    self._embed(attributes.get(name))
                if "srcset" in attributes:
                    self._embed(attributes["srcset"].strip().partition(" ")[0].rstrip(","))

    def end(self, tag: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        """The parser asks for it."""

    def _link(self, address: str | None) -> None:
        if address and len(self.links) < MAX_LINKS and (url := normal_url(address, self._base)):
            self.links[url] = None

    def _embed(self, address: str | None) -> None:
        if address and len(self.resources) < MAX_RESOURCES and (url := _absolute(address, self._base)):
            if len(url) <= MAX_URL_CHARACTERS:
                self.resources[url] = None
            else:
                self._too_long += 1

    def _rebase(self, address: str | None) -> None:
        url = _absolute(address, self._base) if address and not self._base_is_given else None
        if url and len(url) <= MAX_URL_CHARACTERS:
            self._base, self._base_is_given = url, True


def _absolute(address: str, base: str) -> str | None:
    """As it will be requested: parameters that mean nothing for a page may mean everything to a tracker."""
    if len(address) > MAX_URL_CHARACTERS and not _WEB.match(address):
        return None  # most of them are whole images: data:image/png;base64,…
    try:
        url = urldefrag(urljoin(base, re.sub(r"[\t\r\n]", "", address.strip()))).url
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc else None
