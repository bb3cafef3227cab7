"""Schedules for replicas to run, and checks of the rows they leave."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen

from services.jobs import JobRegistry
from services.schedule_repository import ScheduleRepository
from tests.support.ledger import Ledger, Request
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

PLAIN = {"noop", "sleep", "patient", "fail", "fork", "talk", "http_request"}
JOBS = JobRegistry({*PLAIN, "async_sleep", "async_block", "async_fail", "async_hang"})
OPEN = "status IN ('pending', 'claimed', 'running')"
MISSED = "status = 'missed' AND reason <> 'changed'"  # that is a fire which switch_off was quicker than


def soon(seconds: float) -> datetime:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)


def once(at: datetime, **more: Any) -> dict[str, Any]:
    return {"domain": "job", "job_type": "noop", "frequency": "once", "time_config": {"at": at.isoformat()}, **more}


def every_second(**more: Any) -> dict[str, Any]:
    return {"domain": "job", "job_type": "noop", "frequency": "interval", "time_config": {"seconds": 1}, **more}


def calls(ledger: Ledger, path: str = "/") -> dict[str, Any]:
    """A job whose calls are visible from outside."""
    return {"job_type": "http_request", "job_config": {"url": f"{ledger.url}{path}"}}


def repository(cluster: Cluster) -> ScheduleRepository:
    return ScheduleRepository(cluster.db, JOBS)


def count(cluster: Cluster, where: str = "true") -> int:
    return int(cluster.rows(f"SELECT count(*) FROM job_executions WHERE {where}")[0][0])


def has_run(cluster: Cluster, schedule_id: object) -> bool:
    return count(cluster, f"schedule_id = '{schedule_id}' AND status = 'success'") == 1


def switch_off(cluster: Cluster, timeout_seconds: float = 30) -> None:
    """Disables everything, and waits until open executions have ended."""
    cluster.run("UPDATE schedules SET enabled = false WHERE enabled")
    eventually(lambda: count(cluster, OPEN) == 0, timeout_seconds)


def nothing_twice_and_no_gap(cluster: Cluster) -> None:
    """Each schedule that fires every second has one row per second, and no fire ran more than once."""
    twice = "SELECT schedule_id, scheduled_for, attempt FROM job_executions GROUP BY 1, 2, 3 HAVING count(*) > 1"
    assert cluster.rows(twice) == []
    assert cluster.called_twice() == []
    eventually(lambda: no_gap(cluster), 20)  # a replica may hold some of the last fires without a row yet


def no_gap(cluster: Cluster) -> bool:
    assert gaps(cluster) == []
    return True


def gaps(cluster: Cluster) -> list[tuple[object, ...]]:
    return cluster.rows(
        """SELECT schedule_id, at FROM (
               SELECT schedule_id, scheduled_for AS at,
                      scheduled_for - lag(scheduled_for) OVER (PARTITION BY schedule_id ORDER BY scheduled_for) AS step
               FROM job_executions WHERE attempt = 1 AND cause IN ('schedule', 'catchup')) AS steps
           WHERE step > interval '1 second'"""
    )


def every_run_was_seen(cluster: Cluster, ledger: Ledger) -> None:
    """From outside: every success was called exactly once, and nothing was called without a row."""
    seen = [request.headers["X-Execution-Id"] for request in ledger.requests()]
    rows = dict(cluster.rows(CALLABLE))
    assert len(seen) == len(set(seen))
    assert {key for key, status in rows.items() if status == "success"} <= set(seen) <= rows.keys()
    assert ledger.called_twice() == []


CALLABLE = "SELECT execution_id::text, status FROM job_executions WHERE started_at IS NOT NULL"


def rows_at_each_request(cluster: Cluster, ledger: Ledger) -> list[bool]:
    """Whether, at the moment of each request, the row of its execution was committed as running, with its token."""
    seen: list[bool] = []

    def look(request: Request) -> None:
        wanted = request.headers["X-Execution-Id"]
        sql = "SELECT status, fencing_token::text, attempt::text FROM job_executions WHERE execution_id = %s::uuid"
        claimed = request.headers["X-Fencing-Token"], request.headers["X-Attempt"]
        seen.append(cluster.rows(sql, wanted) == [("running", *claimed)])

    ledger.witness = look
    return seen


def never_two_at_once(cluster: Cluster) -> None:
    """No execution of a schedule started before the previous one had ended."""
    together = cluster.rows(
        """SELECT schedule_id, started_at FROM (
               SELECT schedule_id, started_at,
                      max(coalesce(completed_at, 'infinity')) OVER (
                          PARTITION BY schedule_id ORDER BY started_at, execution_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS free_at
               FROM job_executions WHERE started_at IS NOT NULL) AS runs
           WHERE started_at < free_at"""
    )
    assert together == []


def gauge(port: int, name: str) -> float:
    """A gauge from a replica's /metrics."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])
