"""The job type `http_request`: one HTTP call, told apart into success, "try again" and "will never work".

Secrets are named in the configuration (`${env:NAME}`) and looked up when the request is made; what is kept about the
execution shows *** in their place.
"""

import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from requests.structures import CaseInsensitiveDict
from requests.utils import requote_uri
from urllib3.exceptions import HTTPError as Urllib3Error
from urllib3.exceptions import ReadTimeoutError

from config import environment_secret, get_settings
from services.errors import BlockedAddress
from services.fetching import MAX_REDIRECTS, UnsafeRedirect, guarded_session
from services.jobs.context import ExecutionContext
from services.jobs.http_config import HttpRequestConfig, Resolved, resolve
from services.jobs.registry import job
from services.jobs.results import JobFailed, PermanentFailure

EXCERPT_BYTES = 2048
CHUNK_BYTES = 1024
KEPT_HEADERS = ("content-type", "retry-after")
MAX_RETRY_AFTER_SECONDS = 86_400.0
RETRYABLE_STATUS = frozenset({408, 425, 429})
# Nothing that another attempt could change: the URL, the headers, the redirects.
PERMANENT = (
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidHeader,
    requests.exceptions.TooManyRedirects,
    UnsafeRedirect,
    UnicodeError,
)


@job("http_request", config_model=HttpRequestConfig)
def http_request(context: ExecutionContext, config: HttpRequestConfig) -> Mapping[str, Any]:
    context.check()
    wanted = resolve(config, environment_secret)
    for secret in wanted.secrets:
        context.hide(secret)
        context.hide(requote_uri(secret))  # as it looks in a final URL
    begun_at = time.monotonic()
    try:
        result = _call(context, config, wanted)
    except BlockedAddress as error:
        raise PermanentFailure(str(error)) from None
    except PERMANENT as error:
        raise PermanentFailure(f"{config.method} {config.url}: {error}") from None
    except (requests.RequestException, Urllib3Error, OSError) as error:
        context.check()  # a timeout of the execution is no failure of the other side
        raise _failure(error, f"{config.method} {config.url}") from None
    result["elapsed_ms"] = round((time.monotonic() - begun_at) * 1000)
    _judge(config, result)
    return result


def _call(context: ExecutionContext, config: HttpRequestConfig, wanted: Resolved) -> dict[str, Any]:
    settings = get_settings()
    deadline = time.monotonic() + (config.timeout_seconds or settings.request_timeout)

    def remaining_seconds() -> float:
        context.check()
        left = min(deadline - time.monotonic(), context.remaining_seconds)
        if left <= 0:
            raise requests.Timeout("the time for the whole request is over")
        return left

    with guarded_session(settings.fetch_allow_private_addresses, settings.fetch_allowed_networks) as session:
        session.headers["User-Agent"] = "enhanced-scheduler"
        headers = CaseInsensitiveDict({**wanted.headers, **_own_headers(context)})
        request = requests.Request(config.method, wanted.url, headers, data=wanted.body, json=wanted.json)
        prepared = session.prepare_request(request)
        redirects = MAX_REDIRECTS if config.follow_redirects else 0
        with closing(session.open(prepared, remaining_seconds, wanted.private, redirects)) as response:
            excerpt = _read(response, remaining_seconds, EXCERPT_BYTES + context.mask.longest)
            return {
                "status_code": response.status_code,
                "url": response.url,
                "headers": {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers},
                "excerpt": context.mask(excerpt)[:EXCERPT_BYTES],
            }


def _own_headers(context: ExecutionContext) -> dict[str, str]:
    """By these the other side recognises a repetition, and can refuse a replica that lost its claim."""
    headers = {
        "Idempotency-Key": context.idempotency_key,
        "X-Execution-Id": str(context.execution_id),
        "X-Scheduled-For": context.scheduled_for_text,
        "X-Attempt": str(context.attempt),
        "X-Fencing-Token": str(context.fencing_token),
    }
    return headers if context.schedule_id is None else headers | {"X-Schedule-Id": str(context.schedule_id)}


def _read(response: requests.Response, remaining_seconds: Callable[[], float], limit: int) -> str:
    """The beginning of the body; the rest is never fetched."""
    content = bytearray()
    while len(content) < limit:
        remaining_seconds()
        chunk = response.raw.read1(CHUNK_BYTES, decode_content=True)
        if not chunk:
            break
        content += chunk
    try:
        return content.decode(response.encoding or "utf-8", errors="replace")
    except LookupError:  # the other side made the name of its encoding up
        return content.decode(errors="replace")


def _judge(config: HttpRequestConfig, result: Mapping[str, Any]) -> None:
    status_code = result["status_code"]
    if config.expects(status_code):
        return
    retryable = status_code in RETRYABLE_STATUS or status_code >= 500
    raise JobFailed(
        f"{config.method} {config.url} answered {status_code}",
        retryable=retryable,
        retry_after_seconds=_retry_after(result["headers"].get("retry-after")) if retryable else None,
        details=result,
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds or a date; None when the other side says nothing that can be understood."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return min(float(value), MAX_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _failure(error: Exception, request: str) -> JobFailed:
    if _caused_by_certificate(error):
        return PermanentFailure(f"{request}: the certificate is not trusted: {error}")
    if isinstance(error, requests.Timeout | ReadTimeoutError):
        return JobFailed(f"{request}: no answer in time")
    return JobFailed(f"{request}: {error}")


def _caused_by_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else None
        error = getattr(error, "reason", None) or inner or error.__cause__ or error.__context__
    return False
