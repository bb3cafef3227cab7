"""Sitemaps that are small to send and large to read, each with our error message."""

import gzip

from tests.support.pipeline_stand_ins import xml
from tests.support.scan_site import Answer

LAUGHS = b'<!DOCTYPE urlset [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><urlset><url><loc>&b;</loc></url></urlset>'
BOMBS = ("gzip", "encoding", "entities", "a million")


def bomb(kind: str, url: str) -> tuple[Answer, str]:
    """The content of the sitemap at this address, and the error it causes."""
    match kind:
        case "gzip":
            return xml(gzip.compress(b"<urlset>" + b" " * 60 * 1024**2, 1)), "it unpacks to more than 50 MiB"
        case "encoding":
            packed = Answer(gzip.compress(b" " * 60 * 1024**2, 1), headers={"Content-Encoding": "gzip"})
            return packed, f"GET {url}: the body is larger than 52,428,800 bytes"
        case "entities":
            return xml(LAUGHS), "it declares entities or refers to another document, which no sitemap needs"
        case "a million":
            entry = f"<url><loc>{url}</loc></url>".encode()
            return xml(gzip.compress(b"<urlset>" + entry * 1_000_000, 1)), "it lists more than 50,000 addresses"
    raise ValueError(kind)
