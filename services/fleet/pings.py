"""Pings of a schedule's `ping_url`, by the protocol of healthchecks.io: /start, success, and /fail with the error.

Replicas and workers of the fleet send them. An end is sent after it was written, and only if
its write was not refused: a ping is never invented, but one is lost if the process dies before it is sent. Nothing on a
fire's way waits: there are a few threads, each with a bounded queue, and the pings of one schedule keep their order.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit, urlunsplit
from uuid import UUID

from config import Settings, environment_secret
from database.models import ExecutionStatus
from services.checks.job_secrets import REFERENCE, JobSecrets
from services.fetching import FETCH_ERRORS, Private, failure_of, may_work_later, requoted, session_from
from services.fetching.session import GuardedSession
from services.ledger.fires import Claim, Ending
from services.telemetry import metrics

logger = logging.getLogger(__name__)

SENDERS = 4
MAX_WAITING = 500  # pings per sender
MAX_BODY_BYTES = 10_000
PATIENCE_SECONDS = 10.0
PAUSES_SECONDS = (0.5, 2.0)  # before the second and the third try
OUTAGE_SECONDS = 30.0  # after a ping that failed, others to the same server are dropped for so long
LAST_PINGS_SECONDS = 2.0
BAD_STATUS = 400
START, SUCCESS, FAIL = "/start", "", "/fail"
FAILED = {ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.CANCELLED}


@dataclass(frozen=True, slots=True)
class Ping:
    label: str
    schedule_id: UUID
    url: str  # with its references
    what: str
    run_id: UUID
    text: str = ""


class PingFailed(Exception):
    """The reason is fit for a log: it shows no secret. `of_server`: other pings to this server will fail as well."""

    def __init__(self, reason: str, *, of_server: bool = False) -> None:
        super().__init__(reason)
        self.of_server = of_server


class Pings:
    def __init__(
        self, settings: Settings, *, secret: Callable[[str], str | None] = environment_secret, senders: int = SENDERS
    ) -> None:
        self._settings, self._secret = settings, secret
        self._allowed = JobSecrets.parse(settings.job_secrets)
        self._queues: list[queue.Queue[Ping | None]] = [queue.Queue(MAX_WAITING) for _ in range(senders)]
        self._threads: list[threading.Thread] = []
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._down_until: dict[str, float] = {}  # by server that does not take pings, or by URL that is wrong

    # --- from a fire's way; these wait for nothing ---

    def begun(self, claim: Claim | None) -> None:
        if claim is not None and claim.spec.ping_url is not None:
            self._put(_ping(claim, START))

    def ended(self, ending: Ending) -> None:
        """An attempt that will be tried again has not failed yet; a skipped one has nothing to report."""
        if ending.claim.spec.ping_url is None or ending.retry_in_seconds is not None:
            return
        if ending.status == ExecutionStatus.SUCCESS:
            self._put(_ping(ending.claim, SUCCESS))
        elif ending.status in FAILED:
            text = f"{ending.status}: {ending.error_message}" if ending.error_message else ending.status.value
            self._put(_ping(ending.claim, FAIL, text))

    def close(self) -> None:
        """Sends the waiting pings, for a short while."""
        with self._lock:
            threads, self._threads = self._threads, []
        deadline = time.monotonic() + LAST_PINGS_SECONDS
        for waiting in self._queues if threads else ():
            try:
                waiting.put_nowait(None)
            except queue.Full:
                continue
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._closing.set()

    def _put(self, ping: Ping) -> None:
        try:
            self._queues[ping.schedule_id.int % len(self._queues)].put_nowait(ping)
        except queue.Full:
            metrics.ping_ended("dropped")
            return
        if not self._threads:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._threads or self._closing.is_set():
                return
            self._threads = [
                threading.Thread(target=self._send_all, args=(each,), name=f"pings-{place}", daemon=True)
                for place, each in enumerate(self._queues)
            ]
            for thread in self._threads:
                thread.start()

    # --- the senders ---

    def _send_all(self, waiting: queue.Queue[Ping | None]) -> None:
        session = session_from(self._settings)
        with closing(session):
            while (ping := waiting.get()) is not None and not self._closing.is_set():
                if self._is_down(ping):
                    metrics.ping_ended("dropped")
                    continue
                try:
                    self._send(session, ping)
                except PingFailed as error:
                    self._failed(ping, error)
                except Exception:
                    logger.exception("a ping for %s failed", ping.label, extra={"event": "ping_failed"})
                    metrics.ping_ended("failed")
                else:
                    self._sent(ping)

    def _send(self, session: GuardedSession, ping: Ping) -> None:
        pauses = () if self._was_down(ping) else PAUSES_SECONDS
        for pause in (*pauses, None):
            try:
                self._try(session, ping)
            except PingFailed as error:
                if not error.of_server or pause is None or self._closing.wait(pause):
                    raise
            else:
                return

    def _try(self, session: GuardedSession, ping: Ping) -> None:
        address, secrets = self._resolved(ping)
        body = ping.text.encode(errors="replace")[:MAX_BODY_BYTES]
        try:
            prepared = session.prepare("POST", address, {"Content-Type": "text/plain; charset=utf-8"}, data=body)
            until = time.monotonic() + min(PATIENCE_SECONDS, self._settings.request_timeout)
            with closing(
                session.open(prepared, lambda: max(0.1, until - time.monotonic()), Private(body=True))
            ) as answer:
                if answer.status_code >= BAD_STATUS:
                    of_server = may_work_later(answer.status_code)
                    raise PingFailed(f"its ping_url answered {answer.status_code}", of_server=of_server)
        except FETCH_ERRORS as error:
            failure = failure_of(error, "its ping_url")
            reason = str(failure)
            for secret in secrets:
                reason = reason.replace(secret, "***").replace(requoted(secret), "***")
            raise PingFailed(reason, of_server=failure.retryable) from None

    def _resolved(self, ping: Ping) -> tuple[str, set[str]]:
        names, secrets = REFERENCE.findall(ping.url), {}
        for name in names:
            if name not in self._allowed.hosts:
                raise PingFailed(str(self._allowed.refusal(name, "")))
            secrets[name] = self._secret(name)
            if secrets[name] is None:
                raise PingFailed(f"the environment variable {name} is not set")
        url = REFERENCE.sub(lambda reference: str(secrets[reference[1]]), ping.url)
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
        except ValueError:
            raise PingFailed("its ping_url is not a URL") from None
        for name in names:
            if refused := self._allowed.refusal(name, host):
                raise PingFailed(refused)
        query = "&".join(each for each in (parts.query, urlencode({"rid": ping.run_id})) if each)
        address = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + ping.what, query, ""))
        return address, {each for each in secrets.values() if each}

    # --- outages ---

    def _is_down(self, ping: Ping) -> bool:
        now = time.monotonic()
        with self._lock:
            return any(self._down_until.get(each, 0.0) > now for each in _places(ping))

    def _was_down(self, ping: Ping) -> bool:
        with self._lock:
            return any(each in self._down_until for each in _places(ping))

    def _failed(self, ping: Ping, error: PingFailed) -> None:
        metrics.ping_ended("failed")
        server, url = _places(ping)
        place = server if error.of_server else url
        with self._lock:
            begins = place not in self._down_until
            self._down_until[place] = time.monotonic() + OUTAGE_SECONDS
        if begins:
            logger.warning(
                "no ping for %s could be sent: %s",
                ping.label,
                error,
                extra={"event": "pings_failed", "schedule_id": str(ping.schedule_id)},
            )

    def _sent(self, ping: Ping) -> None:
        metrics.ping_ended("sent")
        with self._lock:
            ended = [each for each in _places(ping) if self._down_until.pop(each, None) is not None]
        if ended:
            logger.info("pings are being sent again, first for %s", ping.label, extra={"event": "pings_sent"})


def _ping(claim: Claim, what: str, text: str = "") -> Ping:
    return Ping(claim.name, claim.schedule_id, claim.spec.ping_url or "", what, claim.execution_id, text)


def _places(ping: Ping) -> tuple[str, str]:
    """Its server and its URL, as they are written in the schedule: the value behind a reference is never shown."""
    return ping.url.split("/", 3)[2], ping.url
