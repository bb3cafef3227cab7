"""HTML of any quality as events. The door to lxml's HTML parser.

The parser builds no tree, so a page cannot make one that is larger than itself. It is fed in pieces, so that the caller
can stop between two of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lxml import etree

MAX_DEPTH = 2_000  # the parser compares an end tag without a beginning with every open element


class _TooDeep(Exception):
    """No page of a person is nested like that."""


class HtmlReader:
    """Receives the parser's events. A subclass that overrides `start` or `end` calls this one first."""

    def __init__(self) -> None:
        self._depth = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeep

    def end(self, tag: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        """The parser asks for it."""


def feed_html(text: str, reader: HtmlReader, piece_bytes: int, may_go_on: Callable[[], bool]) -> bool:
    """Whether the page was read to its end; False for one that is nested too deeply, or when `may_go_on` says no.

    `may_go_on` is asked before every piece, and may raise. Of an empty page or rubbish, what was found before stands.
    """
    target: Any = reader  # the stubs ask for more methods than lxml does
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
