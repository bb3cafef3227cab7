"""The dead-man's switch of the fleet, with real replicas."""

from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.waiting import eventually


def test_the_fleet_pings_as_long_as_it_scans(cluster: Cluster, ledger: Ledger) -> None:
    cluster.start(1, FLEET_PING_URL=f"{ledger.url}/alive", GAP_SCAN_SECONDS="1.5")
    eventually(lambda: len(ledger.requests("/alive")) >= 2, 20)
    assert {request.method for request in ledger.requests()} == {"GET"}
