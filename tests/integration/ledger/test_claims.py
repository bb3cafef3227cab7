"""Claims, starts and ends of executions in Postgres alone: what decides when Redis, clocks and timers do not."""

import threading
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.job_history import JobHistory
from services.ledger.claims import ExecutionStore, FinishReport
from services.ledger.claims_sql import CHANGES_LOOKED_AT
from services.ledger.fires import Claim, Decision, Ending
from tests.support.executions import Make, ago, fire, happened, missed, rows, settle, settling_of, store_of
from tests.support.statements import each_statement


def change(db: DatabaseConnection, sql: str) -> None:
    with db.transaction() as connection:
        connection.execute(text(sql.replace(":", r"\:")))


def ended(claim: Claim, status: ExecutionStatus = ExecutionStatus.SUCCESS, **more: Any) -> Ending:
    return Ending(claim=claim, status=status, duration_seconds=0.1, **more)


# --- claim ---


def test_the_first_to_ask_claims_a_fire_and_nobody_after(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    due = fire(make())
    assert store.claim([due]).decisions == {due: Decision.CLAIMED}
    assert store_of(db, "other").claim([due]).decisions == {due: Decision.EXISTS}
    assert rows(db, "status, instance_id") == [("claimed", "replica")]


def test_a_fire_that_was_finished_is_not_claimed_again(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    due = fire(make())
    (claim,) = store.claim([due]).claims
    store.start([claim])
    assert store.finish([ended(claim)]) == FinishReport()
    assert store_of(db, "late").claim([due]).decisions == {due: Decision.EXISTS}


def test_what_the_row_says_now_decides(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    cases: list[tuple[str, Decision]] = [
        ("UPDATE schedules SET enabled = false", Decision.DISABLED),
        ("UPDATE schedules SET time_config = '{\"seconds\": 7200}'", Decision.GONE),
        ("UPDATE schedules SET frequency = 'sometimes'", Decision.GONE),
        ("DELETE FROM schedules", Decision.GONE),
    ]
    for sql, decision in cases:
        due = fire(make(), seconds_ago=600)
        change(db, sql)
        assert store.claim([due]).decisions == {due: decision}, sql
        change(db, "DELETE FROM schedules")
    assert rows(db) == [("skipped", "disabled"), ("skipped", "changed"), ("skipped", "changed")]


def test_an_instant_that_is_no_fire_of_the_present_timing_leaves_nothing(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    stale = fire(make(time_config={"seconds": 7200}))
    assert store.claim([stale]).decisions == {stale: Decision.GONE}
    assert rows(db) == []


def test_a_fire_that_came_due_right_before_a_change_leaves_its_row(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    due = fire(make())
    change(db, "UPDATE schedules SET enabled = false")
    store.claim([due])
    assert rows(db) == [("skipped", "disabled")]


def test_a_fire_that_comes_due_after_its_schedule_was_switched_off_does_not_run(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    """Whoever hands it over has not heard of the change yet."""
    due = fire(make())
    happened(db, due.schedule_id, "enabled = false", ago(10))
    assert store.claim([due]).decisions == {due: Decision.DISABLED}
    assert rows(db) == []


def test_no_row_is_made_for_a_fire_of_a_time_at_which_the_schedule_was_off(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    """Whoever hands it over was cut off while somebody switched it off and on, and off again."""
    schedule_id = make()
    happened(db, schedule_id, "enabled = false", ago(40))
    happened(db, schedule_id, "enabled = true", ago(20))
    was_on, was_off = fire(schedule_id, 50), fire(schedule_id, 30)
    at_the_switch = fire(schedule_id, 40), fire(schedule_id, 20)  # an instant belongs to what was valid before it
    assert set(store.claim([was_on, was_off, *at_the_switch]).decisions.values()) == {Decision.GONE}
    assert rows(db, "scheduled_for, reason") == [(ago(50), "changed"), (ago(40), "changed")]
    happened(db, schedule_id, "enabled = false", ago(10))
    ended = fire(schedule_id, 15)
    assert set(store.claim([was_off, ended]).decisions.values()) == {Decision.DISABLED}
    assert rows(db, "scheduled_for, reason")[2:] == [(ago(15), "disabled")]


@pytest.mark.parametrize("former", ["time_config = '{\"seconds\": 7}'", "frequency = 'sometimes'"])
def test_no_row_is_made_for_an_instant_that_was_no_fire_of_the_timing_of_that_time(
    db: DatabaseConnection, store: ExecutionStore, make: Make, former: str
) -> None:
    schedule_id = make()
    happened(db, schedule_id, former, ago(40))
    happened(db, schedule_id, "frequency = 'interval', time_config = '{\"seconds\": 1}'", ago(20))
    instants = [fire(schedule_id, seconds) for seconds in range(39, 30, -1)]
    assert set(store.claim(instants).decisions.values()) == {Decision.GONE}
    expected = [each.scheduled_for for each in instants if "7" in former and each.scheduled_for.timestamp() % 7 == 0]
    assert [at for (at,) in rows(db, "scheduled_for")] == expected


def test_what_too_many_changes_hide_is_left_to_the_gap_scan(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make()
    for enabled in ("false", "true") * (CHANGES_LOOKED_AT // 2 + 1):
        change(db, f"UPDATE schedules SET enabled = {enabled}")
    assert set(store.claim([fire(schedule_id, 30)]).decisions.values()) == {Decision.GONE}
    assert rows(db) == []


def test_a_summary_fences_every_fire_that_it_speaks_for(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    """Also one that was put around others: an old hole that was found late."""
    schedule_id, other = make(), make()
    missed(db, schedule_id, ago(60), ago(10))
    missed(db, schedule_id, ago(40), ago(35))
    spoken_for = [fire(schedule_id, seconds) for seconds in (60, 40, 38, 20, 10)]
    free = [fire(schedule_id, 61), fire(schedule_id, 9), fire(other, 20)]
    assert store.without_row([*spoken_for, *free]) == free
    decisions = store.claim([*spoken_for, *free]).decisions
    assert [decisions[fire] for fire in spoken_for] == [Decision.EXISTS] * 5
    assert [decisions[fire] for fire in free] == [Decision.COALESCED, Decision.CLAIMED, Decision.CLAIMED]


def test_postgres_clock_says_what_is_early_and_what_is_too_old(store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    early, old = fire(schedule_id, seconds_ago=-30), fire(schedule_id, seconds_ago=90_000)
    assert store.claim([early, old]).decisions == {early: Decision.EARLY, old: Decision.TOO_OLD}


def test_spread_counts_for_early_and_late_but_not_for_the_fire_s_name(store: ExecutionStore, make: Make) -> None:
    spread = fire(make(spread_seconds=86_400))
    assert store.claim([spread]).decisions[spread] in (Decision.EARLY, Decision.CLAIMED)


def test_a_fire_that_is_too_late_is_recorded_as_missed(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    due = fire(make(misfire_grace_seconds=60), seconds_ago=100)
    assert store.claim([due]).decisions == {due: Decision.MISFIRE}
    assert rows(db) == [("missed", "misfire")]


def test_overdue_fires_of_one_schedule_become_one_run(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make()
    report = store.claim([fire(schedule_id, seconds) for seconds in (1, 3, 2)])
    assert [claim.scheduled_for for claim in report.claims] == [ago(1)]
    assert rows(db) == [("skipped", "coalesced"), ("skipped", "coalesced"), ("claimed", None)]


def test_without_coalescing_they_run_as_far_as_the_limit_allows(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make(coalesce=False, max_instances=2)
    first, second, third = (fire(schedule_id, seconds) for seconds in (3, 2, 1))
    report = store.claim([third, second, first])
    assert report.decisions == {first: Decision.CLAIMED, second: Decision.CLAIMED, third: Decision.LATER}
    assert rows(db) == [("claimed", None), ("claimed", None), ("pending", None)]
    assert store.waiting.take(10).claims == []
    store.start(report.claims)
    store.finish([ended(report.claims[0])])
    assert [claim.scheduled_for for claim in store.waiting.take(10).claims] == [ago(1)], "there is room for it now"


def test_without_coalescing_a_fire_that_meets_a_full_house_is_an_overlap(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make(coalesce=False)
    store.claim([fire(schedule_id, 3)])
    store.claim([fire(schedule_id, seconds) for seconds in (2, 1)])
    assert rows(db) == [("claimed", None), ("skipped", "overlap"), ("skipped", "overlap")]


def test_a_fire_meets_the_one_that_still_runs(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    (claim,) = store.claim([fire(schedule_id, 2)]).claims
    store.start([claim])
    overlapping = fire(schedule_id, 1)
    assert store_of(db, "other").claim([overlapping]).decisions == {overlapping: Decision.OVERLAP}
    store.finish([ended(claim)])
    following = fire(schedule_id, 0)
    assert store.claim([following]).decisions == {following: Decision.CLAIMED}


def test_a_batch_counts_only_the_fires_that_are_new(store: ExecutionStore, make: Make) -> None:
    schedule_id = make(coalesce=False)
    done, fresh = fire(schedule_id, 2), fire(schedule_id, 1)
    (claim,) = store.claim([done]).claims
    store.start([claim])
    store.finish([ended(claim)])
    assert store.claim([done, fresh]).decisions == {done: Decision.EXISTS, fresh: Decision.CLAIMED}


def test_a_schedule_that_somebody_holds_is_left_for_later(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    held, free = make(), make()
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM schedules WHERE schedule_id = %s FOR UPDATE", (held,))
        report = store.claim([fire(held), fire(free)])
    assert report.decisions == {fire(held): Decision.LOCKED, fire(free): Decision.CLAIMED}


def test_racing_replicas_never_exceed_the_limit_and_never_share_a_fire(db: DatabaseConnection, make: Make) -> None:
    ids = [make(coalesce=False) for _ in range(40)]
    fires = [fire(schedule_id, seconds) for schedule_id in ids for seconds in (1, 2, 3)]
    claims: list[Claim] = []
    barrier = threading.Barrier(3)

    def race(name: str) -> None:
        store = store_of(db, name)
        barrier.wait()
        waiting = fires
        while waiting:
            report = store.claim(waiting)
            claims.extend(report.claims)
            waiting = [fire for fire, decision in report.decisions.items() if decision is Decision.LOCKED]

    threads = [threading.Thread(target=race, args=[f"replica-{n}"]) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claim.schedule_id for claim in claims) == sorted(ids)
    assert len(rows(db)) == 120


def test_what_another_replica_claimed_before_the_lock_was_ours_is_counted(
    db: DatabaseConnection, database_url: str, make: Make
) -> None:
    """Whatever a claim counts before it holds the schedule may be too little by then."""
    schedule_id = make()
    theirs: list[Claim] = []

    def claim_before_the_lock(_driver: Any, statement: str, _values: Any) -> None:
        if "FROM schedules AS s" in statement and "SKIP LOCKED" in statement:
            theirs.extend(store_of(db, "quick").claim([fire(schedule_id, 2)]).claims)

    with (
        closing(DatabaseConnection(database_url)) as own,
        closing(store_of(own, "slow")) as store,
        each_statement(own, claim_before_the_lock),
    ):
        report = store.claim([fire(schedule_id, 1)])
    assert (len(theirs), list(report.decisions.values())) == (1, [Decision.OVERLAP])


def test_a_claim_moves_next_run_forward_and_never_back(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make()
    change(db, "UPDATE schedules SET next_run = '2099-01-01 00:00+00'")
    store.claim([fire(schedule_id)])
    with db.transaction() as connection:
        assert connection.execute(text("SELECT next_run FROM schedules")).scalar_one().year == 2099


# --- start ---


def test_a_start_uses_the_definition_of_that_moment(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    (claim,) = store.claim([fire(make())]).claims
    change(db, "UPDATE schedules SET job_config = '{\"new\": true}'")
    assert store.start([claim]).started == []
    newer = store.look_again(claim)
    assert newer is not None
    assert newer.spec.job_config == {"new": True}
    assert store.start([newer]).started == [newer]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("UPDATE schedules SET enabled = false", "disabled"),
        ("UPDATE schedules SET time_config = '{\"seconds\": 7200}'", "changed"),
        ("DELETE FROM schedules", "deleted"),
    ],
)
def test_what_was_withdrawn_between_claim_and_start_is_skipped(
    db: DatabaseConnection, store: ExecutionStore, make: Make, sql: str, reason: str
) -> None:
    (claim,) = store.claim([fire(make())]).claims
    change(db, sql)
    assert store.start([claim]).started == []
    assert store.look_again(claim) is None
    assert rows(db) == [("skipped", reason)]


def test_a_start_with_an_old_token_is_refused(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    (claim,) = store.claim([fire(make())]).claims
    stale = replace(claim, fencing_token=claim.fencing_token - 1)
    assert store.start([stale]).started == []
    assert store.look_again(stale) is None
    assert rows(db) == [("claimed", None)]


# --- finish ---


def test_an_end_is_written_once_and_only_by_its_owner(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (claim,) = store.claim([fire(make())]).claims
    store.start([claim])
    stale = replace(claim, fencing_token=claim.fencing_token - 1)
    assert store.finish([ended(stale, ExecutionStatus.FAILED)]).refused == [stale]
    assert store.finish([ended(claim)]) == FinishReport()
    assert store.finish([ended(claim, ExecutionStatus.FAILED)]).refused == [claim]
    assert rows(db) == [("success", None)]


def test_a_schedule_that_somebody_holds_does_not_keep_other_results_waiting(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    held, free = store.claim([fire(make()), fire(make())]).claims
    store.start([held, free])
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM schedules WHERE schedule_id = %s FOR UPDATE", (held.schedule_id,))
        report = store.finish([ended(held), ended(free)])
    assert ([ending.claim for ending in report.later], report.refused) == ([held], [])
    assert store.finish(report.later) == FinishReport()
    assert rows(db) == [("success", None), ("success", None)]


def test_a_fire_that_is_handed_over_twice_is_not_coalesced_with_itself(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    due = fire(make())
    assert len(store.claim([due, due]).claims) == 1
    assert rows(db) == [("claimed", None)]


def test_only_the_newest_claim_of_an_execution_can_be_started(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (old,) = store.claim([fire(make())]).claims
    store.hand_back([old])
    (new,) = store.waiting.take(10).claims
    assert old.execution_id == new.execution_id
    assert store.start([old, new]).started == [new]
    assert store.look_again(old) is None


def test_a_waiting_row_does_not_fill_the_place_of_another(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    busy, idle = make(), make()
    store.claim([fire(busy)])
    pending = """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, cause, due_at)
                 VALUES ('{}', 'job', 'x', gen_random_uuid(), 'pending', '{}', now() - interval '{} seconds')"""
    long_ago = [("backfill", 200_000), ("backfill", 199_999)]
    for cause, seconds in (*long_ago, ("catchup", 5000), ("schedule", 4000), ("manual", 8), ("manual", 7)):
        change(db, pending.format(busy, cause, seconds))
    change(db, pending.format(idle, "manual", 1))
    (claim,) = store.waiting.take(2).claims
    assert claim.schedule_id == idle


def test_a_row_whose_schedule_somebody_holds_does_not_fill_the_place_of_another(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    held, free = make(), make()
    history = JobHistory(db)
    for schedule_id in (held, free):
        history.request_run(schedule_id, actor="test")
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM schedules WHERE schedule_id = %s FOR UPDATE", (held,))
        assert [claim.schedule_id for claim in store.waiting.take(1).claims] == [free]
    assert [claim.schedule_id for claim in store.waiting.take(1).claims] == [held]


def test_a_waiting_row_of_a_deleted_schedule_is_skipped_beside_others(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    deleted, present = make(), make()
    history = JobHistory(db)
    for schedule_id in (deleted, present):
        history.request_run(schedule_id, actor="test")
    change(db, f"DELETE FROM schedules WHERE schedule_id = '{deleted}'")
    assert [claim.schedule_id for claim in store.waiting.take(10).claims] == [present]
    settle(db, store)
    assert rows(db) == [("skipped", "deleted"), ("claimed", None)]


def test_nobody_waits_for_a_row_of_a_deleted_schedule_that_another_replica_ends_right_now(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    deleted, present = make(), make()
    history = JobHistory(db)
    for schedule_id in (deleted, present):
        history.request_run(schedule_id, actor="test")
    change(db, f"DELETE FROM schedules WHERE schedule_id = '{deleted}'")
    with db.transaction() as connection:  # a lock timeout, which would be an error, is two seconds
        connection.exec_driver_sql("SELECT FROM job_executions WHERE schedule_id = %s FOR UPDATE", (deleted,))
        with closing(settling_of(db, store)) as settling:
            assert settling.settle() == 0
        assert [claim.schedule_id for claim in store.waiting.take(10).claims] == [present]
    settle(db, store)
    assert ("skipped", "deleted") in rows(db)


def test_what_was_cancelled_is_neither_retried_nor_run(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (claim,) = store.claim([fire(make())]).claims
    store.start([claim])
    change(db, "UPDATE job_executions SET cancel_requested_at = now()")
    store.finish([ended(claim, ExecutionStatus.FAILED, retry_in_seconds=0.0)])
    assert rows(db, "attempt, status") == [(1, "failed")]
    (other,) = store.claim([fire(make())]).claims
    store.hand_back([other])
    change(db, "UPDATE job_executions SET cancel_requested_at = now() WHERE status = 'pending'")
    assert store.waiting.take(10).claims == []
    assert ("cancelled",) in rows(db, "status")


def test_what_was_started_and_never_called_goes_back(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    (claim,) = store.claim([fire(make())]).claims
    store.start([claim])
    store.unstart([claim])
    assert rows(db, "status, started_at, attempt") == [("pending", None, 1)]


def test_a_failure_plans_its_next_attempt_in_the_same_commit(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (claim,) = store.claim([fire(make())]).claims
    store.start([claim])
    store.finish([ended(claim, ExecutionStatus.FAILED, retry_in_seconds=0.0, error_message="no")])
    assert rows(db, "attempt, status") == [(1, "failed"), (2, "pending")]
    (retry,) = store_of(db, "other").waiting.take(10).claims
    assert (retry.attempt, retry.scheduled_for) == (2, claim.scheduled_for)
    assert retry.fencing_token > claim.fencing_token


def test_a_retry_of_a_switched_off_schedule_is_skipped(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (claim,) = store.claim([fire(make())]).claims
    store.start([claim])
    store.finish([ended(claim, ExecutionStatus.FAILED, retry_in_seconds=0.0)])
    change(db, "UPDATE schedules SET enabled = false")
    assert store.waiting.take(10).claims == []
    assert rows(db, "attempt, status, reason") == [(1, "failed", None), (2, "skipped", "disabled")]


def test_a_claim_that_is_handed_back_is_anybody_s(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    (claim,) = store.claim([fire(make())]).claims
    store.hand_back([claim])
    assert rows(db, "status, instance_id") == [("pending", None)]
    (again,) = store_of(db, "other").waiting.take(10).claims
    assert (again.execution_id, again.attempt) == (claim.execution_id, 1)
    assert store.start([claim]).started == [], "its former owner lost it"


def test_what_was_claimed_again_is_not_handed_back_by_its_former_owner(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (old,) = store.claim([fire(make())]).claims
    store.hand_back([old])
    other = store_of(db, "other")
    (new,) = other.waiting.take(10).claims
    store.hand_back([old])
    assert rows(db, "status, fencing_token") == [("claimed", new.fencing_token)]
    other.start([new])
    store.unstart([old])
    assert rows(db, "status, fencing_token") == [("running", new.fencing_token)]


def test_a_fire_that_was_handed_back_is_missed_when_its_grace_is_over(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    store.hand_back(store.claim([fire(make(misfire_grace_seconds=60), 2)]).claims)
    change(db, "UPDATE job_executions SET due_at = due_at - interval '1 minute'")
    assert store.waiting.take(10).claims == []
    assert rows(db) == [("missed", "misfire")]


def test_a_fire_that_was_handed_back_does_not_run_under_another_timing(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    change(db, "UPDATE schedules SET time_config = '{\"seconds\": 7200}'")
    assert store.waiting.take(10).claims == []
    assert rows(db) == [("skipped", "changed")]


def test_an_end_whose_acknowledgement_was_lost_is_not_refused_when_it_is_written_again(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    (claim,) = store.claim([fire(make())], start=1).started
    assert store.finish([ended(claim)]) == FinishReport()
    assert store.finish([ended(claim)]) == FinishReport()
    change(db, "UPDATE job_executions SET fencing_token = fencing_token + 1")
    assert store.finish([ended(claim)]).refused == [claim]


def test_a_claim_is_on_disk_before_it_counts_although_the_database_does_not_wait_for_its_disk(
    database_url: str, make: Make
) -> None:
    with closing(DatabaseConnection(database_url)) as careless, careless.transaction() as connection:
        name = connection.engine.url.database
        connection.execute(text(f'ALTER DATABASE "{name}" SET synchronous_commit = off'))
    said: list[str] = []

    def ask_before_a_commit(driver: Any, statement: str, _values: Any) -> None:
        if statement == "COMMIT":
            with driver.cursor() as cursor:
                cursor.execute("SHOW synchronous_commit")
                said.extend(cursor.fetchone())

    with (
        closing(DatabaseConnection(database_url)) as db,
        closing(store_of(db)) as store,
        each_statement(db, ask_before_a_commit),
    ):
        claims = store.claim([fire(make())]).claims
        store.start(claims)
        store.finish([ended(claim) for claim in claims])
    assert said == ["on"] * 3


@pytest.mark.parametrize("column", ["scheduled_for", "due_at"])
def test_a_pending_row_with_a_date_that_python_cannot_read_keeps_no_other_one_waiting(
    db: DatabaseConnection, store: ExecutionStore, make: Make, column: str
) -> None:
    """Written by SQL. It made every claim of pending rows fail, for ever and on all replicas."""
    bad, good = make(), make()
    store.hand_back(store.claim([fire(bad), fire(good)]).claims)
    change(db, f"UPDATE job_executions SET {column} = '0044-01-01 BC', cause = 'manual' WHERE schedule_id = '{bad}'")
    claims = store.waiting.take(10).claims
    assert good in {claim.schedule_id for claim in claims}


def test_pending_rows_wait_while_their_schedule_runs(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    (claim,) = store.claim([fire(schedule_id)]).claims
    JobHistory(db).request_run(schedule_id, actor="test")
    assert store.waiting.take(10).claims == []
    store.start([claim])
    store.finish([ended(claim)])
    assert len(store.waiting.take(10).claims) == 1


def test_only_a_person_s_run_gives_up_waiting_for_its_turn(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make(misfire_grace_seconds=5)
    (blocker,) = store.claim([fire(schedule_id)]).claims
    for cause, minutes in (("manual", 10), ("catchup", 20)):
        change(
            db,
            f"""INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, cause, due_at)
                VALUES ('{schedule_id}', 'job', 'x', gen_random_uuid(), 'pending', '{cause}',
                        now() - interval '{minutes} minutes')""",
        )
    settle(db, store)
    assert set(rows(db, "cause, status, reason")) == {
        ("schedule", "claimed", None),
        ("manual", "skipped", "overlap"),
        ("catchup", "pending", None),
    }
    assert blocker.schedule_id == schedule_id


def test_endings_and_claims_in_all_orders_leave_no_deadlock(db: DatabaseConnection, make: Make) -> None:
    ids = [make(coalesce=False, max_instances=50) for _ in range(20)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        store = store_of(db, f"replica-{number}")
        order = ids if number % 2 else ids[::-1]
        try:
            for second in range(1, 15):
                claims = store.claim([fire(schedule_id, 60 * number + second) for schedule_id in order]).claims
                store.start(claims)
                endings = [ended(claim) for claim in reversed(claims)]
                while endings:
                    endings = store.finish(endings).later
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {status for status, _ in rows(db)} == {"success"}
