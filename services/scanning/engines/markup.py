"""Links and embedded addresses of a page, from HTML of any quality."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urldefrag, urljoin, urlsplit

from services.fetching import MAX_URL_CHARACTERS
from services.fetching.sites.html import HtmlReader, feed_html
from services.fetching.sites.urls import normal_url

MAX_LINKS, MAX_RESOURCES = 5_000, 1_000
PIECE_BYTES = 4 * 1024  # a thousand stray end tags in a deeply nested page take a second

# Attributes whose address a browser fetches automatically.
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
# Possessive (`*+`): prevents backtracking over long runs of blanks.
_REFRESH = re.compile(r"\s*+[\d.]*+\s*+[;,]?+\s*+url\s*+=\s*+['\"]?+([^'\"]+)", re.IGNORECASE)
_WEB = re.compile(r"\s*+(https?:|/)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Markup:
    links: tuple[str, ...] = ()  # normalised
    resources: tuple[str, ...] = ()
    too_long: int = 0  # of the addresses that it embeds
    is_whole: bool = True  # False: the time was over, or the page is a trap


def read_markup(text: str, page_url: str, may_go_on: Callable[[], bool]) -> Markup:
    """`may_go_on` is called before every piece and may raise."""
    reader = _Reader(page_url)
    is_whole = feed_html(text, reader, PIECE_BYTES, may_go_on)
    return Markup(tuple(reader.links), tuple(reader.resources), reader.too_long, is_whole)


class _Reader(HtmlReader):
    """Collects addresses in page order; a dict, because each counts once."""

    def __init__(self, page_url: str) -> None:
        super().__init__()
        self._base, self._base_is_given = page_url, False
        self.links: dict[str, None] = {}
        self.resources: dict[str, None] = {}
        self.too_long = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        super().start(tag, attributes)
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

    def _link(self, address: str | None) -> None:
        if address and len(self.links) < MAX_LINKS and (url := normal_url(address, self._base)):
            self.links[url] = None

    def _embed(self, address: str | None) -> None:
        if address and len(self.resources) < MAX_RESOURCES and (url := _absolute(address, self._base)):
            if len(url) <= MAX_URL_CHARACTERS:
                self.resources[url] = None
            else:
                self.too_long += 1

    def _rebase(self, address: str | None) -> None:
        url = _absolute(address, self._base) if address and not self._base_is_given else None
        if url and len(url) <= MAX_URL_CHARACTERS:
            self._base, self._base_is_given = url, True


def _absolute(address: str, base: str) -> str | None:
    """The URL as it will be requested: parameters that do not matter to a page may matter to a tracker."""
    if len(address) > MAX_URL_CHARACTERS and not _WEB.match(address):
        return None  # mostly whole images: data:image/png;base64,…
    try:
        url = urldefrag(urljoin(base, re.sub(r"[\t\r\n]", "", address.strip()))).url
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc else None
