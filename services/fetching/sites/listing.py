"""The contents of a sitemap, assembled from the events of any parser: urlset, index, RSS, Atom. Pure."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from database.workflow_statuses import SitemapType

MAX_ENTRIES = 50_000
MAX_TEXT = 8_192  # of one address or date
MAX_DEPTH = 100

SITEMAPS = frozenset({"urlset", "sitemapindex"})
FEEDS = frozenset({"rss", "rdf", "feed"})
ENTRIES = frozenset({"url", "sitemap", "item", "entry"})
MEDIA = frozenset({"image", "video", "news"})
ADDRESSES = {"loc": SITEMAPS, "link": FEEDS}  # root element -> the element that holds the address
DATES = frozenset({"lastmod", "pubdate", "date", "updated", "modified"})
_MARKUP = re.compile(rb"<(?:[\w.-]{1,50}:)?(?:urlset|sitemapindex)\b", re.IGNORECASE)
_ADDRESS = re.compile(rb"https?://", re.IGNORECASE)
_HTML = re.compile(rb"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Entry:
    url: str  # as it is written there
    last_modified: datetime | None


class BadSitemap(Exception):
    """The message says what is wrong with the file."""

    looks_like_one = False  # it was intended as a sitemap
    entries: tuple[Entry, ...] = ()  # entries read before the error


def is_sitemap_markup(beginning: bytes) -> bool:
    return _MARKUP.search(beginning) is not None and _HTML.match(beginning) is None


def begins_with_an_address(text: bytes) -> bool:
    return _ADDRESS.match(text) is not None


def parse_last_modified(text: str) -> datetime | None:
    """W3C dates, from a bare year to seconds with a zone, and RSS dates; UTC without a zone. None for anything else."""
    text = re.sub(r"^(\d{4})(-\d\d)?$", lambda found: f"{found[1]}{found[2] or '-01'}-01", text.strip())
    try:
        at = datetime.fromisoformat(text) if text[:4].isdigit() else parsedate_to_datetime(text[:100])
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):  # the latter two: an invalid RSS date
        return None


class Listing:
    def __init__(self) -> None:
        self._root = ""
        self._path: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._address = self._date = ""
        self._entries: list[Entry] = []
        self._media: Counter[str] = Counter()
        self.silent_bytes = 0  # read since the last event

    # --- events; names have no namespaces ---

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.silent_bytes = 0
        local = name.lower()
        if not self._root:
            self._root = local
            if local not in SITEMAPS | FEEDS:
                raise BadSitemap(f"it is not a sitemap: its root element is <{local[:50]}>")
        if local in ENTRIES:
            self._add()  # in case the previous entry was not closed
            del self._path[1:]
        elif local in MEDIA and self._parent == "url":
            self._media[local] += 1
        elif local == "link" and self._parent == "entry" and attributes.get("rel", "alternate") == "alternate":
            self._address = self._address or attributes.get("href", "").strip()[:MAX_TEXT]
        self._path.append(local)
        if len(self._path) > MAX_DEPTH:
            raise BadSitemap(f"its elements are nested deeper than {MAX_DEPTH}")
        self._text, self._length = [], 0

    def text(self, content: str) -> None:
        self.silent_bytes = 0
        if self._length <= MAX_TEXT:
            self._text.append(content)
            self._length += len(content)

    def end(self, name: str) -> None:
        self.silent_bytes = 0
        local = name.lower()
        if local not in self._path:  # of an element that was not closed in its place
            return
        while self._path.pop() != local:
            pass
        if self._path and self._path[-1] in ENTRIES:
            self._note(local, "".join(self._text).strip())
        if local in ENTRIES:
            self._add()
        self._text, self._length = [], 0

    def line(self, line: bytes) -> None:
        """One line of a text file."""
        self._root = "text"
        if begins_with_an_address(line):
            self._address = line[:MAX_TEXT].decode(errors="replace")
            self._add()

    # --- the result ---

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    @property
    def is_empty(self) -> bool:
        return not self._root

    @property
    def is_sitemap(self) -> bool:
        return self._root in SITEMAPS

    @property
    def kind(self) -> SitemapType:
        """A pure image sitemap lists nothing but pages with images; a sitemap with some of them is an ordinary one."""
        if self._root == "sitemapindex":
            return SitemapType.INDEX
        for kind in (SitemapType.NEWS, SitemapType.VIDEO, SitemapType.IMAGE):
            if self._entries and self._media[kind.value] >= len(self._entries):
                return kind
        return SitemapType.STANDARD

    # --- inside ---

    @property
    def _parent(self) -> str:
        return self._path[-1] if self._path else ""

    def _note(self, local: str, text: str) -> None:
        """The first value counts."""
        if self._root in ADDRESSES.get(local, ()):
            self._address = self._address or text
        elif local in DATES:
            self._date = self._date or text

    def _add(self) -> None:
        address, date = self._address, self._date
        self._address = self._date = ""
        if not address:
            return
        if len(self._entries) == MAX_ENTRIES:
            raise BadSitemap(f"it lists more than {MAX_ENTRIES:,} addresses")
        self._entries.append(Entry(address, parse_last_modified(date) if date else None))
