"""Failures of a request: the cause in plain words, and whether a retry may help.

The messages of requests and urllib3 repeat the URL and the headers, including secrets. These name only the cause.
"""

import errno
import ssl
from collections.abc import Callable, Iterable, Iterator
from http.client import BadStatusLine, HTTPException, IncompleteRead, RemoteDisconnected, UnknownProtocol
from socket import EAI_AGAIN, gaierror
from typing import Self

import requests
from requests.exceptions import InvalidHeader, InvalidSchema, InvalidURL, MissingSchema, TooManyRedirects
from urllib3.exceptions import DecodeError, NameResolutionError, ReadTimeoutError
from urllib3.exceptions import HTTPError as Urllib3Error

from services.errors import BlockedAddress, SchedulerError
from services.fetching.hops import Hop
from services.fetching.session import BadRedirect, UnsafeRedirect, UrlTooLong

# Exceptions from sending a request or reading its response.
FETCH_ERRORS = (BlockedAddress, requests.RequestException, Urllib3Error, OSError, ValueError)
RETRYABLE_STATUS = frozenset({408, 425, 429})
NO_WAY_OUT = frozenset({EAI_AGAIN, errno.ENETUNREACH, errno.ENETDOWN})  # the first: no name server answers


class FetchFailed(SchedulerError):
    """No usable response. An error status is a response, not a failure.

    `of_network`: this machine has no route to the outside, which says nothing about the host.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = True,
        retry_after_seconds: float | None = None,
        of_network: bool = False,
    ) -> None:
        super().__init__(message)
        self.retryable, self.retry_after_seconds, self.of_network = retryable, retry_after_seconds, of_network
        self.hops: tuple[Hop, ...] = ()

    def after(self, hops: Iterable[Hop]) -> Self:
        """With the responses received before the failure: they may have set cookies."""
        self.hops = tuple(hops)
        return self


def may_work_later(status_code: int) -> bool:
    return status_code in RETRYABLE_STATUS or status_code >= 500


def failure_of(error: Exception, request: str) -> FetchFailed:
    """`request` is the request's name in the message."""
    if isinstance(error, BlockedAddress):
        return FetchFailed(str(error), retryable=False)
    causes = list(_causes(error))[::-1]  # the innermost cause is the most specific
    for kinds, say, retryable in _TELLING:
        for cause in causes:
            if isinstance(cause, kinds):
                of_network = any(isinstance(each, OSError) and each.errno in NO_WAY_OUT for each in causes)
                return FetchFailed(f"{request}: {say(cause)}", retryable=retryable, of_network=of_network)
    return FetchFailed(f"{request}: {type(error).__name__}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and the errors it wraps: requests and urllib3 wrap by cause, by argument and by `reason`."""
    queue = [error]
    for found in queue:
        yield found
        inner = (getattr(found, "reason", None), *found.args, found.__cause__)
        queue.extend(each for each in inner if isinstance(each, BaseException) and each not in queue)


def _os_error(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or type(error).__name__).lower()


def _tls_error(error: BaseException) -> str:
    reason = str(getattr(error, "reason", None) or "no reason given")
    return f"no TLS connection: {reason.lower().replace('_', ' ')}"


def _certificate_error(error: BaseException) -> str:
    return f"the certificate is not trusted: {getattr(error, 'verify_message', '') or error}"


def _saying(text: str) -> Callable[[BaseException], str]:
    return lambda _: text


# The first line that matches any of the causes decides.
_TELLING: tuple[tuple[tuple[type[BaseException], ...], Callable[[BaseException], str], bool], ...] = (
    ((ssl.SSLCertVerificationError,), _certificate_error, False),
    ((TooManyRedirects, UnsafeRedirect, BadRedirect, UrlTooLong), str, False),
    ((InvalidSchema,), _saying("only http and https are supported"), False),
    ((InvalidHeader,), _saying("a header cannot be sent, or the response's headers contradict each other"), False),
    ((InvalidURL, MissingSchema), _saying("this is not a URL that can be called"), False),
    ((gaierror, NameResolutionError), _saying("the host name cannot be resolved"), True),
    ((TimeoutError, requests.Timeout, ReadTimeoutError), _saying("no response in time"), True),
    ((ConnectionRefusedError,), _saying("the connection was refused"), True),
    ((RemoteDisconnected, ConnectionError), _saying("the server closed the connection"), True),
    ((IncompleteRead,), _saying("the response was cut off"), True),
    ((DecodeError,), _saying("the body cannot be decompressed"), True),
    ((ssl.SSLError,), _tls_error, True),
    ((BadStatusLine, UnknownProtocol), _saying("the response is not HTTP"), True),
    ((HTTPException,), lambda error: f"the response is not valid HTTP: {error}", True),
    ((OSError,), _os_error, True),
    ((ValueError,), _saying("the URL or a header cannot be sent"), False),
)
