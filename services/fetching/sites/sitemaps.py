"""The sitemap reader: bytes -> listed pages and sitemaps. Pure; memory is bounded for any input.

It reads XML (urlset, index), RSS, Atom and plain text, as sitemaps.org defines them. Gzip is detected by content, not
by name. Malformed XML is read as far as libxml2's recovery gets, and the result says so. It refuses entities, and files
beyond the protocol's limits: 50 MiB unpacked, 50,000 addresses.
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
from services.fetching.sites.broken_xml import DECLARES, mended_pieces
from services.fetching.sites.listing import BadSitemap, Entry, Listing, begins_with_an_address, is_sitemap_markup

MAX_BYTES = 50 * 1024 * 1024
MAX_PART = 1024 * 1024  # an unclosed tag is parsed again with every piece: quadratic cost
PIECE_BYTES = 64 * 1024
GZIP = b"\x1f\x8b"
BLANKS = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True, slots=True)
class Sitemap:
    kind: SitemapType
    entries: tuple[Entry, ...]  # pages, or for an index further sitemaps
    size_bytes: int  # unpacked
    problem: str | None = None  # the error in the file; `entries` has the readable ones


class _Damaged(Exception):
    """Recovery may still find entries."""


def read_sitemap(body: bytes, *, whole: bool = True, check: Callable[[], object] = lambda: None) -> Sitemap:
    """Raises BadSitemap. `whole`: the file was not truncated. `check` is called meanwhile and may raise."""
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
        """One address per line; the last line may be truncated."""
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
        except (SAXException, ValueError, LookupError) as error:  # the latter two: an unknown encoding
            raise _Damaged(f"it is not well-formed XML: {_reason(error)}") from None

    def _recover(self) -> None:
        """Recovery: libxml2 reads the text between the errors. It sees no entity declaration: see broken_xml.py."""
        target: Any = _Target(self.listing)  # the stubs require more methods than lxml does
        parser = etree.XMLParser(
            target=target, encoding="utf-8", recover=True, resolve_entities=False, no_network=True, load_dtd=False
        )
        try:
            for text in mended_pieces(self._pieces(whole=False), MAX_PART):
                parser.feed(text.encode())
            parser.close()
        except etree.LxmlError:  # lxml gave up: earlier entries stay valid
            pass

    def _pieces(self, whole: bool) -> Iterator[bytes]:
        """Decompressed, without leading blanks. A decompression bomb is detected after its first 50 MiB."""
        self._size = 0
        begun = False
        for piece in _decompress(self._body, whole):
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
    """The parser target for lxml."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def start(self, tag: str, attributes: Any) -> None:
        self._listing.start(tag.rpartition("}")[2], attributes)

    def data(self, text: str) -> None:
        self._listing.text(text)

    def end(self, tag: str) -> None:
        self._listing.end(tag.rpartition("}")[2])

    def close(self) -> None:
        """Required by the parser."""


def _decompress(body: bytes, whole: bool) -> Iterator[bytes]:
    """Decompressed in pieces, so that a bomb is never held in memory."""
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
