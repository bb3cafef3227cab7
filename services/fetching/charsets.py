"""Which characters the bytes of an answer mean: what a browser would say, and never an error."""

import codecs
import re

LOOKED_AT_BYTES = 4096

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# Possessive (`*+`): ten thousand blanks must not be tried in every partition, while nothing else of this process runs.
_IN_HEADER = re.compile(r"""charset\s*+=\s*+["']?+\s*+([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML = re.compile(rb"""\s*+<\?xml[^>]{0,200}?encoding\s*+=\s*+["']?+([\w.:-]{1,40})""", re.IGNORECASE)
_IN_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*+=\s*+["']?+\s*+([\w.:-]{1,40})""", re.IGNORECASE)
# Python's names of the encodings that browsers know. Others are no text, or slow on input made for that (punycode).
_KNOWN = re.compile(
    r"ascii|utf-8|utf-16(-[lb]e)?|iso8859-\d+|cp125\d|cp866|cp874|cp932|cp949|koi8-[ru]|mac-(roman|cyrillic)|"
    r"gb2312|gbk|gb18030|big5|big5hkscs|euc_jp|euc_kr|iso2022_jp|shift_jis|tis-620"
)
# On the web these names stand for a superset of what they say.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-16-le",
}


def decode_text(body: bytes, content_type: str = "") -> str:
    """By BOM, Content-Type, or declaration in the document; else UTF-8 if it can be; else windows-1252."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, errors="replace")
    declared = _declared_in_header(content_type) or _declared_in_document(body[:LOOKED_AT_BYTES])
    if declared is not None:
        return body.decode(declared, errors="replace")
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body)  # not final: the last character may be cut
    except UnicodeDecodeError:
        return body.decode("cp1252", errors="replace")


def _declared_in_header(content_type: str) -> str | None:
    found = _IN_HEADER.search(content_type)
    return None if found is None else _codec(found[1])


def _declared_in_document(beginning: bytes) -> str | None:
    found = _IN_XML.match(beginning) or _IN_META.search(beginning)
    codec = None if found is None else _codec(found[1].decode("ascii"))
    # What was found by reading the document as ASCII is not UTF-16.
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def _codec(name: str) -> str | None:
    """None: made up."""
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return None
    return _MEANT.get(codec, codec) if _KNOWN.fullmatch(codec) else None
