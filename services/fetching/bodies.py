"""Bodies: read and decompressed piece by piece, never beyond the limit."""

from collections.abc import Callable
from io import BytesIO

import requests

CHUNK_BYTES = 64 * 1024
# Compressions that we did not offer. A name that is not a compression (some servers send "utf-8") is ignored, as in
# browsers.
NOT_DECODED = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz", "lzma", "bzip2"})


def strange_encoding(response: requests.Response) -> str | None:
    """The name of a compression that is not supported; None for a readable body."""
    names = response.headers.get("Content-Encoding", "").lower().split(",")
    return next((name.strip() for name in names if name.strip() in NOT_DECODED), None)


def announced_bytes(response: requests.Response) -> int | None:
    """Content-Length; None when it is absent or describes a compressed body."""
    return None if response.headers.get("Content-Encoding") else response.raw.length_remaining


def read_beginning(response: requests.Response, limit: int, check: Callable[[], object]) -> tuple[bytes, bool]:
    """The first `limit` bytes, and whether there is more. The rest is neither fetched nor decompressed.

    `check` is called before every piece and may raise.
    """
    decode = strange_encoding(response) is None
    content = BytesIO()  # returns its buffer without another copy
    while (room := limit + 1 - content.tell()) > 0:
        check()
        # read1: other methods wait for a full piece, which a dripping server never completes.
        piece = response.raw.read1(min(CHUNK_BYTES, room), decode_content=decode)
        if not piece:
            return content.getvalue(), False
        content.write(piece)
    content.truncate(limit)
    return content.getvalue(), True
