"""Sitemaps: addresses that a site offers by itself. They are hints: one that is broken only means fewer addresses."""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lxml import etree

from services.fetching import Fetched, Fetcher, FetchFailed, Limits
from services.scanning.urls import Site, normal_url

MAX_FILES = 10
MAX_ADDRESSES = 50_000  # of one file; the format allows no more
LIMITS = Limits(max_bytes=5 * 1024 * 1024, max_seconds=20.0)
_GZIP = b"\x1f\x8b"


def pages_in_sitemaps(
    sitemaps: Iterable[str], site: Site, fetcher: Fetcher, wanted: int, remaining_seconds: Callable[[], float]
) -> list[str]:
    """Up to `wanted` pages of the site; an index leads to further files, of which there is a limit as well."""
    waiting = deque(dict.fromkeys(sitemaps))
    known, found = set(waiting), dict[str, None]()
    fetches = 0
    while waiting and len(found) < wanted and fetches < MAX_FILES:
        fetches += 1
        try:
            fetched = fetcher.get(waiting.popleft(), limits=LIMITS, remaining_seconds=remaining_seconds)
        except FetchFailed:
            continue
        pages, files = read_sitemap(fetched) if fetched.status_code == 200 else ([], [])
        own = (url for page in pages if (url := normal_url(page)) and site.has(url))
        found.update(dict.fromkeys(own))
        further = [url for file in files if (url := normal_url(file)) and site.has(url) and url not in known]
        known.update(further)
        waiting.extend(further)
    return list(found)[:wanted]


def read_sitemap(fetched: Fetched) -> tuple[list[str], list[str]]:
    """The pages and the further sitemaps that a file names: XML, zipped XML, or a list of lines."""
    body = _unzipped(fetched.body) if fetched.body.startswith(_GZIP) else fetched.body
    if not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return body.decode("utf-8-sig", errors="replace").split()[:MAX_ADDRESSES], []
    reader = _Reader()
    target: Any = reader  # the stubs ask for more methods than lxml does
    # No entity is resolved and nothing is fetched: neither a bomb nor a file of ours ends up in an address.
    parser = etree.XMLParser(target=target, resolve_entities=False, no_network=True, load_dtd=False, recover=True)
    try:
        parser.feed(body)
        parser.close()
    except etree.LxmlError:  # it broke off, or was cut: what was found before stands
        pass
    return reader.pages[:MAX_ADDRESSES], reader.files[:MAX_ADDRESSES]


class _Reader:
    def __init__(self) -> None:
        self.pages: list[str] = []
        self.files: list[str] = []
        self._parent = ""
        self._text: list[str] | None = None

    def start(self, tag: str, _attributes: Mapping[str, str]) -> None:
        name = _local(tag)
        if name in ("url", "sitemap"):
            self._parent = name
        self._text = [] if name == "loc" else None

    def data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def end(self, tag: str) -> None:
        if self._text is not None and _local(tag) == "loc":
            (self.files if self._parent == "sitemap" else self.pages).append("".join(self._text).strip())
        self._text = None

    def close(self) -> None:
        """The parser asks for it."""


def _local(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _unzipped(body: bytes) -> bytes:
    """The beginning of it, which is all of it unless it is a bomb."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, LIMITS.max_bytes)
    except zlib.error:
        return b""
