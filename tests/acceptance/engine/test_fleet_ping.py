"""The dead-man's switch of the fleet, with real replicas."""

from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.waiting import eventually


def test_the_fleet_pings_as_long_as_it_scans_also_after_a_replica_died(cluster: Cluster, ledger: Ledger) -> None:
    first, _ = cluster.start(2, FLEET_PING_URL=f"{ledger.url}/alive", GAP_SCAN_SECONDS="1.5")
    eventually(lambda: len(ledger.requests("/alive")) >= 2, 20)
    first.kill()
    before = len(ledger.requests("/alive"))
    eventually(lambda: len(ledger.requests("/alive")) >= before + 2, 40)
