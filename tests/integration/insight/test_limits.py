"""What runs and waits for limits, from rows as replicas write them; and that looking costs little."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.insight import limits_sql as sql
from services.insight.limits import Freed, LimitUses
from services.schedules.limits import Limits
from tests.support.executions import Make

NOW = datetime.now(UTC)


@pytest.fixture
def uses(db: DatabaseConnection) -> LimitUses:
    return LimitUses(db)


def limit(db: DatabaseConnection, name: str, max_running: int = 2, **more: Any) -> None:
    Limits(db).add({"name": name, "max_running": max_running, **more}, "test")


def row(
    db: DatabaseConnection, *keys: str, waits_for: str | None = None, waited: float = 0, schedule: UUID | None = None
) -> UUID:
    """An execution that runs with these keys, or that waits for one."""
    execution_id, due_at = uuid4(), datetime.now(UTC) - timedelta(seconds=waited)
    values = {
        "execution_id": execution_id,
        "schedule_id": schedule or uuid4(),
        "status": "running" if waits_for is None else "pending",
        "reason": None if waits_for is None else f"limit:{waits_for}",
        "keys": list(keys),
        "due_at": due_at,
        "started_at": due_at if waits_for is None else None,
    }
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (execution_id, schedule_id, job_id, domain, domain_config_id, status, reason,
                                           limit_keys, scheduled_for, due_at, started_at)
               VALUES (%(execution_id)s, %(schedule_id)s, 'job', 'job', %(schedule_id)s, %(status)s, %(reason)s,
                       %(keys)s, %(due_at)s, %(due_at)s, %(started_at)s)""",
            values,
        )
    return execution_id


def test_what_runs_and_waits_is_told_by_the_limit_that_counts(db: DatabaseConnection, uses: LimitUses) -> None:
    limit(db, "customer:*", 5)
    limit(db, "customer:42", 2)
    limit(db, "customer:4*", 3)
    limit(db, "customer:43", 1, enabled=False)
    row(db, "customer:42", "job:noop")
    row(db, "customer:42", "job:noop")
    row(db, waits_for="customer:42", waited=40)
    row(db, waits_for="customer:42", waited=3)
    row(db, "customer:43")
    row(db, "customer:7")
    found = uses.look()
    counts = {name: (use.running, use.waiting) for name, use in found.items()}
    assert counts == {"customer:42": (2, 2), "customer:4*": (1, 0), "customer:*": (1, 0)}
    assert found["customer:42"].oldest_seconds == pytest.approx(40, abs=20)
    assert [key.key for key in found["customer:4*"].keys] == ["customer:43"], "its own limit is disabled"


def test_the_executions_of_a_key_are_told_with_the_longest_waiting_first(
    db: DatabaseConnection, uses: LimitUses
) -> None:
    row(db, waits_for="other", waited=99)
    young, old = row(db, waits_for="customer:42", waited=1), row(db, waits_for="customer:42", waited=50)
    running = row(db, "customer:42", "job:noop")
    found = uses.executions(["customer:42"])
    assert [one.execution_id for one in found] == [running, old, young]
    assert {one.key for one in found} == {"customer:42"}


def test_a_deletion_says_how_many_schedules_it_frees_and_what_counts_then(
    db: DatabaseConnection, uses: LimitUses, make: Make
) -> None:
    for name in ("*", "customer:*", "customer:42", "job:noop"):
        limit(db, name, 3)
    make(limit_keys=["customer:42", "site:a"])
    make(limit_keys=["customer:42"])
    make(limit_keys=["customer:7", "customer:8"])
    make()
    freed = {name: uses.freed_without(Limits(db).find(name)) for name in ("customer:42", "customer:*", "job:noop", "*")}
    assert freed == {
        "customer:42": Freed(2, "customer:*"),
        "customer:*": Freed(1, "*"),
        "job:noop": Freed(4, "*"),
        "*": Freed(1, None),
    }
    assert freed["*"].words == "1 schedule would be no longer limited by this key"
    Limits(db).edit("customer:42", {"enabled": False}, "test")
    assert uses.freed_without(Limits(db).find("customer:42")) == Freed(0, None)


def test_what_has_waited_too_long_is_told_by_key(db: DatabaseConnection, uses: LimitUses) -> None:
    limit(db, "customer:*", 0)
    row(db, waits_for="customer:1", waited=4000)
    row(db, waits_for="customer:1", waited=5000)
    row(db, waits_for="customer:2", waited=10)
    (held,) = uses.held(3600)
    assert (held.key, held.limit, held.waiting) == ("customer:1", "customer:*", 2)
    told = "2 executions have waited too long for limit customer:1 (max_running 0): the first for 1 h 23 min"
    assert held.words.startswith(told)


def test_the_figures_of_a_pattern_are_one_whatever_its_keys(db: DatabaseConnection, uses: LimitUses) -> None:
    limit(db, "customer:*", 1)
    for number in range(5):
        row(db, f"customer:{number}")
        row(db, waits_for=f"customer:{number}", waited=60 * number)
    (figures,) = uses.figures().items()
    assert figures[0] == "customer:*"
    assert figures[1][:2] == (5, 5)
    assert figures[1][2] == pytest.approx(240, abs=30)


def test_a_key_of_which_very_many_wait_is_not_counted_to_its_end(
    db: DatabaseConnection, uses: LimitUses, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(db, "customer:*", 1)
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, scheduled_for,
                                           due_at)
               SELECT gen_random_uuid(), 'job', 'job', gen_random_uuid(), 'pending', 'limit:customer:1', now(), now()
               FROM generate_series(1, %(n)s)""",
            {"n": sql.MOST_WAITING + 5},
        )
    use = uses.look()["customer:*"]
    assert use.waiting_words == f"more than {sql.MOST_WAITING:,}"


FILL = """
INSERT INTO limits (name, max_running) SELECT 'customer:' || n, 2 FROM generate_series(1, 300) AS n;
INSERT INTO limits (name, max_running) VALUES ('customer:*', 1);
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, created_at)
SELECT gen_random_uuid(), 'job', 'job', gen_random_uuid(), 'success', now() - make_interval(mins => n),
       now() - make_interval(mins => n) FROM generate_series(1, 30000) AS n;
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, scheduled_for, due_at,
                            created_at)
SELECT gen_random_uuid(), 'job', 'job', gen_random_uuid(), 'pending', 'limit:customer:' || mod(n, 100),
       now() - make_interval(secs => n), now() - make_interval(secs => n), now() - make_interval(secs => n)
FROM generate_series(1, 5000) AS n;
"""


def test_looking_at_limits_reads_what_runs_and_waits_and_not_the_history(db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(FILL)
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM (ANALYZE) job_executions, limits")
    asked: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
        "USES": (sql.USES, {}, ("job_executions_limited_idx", "job_executions_live_idx")),
        "EXECUTIONS": (
            sql.EXECUTIONS,
            {"keys": ["customer:7"], "limit": 50},
            ("job_executions_limited_idx", "job_executions_live_idx"),
        ),
        "HELD": (sql.HELD, {"seconds": 3600, "limit": 20}, ("job_executions_pending_idx",)),
        "OF_KEY": (sql.OF_KEY, {"key": "customer:7"}, ("job_executions_live_idx",)),
    }
    for name, (statement, values, indexes) in asked.items():
        with db.transaction() as connection:
            plan = "\n".join(connection.exec_driver_sql("EXPLAIN " + statement, values or None).scalars())
        assert "Seq Scan on job_executions" not in plan, f"{name}: {plan}"
        for index in indexes:
            assert re.search(rf"using {index}|on {index}", plan), f"{name} without {index}: {plan}"
