"""The sitemap reader: files as bytes -> what they list. Pure; bounded in memory, whatever the bytes are.

XML (urlset, index), RSS, Atom and plain text, as sitemaps.org has them; gzip is recognised by content, not by name.
What is not well-formed is read as far as libxml2's recovery gets, and says so. Entities are refused, and so is what is
larger than the protocol allows: 50 MiB unpacked, 50,000 addresses.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any
from xml.sax import SAXException
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser
from lxml import etree

from database.workflow_statuses import SitemapType
from services.sites.broken_xml import DECLARES, mended_pieces
from services.sites.listing import BadSitemap, Entry, Listing, begins_with_an_address, is_sitemap_markup

MAX_BYTES = 50 * 1024 * 1024
MAX_PART = 1024 * 1024  # a tag that does not end is read again with every piece: its cost grows with the square
PIECE_BYTES = 64 * 1024
GZIP = b"\x1f\x8b"
BLANKS = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True, slots=True)
class Sitemap:
    kind: SitemapType
    entries: tuple[Entry, ...]  # pages; of an index: further sitemaps
    size_bytes: int  # unpacked
    problem: str | None = None  # what is wrong with the file; the entries are those that could be read


class _Damaged(Exception):
    """There may be something left to read."""


def read_sitemap(body: bytes, *, whole: bool = True, check: Callable[[], object] = lambda: None) -> Sitemap:
    """Raises BadSitemap. `whole`: it was not cut off; `check` is asked meanwhile, it may raise."""
    reading = _Reading(body, whole, check)
    try:
        return reading.read()
    except BadSitemap as error:
        error.looks_like_one = reading.listing.is_sitemap or is_sitemap_markup(reading.beginning)
        error.entries = reading.listing.entries
        raise


class _Reading:
    def __init__(self, body: bytes, whole: bool, check: Callable[[], object]) -> None:
        self._body, self._whole, self._check = body, whole, check
        self._size = 0
        self.listing = Listing()
        self.beginning = b""

    def read(self) -> Sitemap:
        try:
            self._read_strictly()
            return self._result()
        except _Damaged as damage:
            problem = str(damage)
        self.listing = Listing()
        self._recover()
        if not self.listing.entries:
            raise BadSitemap(problem)
        return self._result(problem)

    def _read_strictly(self) -> None:
        pieces = self._pieces(self._whole)
        first = next(pieces, b"")
        if not first:
            raise BadSitemap("it is empty")
        if begins_with_an_address(first):
            self._read_lines(chain([first], pieces))
        else:
            self._parse(chain([first], pieces))

    def _read_lines(self, pieces: Iterable[bytes]) -> None:
        """One address a line; the last one may have been cut off."""
        rest = b""
        for piece in pieces:
            lines = (rest + piece).split()
            rest = b"" if not lines or piece[-1:].isspace() else lines.pop()
            if len(rest) > MAX_PART:
                raise BadSitemap(f"a line in it is longer than {MAX_PART // 1024**2} MiB")
            for line in lines:
                self.listing.line(line)
        if self._whole:
            self.listing.line(rest)

    def _parse(self, pieces: Iterable[bytes]) -> None:
        parser = DefusedExpatParser()  # forbids entities
        handler = _Handler(self.listing)
        parser.setContentHandler(handler)
        try:
            for piece in pieces:
                self.listing.silent_bytes += len(piece)
                parser.feed(piece)
                if self.listing.silent_bytes > MAX_PART:
                    raise BadSitemap(f"a tag or a comment in it is longer than {MAX_PART // 1024**2} MiB")
            if self._whole:
                parser.close()
        except DefusedXmlException:
            raise BadSitemap(DECLARES) from None
        except (SAXException, ValueError, LookupError) as error:  # the latter two: an encoding that nobody knows
            raise _Damaged(f"it is not well-formed XML: {_reason(error)}") from None

    def _recover(self) -> None:
        """libxml2 reads what is between the faults. It never sees a declaration of an entity: see broken_xml.py."""
        target: Any = _Target(self.listing)  # the stubs ask for more methods than lxml does
        parser = etree.XMLParser(
            target=target, encoding="utf-8", recover=True, resolve_entities=False, no_network=True, load_dtd=False
        )
        try:
            for text in mended_pieces(self._pieces(whole=False), MAX_PART):
                parser.feed(text.encode())
            parser.close()
        except etree.LxmlError:  # it gave up: what was found before stands
            pass

    def _pieces(self, whole: bool) -> Iterator[bytes]:
        """Unpacked, without the blanks before the first character, so that a bomb is noticed after its first 50 MiB."""
        self._size = 0
        begun = False
        for piece in _unpacked(self._body, whole):
            self._check()
            self._size += len(piece)
            if self._size > MAX_BYTES:
                raise BadSitemap(f"it unpacks to more than {MAX_BYTES // 1024**2} MiB")
            content = piece if begun else piece.lstrip(BLANKS)
            if content:
                self.beginning = self.beginning if begun else content
                begun = True
                yield content

    def _result(self, problem: str | None = None) -> Sitemap:
        if self.listing.is_empty:
            raise BadSitemap("it is empty")
        if not self.listing.is_sitemap and not self.listing.entries:
            raise BadSitemap("it lists no address")
        return Sitemap(self.listing.kind, self.listing.entries, self._size, problem)


class _Handler(ContentHandler):
    def __init__(self, listing: Listing) -> None:
        super().__init__()
        self._listing = listing

    def startElement(self, name: str, attrs: Any) -> None:
        self._listing.start(name.rpartition(":")[2], attrs)

    def characters(self, content: str) -> None:
        self._listing.text(content)

    def endElement(self, name: str) -> None:
        self._listing.end(name.rpartition(":")[2])


class _Target:
    """The same for lxml."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def start(self, tag: str, attributes: Any) -> None:
        self._listing.start(tag.rpartition("}")[2], attributes)

    def data(self, text: str) -> None:
        self._listing.text(text)

    def end(self, tag: str) -> None:
        self._listing.end(tag.rpartition("}")[2])

    def close(self) -> None:
        """The parser asks for it."""


def _unpacked(body: bytes, whole: bool) -> Iterator[bytes]:
    """In pieces, so that a bomb is never held in memory."""
    source = gzip.GzipFile(fileobj=io.BytesIO(body)) if body.startswith(GZIP) else io.BytesIO(body)
    try:
        while piece := source.read(PIECE_BYTES):
            yield piece
    except EOFError:
        if whole:
            raise _Damaged("its gzip compression breaks off") from None
    except (OSError, zlib.error):
        if whole:
            raise _Damaged("its gzip compression is broken") from None


def _reason(error: Exception) -> str:
    said = str(error).removeprefix("<unknown>:")
    return said if len(said) <= 200 else f"{said[:200]}…"
