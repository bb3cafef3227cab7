"""The floor of `make bench ARGS=burst`: the statements of the engine in a bare loop."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.designs import ledger
from benchmarks.designs.floor import BareLoop
from benchmarks.designs.plan import Plan
from database.connection import DatabaseConnection
from services.embedded import Addresses
from services.redis_client import RedisClient
from tests.support.executions import Make, rows


def test_the_floor_runs_every_fire_with_the_statements_of_the_engine(
    db: DatabaseConnection, servers: Addresses, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PART": "0", "MAX_WORKERS": "2", ledger.VARIABLE: str(tmp_path / "ledger")}.items():
        monkeypatch.setenv(name, value)
    ledger._file.cache_clear()
    ids, redis = [make() for _ in range(3)], RedisClient(servers.redis_url)
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
    loop = BareLoop(db, redis)
    (batch,) = loop.batches(0, 1)
    loop._at = at
    loop.work(batch)
    redis.close()
    assert sorted(rows(db, "schedule_id, status")) == sorted((schedule_id, "success") for schedule_id in ids)
    assert ledger.Ledger(tmp_path / "ledger").tally(Plan(3, at), ids).run == 3
