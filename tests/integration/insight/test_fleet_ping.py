"""FLEET_PING_URL is called after each whole gap scan of the fleet, and never otherwise."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from pydantic import SecretStr

from config import Settings
from database.connection import DatabaseConnection
from services.insight.fleet_ping import FleetPing
from tests.support.ledger import Answer, Ledger

Watched = Callable[[timedelta], None]
FRESH = timedelta(seconds=20)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.fixture
def watched(db: DatabaseConnection) -> Watched:
    """All fires are accounted for up to a moment so long ago."""

    def write(ago: timedelta) -> None:
        with db.transaction() as connection:
            connection.exec_driver_sql("DELETE FROM fires_watched")
            connection.exec_driver_sql(
                "INSERT INTO fires_watched (since, until) VALUES ('2020-01-01', clock_timestamp() - %s)", (ago,)
            )

    return write


@pytest.fixture
def pinging(db: DatabaseConnection, ledger: Ledger) -> Iterator[Callable[..., FleetPing]]:
    made: list[FleetPing] = []

    def make(is_mine: bool = True) -> FleetPing:
        """The server is at a private address, which only this setting may name."""
        made.append(FleetPing(Settings(_env_file=None), db, SecretStr(f"{ledger.url}/ping")))
        made[-1].send_if(lambda: is_mine)
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_ping_follows_each_scan_that_brought_the_fleet_forward(
    pinging: Callable[..., FleetPing], watched: Watched, ledger: Ledger
) -> None:
    ping = pinging()
    ping.tick()
    assert ledger.requests() == []  # no scan has ended
    for done in (FRESH, FRESH / 2):
        watched(done)
        ping.tick()
        ping.tick()  # nothing new has been scanned
    assert [request.path for request in ledger.requests()] == ["/ping", "/ping"]


def test_a_scan_that_got_stuck_or_is_far_behind_is_silence(
    pinging: Callable[..., FleetPing], watched: Watched, ledger: Ledger
) -> None:
    watched(timedelta(minutes=10))
    pinging().tick()
    assert ledger.requests() == []


def test_one_replica_pings_for_all(pinging: Callable[..., FleetPing], watched: Watched, ledger: Ledger) -> None:
    watched(FRESH)
    pinging(is_mine=False).tick()
    assert ledger.requests() == []


def test_a_ping_that_failed_is_repeated_and_the_log_names_no_address(
    pinging: Callable[..., FleetPing], watched: Watched, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.answer("/ping", Answer(503), Answer(503), Answer(200))
    watched(FRESH)
    ping = pinging()
    with caplog.at_level(logging.INFO):
        for _ in range(4):
            ping.tick()
    assert len(ledger.requests()) == 3
    said = [record.getMessage() for record in caplog.records if record.name == "services.insight.fleet_ping"]
    assert said == ["no ping could be sent: FLEET_PING_URL answered 503", "pings are sent again"]
