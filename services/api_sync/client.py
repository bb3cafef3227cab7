"""The client of the external API: conditional requests, retries with backoff, and one time limit."""

import threading
from collections.abc import Callable
from http import HTTPStatus

from pydantic import SecretStr

from database.backoff import Backoff
from services.api_sync.state import Validators
from services.errors import SchedulerError
from services.fetching import Fetched, Fetcher, FetchFailed, may_work_later, shown_url, without_userinfo
from services.fetching.deadline import NO_LIMIT_SECONDS

ATTEMPTS = 4
# An API that demands a longer wait is called again by a later sync.
BACKOFF = Backoff(first_seconds=1.0, longest_seconds=30.0, jitter=0.5)
MAX_VALIDATOR_LENGTH = 1000


class SyncInterrupted(SchedulerError):
    def __init__(self) -> None:
        super().__init__("the sync was interrupted: this process is stopping")


class ApiClient:
    """`before_wait` is called before every pause between two attempts."""

    def __init__(
        self,
        fetcher: Fetcher,
        url: str,
        token: SecretStr | None = None,
        max_seconds: float = 10.0,
        stopping: threading.Event | None = None,
    ) -> None:
        self._fetcher, self._token, self.max_seconds = fetcher, token, max_seconds
        self.url = without_userinfo(url) if token else url  # requests would prefer a password in the URL
        self._stopping = stopping or threading.Event()

    @property
    def where(self) -> str:
        """The URL without secrets."""
        return shown_url(self.url)

    def fetch(self, before_wait: Callable[[float], None]) -> Fetched:
        """The whole response. Raises FetchFailed, SyncInterrupted."""
        return self._persistently(Validators(), before_wait)

    def fetch_if_changed(self, known: Validators, before_wait: Callable[[float], None]) -> Fetched | None:
        """None: the response has not changed (304)."""
        fetched = self._persistently(known, before_wait)
        return None if fetched.status_code == HTTPStatus.NOT_MODIFIED else fetched

    def check(self) -> None:
        """Raises SyncInterrupted when this process stops."""
        self.pause(0)

    def pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise SyncInterrupted

    def _persistently(self, known: Validators, before_wait: Callable[[float], None]) -> Fetched:
        attempt = 1
        while True:
            try:
                return self._ask(known)
            except FetchFailed as error:
                if not error.retryable or attempt >= ATTEMPTS:
                    raise
                seconds = BACKOFF.at_least(error.retry_after_seconds, attempt)
                if seconds is None:
                    raise
            before_wait(seconds)
            self.pause(seconds)
            attempt += 1

    def _ask(self, known: Validators) -> Fetched:
        fetched = self._fetcher.get(self.url, headers=self._headers(known), remaining_seconds=self._remaining)
        status = fetched.status_code
        if status == HTTPStatus.OK or (status == HTTPStatus.NOT_MODIFIED and known):
            return fetched
        raise FetchFailed(
            f"GET {self.where}: it answered {_status_text(status)}",
            retryable=may_work_later(status),
            retry_after_seconds=fetched.retry_after_seconds,
        )

    def _headers(self, known: Validators) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        if known.etag:
            headers["If-None-Match"] = known.etag
        if known.last_modified:
            headers["If-Modified-Since"] = known.last_modified
        return headers

    def _remaining(self) -> float:
        self.check()
        return NO_LIMIT_SECONDS


def validators_of(fetched: Fetched) -> Validators:
    return Validators(_validator(fetched.headers.get("ETag")), _validator(fetched.headers.get("Last-Modified")))


def _validator(value: str | None) -> str | None:
    """A validator that can be stored and sent back."""
    return value if value and value.isprintable() and len(value) <= MAX_VALIDATOR_LENGTH else None


def _status_text(status_code: int) -> str:
    try:
        return f"{status_code} {HTTPStatus(status_code).phrase}"
    except ValueError:
        return str(status_code)
