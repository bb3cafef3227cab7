"""The job type http_request against a real local server: what is sent, what is kept, and which failures are retried."""

import gzip
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config import get_settings
from database.models import Cause, ExecutionStatus
from enhanced_scheduler.calling import call_handler
from services.engine.pool import WorkerPool
from services.jobs import ExecutionContext, JobResult, default_registry
from tests.support.bad_servers import BadServer
from tests.support.certificate import server_tls
from tests.support.contexts import SCHEDULE_ID, a_context
from tests.support.ledger import Answer, Ledger
from tests.support.waiting import eventually

FAILED, SUCCESS = ExecutionStatus.FAILED, ExecutionStatus.SUCCESS


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ENV_FILE", "")
    monkeypatch.setenv("FETCH_ALLOWED_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("JOB_SECRETS", "LEDGER_TOKEN@127.0.0.1,ASCII,NOT_SET_ANYWHERE")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


def call(url: str, context: ExecutionContext | None = None, /, **fields: Any) -> JobResult:
    changes: dict[str, Any] = {"job_config": {"url": url, **fields}}
    context = context or a_context("http_request", **changes)
    context.begin()
    return call_handler(default_registry.get("http_request"), context)


def test_a_host_may_be_reached_elsewhere(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FETCH_CONNECT_TO", f"*.example={ledger.url.removeprefix('http://')}")
    get_settings.cache_clear()
    assert call("http://hooks.example/hook").status is SUCCESS
    [request] = ledger.requests("/hook")
    assert request.headers["Host"] == "hooks.example"


def test_a_request_says_which_execution_it_belongs_to(ledger: Ledger) -> None:
    context = a_context("http_request", attempt=2, job_config={"url": f"{ledger.url}/hook"})
    call("", context)
    [request] = ledger.requests("/hook")
    sent = {name: request.headers[name] for name in OWN_HEADERS}
    assert sent == {
        "Idempotency-Key": f"{SCHEDULE_ID}/2026-03-01T02:00:00Z",
        "X-Schedule-Id": str(SCHEDULE_ID),
        "X-Execution-Id": str(context.execution_id),
        "X-Scheduled-For": "2026-03-01T02:00:00Z",
        "X-Attempt": "2",
        "X-Fencing-Token": "42",
        "User-Agent": "enhanced-scheduler",
    }


OWN_HEADERS = (
    *("Idempotency-Key", "X-Schedule-Id", "X-Execution-Id", "X-Scheduled-For"),
    *("X-Attempt", "X-Fencing-Token", "User-Agent"),
)


def test_a_run_without_schedule_sends_no_schedule(ledger: Ledger) -> None:
    config = {"url": ledger.url}
    call("", a_context("http_request", schedule_id=None, cause=Cause.MANUAL, job_config=config))
    assert ledger.requests()[0].headers["X-Schedule-Id"] is None


def test_a_configured_header_cannot_forge_what_identifies_the_execution(ledger: Ledger) -> None:
    call(ledger.url, headers={"x-fencing-token": "1", "user-agent": "mine"})
    [request] = ledger.requests()
    assert request.headers.get_all("X-Fencing-Token") == ["42"]
    assert request.headers["User-Agent"] == "mine"


def test_the_result_tells_what_came_back(ledger: Ledger) -> None:
    ledger.answer("/x", body="grüße".encode())
    result = call(f"{ledger.url}/x")
    kept = dict(result.details["result"])
    assert result.status is SUCCESS
    assert kept.pop("elapsed_ms") >= 0
    assert kept == {
        "status_code": 200,
        "url": f"{ledger.url}/x",
        "headers": {"content-type": "text/plain; charset=utf-8"},
        "excerpt": "grüße",
    }


@pytest.mark.parametrize(
    ("fields", "method", "body", "content_type"),
    [
        ({}, "GET", b"", None),
        ({"method": "post", "json": {"a": ["ü"]}}, "POST", b'{"a": ["\\u00fc"]}', "application/json"),
        ({"method": "PUT", "body": "grüße"}, "PUT", "grüße".encode(), None),
        ({"method": "DELETE"}, "DELETE", b"", None),
        ({"method": "HEAD"}, "HEAD", b"", None),
        ({"method": "POST", "json": []}, "POST", b"[]", "application/json"),
    ],
)
def test_method_and_body_are_sent(
    ledger: Ledger, fields: dict[str, Any], method: str, body: bytes, content_type: str | None
) -> None:
    assert call(ledger.url, **fields).status is SUCCESS
    [request] = ledger.requests()
    assert (request.method, request.body, request.headers["Content-Type"]) == (method, body, content_type)


def test_only_the_beginning_of_a_large_body_is_read_and_kept(ledger: Ledger) -> None:
    ledger.answer("/", body=b"x" * 50_000_000)
    assert call(f"{ledger.url}/").details["result"]["excerpt"] == "x" * 2048


def test_a_compressed_bomb_stays_small(ledger: Ledger) -> None:
    ledger.answer("/", body=gzip.compress(b"x" * 100_000_000), headers={"Content-Encoding": "gzip"})
    assert call(f"{ledger.url}/").details["result"]["excerpt"] == "x" * 2048


def test_an_encoding_that_does_not_exist_is_read_as_utf8(ledger: Ledger) -> None:
    ledger.answer("/", body="ü".encode(), headers={"Content-Type": "text/plain; charset=klingon"})
    assert call(f"{ledger.url}/").details["result"]["excerpt"] == "ü"


def test_binary_rubbish_can_be_stored(ledger: Ledger) -> None:
    ledger.answer("/", body=b"\x00\xff\xfe\xed\xa0\x80")
    assert "\x00" not in call(f"{ledger.url}/").details["result"]["excerpt"]


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (408, True),
        (425, True),
        (429, True),
        (500, True),
        (502, True),
        (503, True),
        (400, False),
        (401, False),
        (404, False),
    ],
)
def test_the_status_decides_whether_another_attempt_may_help(ledger: Ledger, status: int, retryable: bool) -> None:
    ledger.answer("/", status=status, body=b"because")
    result = call(f"{ledger.url}/")
    assert (result.status, result.retryable) == (FAILED, retryable)
    assert result.error_message == f"GET {ledger.url}/ answered {status}"
    assert result.error_details is not None
    assert (result.error_details["status_code"], result.error_details["excerpt"]) == (status, "because")


def test_an_expected_status_is_a_success_whatever_it_is(ledger: Ledger) -> None:
    ledger.answer("/", status=503)
    assert call(f"{ledger.url}/", expected_status=[200, 503]).status is SUCCESS
    ledger.answer("/", status=200)
    result = call(f"{ledger.url}/", expected_status=204)
    assert (result.status, result.retryable) == (FAILED, False)


def test_retry_after_is_honoured(ledger: Ledger) -> None:
    ledger.answer("/", status=429, headers={"Retry-After": "120"})
    assert call(f"{ledger.url}/").retry_after_seconds == 120
    ledger.answer("/", status=404, headers={"Retry-After": "120"})
    assert call(f"{ledger.url}/").retry_after_seconds is None


def test_redirects_are_followed_and_the_final_url_is_kept(ledger: Ledger) -> None:
    ledger.answer("/a", status=302, headers={"Location": "/b"})
    result = call(f"{ledger.url}/a", method="POST", body="x")
    assert result.details["result"]["url"] == f"{ledger.url}/b"
    [request] = ledger.requests("/b")
    assert (request.method, request.body, request.headers["X-Fencing-Token"]) == ("GET", b"", "42")


def test_a_307_repeats_method_and_body(ledger: Ledger) -> None:
    ledger.answer("/a", status=307, headers={"Location": "/b"})
    call(f"{ledger.url}/a", method="POST", json={"a": 1})
    [request] = ledger.requests("/b")
    assert (request.method, request.body) == ("POST", b'{"a": 1}')


def test_redirects_can_be_left_alone(ledger: Ledger) -> None:
    ledger.answer("/a", status=302, headers={"Location": "/b"})
    assert call(f"{ledger.url}/a", follow_redirects=False).retryable is False
    assert call(f"{ledger.url}/a", follow_redirects=False, expected_status=302).status is SUCCESS
    assert ledger.requests("/b") == []


def test_a_redirect_in_circles_fails_for_good(ledger: Ledger) -> None:
    ledger.answer("/a", status=302, headers={"Location": "/a"})
    result = call(f"{ledger.url}/a")
    assert (result.status, result.retryable) == (FAILED, False)
    assert "more than 10 redirects" in str(result.error_message)


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/", "http://[::ffff:169.254.169.254]/", "http://10.0.0.1/", "//2852039166/"],
)
def test_a_redirect_to_the_inside_is_refused_for_good(ledger: Ledger, target: str) -> None:
    ledger.answer("/a", status=302, headers={"Location": target})
    result = call(f"{ledger.url}/a")
    assert (result.status, result.retryable) == (FAILED, False)
    assert "is not a public address" in str(result.error_message)
    assert "FETCH_ALLOWED_NETWORKS" in str(result.error_message)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://example.com/"])
def test_a_redirect_to_another_protocol_fails_for_good(ledger: Ledger, target: str) -> None:
    ledger.answer("/a", status=302, headers={"Location": target})
    result = call(f"{ledger.url}/a")
    assert (result.status, result.retryable) == (FAILED, False)


def test_a_blocked_address_fails_for_good() -> None:
    result = call("http://10.0.0.1/")
    assert (result.status, result.retryable) == (FAILED, False)
    assert str(result.error_message).startswith("10.0.0.1 is not a public address")


def test_a_refused_connection_may_work_later() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    result = call(f"http://127.0.0.1:{port}/")
    assert (result.status, result.retryable) == (FAILED, True)
    assert "refused" in str(result.error_message).lower()


def test_a_name_that_cannot_be_resolved_may_work_later() -> None:
    result = call("http://no-such-host.invalid/")
    assert (result.status, result.retryable) == (FAILED, True)


@pytest.mark.parametrize("silence", [{"delay_seconds": 30.0}, {"stall_seconds": 30.0}])
def test_no_answer_in_time_may_come_later(ledger: Ledger, silence: dict[str, float]) -> None:
    ledger.answer("/", Answer(**silence))  # type: ignore[arg-type]
    result = call(f"{ledger.url}/", timeout_seconds=0.2)
    assert (result.status, result.retryable) == (FAILED, True)
    assert result.error_message == f"GET {ledger.url}/: no response in time"


def test_the_timeout_of_the_execution_ends_a_request_without_a_leak(ledger: Ledger) -> None:
    ledger.answer("/", delay_seconds=30)
    done: list[JobResult] = []
    pool = WorkerPool(1, default_registry, lambda _context, result, _seconds: done.append(result), grace_seconds=5)
    pool.submit(a_context("http_request", timeout_seconds=0.3, job_config={"url": f"{ledger.url}/"}))
    eventually(lambda: done)
    assert done[0].status is ExecutionStatus.TIMED_OUT
    assert pool.leaked == 0
    pool.shutdown(0)


@pytest.mark.parametrize("path", ["/dripping-status", "/dripping-head", "/dripping-body", "/dripping-chunks"])
def test_a_server_that_drips_is_cut_off(path: str) -> None:
    with BadServer() as bad:
        result = call(f"{bad.url}{path}", timeout_seconds=0.5)
        assert result.error_message == f"GET {bad.url}{path}: no response in time"
    assert (result.status, result.retryable) == (FAILED, True)


@pytest.mark.parametrize(
    "path", ["/length-too-long", "/reset", "/reset-in-body", "/hung-up", "/broken-gzip", "/not-http"]
)
def test_an_answer_that_is_broken_may_be_repaired(path: str) -> None:
    with BadServer() as bad:
        result = call(f"{bad.url}{path}")
    assert (result.status, result.retryable) == (FAILED, True)


def test_a_certificate_that_is_not_trusted_fails_for_good(tmp_path: Path) -> None:
    with BadServer(server_tls(tmp_path)) as bad:
        result = call(f"{bad.url}/page")
    assert (result.status, result.retryable) == (FAILED, False)
    assert "the certificate is not trusted" in str(result.error_message)


def test_a_cancelled_execution_sends_nothing(ledger: Ledger) -> None:
    context = a_context("http_request", job_config={"url": ledger.url})
    context.cancel("enough")
    assert call("", context).status is ExecutionStatus.CANCELLED
    assert ledger.requests() == []


def test_an_isolated_request_is_the_same_request(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_TOKEN", "s3cr3t")
    config = {"url": f"{ledger.url}/?t=${{env:LEDGER_TOKEN}}", "isolation": "process"}
    done: list[JobResult] = []
    pool = WorkerPool(1, default_registry, lambda _context, result, _seconds: done.append(result))
    pool.submit(a_context("http_request", job_config=config))
    eventually(lambda: done, 60)
    pool.shutdown(0)
    assert done[0].details["result"]["url"] == f"{ledger.url}/?t=***"
    assert ledger.requests()[0].target == "/?t=s3cr3t"


# --- secrets ---

SECRET = 'pa"ss/w\u00f6rd +1'


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LEDGER_TOKEN", SECRET)
    return SECRET


def shown(result: JobResult) -> str:
    return str(result.to_wire())


def test_secrets_are_sent_but_not_kept(ledger: Ledger, secret: str) -> None:
    ledger.answer("/", body=f"you sent {secret} to me".encode())
    result = call(
        f"{ledger.url}/?token=${{env:LEDGER_TOKEN}}",
        method="POST",
        headers={"X-Token": "Bearer abc"},
        json={"token": "${env:LEDGER_TOKEN}"},
    )
    [request] = ledger.requests("/")
    assert "pa%22ss/w%C3%B6rd%20+1" in request.target
    assert b'pa\\"ss/w\\u00f6rd +1' in request.body
    assert result.details["result"]["excerpt"] == "you sent *** to me"
    assert "ss/w" not in shown(result)


def test_a_secret_is_not_shown_in_part_where_the_excerpt_ends(ledger: Ledger, secret: str) -> None:
    ledger.answer("/", body=b"x" * (2048 - 4) + secret.encode())
    result = call(f"{ledger.url}/", body="${env:LEDGER_TOKEN}", method="POST")
    assert result.details["result"]["excerpt"] == "x" * 2044 + "***"


@pytest.mark.parametrize("path", ["/refused", "/redirected"])
def test_errors_do_not_show_secrets(ledger: Ledger, secret: str, path: str) -> None:
    ledger.answer("/refused", status=401, body=secret.encode())
    ledger.answer("/redirected", status=302, headers={"Location": "ftp://x/pa%22ss/w%C3%B6rd%20+1"})
    result = call(f"{ledger.url}{path}?t=${{env:LEDGER_TOKEN}}")
    assert result.status is FAILED
    assert "ss/w" not in shown(result)


def test_a_secret_that_is_no_header_value_fails_for_good_without_being_shown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_TOKEN", "hunter2\nX-Evil: 1")
    result = call(ledger.url, headers={"Authorization": "${env:LEDGER_TOKEN}"})
    assert (result.status, result.retryable) == (FAILED, False)
    assert "hunter2" not in shown(result)
    assert ledger.requests() == []


def test_a_secret_that_latin1_cannot_write_is_no_header_value(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_TOKEN", "hunter2 €")
    result = call(ledger.url, headers={"Authorization": "${env:LEDGER_TOKEN}"})
    assert (result.status, result.retryable) == (FAILED, False)
    assert "hunter2" not in shown(result)


def test_a_missing_secret_fails_for_good_and_is_named(ledger: Ledger) -> None:
    result = call(ledger.url, headers={"Authorization": "${env:NOT_SET_ANYWHERE}"})
    assert (result.status, result.retryable) == (FAILED, False)
    assert "NOT_SET_ANYWHERE" in str(result.error_message)
    assert ledger.requests() == []


def test_a_variable_that_nobody_allowed_is_not_sent_away(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    result = call(ledger.url, headers={"Authorization": "${env:AWS_SECRET_ACCESS_KEY}"})
    assert (result.status, result.retryable) == (FAILED, False)
    assert str(result.error_message).startswith("JOB_SECRETS does not list the environment variable AWS_SECRET")
    assert ledger.requests() == []


def test_a_password_in_the_url_is_sent_and_hidden(ledger: Ledger) -> None:
    result = call(ledger.url.replace("//", "//anna:hunter2@"))
    [request] = ledger.requests()
    assert request.headers["Authorization"] == "Basic YW5uYTpodW50ZXIy"
    assert "hunter2" not in shown(result)


@pytest.mark.parametrize("status", [200, 401])
def test_a_key_that_was_written_into_the_url_is_sent_and_hidden(ledger: Ledger, status: int) -> None:
    ledger.answer("/", status=status)
    result = call(f"{ledger.url}/?page=2&api_key=hunter2")
    assert ledger.requests()[0].target == "/?page=2&api_key=hunter2"
    assert "hunter2" not in shown(result)
    assert "page=2&api_key=***" in shown(result)


def test_secrets_do_not_follow_a_redirect_to_another_site(ledger: Ledger, secret: str) -> None:
    with Ledger() as other:
        ledger.answer("/a", status=307, headers={"Location": f"{other.url}/b"})
        headers = {"X-Api-Key": "${env:ASCII}", "Authorization": "Basic abc", "X-Plain": "plain"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ASCII", "k3y")
            assert call(f"{ledger.url}/a", headers=headers).status is SUCCESS
        [request] = other.requests("/b")
        assert [request.headers[name] for name in headers] == [None, None, "plain"]
        assert ledger.requests("/a")[0].headers["X-Api-Key"] == "k3y"
        refused = call(f"{ledger.url}/a", method="POST", body="${env:LEDGER_TOKEN}")
        assert (refused.status, refused.retryable) == (FAILED, False)
        assert "another site" in str(refused.error_message)
        assert len(other.requests()) == 1
