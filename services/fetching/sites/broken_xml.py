"""Repair of XML that is not well-formed, so that libxml2's recovery reads it without losing or inventing text. Pure.

Text arrives in pieces that end before a tag, so that no tag is cut in two. No piece declares an entity. That makes
recovery safe, since libxml2 expands internal entities for a parser target whatever its options say.
"""

import codecs
import re
from collections.abc import Iterable, Iterator

from services.fetching.sites.listing import BadSitemap

DECLARES = "it declares entities or refers to another document, which no sitemap needs"
_BEGINNING = re.compile(r"<(?:[\w.-]{1,50}:)?(?:urlset|sitemapindex|rss|rdf|feed)\b", re.IGNORECASE)
_DECLARATION = re.compile(rb"<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([\w.-]{1,30})[\"']")
_ENCODINGS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|ascii|iso8859-\d\d?|cp125\d|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|euc_(jp|kr)"
)  # text encodings only: other codecs decompress or transform
_REFUSED = re.compile(r"<!(?:ENTITY|DOCTYPE(?!\s+[\w.:-]+\s*>))", re.IGNORECASE)
_NO_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MARKS = re.compile(r"<!\[CDATA\[|\]\]>|&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)")


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    """A byte that is invalid in the file's encoding is read as Latin-1."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("sites.as_latin_1", _as_latin_1)


def mended_pieces(pieces: Iterable[bytes], max_part: int) -> Iterator[str]:
    """Starts with the root element and escapes a bare `&`. Text after the last `>` is incomplete and dropped."""
    marks = _Marks()
    rest, begun = "", False
    for text in _decode(pieces):
        rest += _NO_CHARACTERS.sub("", text)
        if _REFUSED.search(rest):
            raise BadSitemap(DECLARES)
        if not begun:
            found = _BEGINNING.search(rest)
            if found is None:
                return
            rest, begun = rest[found.start() :], True
        part, _, last = rest.rpartition("<")
        rest = f"<{last}"
        if len(rest) > max_part:
            return
        yield marks.mended(part)
    if begun and ">" in rest:
        yield marks.mended(rest[: rest.rindex(">") + 1])


class _Marks:
    """Ampersands are plain text in CDATA and must be escaped elsewhere."""

    def __init__(self) -> None:
        self._in_cdata = False

    def mended(self, text: str) -> str:
        return _MARKS.sub(self._mark, text)

    def _mark(self, found: re.Match[str]) -> str:
        if found[0] == "&":
            return "&" if self._in_cdata else "&amp;"
        self._in_cdata = found[0] != "]]>"
        return found[0]


def _decode(pieces: Iterable[bytes]) -> Iterator[str]:
    decoder: codecs.IncrementalDecoder | None = None
    for piece in pieces:
        decoder = decoder or codecs.getincrementaldecoder(_encoding_of(piece))("sites.as_latin_1")
        yield decoder.decode(piece)


def _encoding_of(beginning: bytes) -> str:
    """The declared encoding, if it is a text encoding; otherwise UTF-8."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    declared = _DECLARATION.search(beginning[:1024])
    try:
        name = codecs.lookup(declared[1].decode()).name if declared else "utf-8"
    except LookupError:
        return "utf-8"
    return name if _ENCODINGS.fullmatch(name) else "utf-8"
