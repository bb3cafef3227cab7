"""Limits across schedules: who gets a place, what waits for one and how long, and that no claim waits for a lock."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection

from database.connection import DatabaseConnection, DedicatedConnection
from database.models import ExecutionStatus
from services.job_history import JobHistory
from services.ledger import claims_sql, limits_sql, waiting_sql
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Decision, Ending, Fire
from services.ledger.limits import Limited
from services.ledger.waiting import TakeReport
from tests.integration.ledger.test_needs import alive, store_with
from tests.support.executions import Make, fire, rows, settle, settling_of, store_of

A, B = "customer:a", "customer:b"


def run(db: DatabaseConnection, statement: str, *values: object) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(statement, values)


def limit(db: DatabaseConnection, name: str, most: int, *, enabled: bool = True) -> None:
    run(
        db,
        """INSERT INTO limits (name, max_running, enabled) VALUES (%s, %s, %s)
           ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, enabled = excluded.enabled""",
        name,
        most,
        enabled,
    )


def due(make: Make, count: int, *keys: str, **more: Any) -> list[Fire]:
    return [fire(make(limit_keys=list(keys), **more), 2) for _ in range(count)]


def finish(store: ExecutionStore, claims: list[Claim]) -> None:
    store.finish([Ending(claim=each, status=ExecutionStatus.SUCCESS) for each in store.start(claims).started])


@contextmanager
def held(db: DatabaseConnection, statement: str) -> Iterator[Connection]:
    """By a session that has stopped in the middle of its transaction."""
    with db.engine.connect() as other:
        other.exec_driver_sql(statement)
        yield other
        other.rollback()


def reasons(db: DatabaseConnection) -> list[tuple[Any, ...]]:
    return sorted(rows(db, "status, coalesce(reason, '')"))


# --- who gets a place ---


def test_what_a_limit_has_no_room_for_waits_with_its_key(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 2)
    fires = due(make, 3, A) + due(make, 1)
    report = store.claim(fires, start=1)
    assert list(report.decisions.values()).count(Decision.LATER) == 1
    assert reasons(db) == [("claimed", "")] * 2 + [("pending", f"limit:{A}"), ("running", "")]
    assert sorted(rows(db, "limit_keys")) == [([A, "job:noop"],)] * 3 + [(["job:noop"],)]
    assert store.waiting.take(10) == TakeReport()


def test_every_schedule_counts_for_its_job_type(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    limit(db, "job:noop", 1)
    store.claim(due(make, 2))
    assert reasons(db) == [("claimed", ""), ("pending", "limit:job:noop")]


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"*": (3, True)}, 3),
        ({"*": (3, True), "customer:*": (2, True)}, 2),
        ({"*": (3, True), "customer:*": (2, True), A: (1, True)}, 1),
        ({"customer:*": (2, True), A: (1, False)}, 2),
        ({"*": (3, True), "customer:*": (1, False)}, 3),
        ({"customer:b*": (1, True), "client:*": (1, True)}, 4),
        ({A: (0, True)}, 0),
    ],
)
def test_its_own_limit_goes_before_the_longest_pattern_and_what_is_disabled_is_none(
    db: DatabaseConnection, store: ExecutionStore, make: Make, limits: dict[str, tuple[int, bool]], most: int
) -> None:
    for name, (number, enabled) in limits.items():
        limit(db, name, number, enabled=enabled)
    assert len(store.claim(due(make, 4, A)).claims) == most


def test_a_fire_gets_all_of_its_places_or_none(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    limit(db, A, 1)
    limit(db, B, 1)
    (first,), (both,), (last,) = due(make, 1, B), due(make, 1, A, B), due(make, 1, A)
    report = store.claim([first, both, last])
    assert report.decisions == {first: Decision.CLAIMED, both: Decision.LATER, last: Decision.CLAIMED}
    assert ("pending", f"limit:{B}") in reasons(db)


def test_what_does_not_run_for_another_reason_takes_no_place(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 2)
    busy = make(limit_keys=[A])
    store.claim([fire(busy, 3)])
    overlapping, free = fire(busy), fire(make(limit_keys=[A]))
    assert store.claim([overlapping, free]).decisions == {overlapping: Decision.OVERLAP, free: Decision.CLAIMED}


def test_places_are_given_in_order_and_only_to_who_wants_one() -> None:
    limited = Limited({"a": 1, "b": 2})
    asked = [["a", "b"], ["a", "z"], ["b", "z"], ["z"], ["b"]]
    assert limited.without_room(asked, [0, 1, 2, 3], {}) == [None, "a", None, None, "b"]
    assert limited.without_room(asked, [1, 2, 3, 4], {"b": 1}) == ["a", None, None, None, "b"]


def test_two_replicas_at_once_never_exceed_a_limit(db: DatabaseConnection, make: Make) -> None:
    limit(db, A, 1)
    one, other = store_of(db, "one"), store_of(db, "other")
    (first, second) = due(make, 2, A)
    original = DedicatedConnection.run
    told: list[Any] = []

    def meanwhile(self: DedicatedConnection, statement: str, values: Any = None) -> Any:
        if "RETURNING execution_id" in statement and self is one._connection and not told:
            told.append(None)
            told[0] = other.claim([second]).decisions
        return original(self, statement, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DedicatedConnection, "run", meanwhile)
        assert len(one.claim([first]).claims) == 1
    assert told == [{second: Decision.LOCKED}], "its stripe was taken: it waits for nothing and decides nothing"
    assert other.claim([second]).decisions == {second: Decision.LATER}


# --- no claim waits for a lock ---


def test_a_limit_that_somebody_edits_and_forgets_stops_no_claim(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 1)
    with held(db, "UPDATE limits SET max_running = 0"):
        assert len(store.claim(due(make, 2, A)).claims) == 1


def test_a_frozen_holder_of_a_stripe_stops_only_its_keys(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, "customer:*", 1)
    stripe = f"(hashtextextended('{A}', 0) & 1023)"
    (stuck,), (free,), (plain,) = due(make, 1, A), due(make, 1, B), due(make, 1)
    with held(db, f"SELECT FROM limit_stripes WHERE stripe = {stripe} FOR UPDATE"):
        told = store.claim([stuck, free, plain]).decisions
        assert told == {stuck: Decision.LOCKED, free: Decision.CLAIMED, plain: Decision.CLAIMED}
        JobHistory(db).request_run(stuck.schedule_id, actor="test")
        assert store.waiting.take(10) == TakeReport(more=True), "left for the next time, soon"
    assert len(store.waiting.take(10).claims) == 1


def test_with_an_empty_table_a_claim_asks_nothing_more(
    db: DatabaseConnection, store: ExecutionStore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = DedicatedConnection.run

    def noted(self: DedicatedConnection, statement: str, values: Any = None) -> Any:
        asked.append(statement)
        return original(self, statement, values)

    fires = due(make, 2, A)
    monkeypatch.setattr("services.ledger.claims.YOUNGEST", timedelta(minutes=1))
    monkeypatch.setattr(DedicatedConnection, "run", noted)
    store.claim(fires)
    assert asked == [claims_sql.LOCK_SCHEDULES, claims_sql.INSERT_CLAIMS, "COMMIT"]
    asked.clear()
    JobHistory(db).request_run(make(limit_keys=[A]), actor="test")
    store.waiting.take(10)
    assert asked == [waiting_sql.LANES, waiting_sql.LOCK_LANES, waiting_sql.JUDGE_WAITING, "COMMIT"]


# --- what waits ---


def ask_for_runs(db: DatabaseConnection, schedule_ids: list[UUID]) -> None:
    """Each older than the next; no schedule has waited for its limit yet."""
    for at, schedule_id in enumerate(schedule_ids):
        ask_for_a_run(db, schedule_id)
        age = f"{len(schedule_ids) - at} minutes"
        run(db, "UPDATE job_executions SET due_at = now() - %s::interval WHERE schedule_id = %s", age, schedule_id)


def test_rows_of_a_full_key_keep_none_behind_them_waiting(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    limit(db, B, 1)
    full, free = [make(limit_keys=[A]) for _ in range(20)], [make(limit_keys=[B]), make(limit_keys=[B]), make(), make()]
    ask_for_runs(db, full + free)
    report = store.waiting.take(1, start=1)
    assert ([claim.schedule_id for claim in report.started], report.claims) == (free[:1], [])
    told = rows(db, "schedule_id, status, reason")
    assert {row[1:] for row in told if row[0] in full} == {("pending", f"limit:{A}")}
    assert next(row[1:] for row in told if row[0] == free[1]) == ("pending", f"limit:{B}"), "its place has been given"
    assert next(row[1:] for row in told if row[0] == free[2]) == ("pending", None), "beyond the count: left as it is"
    report = store.waiting.take(1, start=1)
    assert ([claim.schedule_id for claim in report.started], report.claims) == (free[2:3], [])


def test_what_is_looked_at_beyond_the_count_takes_no_place(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    limit(db, B, 1)
    full, free = [make(limit_keys=[A]) for _ in range(5)], [make(), make(limit_keys=[B]), make(limit_keys=[B])]
    ask_for_runs(db, full + free)
    report = store.waiting.take(1)
    assert [claim.schedule_id for claim in report.claims] == free[:1]
    assert reasons(db).count(("pending", "")) == 2, "both of them have room"
    overlapping = make(limit_keys=[B], max_instances=1)
    ask_for_runs(db, [overlapping] * 3)
    taken = [claim.schedule_id for _ in range(5) for claim in store.waiting.take(1).claims]
    assert len(taken) == 1, "the limit counts, whatever was looked at"


def test_a_row_of_a_full_key_takes_no_worker_from_the_next(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    ask_for_runs(db, [full := make(limit_keys=[A]), free := make()])
    assert [claim.schedule_id for claim in store.waiting.take(10, start=1).started] == [free]
    assert full != free


def test_a_frozen_holder_of_a_stripe_stops_nothing_behind_its_rows(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 1)
    stuck, free = [make(limit_keys=[A]) for _ in range(3)], make()
    ask_for_runs(db, [*stuck, free])
    with held(db, f"SELECT FROM limit_stripes WHERE stripe = (hashtextextended('{A}', 0) & 1023) FOR UPDATE"):
        assert [claim.schedule_id for claim in store.waiting.take(2).claims] == [free]


def test_a_freed_place_is_looked_for_by_its_key(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    limit(db, "customer:*", 1)
    claims = store.claim(due(make, 2, A) + due(make, 2, B)).claims
    assert {claim.limits for claim in claims} == {(A,), (B,)}
    (ended,) = [claim for claim in claims if claim.limits == (A,)]
    finish(store, [ended])
    assert [lane.reason for lane in store.waiting.lanes([B], are_next=False)] == []
    (claim,) = store.waiting.take(10, freed=[A], are_next=False).claims
    assert (claim.limits, claim.has_waited) == ((A,), True)
    assert reasons(db) == [("claimed", "")] * 2 + [("pending", f"limit:{B}"), ("success", "")]


def test_the_most_urgent_row_gets_the_place_then_the_oldest(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    low, high = make(limit_keys=[A]), make(limit_keys=[A], priority=5)
    older = make(limit_keys=[A])
    store.claim([fire(low, 2), fire(high, 1), fire(older, 3)])
    limit(db, A, 1)
    taken = []
    for _ in range(3):
        (claim,) = store.waiting.take(10).claims
        taken.append(claim.schedule_id)
        finish(store, [claim])
    assert taken == [high, older, low]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE limits SET max_running = 5",
        "UPDATE limits SET enabled = false",
        "DELETE FROM limits",
    ],
)
def test_a_changed_limit_counts_from_the_next_start_on(
    db: DatabaseConnection, store: ExecutionStore, make: Make, change: str
) -> None:
    limit(db, A, 1)
    store.claim(due(make, 3, A))
    assert store.waiting.take(10) == TakeReport()
    run(db, change)
    assert len(store.waiting.take(10).claims) == 2


def test_a_limit_counts_what_ran_before_there_was_one(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    store.claim(due(make, 2, A))
    limit(db, A, 2)
    assert store.claim(due(make, 1, A)).claims == []


def test_a_schedule_that_drops_its_key_waits_no_longer(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    store.claim(due(make, 1, A))
    with closing(settling_of(db, store)) as settling:
        settling.settle_changed()
        run(db, "UPDATE schedules SET limit_keys = %s", [B])
        settling.settle_changed()
    assert reasons(db) == [("pending", "")]
    assert len(store.waiting.take(10).claims) == 1
    assert rows(db, "limit_keys") == [([B, "job:noop"],)]


def test_a_claim_whose_keys_change_before_its_start_is_judged_anew(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    (claim,) = store.claim(due(make, 1)).claims
    run(db, "UPDATE schedules SET limit_keys = %s", [A])
    assert store.start([claim]).started == []
    assert store.look_again(claim) is None
    store.waiting.take(10)
    assert reasons(db) == [("pending", f"limit:{A}")]


def ask_for_a_run(db: DatabaseConnection, schedule_id: UUID) -> None:
    JobHistory(db).request_run(schedule_id, actor="test")


def test_manual_runs_and_retries_wait_for_a_limit_too(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 1)
    ask_for_a_run(db, make(limit_keys=[A]))
    (claim,) = store.waiting.take(10).claims
    ask_for_a_run(db, make(limit_keys=[A]))
    assert store.waiting.take(10).claims == []
    assert reasons(db) == [("claimed", ""), ("pending", f"limit:{A}")]
    (started,) = store.start([claim]).started
    store.finish([Ending(claim=started, status=ExecutionStatus.FAILED, retry_in_seconds=0.0)])
    assert len(store.waiting.take(10).claims) == 1, "the place is free again: the first run or the retry"
    store.waiting.take(10)
    assert ("pending", f"limit:{A}") in reasons(db)


def test_what_waits_for_a_limit_has_a_day_instead_of_its_grace(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    store.claim(due(make, 1, A, misfire_grace_seconds=60))
    for hours, then in ((23, ("pending", f"limit:{A}")), (25, ("missed", "limit"))):
        run(db, f"UPDATE job_executions SET due_at = now() - interval '{hours} hours'")
        settle(db, store)
        assert reasons(db) == [then]


def test_what_got_its_place_and_comes_back_keeps_that_day(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    store.claim(due(make, 1, A, misfire_grace_seconds=60))
    run(db, "UPDATE job_executions SET due_at = now() - interval '1 hour'")
    run(db, "DELETE FROM limits")
    store.hand_back(store.waiting.take(10).claims)
    settle(db, store)
    assert reasons(db) == [("pending", "")]
    assert len(store.waiting.take(10).claims) == 1


def test_what_waits_for_a_limit_stands_for_its_schedule(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 0)
    schedule_id = make(limit_keys=[A], misfire_grace_seconds=60)
    store.claim([fire(schedule_id, 2)])
    run(db, "UPDATE job_executions SET due_at = now() - interval '1 hour'")
    later = fire(schedule_id)
    assert store.claim([later]).decisions == {later: Decision.COALESCED}


def test_what_waits_for_a_limit_is_not_late(db: DatabaseConnection, store: ExecutionStore, make: Make) -> None:
    limit(db, A, 0)
    store.claim(due(make, 1, A))
    run(db, "UPDATE job_executions SET due_at = now() - interval '1 hour'")
    limit(db, A, 1)
    finish(store, store.waiting.take(10).claims)
    assert JobHistory(db).get_execution_statistics(1)["p99_lateness"] == 0
    assert rows(db, "metadata") == [({"waited_for_limit": A},)]


def test_while_an_older_replica_lives_nothing_is_held_for_limits(db: DatabaseConnection, make: Make) -> None:
    ours, old = store_with(db), store_with(db, name="old")
    limit(db, A, 0)
    ours.claim(due(make, 1, A))
    alive(db, old, elder=True)
    ours.waiting.lanes()
    assert len(ours.claim(due(make, 1, A)).claims) == 1
    assert len(ours.waiting.take(10).claims) == 1


def test_while_a_replica_that_knows_abilities_but_no_limits_lives_nothing_is_held_for_them(
    db: DatabaseConnection, make: Make
) -> None:
    ours, earlier = store_with(db), store_with(db, name="earlier build of 0.2.0")
    alive(db, ours)
    alive(db, earlier)
    limit(db, A, 0)
    ours.waiting.lanes()
    ours.claim(due(make, 1, A))
    assert reasons(db) == [("pending", f"limit:{A}")]
    run(db, "UPDATE scheduler_instances SET free_slots = NULL WHERE instance_id LIKE 'earlier%%'")
    ours.waiting.lanes()
    assert len(ours.claim(due(make, 1, A)).claims) == 1
    assert len(ours.waiting.take(10).claims) == 1
    needy = make(requires=["gpu"])
    assert ours.claim([fire(needy)]).claims == [], "it knows labels, so they count"


def test_rows_of_a_version_without_keys_count_for_nothing(
    db: DatabaseConnection, store: ExecutionStore, make: Make
) -> None:
    limit(db, A, 1)
    store.claim(due(make, 1, A))
    run(db, "UPDATE job_executions SET limit_keys = '{}'")
    assert len(store.claim(due(make, 1, A)).claims) == 1


def test_what_another_replica_has_to_run_does_not_fill_the_room_of_a_key(db: DatabaseConnection, make: Make) -> None:
    plain, server = store_with(db), store_with(db, name="server", queues=("browser",))
    limit(db, A, 0)
    server.claim(due(make, 5, A, queue="browser"))
    plain.claim(due(make, 1, A))
    limit(db, A, 1)
    assert len(plain.waiting.take(10).claims) == 1
    assert server.waiting.take(10) == TakeReport()


def test_the_keys_that_wait_are_looked_at_by_turns(
    db: DatabaseConnection, store: ExecutionStore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ledger.waiting.MOST_KEYS", 2)
    small = limits_sql.LIMIT_LANES.replace(f"r.n < {limits_sql.MOST_KEYS}", "r.n < 2")
    monkeypatch.setattr("services.ledger.waiting.LIMIT_LANES", small)
    limit(db, "customer:*", 0)
    for number in range(5):
        store.claim(due(make, 1, f"customer:{number}"))
    run(db, "DELETE FROM limits")
    seen = [{lane.reason for lane in store.waiting.lanes()} for _ in range(4)]
    assert set().union(*seen) == {f"limit:customer:{number}" for number in range(5)}


# --- plans ---

OF_LIMITS = {
    claims_sql.LOCK_SCHEDULES: set(),
    limits_sql.LOCK_STRIPES: {"limit_stripes_pkey", "limits_pkey", "limits_patterns_idx"},
    claims_sql.PREVIEW_CLAIMS: {"job_executions_live_idx", "job_executions_standing_idx"},
    limits_sql.LIMIT_LANES: {"job_executions_limited_idx", "job_executions_live_idx", "limits_pkey"},
    waiting_sql.LOCK_LIMITED_LANES: {
        "job_executions_limited_idx",
        "job_executions_waiting_idx",
        "job_executions_live_idx",
    },
    waiting_sql.PREVIEW_WAITING: {"job_executions_live_idx"},
}
WAITING = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, due_at, status, reason)
SELECT gen_random_uuid(), 'job', 'job', gen_random_uuid(), now() - n * interval '1 second', now(), 'pending',
       'limit:full:' || mod(n, 10)
FROM generate_series(1, 3000) AS n
"""
ENDED = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, status)
SELECT gen_random_uuid(), 'job', 'job', gen_random_uuid(), now() - n * interval '1 second', 'running'
FROM generate_series(1, 3000) AS n
"""


@pytest.mark.parametrize("analyzed", [False, True])
def test_each_statement_of_limits_reads_its_own_index(
    db: DatabaseConnection, store: ExecutionStore, make: Make, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    plans: dict[str, str] = {}
    original = DedicatedConnection.run

    def explained(self: DedicatedConnection, statement: str, values: dict[str, Any] | None = None) -> object:
        if statement in OF_LIMITS:
            if self._opening:
                original(self, "SELECT")  # carries the BEGIN
            settings = limits_sql.BY_INDEX if statement.startswith(limits_sql.BY_INDEX) else ""
            query = statement.removeprefix(settings)
            asked = original(self, f"{settings}EXPLAIN (COSTS OFF) {query}", values)
            plans[statement] = "\n".join(str(row[0]) for row in asked)
        return original(self, statement, values)

    run(db, ENDED)
    run(db, "UPDATE job_executions SET status = 'success'")
    if analyzed:
        run(db, "ANALYZE")
    run(db, WAITING)
    limit(db, "full:*", 0)
    limit(db, A, 1)
    monkeypatch.setattr(DedicatedConnection, "run", explained)
    monkeypatch.setattr("services.ledger.claims.YOUNGEST", timedelta(minutes=1))
    claims = store.claim(due(make, 2, A)).claims
    finish(store, claims)
    assert len(store.waiting.take(10).claims) == 1
    assert plans.keys() == OF_LIMITS.keys()
    for statement, plan in plans.items():
        assert "Seq Scan on job_executions" not in plan, plan
        scans = set(re.findall(r"Scan (?:Backward )?(?:using|on) (job_executions_\w+_idx)", plan))
        assert scans <= OF_LIMITS[statement], plan
        assert "Bitmap Index Scan on job_executions_live_idx" not in plan, "it would leave the dead entries"
    seen = plans[limits_sql.LIMIT_LANES]
    assert "using job_executions_limited_idx" in seen, seen


# --- a place is kept for what waits for several limits at once ---

OLD = 3600  # seconds that it has waited: longer than its patience


class Crossing:
    """A and B have one place each, taken, and more waits for each; a row has waited for both for long."""

    def __init__(self, db: DatabaseConnection, store: ExecutionStore, make: Make, **more: Any) -> None:
        self.db, self.store = db, store
        self.running: dict[str, Claim] = {}
        for key in (A, B):
            limit(db, key, 1)
            (self.running[key],) = store.claim(due(make, 1, key)).claims
        self.both = make(limit_keys=[A, B])
        store.claim([fire(self.both, 3)])
        change = "UPDATE job_executions SET due_at = due_at - %s * interval '1 second' WHERE schedule_id = %s"
        run(db, change, OLD, self.both)
        self.others = [each.schedule_id for key in (A, B) for each in due(make, 4, key, **more)]
        store.claim([fire(schedule_id, 2) for schedule_id in self.others])

    def free(self, key: str) -> list[UUID]:
        """Its execution ends, and replicas look again and again; the schedules that got a place."""
        finish(self.store, [self.running.pop(key)])
        return self.look()

    def look(self) -> list[UUID]:
        taken = [claim for _ in range(3) for claim in self.store.waiting.take(10, freed=[A, B]).claims]
        self.running.update((key, claim) for claim in taken for key in claim.limits)
        return [claim.schedule_id for claim in taken]

    def free_in_turn(self, times: int) -> list[UUID]:
        return [schedule_id for at in range(times) for schedule_id in self.free((A, B)[at % 2])]


@pytest.fixture
def crossing(db: DatabaseConnection, store: ExecutionStore, make: Make) -> Crossing:
    return Crossing(db, store, make)


def test_what_waits_for_two_limits_gets_its_places_although_others_keep_each_of_them_full(crossing: Crossing) -> None:
    assert (crossing.free(A), crossing.free(B)) == ([], [crossing.both])


def test_what_has_not_waited_for_long_leaves_free_places_to_others(crossing: Crossing) -> None:
    run(crossing.db, "UPDATE job_executions SET due_at = now() - interval '14 minutes' WHERE status = 'pending'")
    got = crossing.free_in_turn(4)
    assert len(got) == 4
    assert crossing.both not in got


def test_a_kept_place_stays_empty_also_for_a_fire_that_has_just_come_due(crossing: Crossing, make: Make) -> None:
    crossing.free(A)
    (new,) = due(make, 1, A)
    assert crossing.store.claim([new]).decisions == {new: Decision.LATER}


def test_the_more_urgent_and_the_older_are_not_kept_waiting(crossing: Crossing, make: Make) -> None:
    crossing.free(A)
    (urgent,) = due(make, 1, A, priority=1)
    claims = crossing.store.claim([urgent]).claims
    assert len(claims) == 1
    finish(crossing.store, claims)
    older = make(limit_keys=[A])
    limit(crossing.db, A, 0)
    crossing.store.claim([fire(older, 3)])
    run(crossing.db, "UPDATE job_executions SET due_at = now() - interval '2 hours' WHERE schedule_id = %s", older)
    limit(crossing.db, A, 1)
    assert [claim.schedule_id for claim in crossing.store.waiting.take(10).claims] == [older]


def test_with_several_places_one_of_each_limit_is_kept(crossing: Crossing) -> None:
    crossing.free(A)
    limit(crossing.db, A, 3)
    assert len(crossing.store.waiting.take(10, freed=[A]).claims) == 2


def test_what_was_cancelled_or_ended_keeps_nothing(crossing: Crossing) -> None:
    crossing.free(A)
    run(crossing.db, "UPDATE job_executions SET status = 'cancelled' WHERE schedule_id = %s", crossing.both)
    assert len(crossing.store.waiting.take(10, freed=[A]).claims) == 1


def test_a_place_is_kept_for_a_tenth_of_the_wait_and_then_not_for_nine_times_as_long(crossing: Crossing) -> None:
    crossing.free(A)
    ((kept,),) = places_kept(crossing.db)
    wait, rest = (
        datetime.fromisoformat(kept[to]) - datetime.fromisoformat(kept[since])
        for since, to in (("since", "until"), ("until", "rests_until"))
    )
    assert abs(wait.total_seconds() - OLD / 10) < 5
    assert rest == 9 * wait
    for key in (A, B):
        over = {name: (datetime.fromisoformat(kept[name]) - 2 * wait).isoformat() for name in ("since", "until")}
        change = "UPDATE limit_stripes SET kept = jsonb_set(kept, ARRAY[%s], kept -> %s || %s) WHERE kept ? %s"
        run(crossing.db, change, key, key, json.dumps(over), key)
    assert len(crossing.look()) == 1, "it is nobody's any more"
    assert crossing.both not in crossing.free_in_turn(4), "and is not kept again"


def test_what_got_its_places_lets_them_go(crossing: Crossing) -> None:
    crossing.free_in_turn(2)
    ((kept,),) = places_kept(crossing.db)
    assert datetime.fromisoformat(kept["until"]) <= datetime.now(UTC)
    assert sorted(crossing.others.index(each) // 4 for each in crossing.free(A)) == [0, 1], "one of each limit"


def test_for_a_limit_that_lets_nothing_start_no_other_place_is_kept(crossing: Crossing) -> None:
    limit(crossing.db, B, 0)
    crossing.running.pop(B)
    assert len(crossing.free(A)) == 1


def test_claims_that_keep_nothing_read_one_row_per_key_and_write_none(crossing: Crossing) -> None:
    run(crossing.db, "UPDATE job_executions SET due_at = now() WHERE status = 'pending'")
    crossing.free_in_turn(4)
    assert places_kept(crossing.db) == []


def places_kept(db: DatabaseConnection) -> list[tuple[Any, ...]]:
    """Those of one row, which are all alike."""
    with db.transaction() as connection:
        found = connection.exec_driver_sql("SELECT DISTINCT n.value FROM limit_stripes, jsonb_each(kept) AS n")
        return [tuple(row) for row in found]
