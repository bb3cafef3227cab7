"""The job type `http_request`: one HTTP call whose outcome is success, a retryable failure or a permanent failure.

The configuration refers to secrets as `${env:NAME}`; JOB_SECRETS lists the names and the hosts that may receive them.
Secrets are resolved when the request is made. Everything stored about the execution shows *** instead.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from config import environment_secret, get_settings
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.results import JobFailed
from services.checks.job_secrets import JobSecrets
from services.fetching import (
    FETCH_ERRORS,
    MAX_REDIRECTS,
    Deadline,
    decode_text,
    failure_of,
    may_work_later,
    parse_retry_after,
    read_beginning,
    requoted,
    session_from,
)
from services.job_types.http_config import HttpRequestConfig, Resolved, resolve
from services.jobs.credentials import without_credentials
from services.jobs.registry import job

EXCERPT_BYTES = 2048
KEPT_HEADERS = ("content-type", "retry-after")


@job("http_request", config_model=HttpRequestConfig)
def http_request(context: ExecutionContext, config: HttpRequestConfig) -> Mapping[str, Any]:
    """Call a URL; the response status decides between success, another attempt and permanent failure."""
    context.check()
    wanted = resolve(config, environment_secret, JobSecrets.parse(get_settings().job_secrets))
    for secret in wanted.secrets:
        context.hide(secret)
        context.hide(requoted(secret))  # as it appears in a final URL
    begun_at = time.monotonic()
    try:
        result = _call(context, config, wanted)
    except FETCH_ERRORS as error:
        context.check()  # the execution's own timeout is not a failure of the server
        failed = failure_of(error, _request_name(config))
        raise JobFailed(str(failed), retryable=failed.retryable) from None
    result["elapsed_ms"] = round((time.monotonic() - begun_at) * 1000)
    _judge(config, result)
    return result


def _call(context: ExecutionContext, config: HttpRequestConfig, wanted: Resolved) -> dict[str, Any]:
    settings = get_settings()

    def remaining_seconds() -> float:
        context.check()
        return context.remaining_seconds

    deadline = Deadline(config.timeout_seconds or settings.request_timeout, remaining_seconds)
    with session_from(settings) as session:
        headers = {**wanted.headers, **_own_headers(context)}
        prepared = session.prepare(config.method, wanted.url, headers, data=wanted.body, json=wanted.json)
        redirects = MAX_REDIRECTS if config.follow_redirects else 0
        with closing(session.open(prepared, deadline.left, wanted.private, redirects)) as response:
            body, _ = read_beginning(response, EXCERPT_BYTES + context.mask.longest, deadline.left)
            excerpt = decode_text(body, response.headers.get("Content-Type", ""))
            return {
                "status_code": response.status_code,
                "url": without_credentials(response.url),
                "headers": {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers},
                "excerpt": context.mask(excerpt)[:EXCERPT_BYTES],
            }


def _own_headers(context: ExecutionContext) -> dict[str, str]:
    """Headers by which the server recognises a repeated request and refuses a fenced replica."""
    headers = {
        "Idempotency-Key": context.idempotency_key,
        "X-Execution-Id": str(context.execution_id),
        "X-Scheduled-For": context.scheduled_for_text,
        "X-Attempt": str(context.attempt),
        "X-Fencing-Token": str(context.fencing_token),
    }
    return headers if context.schedule_id is None else headers | {"X-Schedule-Id": str(context.schedule_id)}


def _request_name(config: HttpRequestConfig) -> str:
    """The URL without credentials: viewers can read the result of an execution."""
    return f"{config.method} {without_credentials(config.url)}"


def _judge(config: HttpRequestConfig, result: Mapping[str, Any]) -> None:
    status_code = result["status_code"]
    if config.expects(status_code):
        return
    retryable = may_work_later(status_code)
    raise JobFailed(
        f"{_request_name(config)} answered {status_code}",
        retryable=retryable,
        retry_after_seconds=parse_retry_after(result["headers"].get("retry-after")) if retryable else None,
        details=result,
    )
