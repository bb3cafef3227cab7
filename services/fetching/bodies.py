"""Bodies are read in pieces, decompressed piece by piece, and never further than asked for."""

from collections.abc import Callable

import requests

CHUNK_BYTES = 64 * 1024
# Compressions that were not asked for. A name that stands for no compression at all (some servers write "utf-8")
# is ignored, as browsers do.
NOT_DECODED = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz", "lzma", "bzip2"})


def strange_encoding(response: requests.Response) -> str | None:
    """The name of a compression that is not read here."""
    names = response.headers.get("Content-Encoding", "").lower().split(",")
    return next((name.strip() for name in names if name.strip() in NOT_DECODED), None)


def read_beginning(response: requests.Response, limit: int, check: Callable[[], object]) -> tuple[bytes, bool]:
    """The first `limit` bytes, and whether there would have been more; the rest is never fetched nor inflated.

    `check` is called before every piece and may raise.
    """
    decode = strange_encoding(response) is None
    content = bytearray()
    while len(content) <= limit:
        check()
        # read1, because the others wait for a full piece, which a server that drips never fills.
        piece = response.raw.read1(min(CHUNK_BYTES, limit + 1 - len(content)), decode_content=decode)
        if not piece:
            return bytes(content), False
        content += piece
    return bytes(content[:limit]), True
