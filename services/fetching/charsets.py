"""Character encodings of responses: decoded as a browser would, without errors."""

import codecs
import re

LOOKED_AT_BYTES = 4096

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# Possessive (`*+`): prevents backtracking over thousands of blanks, which would block the process.
_IN_HEADER = re.compile(r"""charset\s*+=\s*+["']?+\s*+([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML = re.compile(rb"""\s*+<\?xml[^>]{0,200}?encoding\s*+=\s*+["']?+([\w.:-]{1,40})""", re.IGNORECASE)
_IN_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*+=\s*+["']?+\s*+([\w.:-]{1,40})""", re.IGNORECASE)
# Python's names of the encodings that browsers support. Others are not text, or slow on crafted input (punycode).
_KNOWN = re.compile(
    r"ascii|utf-8|utf-16(-[lb]e)?|iso8859-\d+|cp125\d|cp866|cp874|cp932|cp949|koi8-[ru]|mac-(roman|cyrillic)|"
    r"gb2312|gbk|gb18030|big5|big5hkscs|euc_jp|euc_kr|iso2022_jp|shift_jis|tis-620"
)
# Browsers treat these names as a superset.
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
    """By BOM, Content-Type, or the document's declaration; otherwise UTF-8 if it is valid, otherwise windows-1252."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, errors="replace")
    declared = _declared_in_header(content_type) or _declared_in_document(body[:LOOKED_AT_BYTES])
    if declared is not None:
        return body.decode(declared, errors="replace")
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body)  # not final: the last character may be incomplete
    except UnicodeDecodeError:
        return body.decode("cp1252", errors="replace")


def _declared_in_header(content_type: str) -> str | None:
    found = _IN_HEADER.search(content_type)
    return None if found is None else _codec(found[1])


def _declared_in_document(beginning: bytes) -> str | None:
    found = _IN_XML.match(beginning) or _IN_META.search(beginning)
    codec = None if found is None else _codec(found[1].decode("ascii"))
    # A declaration that was readable as ASCII cannot be in UTF-16.
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def _codec(name: str) -> str | None:
    """None for an unknown encoding."""
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return None
    return _MEANT.get(codec, codec) if _KNOWN.fullmatch(codec) else None
