"""Rows that wait: who takes them, in which order, who ends them, and what they stand for."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection, DedicatedConnection
from database.models import ExecutionStatus
from services.job_history import JobHistory
from services.ledger import waiting_sql as sql
from services.ledger.backfill import Backfills
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Decision, Ending
from services.ledger.needs import Abilities
from services.ledger.waiting import PAUSES, Settling, TakeReport
from tests.support.executions import Make, ago, fire, rows, settle, settling_of, store_of


def change(db: DatabaseConnection, statement: str) -> None:
    with db.transaction() as connection:
        connection.execute(text(statement.replace(":", r"\:")))


def ask_for_runs(db: DatabaseConnection, *schedule_ids: UUID) -> None:
    for schedule_id in schedule_ids:
        JobHistory(db).request_run(schedule_id, actor="test")


@pytest.fixture
def settling(db: DatabaseConnection, store: ExecutionStore) -> Iterator[Settling]:
    with closing(settling_of(db, store)) as found:
        yield found


# --- take ---


def test_with_a_worker_it_is_started_by_the_write_that_takes_it(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    ask_for_runs(db, make(), make())
    report = store.waiting.take(10, start=1)
    assert (len(report.started), len(report.claims), report.more) == (1, 1, True)
    assert set(rows(db, "status, started_at IS NULL, fencing_token IS NULL")) == {
        ("running", False, False),
        ("claimed", True, False),
    }
    assert store.waiting.take(10, start=1) == TakeReport()


def test_a_new_row_is_as_urgent_as_its_schedule_before_anybody_has_sorted_it(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    """Else it would wait behind less urgent ones until a settler comes by."""
    ask_for_runs(db, make(priority=-5), make())
    store.give_away([fire(given := make(priority=9))])
    (back,) = store.claim([fire(make(priority=8))]).claims
    store.hand_back([back])
    (failed,) = store.start(store.claim([fire(make(priority=7))]).claims).started
    store.finish([Ending(claim=failed, status=ExecutionStatus.FAILED, retry_in_seconds=0.0)])
    backfilled = make(priority=6)
    Backfills(db, timedelta(days=30)).request(backfilled, ago(3), ago(2), actor="test")
    wished = make(priority=5)
    ask_for_runs(db, wished)
    taken = [store.waiting.take(1).claims[0].schedule_id for _ in range(5)]
    assert taken == [given, back.schedule_id, failed.schedule_id, backfilled, wished]


def test_the_most_urgent_row_goes_first_once_it_has_been_sorted(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    low, high, middle = make(priority=-5), make(priority=9), make()
    ask_for_runs(db, low, high, middle)
    settle(db, store)
    taken = [store.waiting.take(1).claims[0].schedule_id for _ in range(3)]
    assert taken == [high, middle, low]


def test_what_this_replica_cannot_run_is_sorted_once_and_then_left_alone(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    ask_for_runs(db, make(priority=3))
    other = store_of(db, abilities=Abilities(lambda: {"report"}))
    assert other.waiting.take(10) == TakeReport()
    assert rows(db, "queue, needs, priority") == [("default", ["job:noop"], 3)]
    assert other.waiting.lanes() == []
    assert len(store.waiting.take(10).claims) == 1
    assert rows(db, "queue, needs, settle_at") == [("", [], None)], "what is claimed and comes back is sorted anew"


def test_a_copy_that_is_wrong_costs_a_look_and_never_a_wrong_run(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    ask_for_runs(db, make())
    settle(db, store)
    change(db, "UPDATE schedules SET job_type = 'letter'")
    other = store_of(db, abilities=Abilities(lambda: {"noop"}))
    assert other.waiting.take(10) == TakeReport()
    assert rows(db, "status, needs") == [("pending", ["job:letter"])]


def test_rows_that_are_not_due_yet_take_no_place(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    later, due = make(), make()
    ask_for_runs(db, later, due)
    change(db, f"UPDATE job_executions SET due_at = now() + interval '1 hour' WHERE schedule_id = '{later}'")
    assert [claim.schedule_id for claim in store.waiting.take(1).claims] == [due]
    assert store.waiting.take(1) == TakeReport()


# --- settle ---


def test_a_row_is_settled_although_nobody_has_room_for_it(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make
) -> None:
    schedule_id = make()
    store.hand_back(store.claim([fire(schedule_id)]).claims)
    settling.settle_changed()
    assert rows(db) == [("pending", None)]
    change(db, "UPDATE schedules SET enabled = false")
    settling.settle_changed()
    assert rows(db) == [("skipped", "disabled")]


def test_rows_of_a_deleted_schedule_are_ended(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    settling.settle_changed()
    change(db, "DELETE FROM schedules")
    settling.settle_changed()
    assert rows(db) == [("skipped", "deleted")]


def test_a_schedule_that_somebody_held_is_looked_at_once_more(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    settling.settle_changed()
    change(db, "UPDATE schedules SET enabled = false")
    with db.transaction() as session:
        session.execute(text("SELECT FROM schedules FOR UPDATE"))
        settling.settle_changed()
        assert rows(db) == [("pending", None)]
    settling.settle_changed()
    assert rows(db) == [("skipped", "disabled")]


def test_a_row_that_a_broken_session_holds_is_looked_at_until_the_server_notices(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    now = 0.0
    with closing(settling_of(db, store, monotonic=lambda: now)) as settling:
        store.hand_back(store.claim([fire(make())]).claims)
        settling.settle_changed()
        change(db, "DELETE FROM schedules")
        with db.transaction() as session:
            session.execute(text("SELECT FROM job_executions FOR UPDATE"))
            for _ in range(2):
                settling.settle_changed()
        settling.settle_changed()
        assert rows(db) == [("pending", None)]  # not at every tick
        now += PAUSES[1]
        settling.settle_changed()
    assert rows(db) == [("skipped", "deleted")]


def test_a_row_says_when_it_has_to_be_looked_at_again(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make
) -> None:
    store.hand_back(store.claim([fire(make(misfire_grace_seconds=60), 5)]).claims)
    settling.settle_changed()
    assert [settling.settle() for _ in range(2)] == [1, 0]
    assert rows(db, "settle_at - due_at = interval '1 minute'") == [(True,)]
    change(db, "UPDATE schedules SET misfire_grace_seconds = 30")
    settling.settle_changed()
    assert rows(db, "status, settle_at - due_at = interval '30 seconds'") == [("pending", True)]


def test_a_row_that_outlives_its_deadline_does_not_fill_every_look(
    db: DatabaseConnection, settling: Settling, make: Make
) -> None:
    """A manual run is not missed when its grace is over: it runs late."""
    ask_for_runs(db, make(misfire_grace_seconds=10))
    change(db, "UPDATE job_executions SET due_at = now() - interval '1 hour'")
    assert [settling.settle() for _ in range(3)] == [1, 0, 0]
    assert rows(db, "status, settle_at > now() + interval '10 seconds'") == [("pending", True)]


def test_two_overdue_rows_of_a_schedule_with_room_are_no_overlap(
    db: DatabaseConnection, settling: Settling, make: Make
) -> None:
    schedule_id = make(misfire_grace_seconds=10)
    ask_for_runs(db, schedule_id, schedule_id)
    change(db, "UPDATE job_executions SET due_at = now() - interval '1 hour'")
    assert settling.settle() == 2
    assert rows(db) == [("pending", None)] * 2, "only whoever takes one takes the room of the other"


def test_settling_waits_for_nobody(db: DatabaseConnection, settling: Settling, make: Make) -> None:
    held, free = make(), make()
    ask_for_runs(db, held, free)
    change(db, "UPDATE job_executions SET due_at = now() - interval '2 seconds'")
    with db.transaction() as session:
        session.execute(text("SELECT FROM schedules WHERE schedule_id = :id FOR UPDATE"), {"id": held})
        assert settling.settle() == 1


def test_a_settler_that_starts_after_a_change_looks_at_what_it_changed(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    settle(db, store)
    change(db, "UPDATE schedules SET enabled = false")
    settling.settle_changed()
    assert rows(db) == [("skipped", "disabled")]


def test_a_change_that_commits_late_is_not_passed_over(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make
) -> None:
    late, early = make(), make()
    store.hand_back(store.claim([fire(late), fire(early)]).claims)
    settle(db, store)
    settling.settle_changed()
    with db.transaction() as session:
        session.execute(text("UPDATE schedules SET enabled = false WHERE schedule_id = :id"), {"id": late})
        change(db, f"UPDATE schedules SET enabled = false WHERE schedule_id = '{early}'")
        settling.settle_changed()
        settling.settle_changed()
        assert sorted(rows(db, "status")) == [("pending",), ("skipped",)]
    settling.settle_changed()
    assert rows(db) == [("skipped", "disabled")] * 2


# --- what a waiting row stands for ---


def test_a_later_fire_is_coalesced_into_the_row_that_waits(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make()
    first, second = fire(schedule_id, 3), fire(schedule_id, 2)
    store.hand_back(store.claim([first]).claims)
    assert store.claim([second]).decisions == {second: Decision.COALESCED}
    (claim,) = store.waiting.take(10).claims
    assert claim.scheduled_for == first.scheduled_for, "it does not stand in its own way"


def test_without_coalescing_a_later_fire_waits_behind_it(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make(coalesce=False, max_instances=5)
    first, second = fire(schedule_id, 3), fire(schedule_id, 2)
    store.hand_back(store.claim([first]).claims)
    assert store.claim([second], start=1).decisions == {second: Decision.LATER}
    assert [claim.scheduled_for for claim in store.waiting.take(10).claims] == [ago(3), ago(2)]


@pytest.mark.parametrize(
    "waiting",
    [
        "attempt = 2",
        "cause = 'manual'",
        "cause = 'backfill'",
        "cancel_requested_at = now()",
        "due_at = now() - interval '10 minutes'",
        "scheduled_for = (SELECT effective_from FROM schedules)",
    ],
)
def test_retries_people_s_wishes_and_rows_that_only_have_to_be_settled_stand_for_nothing(
    db: DatabaseConnection, store: ExecutionStore, make: Make, waiting: str
) -> None:
    schedule_id = make()
    store.hand_back(store.claim([fire(schedule_id, 3)]).claims)
    change(db, f"UPDATE job_executions SET {waiting}")
    assert len(store.claim([fire(schedule_id, 2)]).claims) == 1


def test_a_catch_up_run_that_waits_stands_for_a_fire(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    store.hand_back(store.claim([fire(schedule_id, 3)]).claims)
    change(db, "UPDATE job_executions SET cause = 'catchup'")
    due = fire(schedule_id, 2)
    assert store.claim([due]).decisions == {due: Decision.COALESCED}


# --- plans ---

COPY = """
INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, effective_from)
SELECT gen_random_uuid(), domain || n, job_type, frequency, time_config, effective_from
FROM schedules, generate_series(1, 500) AS n
"""
ENDED = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, status)
SELECT schedule_id, 'job', 'job', schedule_id, now() - n * interval '1 hour', 'success'
FROM schedules, generate_series(1, 5) AS n
"""
BEGIN_TO_WAIT = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, status, due_at, queue, needs,
                            priority)
SELECT schedule_id, 'job', 'job', schedule_id, now() - n * interval '1 second', 'pending', now() - interval '1 minute',
       'default', ARRAY['job:noop', 'label' || n], n
FROM schedules, generate_series(1, 10) AS n
"""
INDEX_OF = {
    "LANES": "job_executions_waiting_idx",
    "LOCK_LANES": "job_executions_waiting_idx",
    "LOCK_TO_SETTLE": "job_executions_settle_idx",
    "LOCK_CHANGED": "job_executions_standing_idx",
    "JUDGE_WAITING": "job_executions_live_idx",
}


def test_each_statement_reads_its_own_index_although_statistics_are_of_an_empty_queue(
    db: DatabaseConnection, store: ExecutionStore, settling: Settling, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: dict[str, str] = {}
    run, named = DedicatedConnection.run, {getattr(sql, name): name for name in INDEX_OF}

    def explained(self: DedicatedConnection, statement: str, values: dict[str, Any] | None = None) -> object:
        if statement in named:
            if self._opening:
                run(self, "SELECT")  # carries the BEGIN
            asked = run(self, f"EXPLAIN (COSTS OFF) {statement}", values)
            plans[named[statement]] = "\n".join(str(row[0]) for row in asked)
        return run(self, statement, values)

    make()
    with db.transaction() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.execute(text(COPY))
        connection.execute(text(ENDED))
    change(db, "ANALYZE")
    change(db, BEGIN_TO_WAIT)
    settling.settle_changed()
    change(db, "UPDATE schedules SET priority = 1")
    monkeypatch.setattr(DedicatedConnection, "run", explained)
    words = Abilities(lambda: {"noop"})
    store_of(db, abilities=words).waiting.take(10)
    ask_for_runs(db, *[row[0] for row in rows(db, "schedule_id")][:1])
    store.waiting.take(10)
    settling.settle()
    settling.settle_changed()
    assert plans.keys() == INDEX_OF.keys()
    for name, plan in plans.items():
        scans = re.findall(r"Scan (?:Backward )?(?:using|on) (job_executions_\w+_idx)", plan)
        one_step = {"job_executions_limited_idx"} if name == "LANES" else set()  # does anything wait for a limit?
        assert set(scans) <= {INDEX_OF[name], "job_executions_live_idx"} | one_step, (name, plan)
        assert "Seq Scan on job_executions" not in plan, (name, plan)
