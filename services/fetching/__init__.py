"""Outgoing requests of jobs, scans and sync: public addresses only, and bounded responses.

Start reading at fetcher.py. connecting.py checks the address that the socket connects to, answers.py enforces the
deadline of a response, bodies.py its size.
"""

from services.fetching.addresses import Guard, is_public
from services.fetching.bodies import read_beginning
from services.fetching.charsets import decode_text
from services.fetching.deadline import Deadline
from services.fetching.failures import FETCH_ERRORS, FetchFailed, failure_of, may_work_later
from services.fetching.fetcher import Fetched, Fetcher, Limits, connect_from, fetcher_from, session_from
from services.fetching.hops import Hop
from services.fetching.retry_after import parse_retry_after
from services.fetching.session import (
    MAX_REDIRECTS,
    MAX_URL_CHARACTERS,
    USER_AGENT,
    GuardedSession,
    Private,
    UnsafeRedirect,
    guarded_session,
)
from services.fetching.urls import requoted, shown_url, without_userinfo

__all__ = [
    "FETCH_ERRORS",
    "MAX_REDIRECTS",
    "MAX_URL_CHARACTERS",
    "USER_AGENT",
    "Deadline",
    "FetchFailed",
    "Fetched",
    "Fetcher",
    "Guard",
    "GuardedSession",
    "Hop",
    "Limits",
    "Private",
    "UnsafeRedirect",
    "connect_from",
    "decode_text",
    "failure_of",
    "fetcher_from",
    "guarded_session",
    "is_public",
    "may_work_later",
    "parse_retry_after",
    "read_beginning",
    "requoted",
    "session_from",
    "shown_url",
    "without_userinfo",
]
