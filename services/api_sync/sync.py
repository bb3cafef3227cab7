"""One sync: fetch, verify that the response is complete, apply it, store the result. Start reading at `_sync`.

One process at a time holds the lease; others wait and get the same report. No transaction is open during the API call.
An unusable response changes nothing.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.answer import UnusableAnswer
from services.api_sync.applying import LEASE_SECONDS, Applied, Applying, Progress, SyncRules
from services.api_sync.client import ApiClient, validators_of
from services.api_sync.edits import LocalEdits
from services.api_sync.local_changes import is_anything_changed
from services.api_sync.report import Outcome, SyncReport
from services.api_sync.state import Lease, LeaseLost, StoredState, SyncState, Validators
from services.api_sync.upsert import API_ACTOR
from services.errors import ConfigurationError, SchedulerError, Unavailable
from services.fetching import FetchFailed, Limits, fetcher_from, without_userinfo

LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 600.0  # for a sync of another process
RULES_VERSION = 2  # increase it when the same response would give other schedules


class ApiSyncFailed(SchedulerError):
    """The last good schedules stay."""


class ApiSync:
    def __init__(
        self,
        db: DatabaseConnection,
        client: ApiClient,
        rules: SyncRules = SyncRules(),
        *,
        owner: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._db, self._client, self._rules, self._owner, self._now = db, client, rules, owner, now
        self._state = SyncState(db)
        site = hashlib.blake2b(without_userinfo(client.url).encode(), digest_size=8).hexdigest()
        self._written_under = f"{RULES_VERSION} {rules.local_edits} {site}"

    def status(self) -> StoredState:
        return self._state.read()

    def run(self, on_progress: Progress = lambda done, total: None) -> SyncReport:
        """Sync now. If another process is syncing, wait for it and return its result. Raises ApiSyncFailed."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while (lease := self._state.take(self._owner, self._lease_seconds)) is None:
            report = self._report_of_the_other(give_up_at)
            if report is not None:
                return report
        return self._run(lease, on_progress)

    def run_if_due(self, interval_seconds: float, *, restarted: bool = False) -> SyncReport | None:
        """None: the last sync is less than an interval old, or another process is syncing."""
        lease = self._state.take(
            self._owner, self._lease_seconds, interval_seconds=interval_seconds, restarted=restarted
        )
        return self._run(lease, lambda done, total: None) if lease else None

    def preview(self, on_progress: Progress = lambda done, total: None) -> SyncReport:
        """What `run` would do, with all entries; nothing is written."""
        started_at = self._now()
        try:
            fetched = self._client.fetch(lambda seconds: None)
            return self._report_of(started_at, self._applying(None).apply(fetched.body, on_progress))
        except (FetchFailed, UnusableAnswer) as error:
            raise ApiSyncFailed(self._no_answer(error)) from error

    # --- the story ---

    def _sync(self, lease: Lease, started_at: datetime, on_progress: Progress) -> SyncReport:
        fetched = self._client.fetch_if_changed(
            self._validators(), lambda seconds: lease.hold(self._lease_seconds + seconds)
        )
        if fetched is None:
            report = self._report(Outcome.NOT_MODIFIED, started_at)
            lease.end(report)
            return report
        applied = self._applying(lease).apply(fetched.body, on_progress)
        report = self._report_of(started_at, applied)
        # A response that was not fully applied is fetched again as a whole, whatever the API says about it then.
        validators = validators_of(fetched) if applied.is_settled else Validators()
        lease.end(report, rules=self._written_under, validators=validators)
        return report

    def _run(self, lease: Lease, on_progress: Progress) -> SyncReport:
        started_at = self._now()
        try:
            return self._sync(lease, started_at, on_progress)
        except (FetchFailed, UnusableAnswer) as error:
            message = self._no_answer(error)
            again = error.retry_after_seconds if isinstance(error, FetchFailed) else None
            lease.end(self._report(Outcome.FAILED, started_at, error=message), retry_after_seconds=again)
            raise ApiSyncFailed(message) from error
        except LeaseLost as error:
            raise ApiSyncFailed(str(error)) from error
        except BaseException:
            with suppress(Unavailable):  # then the lease expires by itself
                lease.hand_back()
            raise

    # --- parts ---

    @property
    def _lease_seconds(self) -> float:
        return LEASE_SECONDS + self._client.max_seconds

    def _validators(self) -> Validators:
        """Empty unless the table is exactly what the previous response made of it."""
        state = self._state.read()
        if self._rules.allow_removals or state.rules != self._written_under or not state.validators:
            return Validators()
        with self._db.transaction() as connection:
            return Validators() if is_anything_changed(connection) else state.validators

    def _report_of_the_other(self, give_up_at: float) -> SyncReport | None:
        """None: the other process died or stopped, so it is our turn."""
        while (state := self._state.read()).is_busy:
            if time.monotonic() > give_up_at:
                raise ApiSyncFailed(f"{state.lease_owner} has been syncing since {state.started_at}")
            self._client.pause(LOOK_SECONDS)
        if state.is_abandoned or state.started_at is None or state.last is None:
            return None
        if state.last.error is not None:
            raise ApiSyncFailed(state.last.error)
        return state.last

    def _applying(self, lease: Lease | None) -> Applying:
        return Applying(self._db, self._rules, lease, check=self._client.check, now=self._now)

    def _no_answer(self, error: SchedulerError) -> str:
        said = f"GET {self._client.where}: {error}" if isinstance(error, UnusableAnswer) else str(error)
        return f"the API gave no usable response: {said}"

    def _report_of(self, started_at: datetime, applied: Applied) -> SyncReport:
        outcome = Outcome.REMOVALS_REFUSED if applied.refused else Outcome.DONE
        return self._report(outcome, started_at, applied)

    def _report(
        self, outcome: Outcome, started_at: datetime, applied: Applied | None = None, error: str | None = None
    ) -> SyncReport:
        return SyncReport(
            outcome=outcome,
            by=self._owner,
            started_at=started_at,
            finished_at=self._now(),
            items=applied.items if applied else None,
            counts=dict(applied.tally.counts) if applied else {},
            entries=tuple(applied.tally.entries) if applied else (),
            refused=applied.refused if applied else None,
            error=error,
        )


@contextmanager
def open_api_sync(
    settings: Settings,
    db: DatabaseConnection,
    *,
    local_edits: LocalEdits | None = None,
    allow_removals: bool = False,
    actor: str = API_ACTOR,
    stopping: threading.Event | None = None,
) -> Iterator[ApiSync]:
    """From the settings, unless overridden."""
    if settings.api_url is None:
        raise ConfigurationError("API_URL is not set: there is nothing to sync from")
    limits = Limits(max_bytes=settings.api_sync_max_bytes, max_seconds=settings.request_timeout, cut=False)
    rules = SyncRules(
        local_edits or LocalEdits(settings.api_sync_local_edits),
        settings.api_sync_max_removals_percent,
        allow_removals,
        actor,
    )
    with fetcher_from(settings, limits, configured_url=settings.api_url) as fetcher:
        client = ApiClient(fetcher, settings.api_url, settings.api_token, limits.max_seconds, stopping)
        yield ApiSync(db, client, rules, owner=settings.instance_id)
