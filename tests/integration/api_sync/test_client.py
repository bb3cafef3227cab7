"""Asking an API that is slow, broken, rude, or somewhere else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pydantic import SecretStr

from services.api_sync import client as client_module
from services.api_sync.client import ApiClient, SyncInterrupted, validators_of
from services.api_sync.state import Validators
from services.fetching import Fetched, Fetcher, FetchFailed, Limits, guarded_session
from tests.support.api_stand_in import Answer, ApiStandIn, broken_off, drip, endless, raw, redirect, silence, status

LIMITS = Limits(max_bytes=1024 * 1024, max_seconds=20, cut=False)


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    with ApiStandIn() as api:
        yield api


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are made, none of which takes its time."""
    waited: list[float] = []

    def pause(_: ApiClient, seconds: float) -> None:
        if seconds:
            waited.append(seconds)

    monkeypatch.setattr(ApiClient, "pause", pause)
    return waited


@contextmanager
def client(url: str, token: str | None = None, networks: str = "127.0.0.0/8") -> Iterator[ApiClient]:
    with Fetcher(guarded_session(False, networks), LIMITS) as fetcher:
        yield ApiClient(fetcher, url, SecretStr(token) if token else None, LIMITS.max_seconds)


def fetch(url: str, token: str | None = None, networks: str = "127.0.0.0/8") -> Fetched:
    with client(url, token, networks) as asking:
        return asking.fetch(lambda seconds: None)


def failure(url: str, networks: str = "127.0.0.0/8") -> FetchFailed:
    with pytest.raises(FetchFailed) as failed:
        fetch(url, networks=networks)
    return failed.value


# --- again, if that may help ---


def test_a_server_that_recovers_is_asked_again_after_growing_pauses(api: ApiStandIn, waits: list[float]) -> None:
    api.script = [status(500), status(503), broken_off]
    assert fetch(api.url).status_code == 200
    for waited, backoff in zip(waits, (1, 2, 4), strict=True):
        assert 0.5 * backoff <= waited <= 1.5 * backoff


def test_it_gives_up_after_a_few_attempts(api: ApiStandIn, waits: list[float]) -> None:
    api.script = [status(502)] * 10
    assert str(failure(api.url)) == f"GET {api.url}: it answered 502 Bad Gateway"
    assert len(api.requests) == client_module.ATTEMPTS


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 204, 206])
def test_what_will_not_get_better_is_asked_once(api: ApiStandIn, waits: list[float], code: int) -> None:
    api.script = [status(code)] * 2
    assert f"it answered {code} " in str(failure(api.url))
    assert (len(api.requests), waits) == (1, [])


def test_the_wished_pause_is_obeyed_if_it_is_not_too_long(api: ApiStandIn, waits: list[float]) -> None:
    api.script = [status(429, Retry_After="7")]
    assert fetch(api.url).status_code == 200
    assert waits == [7]


def test_a_longer_one_is_left_to_a_later_sync(api: ApiStandIn, waits: list[float]) -> None:
    api.script = [status(503, Retry_After="3600")]
    assert failure(api.url).retry_after_seconds == 3600
    assert (len(api.requests), waits) == (1, [])


def test_every_pause_is_announced_before_it_is_made(api: ApiStandIn, waits: list[float]) -> None:
    api.script = [status(500), status(500)]
    announced: list[float] = []
    with client(api.url) as asking:
        asking.fetch(announced.append)
    assert announced == waits
    assert len(waits) == 2


def test_a_stop_ends_a_pause_at_once(api: ApiStandIn) -> None:
    api.script = [status(503, Retry_After="30")]
    stopping = threading.Event()
    with Fetcher(guarded_session(False, "127.0.0.0/8"), LIMITS) as fetcher:
        asking = ApiClient(fetcher, api.url, stopping=stopping)
        with pytest.raises(SyncInterrupted):
            asking.fetch(lambda seconds: stopping.set())


# --- only what is new ---


@pytest.mark.parametrize("last_modified", [None, "Mon, 16 Nov 2026 08:00:00 GMT"])
def test_an_answer_that_is_known_is_not_sent_again(last_modified: str | None) -> None:
    api = ApiStandIn(etag=last_modified is None, last_modified=last_modified)
    with api, client(api.url) as asking:
        first = asking.fetch(lambda seconds: None)
        assert asking.fetch_if_changed(validators_of(first), lambda seconds: None) is None
        api.items, api.last_modified = [], None
        changed = asking.fetch_if_changed(validators_of(first), lambda seconds: None)
        assert changed is not None
        assert changed.body == b'{"data": []}'


def test_nothing_new_is_no_answer_to_whoever_knows_nothing(api: ApiStandIn) -> None:
    api.script = [status(304)]
    assert str(failure(api.url)) == f"GET {api.url}: it answered 304 Not Modified"


def test_validators_that_cannot_be_stored_or_sent_are_not_kept(api: ApiStandIn) -> None:
    fetched = fetch(api.url)
    long = Fetched(fetched.url, 200, {"ETag": "x" * 2000, "Last-Modified": "a\x01b"}, b"", False, fetched.hops, 0)
    assert not validators_of(long)
    assert validators_of(fetched)


# --- limits ---


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (silence, "no response in time"), (drip, "no response in time"), (broken_off, "the response was cut off"),
        (endless, "the body is larger than 1,048,576 bytes"),
        (raw(b" " * (1024 * 1024 + 1)), "the body is larger than 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_an_answer_beyond_its_limits_is_refused(
    api: ApiStandIn, waits: list[float], monkeypatch: pytest.MonkeyPatch, answer: Answer, reason: str
) -> None:
    api.script = [answer] * 4
    if "in time" in reason:
        monkeypatch.setattr(f"{__name__}.LIMITS", replace(LIMITS, max_seconds=0.3))
    assert reason in str(failure(api.url))


def test_nobody_there_is_one_clear_line(waits: list[float]) -> None:
    assert str(failure("http://127.0.0.1:1/schedules")) == (
        "GET http://127.0.0.1:1/schedules: the connection was refused"
    )


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://127.0.0.2/", "http://[::1]/", "http://10.0.0.1/"]
)
def test_a_redirect_to_the_inside_is_not_followed(waits: list[float], target: str) -> None:
    with ApiStandIn() as api:
        api.script = [redirect(target)]
        assert "is not a public address" in str(failure(api.url, networks="127.0.0.1/32"))
    assert waits == []


def test_a_redirect_that_leads_in_a_circle_is_refused(api: ApiStandIn, waits: list[float]) -> None:
    api.script = [redirect(api.url)] * 30
    assert "redirects" in str(failure(api.url))
    assert waits == []


# --- secrets ---


def test_the_token_is_sent_to_the_api(api: ApiStandIn) -> None:
    fetch(api.url, token="t0ken")
    assert api.requests[0]["authorization"] == "Bearer t0ken"


def test_the_token_wins_over_a_password_in_the_url(api: ApiStandIn) -> None:
    fetch(api.url.replace("://", "://anna:hunter2@"), token="t0ken")
    assert api.requests[0]["authorization"] == "Bearer t0ken"


def test_a_password_in_the_url_is_sent_to_the_api(api: ApiStandIn) -> None:
    fetch(api.url.replace("://", "://anna:hunter2@"))
    assert api.requests[0]["authorization"].startswith("Basic ")


@pytest.mark.parametrize("token", ["t0ken", None])
def test_no_secret_follows_a_redirect_to_another_site(api: ApiStandIn, token: str | None) -> None:
    with ApiStandIn() as other:
        api.script = [redirect(other.url)]
        fetch(api.url.replace("://", "://anna:hunter2@"), token=token)
        assert "authorization" in api.requests[0]
        assert "authorization" not in other.requests[0]


def test_the_token_stays_on_the_way_within_the_site(api: ApiStandIn) -> None:
    api.script = [redirect("/moved")]
    fetch(api.url, token="t0ken")
    assert [request["authorization"] for request in api.requests] == ["Bearer t0ken"] * 2


@pytest.mark.parametrize("make", [lambda url: url.replace("://", "://anna:hunter2@"), lambda url: f"{url}?key=hunter2"])
def test_no_message_has_a_secret(api: ApiStandIn, waits: list[float], make: Callable[[str], str]) -> None:
    for answer in (status(403), broken_off, redirect("http://169.254.169.254/")):
        api.script = [answer] * 4
        assert "hunter2" not in str(failure(make(api.url)))
        api.script = []
    with client(make(api.url)) as asking:
        assert "hunter2" not in asking.where


def test_nothing_known_asks_for_everything(api: ApiStandIn) -> None:
    with client(api.url) as asking:
        assert asking.fetch_if_changed(Validators(), lambda seconds: None) is not None
    assert not {"if-none-match", "if-modified-since"} & api.requests[0].keys()
