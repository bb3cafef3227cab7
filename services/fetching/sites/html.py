"""HTML of any quality as parser events. The only module that imports lxml's HTML parser.

The parser builds no tree, so a page cannot expand in memory. It is fed in pieces, so that the caller can stop between
two of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lxml import etree

MAX_DEPTH = 2_000  # the parser compares a stray end tag with every open element


class _TooDeep(Exception):
    """Deeper than any real page."""


class HtmlReader:
    """Receives the parser's events. A subclass that overrides `start` or `end` calls the inherited method first."""

    def __init__(self) -> None:
        self._depth = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeep

    def end(self, tag: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        """Required by the parser."""


def feed_html(text: str, reader: HtmlReader, piece_bytes: int, may_go_on: Callable[[], bool]) -> bool:
    """Whether the page was read to its end; False if it is nested too deeply or `may_go_on` returned False.

    `may_go_on` is called before every piece and may raise. After an error in the markup, earlier results stay valid.
    """
    target: Any = reader  # the stubs require more methods than lxml does
    parser = etree.HTMLParser(target=target, encoding="utf-8", recover=True, no_network=True)
    octets = text.encode(errors="replace")
    try:
        for start in range(0, len(octets), piece_bytes):
            if not may_go_on():
                return False
            parser.feed(octets[start : start + piece_bytes])
        parser.close()
    except _TooDeep:
        return False
    except etree.LxmlError:
        pass
    return True
