"""What the watcher writes into the table (next_run after changes by plain SQL), and what it hears and misses."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest
from prometheus_client import REGISTRY

from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from services import schedule_watcher
from services.engine.shares.shares import EveryBucket
from services.engine.timer import Timer
from services.errors import Unavailable
from services.insight.replicas import list_replicas
from services.job_history import JobHistory
from services.schedule_watcher import ROWS_OF, Part, ScheduleWatcher
from services.schedules.buckets import bucket_of, buckets_in, set_of, to_bytes
from services.schedules.changes import NEWEST_REVISION
from services.schedules.upkeep import PARK, REPAIR_NEXT_RUN, REPAIR_ROWS
from tests.support.statements import each_statement
from tests.support.waiting import eventually


@pytest.fixture
def watcher(db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScheduleWatcher]:
    monkeypatch.setattr(schedule_watcher, "LOAD_SECONDS", 60.0)  # one tick loads all, however busy the machine
    clock = DatabaseClock(5)
    made = ScheduleWatcher(db, Timer(lambda fires: None, clock), clock, check_interval_seconds=60, listen=False)
    yield made
    made.close()


INSERT = """
INSERT INTO schedules (domain_config_id, domain, frequency, time_config)
SELECT gen_random_uuid(), 'd' || n, 'daily', '{"hour": 2}' FROM generate_series(1, %s) AS n
"""


def _insert(db: DatabaseConnection, count: int) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(INSERT, (count,))


def _unplanned(db: DatabaseConnection) -> int:
    with db.transaction() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM schedules WHERE next_run IS NULL").scalar_one())


def test_schedules_inserted_by_sql_get_their_next_run(db: DatabaseConnection, watcher: ScheduleWatcher) -> None:
    _insert(db, 2)
    watcher.tick()
    assert _unplanned(db) == 0


def test_next_run_is_repaired_a_few_rows_at_a_time_because_the_fires_of_locked_rows_wait(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    portions: list[int] = []

    def record(_driver: Any, statement: str, values: Any) -> None:
        if REPAIR_NEXT_RUN.split("%(")[0] in statement or "_update_schedules" in statement:
            portions.append(len(json.loads(values["rows"])))

    _insert(db, 2 * REPAIR_ROWS + 1)
    with each_statement(db, record):
        for _ in range(4):
            watcher.tick()
    assert portions == [REPAIR_ROWS, REPAIR_ROWS, 1]
    assert _unplanned(db) == 0


@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed before the commit"])
@pytest.mark.parametrize("statement", [REPAIR_NEXT_RUN, PARK], ids=["repair", "park"])
def test_a_part_costs_what_it_writes_whatever_the_statistics_say(
    db: DatabaseConnection, statement: str, analyzed: bool
) -> None:
    """Autovacuum comes by during a long INSERT: many pages, and not one row that it can see."""
    with db.transaction() as connection:
        connection.exec_driver_sql(INSERT, (5000,))
        if analyzed:
            with db.transaction() as autovacuum:
                autovacuum.exec_driver_sql("ANALYZE schedules")
    with db.transaction() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        found = connection.exec_driver_sql("SELECT schedule_id::text, revision FROM schedules LIMIT 100").all()
        facts = {"next_run": str(datetime.now(UTC)), "reason": "bad"}
        rows = [{"schedule_id": row[0], "revision": row[1], **facts} for row in found]
        plan = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", {"rows": json.dumps(rows), "ids": [row[0] for row in found]}
        ).scalar_one()
    assert max(_rows_touched(plan[0]["Plan"])) <= len(rows) ** 2, "not the table times the part"


def _rows_touched(node: dict[str, Any]) -> Iterator[float]:
    """Of every step of a plan: what it returned and threw away, in all its loops."""
    thrown_away = sum(node.get(name, 0) for name in ("Rows Removed by Filter", "Rows Removed by Join Filter"))
    yield (node["Actual Rows"] + thrown_away) * node["Actual Loops"]
    for inner in node.get("Plans", ()):
        yield from _rows_touched(inner)


def test_a_row_that_somebody_else_has_locked_is_left_to_the_next_time(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    _insert(db, 2)
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT FROM schedules WHERE domain = 'd1' FOR UPDATE")
        watcher.tick()
        assert _unplanned(db) == 1


def test_a_schedule_that_was_deleted_leaves_the_timer(db: DatabaseConnection, watcher: ScheduleWatcher) -> None:
    _insert(db, 2)
    watcher.tick()
    assert len(watcher._timer) == 2
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM schedules WHERE domain = 'd1'")
    watcher.tick()
    assert len(watcher._timer) == len(watcher.loaded) == 1


def test_a_change_that_is_committed_after_later_ones_were_seen_is_seen_too(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    """Neither its number nor its time is greater than those of what we know."""
    _insert(db, 2)
    watcher.tick()
    switch_off = "UPDATE schedules SET enabled = false WHERE domain = %s"
    with db.transaction() as slow:
        slow.exec_driver_sql(switch_off, ("d1",))
        with db.transaction() as quick:
            quick.exec_driver_sql(switch_off, ("d2",))
        watcher.apply_changes()
        assert len(watcher._timer) == 1
    watcher.apply_changes()
    assert len(watcher._timer) == 0


def test_what_changed_while_both_connections_were_lost_is_seen_when_they_are_back(
    db: DatabaseConnection, database_url: str
) -> None:
    clock = DatabaseClock(5)
    with closing(DatabaseConnection(database_url, application_name="watched")) as own:
        cut_off = ScheduleWatcher(own, Timer(lambda fires: None, clock), clock, check_interval_seconds=3600)
        _insert(db, 1)
        cut_off.tick()
        with db.transaction() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'watched'"
            )
        _insert(db, 2)

        def seen() -> bool:
            with suppress(Unavailable):
                cut_off.tick()
            return len(cut_off.loaded) == 3

        eventually(seen)
        cut_off.close()


def test_a_senseless_row_that_somebody_holds_keeps_nobody_waiting_and_is_parked_afterwards(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    _insert(db, 2)
    watcher.tick()
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET time_config = '{\"hour\": 77}' WHERE domain = 'd1'")
    with db.transaction() as somebody:
        somebody.exec_driver_sql("SELECT FROM schedules WHERE domain = 'd1' FOR UPDATE")
        watcher._connection.run("SET statement_timeout = 2000")
        watcher.tick()
        assert _invalid(db) == []
    watcher.tick()
    assert _invalid(db) == [("d1", "time_config.hour: must be between 0 and 23, got 77")]


def test_thousands_of_senseless_rows_are_parked_in_parts_and_a_good_change_does_not_wait_for_the_last(
    db: DatabaseConnection, database_url: str
) -> None:
    clock, parts, good_after = DatabaseClock(5), list[int](), list[int]()
    with closing(DatabaseConnection(database_url)) as own:
        watcher = ScheduleWatcher(own, Timer(lambda fires: None, clock), clock, check_interval_seconds=3600)
        watcher.tick()

        def record(_driver: Any, statement: str, values: Any) -> None:
            if "_update_schedules" in statement and '"reason"' in values["rows"]:
                parts.append(len(json.loads(values["rows"])))
                if len(parts) == 1:
                    _insert(db, 1)

        def parked() -> bool:
            watcher.tick()
            if len(watcher._timer) == 1 and not good_after:
                good_after.append(sum(parts))
            return len(_invalid(db)) == 5000

        with each_statement(own, record):
            _insert_senseless(db, 5000)
            eventually(parked, 30)
        assert max(parts) <= 1000
        assert good_after[0] <= 2 * max(parts), "the good change was live after the first part or the second"
        watcher.close()


def _insert_senseless(db: DatabaseConnection, count: int) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO schedules (domain_config_id, domain, frequency, time_config, timezone)
               SELECT gen_random_uuid(), 'bad' || n, 'daily', '{"hour": 2}', 'Mars/Zone' || n
               FROM generate_series(1, %s) AS n""",
            (count,),
        )


def test_senseless_rows_that_somebody_holds_do_not_keep_the_others_from_being_parked(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    _insert_senseless(db, 2500)
    with db.transaction() as somebody:
        somebody.exec_driver_sql("SELECT FROM schedules WHERE substring(domain, 4)::int <= 2000 FOR UPDATE")
        watcher._connection.run("SET statement_timeout = 2000")
        eventually(lambda: watcher.tick() is not None and len(_invalid(db)) == 500, 20)
    eventually(lambda: watcher.tick() is not None and len(_invalid(db)) == 2500, 20)


def _invalid(db: DatabaseConnection) -> list[tuple[str, str]]:
    with db.transaction() as connection:
        found = connection.exec_driver_sql("SELECT domain, invalid_reason FROM schedules WHERE last_status = 'invalid'")
        return [tuple(row) for row in found]


def test_a_comparison_that_failed_is_made_again_at_once(
    db: DatabaseConnection, watcher: ScheduleWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher.tick()
    _insert(db, 1)
    monkeypatch.setattr(watcher, "apply_changes", lambda: None)
    monkeypatch.setattr(watcher, "_compare_at", 0.0)
    with monkeypatch.context() as outage:
        outage.setattr(watcher, "_load", _nobody_answers)
        with pytest.raises(Unavailable):
            watcher.tick()
    watcher.tick()
    assert len(watcher.loaded) == 1


def _nobody_answers(*_: object, **__: object) -> NoReturn:
    raise Unavailable("Postgres", "here", "gone")


def _delete_newest(db: DatabaseConnection) -> int:
    """The revision of the deletion, which is in no row of the table."""
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM schedules WHERE revision = (SELECT max(revision) FROM schedules)")
        return int(connection.exec_driver_sql("SELECT max(revision) FROM schedule_changes").scalar_one())


def test_a_deletion_is_a_change_that_a_replica_has_applied_or_not(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    _insert(db, 2)
    watcher._connect()
    before = watcher.revision
    newest = _delete_newest(db)
    assert list_replicas(db, 60).newest_revision == newest > before
    watcher.apply_changes()
    assert watcher.revision == newest
    assert REGISTRY.get_sample_value("scheduler_revision_applied") == newest


def test_a_replica_that_starts_after_the_newest_schedule_was_deleted_is_not_behind_for_ever(
    db: DatabaseConnection, watcher: ScheduleWatcher
) -> None:
    _insert(db, 2)
    newest = _delete_newest(db)
    watcher.reconcile()
    assert watcher.revision == newest
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedule_changes SET changed_at = now() - interval '100 days'")
    JobHistory(db).cleanup_old_changes(90)
    assert list_replicas(db, 60).newest_revision == newest, "the others have applied it, and are compared by it"


def test_the_newest_revision_is_found_at_the_end_of_indexes(db: DatabaseConnection) -> None:
    _insert(db, 3000)
    with db.transaction() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {NEWEST_REVISION}").scalar_one()
    assert sum(_rows_touched(plan[0]["Plan"])) < 500


# --- a share of the table ---


class Some(EveryBucket):
    """The duty is what the test says."""

    def __init__(self, *buckets: int) -> None:
        super().__init__()
        self.give(*buckets)

    def give(self, *buckets: int) -> None:
        self._own_duty = set_of(buckets)

    def to_drop(self, now: float) -> list[int]:
        return list(buckets_in(self._mask & ~self._own_duty))


def watcher_of(db: DatabaseConnection, shares: Some) -> ScheduleWatcher:
    clock = DatabaseClock(5)
    timer = Timer(lambda fires: None, clock)
    return ScheduleWatcher(db, timer, clock, check_interval_seconds=60, shares=shares, listen=False)


def buckets_of(db: DatabaseConnection) -> dict[str, int]:
    with db.transaction() as connection:
        rows = connection.exec_driver_sql(f"SELECT domain, {bucket_of('schedule_id')} AS bucket FROM schedules").all()
    return {row.domain: row.bucket for row in rows}


def _insert_apart(db: DatabaseConnection, count: int = 5) -> None:
    """Each in a bucket of its own."""
    while len(set(buckets_of(db).values())) < count:
        edit(db, "DELETE FROM schedules")
        _insert(db, count)


def domains_of(db: DatabaseConnection, watcher: ScheduleWatcher) -> set[str]:
    ids = [schedule_id for bucket in watcher.loaded.held() for schedule_id in bucket.schedules]
    with db.transaction() as connection:
        found = connection.exec_driver_sql("SELECT domain FROM schedules WHERE schedule_id = ANY(%s)", (ids,))
        return set(found.scalars())


def edit(db: DatabaseConnection, sql: str) -> int:
    """Returns the newest revision."""
    with db.transaction() as connection:
        connection.exec_driver_sql(sql)
        return int(connection.exec_driver_sql(NEWEST_REVISION).scalar_one())


def test_only_the_schedules_of_the_share_are_loaded(db: DatabaseConnection) -> None:
    _insert_apart(db)
    with closing(watcher_of(db, Some(buckets_of(db)["d3"]))) as watcher:
        watcher.tick()
        assert domains_of(db, watcher) == {"d3"}
        assert len(watcher._timer) == 1


def test_the_bits_of_a_mask_mean_the_same_to_python_and_to_postgres(db: DatabaseConnection) -> None:
    some = {0, 1, 7, 8, 9, 500, 1016, 1023}
    with db.transaction() as connection:
        rows = connection.exec_driver_sql(
            "SELECT n FROM generate_series(0, 1023) AS n WHERE get_bit(%s::bytea, n) = 1", (to_bytes(set_of(some)),)
        )
        assert set(rows.scalars()) == some


def test_a_change_outside_the_share_is_noted_and_not_loaded(db: DatabaseConnection) -> None:
    _insert_apart(db)
    with closing(watcher_of(db, Some(buckets_of(db)["d3"]))) as watcher:
        watcher.tick()
        newest = edit(db, "UPDATE schedules SET enabled = false WHERE domain <> 'd3'")
        watcher.tick()
        assert (watcher.revision, domains_of(db, watcher)) == (newest, {"d3"})
        newest = edit(db, "UPDATE schedules SET enabled = false WHERE domain = 'd3'")
        watcher.tick()
        assert (watcher.revision, len(watcher._timer)) == (newest, 0)


def test_a_bucket_that_goes_leaves_the_timer_and_one_that_comes_is_loaded(db: DatabaseConnection) -> None:
    _insert_apart(db)
    shares = Some(buckets_of(db)["d3"])
    with closing(watcher_of(db, shares)) as watcher:
        watcher.tick()
        shares.give(buckets_of(db)["d4"])
        watcher.tick()
        assert domains_of(db, watcher) == {"d4"}
        assert (len(watcher._timer), shares.held) == (1, 1)


def test_a_change_that_waits_for_a_bucket_that_has_gone_is_left_out(db: DatabaseConnection) -> None:
    _insert_apart(db)
    shares = Some(*buckets_of(db).values())
    with closing(watcher_of(db, shares)) as watcher:
        watcher.tick()
        edit(db, "UPDATE schedules SET time_config = '{\"hour\": 5}'")
        ids = [str(schedule_id) for bucket in watcher.loaded.held() for schedule_id in bucket.schedules]
        watcher._parts.append(Part(ids))
        shares.give(buckets_of(db)["d4"])
        watcher._drop_buckets()
        watcher._load_part()
        assert domains_of(db, watcher) == {"d4"}
        assert len(watcher._timer) == 1


def test_the_comparison_finds_what_differs_in_the_share(db: DatabaseConnection) -> None:
    _insert_apart(db)
    shares = Some(*(buckets_of(db)[domain] for domain in ("d1", "d2", "d3")))
    with closing(watcher_of(db, shares)) as watcher:
        watcher.tick()
        edit(db, "UPDATE schedules SET enabled = false WHERE domain IN ('d1', 'd5')")
        edit(db, "DELETE FROM schedules WHERE domain IN ('d2', 'd4')")
        watcher.reconcile()
        assert (domains_of(db, watcher), len(watcher._timer)) == ({"d1", "d3"}, 1)


def test_a_load_that_breaks_half_way_leaves_nothing_in_the_timer(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _insert_apart(db)
    with closing(watcher_of(db, Some(*buckets_of(db).values()))) as watcher:
        put, calls = watcher._timer.put, iter(range(100))

        def breaking(*values: Any) -> Any:
            if next(calls) == 3:
                raise Unavailable("Postgres", "here", "gone")
            return put(*values)

        monkeypatch.setattr(watcher._timer, "put", breaking)
        with pytest.raises(Unavailable):
            watcher.tick()
        assert (len(watcher._timer), len(watcher.loaded)) == (0, 0)
        watcher.tick()
        assert (len(watcher._timer), len(watcher.loaded)) == (5, 5)


@pytest.mark.parametrize(("watched", "fires"), [(20, 20), (5, 5), (None, 25), (600, 25)])
def test_a_bucket_is_loaded_from_where_its_gap_scan_ended_but_not_from_before_any_living_replica(
    db: DatabaseConnection, watched: int | None, fires: int
) -> None:
    """The oldest one that claims started 25 seconds ago."""
    _insert(db, 1)
    edit(db, """UPDATE schedules SET frequency = 'interval', time_config = '{"seconds": 1}'""")
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """SET LOCAL session_replication_role = replica;
               UPDATE schedules SET effective_from = now() - interval '1 day';
               INSERT INTO scheduler_instances (instance_id, incarnation, started_at, claiming)
               VALUES ('old', gen_random_uuid(), now() - interval '25 seconds', true),
                      ('paused', gen_random_uuid(), now() - interval '1 day', false);
               UPDATE fires_watched_by_bucket SET until = now() - make_interval(secs => %s)""",
            (watched,),
        )
    with closing(watcher_of(db, Some(*buckets_of(db).values()))) as watcher:
        watcher.tick()
        assert len(watcher._timer.take_due()) == pytest.approx(fires, abs=2)


@pytest.mark.parametrize("analyzed", [False, True])
def test_the_rows_of_some_buckets_are_found_by_their_index(db: DatabaseConnection, analyzed: bool) -> None:
    _insert(db, 20_000)
    with db.transaction() as connection:
        if analyzed:
            connection.exec_driver_sql("ANALYZE schedules")
        plan = connection.exec_driver_sql(f"EXPLAIN {ROWS_OF}", {"buckets": [1, 2, 3], "in_loop": []}).scalars()
        assert "schedules_bucket_idx" in "".join(plan)
