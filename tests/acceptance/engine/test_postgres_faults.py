"""Postgres goes away and comes back; clocks that are wrong against its own. Lines of the failure table."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from services.insight.audit import audit
from services.insight.overview import Overview, Trouble
from tests.acceptance.conftest import Breakable
from tests.support.ledger import Ledger
from tests.support.replicas import Cluster, Replica
from tests.support.rows import (
    MISSED,
    calls,
    count,
    every_run_was_seen,
    every_second,
    gauge,
    has_run,
    nothing_twice_and_no_gap,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.waiting import eventually


def test_postgres_may_vanish_and_nothing_is_lost(breakable: Breakable, ledger: Ledger) -> None:
    """What runs keeps its result; what comes due meanwhile runs late, or is missed if its grace is shorter."""
    cluster = breakable.cluster
    cluster.start(2)
    ledger.answer("/slow", delay_seconds=3)
    during_the_outage = soon(8)
    slow, patient, impatient = (
        repository(cluster).create_schedule(**once(at, **calls(ledger, path)), misfire_grace_seconds=grace)
        for path, at, grace in (
            ("/slow", soon(3), 60),
            ("/patient", during_the_outage, 60),
            ("/impatient", during_the_outage, 1),
        )
    )
    repository(cluster).save_schedules(every_second(**calls(ledger, "/quick")) for _ in range(3))
    ((since,),) = cluster.rows("SELECT min(effective_from) FROM schedules")
    eventually(lambda: len(ledger.requests("/slow")) == 1, 20)
    breakable.servers.stop_postgres("immediate")
    assert datetime.now(UTC) < during_the_outage, "the machine is too slow for this test"
    seen = len(ledger.requests("/quick"))
    eventually(lambda: datetime.now(UTC) > during_the_outage + timedelta(seconds=2), 20)  # slow's result has to wait
    assert len(ledger.requests("/quick")) - seen <= 6, "nothing new is started without a row"
    assert ledger.requests("/patient") == ledger.requests("/impatient") == []
    breakable.servers.start_postgres()
    ((back_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: has_run(cluster, slow) and has_run(cluster, patient), 30)
    eventually(lambda: count(cluster, f"schedule_id = '{impatient}'") == 1, 30)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    missed = cluster.rows(f"SELECT schedule_id::text, reason FROM job_executions WHERE {MISSED}")
    named = {str(slow), str(patient), str(impatient)}
    assert [row for row in missed if row[0] in named] == [(str(impatient), "misfire")]
    # A replica may inherit a share before its holder is seen alive again: then the catch-up rule decides.
    assert {reason for schedule, reason in missed if schedule not in named} <= {"downtime", "catchup_cap"}
    report = audit(cluster.db, since, back_at, settle_seconds=0)
    assert report.is_clean, report
    assert report.accounted == report.expected >= 3 * 8
    every_run_was_seen(cluster, ledger)
    assert ledger.requests("/impatient") == []
    for replica in cluster.replicas:  # one line when it begins and one when it is over, not two per loop and second
        log = replica.log
        eventually(lambda log=log: times_said(log, "server_available") == times_said(log, "server_unavailable"), 30)  # type: ignore[misc]
        assert times_said(log, "server_unavailable") <= 4


def times_said(log: Path, event: str) -> int:
    return log.read_text().count(f'"event": "{event}"')


# --- a schema that does not fit ---


def test_a_replica_whose_claims_all_fail_says_so_and_comes_back_by_itself(cluster: Cluster, free_port: int) -> None:
    """A column vanishes under it, and is there again."""
    (replica,) = cluster.start(1, METRICS_PORT=str(free_port))
    repository(cluster).save_schedules(every_second(misfire_grace_seconds=600, coalesce=False) for _ in range(3))
    eventually(lambda: count(cluster, "status = 'success'") >= 6, 20)
    assert readiness(free_port) == (200, [])
    cluster.run("ALTER TABLE schedules RENAME COLUMN max_instances TO gone")
    eventually(lambda: readiness(free_port)[0] == 503, 20)
    (reason,) = readiness(free_port)[1]
    assert reason.startswith("failing repeatedly: dispatcher (UndefinedColumn: column s.max_instances")
    eventually(lambda: gauge(free_port, "scheduler_claiming") == 0, 10)
    eventually(lambda: cluster.rows("SELECT claiming FROM scheduler_instances") == [(False,)], 10)
    (idle,) = [item for item in Overview(cluster.db).attention() if item.trouble is Trouble.IDLE]
    assert (idle.label, idle.words) == (replica.name, f"is alive, but claims nothing: {reason}")
    cluster.run("ALTER TABLE schedules RENAME COLUMN gone TO max_instances")
    eventually(lambda: cluster.rows("SELECT claiming FROM scheduler_instances") == [(True,)], 10)
    eventually(lambda: readiness(free_port) == (200, []), 10)
    before = count(cluster, "status = 'success'")
    eventually(lambda: count(cluster, "status = 'success'") >= before + 6, 20)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    assert count(cluster, f"status = 'failed' OR {MISSED}") == 0, "what came due meanwhile ran late"
    failed = [loop for loop, line in of_loops(replica) if "Traceback" in line]
    assert "dispatcher" in failed
    assert len(failed) == len(set(failed)), "one of each loop that needs the column"
    eventually(lambda: {loop for loop, line in of_loops(replica) if '"loop_recovered"' in line} == set(failed), 20)
    assert len(of_loops(replica)) <= 8 * len(failed), "not a line per fire"


def of_loops(replica: Replica) -> list[tuple[str, str]]:
    """The lines that its loops have written, with the name of each loop."""
    lines = [line for line in replica.log.read_text().splitlines() if '"loop_' in line]
    return [(json.loads(line)["message"].split()[0], line) for line in lines]


def readiness(port: int) -> tuple[int, list[str]]:
    """The status of /readyz, and its reasons."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return answer.status, []
    except HTTPError as refusal:
        return refusal.code, json.load(refusal)["reasons"]


# --- clocks ---


@pytest.mark.parametrize("skew", ["0.05", "-0.05", "1", "-1"])
def test_small_clock_skew_causes_no_duplicate_and_no_early_start(cluster: Cluster, skew: str) -> None:
    cluster.one("exact")
    cluster.one("skewed", PYTHONPATH="tests/support/skewed", SKEW_SECONDS=skew)
    cluster.await_live({"exact", "skewed"})
    repository(cluster).save_schedules(every_second() for _ in range(10))
    eventually(lambda: count(cluster, "status = 'success'") >= 50, 30)
    for name in ("exact", "skewed"):
        eventually(lambda: count(cluster, f"instance_id = '{name}' AND status = 'success'") > 0, 30)  # noqa: B023
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    assert count(cluster, "started_at < scheduled_for - interval '25 ms'") == 0


@pytest.mark.parametrize("skew", ["10", "-10"])
def test_a_replica_whose_clock_is_far_off_claims_nothing_and_says_so(cluster: Cluster, skew: str) -> None:
    cluster.one("exact")
    wrong = cluster.one("wrong", PYTHONPATH="tests/support/skewed", SKEW_SECONDS=skew)
    cluster.await_live({"exact", "wrong"})
    repository(cluster).save_schedules(every_second() for _ in range(5))
    eventually(lambda: count(cluster, "status = 'success'") >= 15, 20)
    assert wrong.says("clock_skew")
    assert count(cluster, "instance_id = 'wrong'") == 0
    assert cluster.rows("SELECT claiming FROM scheduler_instances WHERE instance_id = 'wrong'") == [(False,)]
