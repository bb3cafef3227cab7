"""Scale of each scenario: the full measurement, or a quick one that shows within two minutes that everything works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    bursts: tuple[int, ...]
    steady_seconds: int
    loads: tuple[int, ...]
    changes: int
    history_rows: int
    claim_fires: int
    replicas: tuple[int, ...]
    replicas_seconds: tuple[int, int, int]  # settling, idle, fires
    shared: int  # schedules
    limited: int  # fires
    fleet_seconds: tuple[int, int]  # idle, executions
    peers: bool = False


FULL = Scale(
    rounds=3,
    bursts=(100, 1000, 10_000),
    steady_seconds=60,
    loads=(1000, 10_000, 100_000, 1_000_000),
    changes=50,
    history_rows=1_000_000,
    claim_fires=10_000,
    replicas=(1, 3, 6, 12),
    replicas_seconds=(20, 20, 30),
    shared=3_000_000,
    limited=10_000,
    fleet_seconds=(10, 20),
)
QUICK = Scale(
    rounds=1,
    bursts=(1000,),
    steady_seconds=10,
    loads=(1000, 10_000),
    changes=20,
    history_rows=50_000,
    claim_fires=2000,
    replicas=(1, 3),
    replicas_seconds=(3, 5, 5),
    shared=20_000,
    limited=1000,
    fleet_seconds=(4, 5),
)
