"""Sitemap files as bytes -> what they list. Pure; bounded in memory, whatever the bytes are.

gzip is recognised by content, not by name. Entities are refused, and so is what is larger than the protocol
(sitemaps.org) allows: 50 MiB unpacked, 50,000 addresses.
"""

import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.sax import SAXException
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from database.workflow_statuses import SitemapType
from services.jobs import PermanentFailure

MAX_BYTES = 50 * 1024 * 1024
MAX_ENTRIES = 50_000
MAX_TEXT = 8_192  # of one address or date
MAX_PART = 1024 * 1024  # a tag that does not end is read again with every piece: its cost grows with the square
PIECE_BYTES = 64 * 1024
GZIP = b"\x1f\x8b"


class BadSitemap(PermanentFailure):
    """The message says what is wrong with the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    url: str  # as it is written there
    last_modified: datetime | None


@dataclass(frozen=True, slots=True)
class Sitemap:
    kind: SitemapType
    entries: tuple[Entry, ...]  # pages; of an index: further sitemaps
    size_bytes: int  # unpacked


def read_sitemap(body: bytes, *, whole: bool = True, check: Callable[[], object] = lambda: None) -> Sitemap:
    """Raises BadSitemap. `whole`: it was not cut off; `check` is asked meanwhile, it may raise."""
    handler = _Handler()
    parser = DefusedExpatParser()  # forbids entities
    parser.setContentHandler(handler)
    size = 0
    try:
        for piece in _unpacked(body, whole):
            check()
            size += len(piece)
            if size > MAX_BYTES:
                raise BadSitemap(f"it unpacks to more than {MAX_BYTES // 1024**2} MiB")
            handler.silent_bytes += len(piece)
            parser.feed(piece)
            if handler.silent_bytes > MAX_PART:
                raise BadSitemap(f"a tag or a comment in it is longer than {MAX_PART // 1024**2} MiB")
        if whole:
            parser.close()
    except DefusedXmlException:
        raise BadSitemap("it declares entities or refers to another document, as no sitemap needs to") from None
    except (SAXException, ValueError, LookupError) as error:  # the latter two: an encoding that nobody knows
        raise BadSitemap(f"it is not well-formed XML: {_reason(error)}") from None
    return handler.result(size)


def parse_last_modified(text: str) -> datetime | None:
    """W3C's dates, from a bare year to seconds with a zone; without a zone it is UTC. None: it is no date."""
    text = re.sub(r"^(\d{4})(-\d\d)?$", lambda found: f"{found[1]}{found[2] or '-01'}-01", text.strip())
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class _Handler(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self._root = ""
        self._path: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._fields: dict[str, str] = {}
        self._entries: list[Entry] = []
        self._media: Counter[str] = Counter()
        self.silent_bytes = 0  # that were read since something was found

    def startElement(self, name: str, attrs: Any) -> None:
        self.silent_bytes = 0
        local = _local(name)
        if not self._path:
            self._root = local
            if local not in ("urlset", "sitemapindex"):
                raise BadSitemap(f"it is no sitemap: its root element is <{local[:50]}>")
        self._path.append(local)
        if len(self._path) > 100:
            raise BadSitemap("its elements are nested deeper than 100")
        self._text, self._length = [], 0
        if len(self._path) == 2:
            self._fields = {}
        elif len(self._path) == 3 and local in ("image", "video", "news"):
            self._media[local] += 1

    def characters(self, content: str) -> None:
        self.silent_bytes = 0
        if self._length <= MAX_TEXT:
            self._text.append(content)
            self._length += len(content)

    def endElement(self, name: str) -> None:
        self.silent_bytes = 0
        if len(self._path) == 3 and self._path[-1] in ("loc", "lastmod"):
            self._fields.setdefault(self._path[-1], "".join(self._text).strip())
        if len(self._path) == 2 and self._path[-1] in ("url", "sitemap") and self._fields.get("loc"):
            self._add(self._fields["loc"], self._fields.get("lastmod", ""))
        self._path.pop()
        self._text, self._length = [], 0

    def _add(self, url: str, last_modified: str) -> None:
        if len(self._entries) == MAX_ENTRIES:
            raise BadSitemap(f"it lists more than {MAX_ENTRIES:,} addresses")
        self._entries.append(Entry(url, parse_last_modified(last_modified) if last_modified else None))

    def result(self, size_bytes: int) -> Sitemap:
        if not self._root:
            raise BadSitemap("it is empty")
        return Sitemap(self._kind(), tuple(self._entries), size_bytes)

    def _kind(self) -> SitemapType:
        """An image sitemap has nothing but pages with images; one that shows some is an ordinary one."""
        if self._root == "sitemapindex":
            return SitemapType.INDEX
        for kind in (SitemapType.NEWS, SitemapType.VIDEO, SitemapType.IMAGE):
            if self._entries and self._media[kind.value] >= len(self._entries):
                return kind
        return SitemapType.STANDARD


def _unpacked(body: bytes, whole: bool) -> Iterator[bytes]:
    """In pieces, so that a bomb is noticed after its first 50 MiB and never held in memory."""
    source = gzip.GzipFile(fileobj=io.BytesIO(body)) if body.startswith(GZIP) else io.BytesIO(body)
    try:
        while piece := source.read(PIECE_BYTES):
            yield piece
    except EOFError:
        if whole:
            raise BadSitemap("its gzip compression breaks off") from None
    except (OSError, zlib.error):
        raise BadSitemap("its gzip compression is broken") from None


def _local(name: str) -> str:
    return name.rpartition(":")[2].lower()


def _reason(error: Exception) -> str:
    said = str(error).removeprefix("<unknown>:")
    return said if len(said) <= 200 else f"{said[:200]}…"
