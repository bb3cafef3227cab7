"""Small parts of the HTTP API that need no server: buckets, ETags, sessions, JWTs, loopback."""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import jwt
import pytest

from config import load_settings
from services.errors import RevisionConflict
from services.schedules.batch import ScheduleRecord
from services.web.auth.authenticator import OneTimeToken, comes_from_our_pages
from services.web.auth.jwts import JwtVerifier
from services.web.auth.roles import Identity, Refusal, Role
from services.web.auth.sessions import Sessions
from services.web.etags import check_match, etag_of, is_known
from services.web.rate_limits import RateLimits
from services.web.server import is_loopback
from tests.support.web import SECRET, a_jwt


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_bucket_is_used_up_and_filled_again() -> None:
    clock = Clock()
    limits = RateLimits(60, clock)
    assert [limits.seconds_to_wait("a") for _ in range(60)] == [0.0] * 60
    assert limits.seconds_to_wait("a") == pytest.approx(1.0)
    clock.seconds = 0.5
    assert limits.seconds_to_wait("a") == pytest.approx(0.5)
    clock.seconds = 1.0
    assert limits.seconds_to_wait("a") == 0.0
    assert limits.seconds_to_wait("a") > 0


def test_a_bucket_never_holds_more_than_a_minute() -> None:
    clock = Clock()
    limits = RateLimits(2, clock)
    clock.seconds = 10_000
    assert [limits.seconds_to_wait("a") == 0 for _ in range(3)] == [True, True, False]


def test_the_silent_are_forgotten_first() -> None:
    limits = RateLimits(1, Clock(), most_callers=2)
    assert [limits.seconds_to_wait(caller) for caller in ("a", "b", "c")] == [0.0] * 3
    assert limits.seconds_to_wait("c") > 0
    assert limits.seconds_to_wait("a") == 0.0


def test_no_limit_is_no_limit() -> None:
    limits = RateLimits(0, Clock())
    assert {limits.seconds_to_wait("a") for _ in range(1000)} == {0.0}


def a_record(**more: Any) -> ScheduleRecord:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    known: dict[str, Any] = {
        "schedule_id": uuid4(),
        "domain": "example.com",
        "frequency": "daily",
        "time_config": {"hour": 2},
        "next_run": now,
        "last_run": None,
        "last_status": None,
        "invalid_reason": None,
        "failures_in_a_row": 0,
        "backoff_until": None,
        "revision": 42,
        "effective_from": now,
        "created_at": now,
        "updated_at": now,
    }
    return ScheduleRecord(**{**known, **more})


def test_an_etag_begins_with_the_revision_and_follows_the_bookkeeping() -> None:
    assert etag_of(a_record()).startswith('"42-')
    assert etag_of(a_record()) != etag_of(a_record(last_status="failed"))
    assert etag_of(a_record()) == etag_of(a_record(priority=5))


@pytest.mark.parametrize(
    ("given", "known"),
    [(None, False), ("*", True), ('"42"', True), ('W/"42"', True), ('"41", "42"', True), ("42", False)],
)
def test_what_a_reader_knows(given: str | None, known: bool) -> None:
    assert is_known(given, a_record()) is known


def test_a_condition_is_a_revision_or_anything() -> None:
    record = a_record()
    assert check_match(None, record) is None
    assert check_match(" * ", record) is None
    assert check_match('"41", "42-x"', record) == 42
    with pytest.raises(RevisionConflict):
        check_match('"41"', record)


WHO = Identity("token:ci", Role.OPERATOR, "token:abc")


def test_a_session_is_whose_it_was() -> None:
    sessions = Sessions(b"k" * 32, 3600)
    cookie, seconds = sessions.begin(WHO)
    found = sessions.read(cookie)
    assert isinstance(found, Identity)
    assert (found.actor, found.role, found.source, found.by_cookie) == ("token:ci", Role.OPERATOR, "token:abc", True)
    assert 3598 <= seconds <= 3600


def test_a_session_is_shorter_than_the_token_behind_it() -> None:
    _, seconds = Sessions(b"k" * 32, 3600).begin(Identity("a", Role.VIEWER, "jwt:a", time.time() + 60))
    assert seconds <= 60


def test_a_session_of_another_process_is_none() -> None:
    cookie, _ = Sessions(b"k" * 32, 3600).begin(WHO)
    assert isinstance(Sessions(b"l" * 32, 3600).read(cookie), Refusal)


def test_a_session_that_expired_or_ended_is_none() -> None:
    sessions = Sessions(b"k" * 32, -1)
    assert isinstance(sessions.read(sessions.begin(WHO)[0]), Refusal)
    lasting = Sessions(b"k" * 32, 3600)
    cookie, _ = lasting.begin(WHO)
    other, _ = lasting.begin(WHO)
    lasting.end(cookie)
    lasting.end("rubbish")
    assert isinstance(lasting.read(cookie), Refusal)
    assert isinstance(lasting.read(other), Identity)


def test_the_keys_of_sessions_come_from_the_settings_if_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def session_of(**environment: str) -> Sessions:
        for name in ("JWT_SECRET_KEY", "WEB_SESSION_SECRET_KEY"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"ENV_FILE": "", **environment}.items():
            monkeypatch.setenv(name, value)
        return Sessions.from_settings(load_settings())

    shared = {"JWT_SECRET_KEY": SECRET}
    cookie, _ = session_of(**shared).begin(WHO)
    assert isinstance(session_of(**shared).read(cookie), Identity)
    assert isinstance(session_of(WEB_SESSION_SECRET_KEY="s" * 32, **shared).read(cookie), Refusal)
    assert isinstance(session_of().read(cookie), Refusal)


def test_a_jwt_is_read_with_one_algorithm_whatever_it_says() -> None:
    verifier = JwtVerifier(SECRET)
    assert isinstance(verifier.verify(a_jwt()), Identity)
    for algorithm in ("HS384", "HS512"):
        assert isinstance(verifier.verify(a_jwt(algorithm=algorithm)), Refusal)
    header = jwt.utils.base64url_encode(b'{"alg":"none","typ":"JWT"}').decode()
    _, payload, signature = a_jwt().split(".")
    for forged in (f"{header}.{payload}.", f"{header}.{payload}.{signature}"):
        assert isinstance(verifier.verify(forged), Refusal)


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({"origin": "http://host:8000", "host": "host:8000"}, True),
        ({"origin": "https://host:8000", "host": "host:8000"}, True),
        ({"origin": "http://host:8001", "host": "host:8000"}, False),
        ({"origin": "http://evil", "host": "host", "sec-fetch-site": "same-origin"}, False),
        ({"origin": "null", "host": "host"}, False),
        ({"sec-fetch-site": "same-origin", "host": "host"}, True),
        ({"sec-fetch-site": "same-site", "host": "host"}, False),
        ({"host": "host"}, False),
    ],
)
def test_a_browser_says_where_a_request_comes_from(headers: dict[str, str], ours: bool) -> None:
    assert comes_from_our_pages(headers) is ours


def test_a_one_time_token_is_another_one_each_time() -> None:
    one, two = OneTimeToken(), OneTimeToken()
    assert one.matches(one.text)
    assert not one.matches(two.text)
    assert one.identity.source != two.identity.source
    assert one.text not in repr(one.identity)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "LocalHost")),
        *((host, False) for host in ("0.0.0.0", "::", "", "10.0.0.1", "example.com")),
    ],
)
def test_loopback_is_this_machine_only(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_each_role_reaches_as_far_as_the_one_before_it() -> None:
    assert [[a.includes(b) for b in Role] for a in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert not Identity("a", None, "jwt:a").may(Role.VIEWER)
