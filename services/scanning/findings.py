"""The findings of a scan as values: sightings of cookies and pages by an engine, and the stored scan.

A cookie's value is never kept: it may identify a person, and nothing here needs it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID


class EngineName(StrEnum):
    HTTP = "http"
    BROWSER = "browser"


class Storage(StrEnum):
    """Where the browser keeps it. Only cookies have attributes; the others have a name and an origin."""

    COOKIE = "cookie"
    LOCAL = "local_storage"
    SESSION = "session_storage"


class Party(StrEnum):
    FIRST = "first"
    THIRD = "third"


class Consent(StrEnum):
    """Whether it was set before the visitor consented."""

    BEFORE = "before"
    AFTER = "after"


class Category(StrEnum):
    NECESSARY = "necessary"
    PREFERENCES = "preferences"
    ANALYTICS = "analytics"
    MARKETING = "marketing"
    UNKNOWN = "unknown"


class ChangeKind(StrEnum):
    NEW = "new"
    GONE = "gone"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCookie:
    """One sighting, as an engine reports it."""

    name: str
    domain: str  # lower case, without the leading dot
    path: str
    storage: Storage = Storage.COOKIE
    host_only: bool = True
    expires_at: datetime | None = None  # None: until the browser is closed (or, in local storage, without limit)
    secure: bool = False
    http_only: bool = False
    same_site: str | None = None  # Strict, Lax, None as text; None: not set by the site
    consent: Consent = Consent.BEFORE
    page_url: str
    request_url: str  # the request whose response or script set it

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of a cookie across sightings."""
        return (self.storage, self.name, self.domain, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVisit:
    """One page, as an engine saw it."""

    url: str
    final_url: str
    status_code: int
    links: tuple[str, ...] = ()  # absolute, http and https only, in the order of the page
    cookies: tuple[SeenCookie, ...] = ()
    elapsed_ms: int = 0
    notes: tuple[str, ...] = ()  # what was truncated or skipped, for the report


class PageFailed(Exception):
    """A page could not be visited; the scan continues. Its responses may still have set cookies."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = True,
        retry_after_seconds: float | None = None,
        cookies: tuple[SeenCookie, ...] = (),
    ) -> None:
        super().__init__(message)
        self.retryable, self.retry_after_seconds, self.cookies = retryable, retry_after_seconds, cookies


class ScanEngine(Protocol):
    """Visits one page at a time. State between pages ends with `close`."""

    name: EngineName

    def visit(self, url: str, remaining_seconds: Callable[[], float]) -> PageVisit:
        """`remaining_seconds` may be called at any time and raises when the execution has to stop."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie of a stored scan: its sightings merged, with its classification."""

    name: str
    domain: str
    path: str
    storage: Storage
    host_only: bool
    expires_at: datetime | None
    lifetime_seconds: int | None  # from sighting to expiry; None: session
    secure: bool
    http_only: bool
    same_site: str | None
    party: Party
    consent: Consent
    category: Category
    category_rule: str | None  # the rule that decided; None: unknown
    page_url: str  # where it was first seen
    request_url: str
    pages_seen: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.storage, self.name, self.domain, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a stored scan."""

    url: str
    final_url: str | None
    depth: int
    attempts: int
    status_code: int | None
    error: str | None  # None: it was visited
    elapsed_ms: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieChange:
    """One line of the difference to the previous scan of the same domain with the same engine."""

    kind: ChangeKind
    name: str
    domain: str
    path: str
    storage: Storage
    category: Category
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # changed: name -> (before, after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A complete stored scan."""

    scan_id: UUID
    execution_id: UUID | None
    schedule_id: UUID | None
    domain: str
    engine: EngineName
    started_at: datetime
    finished_at: datetime
    previous_scan_id: UUID | None
    config: dict[str, Any]
    summary: dict[str, Any]  # counts by category, party, consent; pages; changes; notes
    pages: tuple[Page, ...]
    cookies: tuple[Cookie, ...]
    changes: tuple[CookieChange, ...]
