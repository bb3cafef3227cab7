"""Bodies are read in pieces, decompressed piece by piece, and never further than asked for."""

from collections.abc import Callable
from io import BytesIO

import requests

CHUNK_BYTES = 64 * 1024
# Compressions that were not asked for. A name that stands for no compression at all (some servers write "utf-8")
# is ignored, as browsers do.
NOT_DECODED = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz", "lzma", "bzip2"})


def strange_encoding(response: requests.Response) -> str | None:
    """The name of a compression that is not read here."""
    names = response.headers.get("Content-Encoding", "").lower().split(",")
    return next((name.strip() for name in names if name.strip() in NOT_DECODED), None)


def announced_bytes(response: requests.Response) -> int | None:
    """How long the body will be; None when the server does not say, or says it of the compressed one only."""
    return None if response.headers.get("Content-Encoding") else response.raw.length_remaining


def read_beginning(response: requests.Response, limit: int, check: Callable[[], object]) -> tuple[bytes, bool]:
    """The first `limit` bytes, and whether there would have been more; the rest is never fetched nor inflated.

    `check` is called before every piece and may raise.
    """
    decode = strange_encoding(response) is None
    content = BytesIO()  # hands out what it holds without another copy
    while (room := limit + 1 - content.tell()) > 0:
        check()
        # read1, because the others wait for a full piece, which a server that drips never fills.
        piece = response.raw.read1(min(CHUNK_BYTES, room), decode_content=decode)
        if not piece:
            return content.getvalue(), False
        content.write(piece)
    content.truncate(limit)
    return content.getvalue(), True
