"""Hours that were counted once: the same answer as from the rows, and forgotten as soon as a row of theirs changes."""

from contextlib import closing
from typing import Any

import psycopg2
import pytest

from database.connection import DatabaseConnection
from services.job_history import JobHistory
from services.ledger.history_sql import STATISTICS
from services.ledger.tallies import ExecutionTallies, Spread, middle
from tests.support.waiting import eventually

FILL = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, started_at, duration_seconds,
                            created_at, scheduled_for, due_at)
SELECT gen_random_uuid(), 'job', 'host.example', gen_random_uuid(),
       CASE WHEN n % 9 = 0 THEN 'failed' WHEN n % 13 = 0 THEN 'skipped' ELSE 'success' END,
       at + make_interval(secs => n % 100 / 250.0), CASE WHEN n % 13 <> 0 THEN (n * 37 % 1000) / 100.0 END, at, at, at
FROM (SELECT n, now() - make_interval(mins => n) AS at FROM generate_series(1, 4000) AS n) AS planned
"""
COUNTED = "SELECT count(*) FROM execution_hours WHERE hour > '-infinity'"
TEN_HOURS_AGO = "created_at >= now() - interval '10 hours' AND created_at < now() - interval '9 hours 30 minutes'"


def run(db: DatabaseConnection, statement: str, values: dict[str, Any] | None = None) -> Any:
    with db.transaction() as connection:
        done = connection.exec_driver_sql(statement, values)
        return done.all() if done.returns_rows else None


@pytest.fixture
def tallies(db: DatabaseConnection) -> ExecutionTallies:
    """Three days of executions, all hours counted that can be."""
    run(db, FILL.replace("%", "%%"))
    found = ExecutionTallies(db)
    assert found.count_hours() == 0  # sets the mark
    eventually(found.count_hours, 60)  # transactions of other tests, on the same server, have to end first
    assert run(db, COUNTED)[0][0] in (65, 66)
    return found


def exact(db: DatabaseConnection, days: int) -> dict[str, Any]:
    return dict(run(db, STATISTICS, {"days": days})[0]._mapping)


@pytest.mark.parametrize("days", [1, 2, 30])
def test_counted_hours_answer_like_the_rows(tallies: ExecutionTallies, db: DatabaseConnection, days: int) -> None:
    found, wanted = JobHistory(db).get_execution_statistics(days), exact(db, days)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=0.025 if name.startswith("p") else 1e-9), name


@pytest.mark.parametrize(
    "change",
    [
        f"DELETE FROM job_executions WHERE {TEN_HOURS_AGO}",
        f"UPDATE job_executions SET duration_seconds = 5000 WHERE {TEN_HOURS_AGO}",
        f"UPDATE job_executions SET created_at = created_at - interval '5 hours' WHERE {TEN_HOURS_AGO}",
        FILL.replace("%", "%%"),
        "TRUNCATE job_executions",
    ],
    ids=["deleted", "changed", "moved", "added", "truncated"],
)
def test_an_hour_is_forgotten_when_its_executions_change(
    tallies: ExecutionTallies, db: DatabaseConnection, change: str
) -> None:
    run(db, change)
    found, wanted = JobHistory(db).get_execution_statistics(30), exact(db, 30)
    for name in ("total_executions", "failed", "skipped", "avg_duration", "max_duration"):
        assert found[name] == pytest.approx(wanted[name]), name


def test_an_hour_with_something_live_is_not_counted(tallies: ExecutionTallies, db: DatabaseConnection) -> None:
    ((counted,),) = run(db, COUNTED)
    run(
        db,
        """INSERT INTO job_executions (job_id, domain, domain_config_id, status, created_at)
           VALUES ('a', 'a', gen_random_uuid(), 'running', now() - interval '10 hours')""",
    )
    tallies.count_hours()
    assert run(db, COUNTED) == [(counted - 1,)]
    run(db, "UPDATE job_executions SET status = 'success' WHERE status = 'running'")
    assert tallies.count_hours() == 1
    assert run(db, COUNTED) == [(counted,)]


def test_nothing_is_counted_while_an_older_transaction_may_still_add_to_it(
    db: DatabaseConnection, database_url: str
) -> None:
    run(db, FILL.replace("%", "%%"))
    tallies = ExecutionTallies(db)
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO schedule_changes (operation, changed_by) VALUES ('insert', 'a slow one')")
        assert [tallies.count_hours() for _ in range(3)] == [0, 0, 0]
        other.rollback()
    assert eventually(tallies.count_hours, 60) > 60


def test_the_mark_of_how_far_hours_may_be_counted_moves_on_after_a_minute(
    tallies: ExecutionTallies, db: DatabaseConnection
) -> None:
    mark = "SELECT counted_at FROM execution_hours WHERE hour = '-infinity'"
    young = run(db, mark)
    tallies.count_hours()
    assert run(db, mark) == young
    run(db, "UPDATE execution_hours SET counted_at = counted_at - interval '1 hour' WHERE hour = '-infinity'")

    def moved_on() -> bool:
        tallies.count_hours()
        return bool(run(db, mark) >= young)

    eventually(moved_on, 60)  # transactions of other tests on this server hold it back


def test_a_replica_s_own_writes_forget_nothing(tallies: ExecutionTallies, db: DatabaseConnection) -> None:
    before = run(db, COUNTED)
    run(
        db,
        """INSERT INTO job_executions (job_id, domain, domain_config_id, status)
           VALUES ('a', 'a', gen_random_uuid(), 'claimed')""",
    )
    run(db, "UPDATE job_executions SET status = 'success' WHERE status = 'claimed'")
    assert run(db, COUNTED) == before


def test_a_place_is_never_more_than_two_percent_off() -> None:
    for place in range(-300, 400, 7):
        upper = 1.04**place
        for value in (upper, upper / 1.04 * 1.000001):
            assert abs(middle(place) / value - 1) <= 0.02
    assert Spread({}).percentile(0.5) == 0.0
    assert Spread({0: 1, 100: 1}).percentile(0.5) == pytest.approx((middle(0) + middle(100)) / 2)
    assert Spread({0: 1, 100: 1}).percentile(1.0) == middle(100)
    assert Spread({-352: 3}).percentile(0.99) == 0.0
