"""Failures of the browser: the cause in plain words, and whether a retry may help."""

import re

from playwright.async_api import Error
from playwright.async_api import TimeoutError as TookTooLong

from services.scanning.findings import PageFailed

NOT_A_PAGE = "it redirects to something that is not a page"
CRASHED = "it crashed its tab in the browser"
# The server responded, with a status and nothing that the browser displays.
ANSWERS = frozenset({"ERR_HTTP_RESPONSE_CODE_FAILURE", "ERR_INVALID_AUTH_CREDENTIALS"})
# Permanent: no further attempt can succeed.
PERMANENT = {
    "ERR_ABORTED": "this is a download, not a page",
    "ERR_TOO_MANY_REDIRECTS": "too many redirects",
    "ERR_INVALID_URL": "this is not a URL that can be visited",
    "ERR_INVALID_REDIRECT": NOT_A_PAGE,
    "ERR_UNSAFE_REDIRECT": NOT_A_PAGE,
    "ERR_UNKNOWN_URL_SCHEME": NOT_A_PAGE,
    "ERR_UNSAFE_PORT": "browsers refuse this port",
    "ERR_RESPONSE_HEADERS_TOO_BIG": "the response's headers are larger than a browser accepts",
}
STRANGE = {
    "ERR_INVALID_HTTP_RESPONSE": "the response is not HTTP",
    "ERR_CONTENT_DECODING_FAILED": "the body cannot be decompressed",
    "ERR_INCOMPLETE_CHUNKED_ENCODING": "the response was cut off",
    "ERR_CONTENT_LENGTH_MISMATCH": "the response was cut off",
}
PASSING = {
    "ERR_EMPTY_RESPONSE": "the server closed the connection without a response",
    "ERR_CONNECTION_RESET": "the server closed the connection",
    "ERR_CONNECTION_CLOSED": "the server closed the connection",
    "ERR_TUNNEL_CONNECTION_FAILED": "no connection could be made",
}


def page_failure(error: Error, seconds: float) -> PageFailed:
    if isinstance(error, TookTooLong):
        return PageFailed(f"no response within {seconds:g} s")
    if "crashed" in error.message:
        return PageFailed(CRASHED, retryable=False)
    code = _code(error)
    if code.startswith("ERR_CERT_"):
        return PageFailed(f"the certificate is not trusted ({code})", retryable=False)
    if code in PERMANENT:
        return PageFailed(PERMANENT[code], retryable=False)
    return PageFailed(PASSING.get(code) or STRANGE.get(code) or code or first_line(error))


def is_an_answer(error: Error) -> bool:
    return _code(error) in ANSWERS


def is_no_connection(error: Error) -> bool:
    """The proxy knows the cause better than the browser."""
    return _code(error) in PASSING


def first_line(error: Error) -> str:
    return next(iter(error.message.splitlines()), "no reason given")


def _code(error: Error) -> str:
    if "Download is starting" in error.message:
        return "ERR_ABORTED"
    found = re.search(r"net::(ERR_\w+)", error.message)
    return found[1] if found else ""
