"""Celery workers beside the replicas of a test, on a queue of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from tests.support.fleet import Fleet
from tests.support.replicas import Cluster

FleetOf = Callable[[Cluster], Fleet]


@pytest.fixture
def fleet_of(request: pytest.FixtureRequest) -> Iterator[FleetOf]:
    """For a cluster of the test's choice. All that the test starts are gone after it."""
    with ExitStack() as ends:

        def fleet_of(cluster: Cluster) -> Fleet:
            fleet = Fleet(cluster, f"fleet-{uuid4().hex[:8]}")
            ends.callback(lambda: request.node.user_properties.append(("logs", fleet.logs())))
            ends.callback(fleet.end)
            return fleet

        yield fleet_of


@pytest.fixture
def fleet(cluster: Cluster, fleet_of: FleetOf) -> Fleet:
    return fleet_of(cluster)
