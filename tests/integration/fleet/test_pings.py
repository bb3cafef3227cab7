"""Pings of a schedule's ping_url, against a real receiver."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from config import Settings
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.fleet import pings as module
from services.fleet.pings import Pings
from services.ledger.fires import Claim, Ending
from services.telemetry import metrics
from tests.support.executions import Make, fire, store_of
from tests.support.ledger import Answer, Ledger
from tests.support.waiting import eventually

S = ExecutionStatus


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.fixture
def claim(db: DatabaseConnection, make: Make) -> Claim:
    with closing(store_of(db)) as store:
        (found,) = store.claim([fire(make(name="nightly"))], start=1).started
    return found


@contextmanager
def pinging(**more: Any) -> Iterator[Pings]:
    given = {"fetch_allowed_networks": "127.0.0.1", "job_secrets": "", **more}
    pings = Pings(Settings(_env_file=None, **given), secret={"HC_KEY": "s3cret-key"}.get, senders=1)
    yield pings
    pings.close()


def with_url(claim: Claim, url: str) -> Claim:
    return replace(claim, spec=replace(claim.spec, ping_url=url))


def outcomes() -> dict[str, float]:
    return {each: metrics.PINGS.labels(each)._value.get() for each in ("sent", "failed", "dropped")}


def since(before: dict[str, float]) -> dict[str, float]:
    return {each: count - before[each] for each, count in outcomes().items() if count != before[each]}


def test_the_start_the_success_and_the_failure_of_a_run_are_told_with_its_id(claim: Claim, ledger: Ledger) -> None:
    mine = with_url(claim, f"{ledger.url}/ping/abc?create=1")
    with pinging() as pings:
        pings.begun(mine)
        pings.ended(Ending(claim=mine, status=S.SUCCESS))
        pings.begun(mine)
        pings.ended(Ending(claim=mine, status=S.FAILED, error_message="the disk is full\nat line 7"))
        pings.ended(Ending(claim=mine, status=S.TIMED_OUT))
    sent = ledger.requests()
    assert [(each.method, each.path, each.body) for each in sent] == [
        ("POST", "/ping/abc/start", b""),
        ("POST", "/ping/abc", b""),
        ("POST", "/ping/abc/start", b""),
        ("POST", "/ping/abc/fail", b"failed: the disk is full\nat line 7"),
        ("POST", "/ping/abc/fail", b"timed_out"),
    ]
    for each in sent:
        assert parse_qs(urlsplit(each.target).query) == {"create": ["1"], "rid": [str(claim.execution_id)]}


def test_what_did_not_succeed_or_will_be_tried_again_tells_no_end(claim: Claim, ledger: Ledger) -> None:
    mine = with_url(claim, f"{ledger.url}/p")
    with pinging() as pings:
        for ending in (
            Ending(claim=mine, status=S.FAILED, error_message="again in 30 s", retry_in_seconds=30),
            Ending(claim=mine, status=S.SKIPPED, reason="paused"),
            Ending(claim=claim, status=S.SUCCESS),
        ):
            pings.ended(ending)
        pings.begun(claim)
        pings.begun(None)
        pings.ended(Ending(claim=mine, status=S.CANCELLED))
    assert [each.path for each in ledger.requests()] == ["/p/fail"]


def test_a_secret_is_sent_to_its_host_only_and_shown_nowhere(
    claim: Claim, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    mine = with_url(claim, f"{ledger.url}/${{env:HC_KEY}}/nightly")
    with caplog.at_level(logging.DEBUG, "services.fleet"):
        for secrets in ("HC_KEY@127.0.0.1", "HC_KEY@hc-ping.com", "", "OTHER"):
            with pinging(job_secrets=secrets) as pings:
                pings.begun(mine)
    assert [each.path for each in ledger.requests()] == ["/s3cret-key/nightly/start"]
    assert [record.getMessage() for record in caplog.records] == [
        "no ping for nightly could be sent: JOB_SECRETS allows HC_KEY for hc-ping.com only, not for 127.0.0.1",
        *["no ping for nightly could be sent: JOB_SECRETS does not list the environment variable HC_KEY, so jobs "
          "cannot use it"] * 2,
    ]  # fmt: skip


def test_a_private_address_gets_no_ping(
    claim: Claim, ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES_SECONDS", ())
    with caplog.at_level(logging.WARNING), pinging(fetch_allowed_networks="") as pings:
        pings.begun(with_url(claim, f"{ledger.url}/p"))
    assert ledger.requests() == []
    assert len(caplog.records) == 1


def test_an_outage_is_one_line_and_one_when_it_is_over(
    claim: Claim, ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES_SECONDS", (0.01,))
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.3)
    mine, before = with_url(claim, f"{ledger.url}/p"), outcomes()
    ledger.answer("/p/start", *[Answer(status=503)] * 3, Answer())
    with caplog.at_level(logging.INFO, "services.fleet"), pinging() as pings:
        for _ in range(10):
            pings.begun(mine)
        eventually(lambda: since(before) == {"failed": 1, "dropped": 9}, 5)
        eventually(lambda: not pings._is_down(module._ping(mine, module.START)), 5)
        pings.begun(mine)  # a probe, which fails
        eventually(lambda: since(before) == {"failed": 2, "dropped": 9}, 5)
        eventually(lambda: not pings._is_down(module._ping(mine, module.START)), 5)
        pings.begun(mine)
        eventually(lambda: since(before) == {"failed": 2, "dropped": 9, "sent": 1}, 5)
    assert [record.getMessage() for record in caplog.records] == [
        "no ping for nightly could be sent: its ping_url answered 503",
        "pings are being sent again, first for nightly",
    ]


def test_a_wrong_url_of_one_schedule_stops_no_ping_of_another(claim: Claim, ledger: Ledger) -> None:
    ledger.answer("/wrong/start", status=404)
    before = outcomes()
    with pinging() as pings:
        for path in ("wrong", "wrong", "right"):
            pings.begun(with_url(claim, f"{ledger.url}/{path}"))
    assert [each.path for each in ledger.requests()] == ["/wrong/start", "/right/start"]
    assert since(before) == {"failed": 1, "dropped": 1, "sent": 1}


def test_a_server_that_hangs_delays_no_run_and_fills_no_memory(
    claim: Claim, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_PINGS_SECONDS", 0.1)
    ledger.answer("/p/start", delay_seconds=20)
    mine, before = with_url(claim, f"{ledger.url}/p"), outcomes()
    with pinging() as pings:
        for _ in range(module.MAX_WAITING + 50):
            pings.begun(mine)
        assert since(before)["dropped"] >= 49
        assert pings._queues[0].qsize() <= module.MAX_WAITING


def test_without_a_ping_url_there_is_no_thread(claim: Claim) -> None:
    with pinging() as pings:
        pings.begun(claim)
        pings.ended(Ending(claim=claim, status=S.SUCCESS))
        assert pings._threads == []
