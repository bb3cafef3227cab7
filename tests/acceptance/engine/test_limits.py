"""Limits over all replicas, judged from outside: never more than two calls of a key at once, and everything ran."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from services.insight.audit import audit
from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.rows import OPEN, count, every_run_was_seen, soon
from tests.support.waiting import eventually

KEYS, FIRES_OF_EACH, AT_ONCE, SECONDS = 100, 5, 2, 0.25
SCHEDULES = """
INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, limit_keys, job_config, max_retries)
SELECT gen_random_uuid(), 'job', 'http_request', 'once', jsonb_build_object('at', %s::text),
       ARRAY['customer:' || mod(n, %s)], jsonb_build_object('url', %s || '/' || mod(n, %s)), 2
FROM generate_series(1, %s) AS n
"""


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as opened:
        for key in range(KEYS):
            opened.answer(f"/{key}", delay_seconds=SECONDS)
        yield opened


def most_at_once(ledger: Ledger) -> int:
    """Of one key. A call lasts at least as long as its answer is held back."""
    changes: defaultdict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for request in ledger.requests():
        changes[request.path] += [(request.received_at, 1), (request.received_at + timedelta(seconds=SECONDS), -1)]
    most = 0
    for of_key in changes.values():
        together = 0
        for _, change in sorted(of_key):
            together += change
            most = max(most, together)
    return most


def test_a_hundred_keys_share_the_replicas_two_at_a_time_although_one_is_killed(
    cluster: Cluster, ledger: Ledger
) -> None:
    cluster.run("INSERT INTO limits (name, max_running) VALUES ('customer:*', %s)", AT_ONCE)
    victim, *_ = cluster.start(3, MAX_WORKERS="40")
    at, wanted = soon(4), KEYS * FIRES_OF_EACH
    cluster.run(SCHEDULES, at.isoformat(), KEYS, ledger.url, KEYS, wanted)
    eventually(lambda: len(ledger.requests()) > wanted // 5, 60)
    victim.kill()
    assert count(cluster, "status = 'pending' AND reason LIKE 'limit:customer:%%'") > 0
    eventually(lambda: count(cluster, "status = 'success'") == wanted, 90)
    assert most_at_once(ledger) == AT_ONCE, "they were called at once, and never more than that"
    assert count(cluster, OPEN) == 0
    assert cluster.rows("SELECT DISTINCT status FROM job_executions ORDER BY 1") in (
        [("abandoned",), ("success",)],
        [("success",)],
    )
    every_run_was_seen(cluster, ledger)
    assert audit(cluster.db, at - timedelta(minutes=1)).is_clean
