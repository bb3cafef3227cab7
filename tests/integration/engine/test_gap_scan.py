"""The gap scan against a real table: every fire gets its row, in short steps, whatever happened meanwhile."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from config import PROJECT_ROOT
from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from database.sqlstates import LOCK_TIMEOUT, sqlstate
from services.engine.gap_scan.scanner import AT_ONCE_SECONDS, GapScanner
from services.engine.shares.shares import EveryBucket, Shares
from services.engine.timer import Timer
from services.errors import Unavailable
from services.insight.audit import audit
from services.jobs import JobRegistry
from services.ledger.fires import Fire
from services.ledger.verdicts import HANDED_OVER, Tolerances
from services.schedule_repository import ScheduleRepository
from services.schedule_watcher import ScheduleWatcher
from services.schedules.buckets import bucket_of
from services.triggers import spread_offset
from tests.support.executions import POLICY, TOLERANCES, happened, missed

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
OPERATIONS = PROJECT_ROOT / "docs/operations.md"
CLAIM = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, completed_at)
VALUES (%(id)s, 'job', 'job', %(id)s, 'success', %(at)s, %(at)s)
"""
LIMITS = replace(TOLERANCES, horizon=DAY, history=89 * DAY, window=HOUR, max_fires=10, settle=5 * SECOND)


@dataclass(slots=True)
class Table:
    """Schedules and rows around one moment, half past a minute, at which all clocks of the test stand."""

    db: DatabaseConnection
    now: datetime

    def run(self, sql: str, **values: Any) -> None:
        with self.db.transaction() as connection:
            connection.exec_driver_sql(sql, values)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.db.transaction() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(sql, values)]

    def schedule(self, since: timedelta, **more: Any) -> UUID:
        return self.schedules(1, since, **more)[0]

    def schedules(self, number: int, since: timedelta, **more: Any) -> list[UUID]:
        """Every minute if nothing else is said; the timing has been valid for so long."""
        given = {"domain": "job", "job_type": "noop", "frequency": "interval", "time_config": {"minutes": 1}, **more}
        repository = ScheduleRepository(self.db, JobRegistry({"noop"}))
        made = [repository.create_schedule(**given) for _ in range(number)]
        self.run(
            """SET LOCAL session_replication_role = replica;  -- without the trigger that writes effective_from
               UPDATE schedules SET effective_from = %(since)s WHERE schedule_id = ANY(%(ids)s)""",
            since=self.now - since,
            ids=made,
        )
        return made

    def ran(self, schedule_id: UUID, fires: Sequence[datetime]) -> None:
        self.run(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for,
                                           completed_at, incarnation)
               SELECT %(id)s, 'job', 'job', %(id)s, 'success', at, at, gen_random_uuid()
               FROM unnest(%(fires)s) AS at""",
            id=schedule_id,
            fires=list(fires),
        )

    def count(self, where: str = "true") -> int:
        return int(self.rows(f"SELECT count(*) FROM job_executions WHERE {where}")[0][0])

    def summaries(self) -> list[tuple[Any, ...]]:
        return self.rows(
            """SELECT (metadata->>'first')::timestamptz, (metadata->>'last')::timestamptz, (metadata->>'count')::int
               FROM job_executions WHERE reason = 'catchup_cap' ORDER BY 1"""
        )

    def watched_until(self, until: datetime) -> None:
        self.run("INSERT INTO fires_watched (since, until) VALUES ('2000-01-01', %(until)s)", until=until)

    def is_accounted_for(self, since: timedelta) -> bool:
        report = audit(self.db, self.now - since, self.now - LIMITS.settle, settle_seconds=0)
        found = report.unexplained.count, report.unwatched.count, report.extra.count
        return report.expected > 0 and found == (0, 0, 0)


class Standing(GapScanner):
    """Where Postgres' clock stands, too."""

    def _now(self, looked_at: datetime) -> datetime:
        return self._clock.now()


@dataclass(slots=True)
class Replica:
    """The parts of a replica that scan."""

    db: DatabaseConnection
    now: datetime
    limits: Tolerances = LIMITS
    handed_over: list[Fire] = field(default_factory=list)
    may_scan: bool = True
    scanner_class: type[GapScanner] = Standing
    shares: Shares = field(default_factory=EveryBucket)
    watcher: ScheduleWatcher = field(init=False)
    scanner: GapScanner = field(init=False)

    def __post_init__(self) -> None:
        clock = DatabaseClock(5, lambda: self.now.timestamp())
        timer = Timer(lambda fires: None, clock)
        self.watcher = ScheduleWatcher(
            self.db, timer, clock, check_interval_seconds=60, shares=self.shares, listen=False
        )
        self.scanner = self.scanner_class(
            self.db,
            clock,
            POLICY,
            self.limits,
            heartbeat_timeout_seconds=15,
            first_in=self.shares.first_in,
            loaded=self.watcher.known,
            hand_over=self.handed_over.extend,
            look_for_pending=lambda: None,
            may_scan=lambda: self.may_scan,
        )

    def scan(self, after: timedelta = timedelta(0)) -> int:
        """One whole scan of the table as it is, so much later; returns how many steps it took."""
        self.now += after
        self.watcher.reconcile()
        for steps in range(1, 10_000):
            if self.scanner.tick() != AT_ONCE_SECONDS:
                return steps - 1  # the last one only ends the round
        raise AssertionError("the scan does not end")


@pytest.fixture
def table(db: DatabaseConnection) -> Table:
    return Table(db, datetime.now(UTC).replace(second=30, microsecond=0))


@pytest.fixture
def replica(table: Table) -> Replica:
    return Replica(table.db, table.now)


def minutes(since: datetime, number: int) -> list[datetime]:
    return [since.replace(second=0) + n * MINUTE for n in range(1, number + 1)]


# --- the first scan ---


def test_after_a_day_without_replicas_a_dense_schedule_has_one_row_for_the_rest(table: Table, replica: Replica) -> None:
    table.schedule(30 * HOUR, time_config={"seconds": 1}, catchup="all")
    replica.scan()
    assert table.count("status = 'pending' AND cause = 'catchup'") == 10
    until = table.now - LIMITS.settle
    assert table.summaries() == [(until - DAY + SECOND, until - 10 * SECOND, 86_400 - 10)]
    assert table.is_accounted_for(DAY)


def test_after_a_restore_with_the_documented_statements_nothing_runs_again(table: Table, replica: Replica) -> None:
    (statements,) = re.findall(r"^```sql\n(BEGIN;.*?)^```", OPERATIONS.read_text(), re.DOTALL | re.MULTILINE)
    schedule_id = table.schedule(HOUR, catchup="all")
    table.watched_until(table.now - 30 * MINUTE)
    table.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for)
           VALUES (%(id)s, 'job', 'job', %(id)s, 'pending', now() - interval '1 day')""",
        id=schedule_id,
    )
    with table.db.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(statements)
    replica.scan()
    assert replica.handed_over == []
    assert table.rows("SELECT status, reason FROM job_executions") == [("cancelled", "restored")]
    table.run("UPDATE schedules SET effective_from = '2000-01-01'")
    assert table.rows("SELECT effective_from > '2001-01-01' FROM schedules") == [(True,)], "the trigger is back"


def test_a_day_of_many_dense_schedules_is_many_short_steps(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.engine.gap_scan.walk.PAIRS_PER_PIECE", 500)
    table.schedules(20, 30 * HOUR, catchup="none", misfire_grace_seconds=1)
    assert replica.scan() >= 20 * 24 * 60 / 500
    assert [number for _, _, number in table.summaries()] == [24 * 60] * 20
    assert table.is_accounted_for(DAY)


def test_between_two_steps_a_scan_waits_while_it_may_not_scan(table: Table, replica: Replica) -> None:
    table.schedule(HOUR)
    replica.watcher.reconcile()
    assert replica.scanner.tick() == 0.0
    replica.may_scan = False
    assert replica.scanner.tick() == 0.5
    assert table.count() == 0
    replica.may_scan = True
    replica.scan()
    assert table.is_accounted_for(HOUR)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_step_that_fails_is_done_again(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Every third call fails; with three beginnings each statement is hit."""
    table.schedules(5, HOUR)
    table.schedules(5, HOUR, time_config={"seconds": 50})
    table.run("DELETE FROM schedules WHERE schedule_id IN (SELECT schedule_id FROM schedules LIMIT 3)")
    replica.watcher.reconcile()
    real, calls = table.db.transaction, count()
    outcomes: list[float | None] = []

    def every_third_fails() -> Any:
        if next(calls) % 3 == turn:
            raise Unavailable("Postgres", "here", "gone for a moment")
        return real()

    monkeypatch.setattr(table.db, "transaction", every_third_fails)
    while not outcomes or outcomes[-1] is not None:
        try:
            outcomes.append(replica.scanner.tick())
        except Unavailable:
            outcomes.append(-1.0)
    monkeypatch.undo()
    assert outcomes.count(-1.0) >= 2
    assert table.is_accounted_for(HOUR)


@pytest.mark.parametrize(("catchup", "run"), [("none", 0), ("one", 1), ("all", 10)])
def test_the_catch_up_rule_says_how_many_run(table: Table, replica: Replica, catchup: str, run: int) -> None:
    table.schedule(2 * HOUR, catchup=catchup, misfire_grace_seconds=1)
    replica.scan()
    assert table.count("status = 'pending'") == run
    assert [number for _, _, number in table.summaries()] == [120 - run]


def test_few_missed_fires_have_a_row_each(table: Table, replica: Replica) -> None:
    table.schedule(6 * MINUTE, catchup="none", misfire_grace_seconds=1)
    replica.scan()
    assert table.rows("SELECT status, reason, cause FROM job_executions") == [("missed", "downtime", "catchup")] * 6
    assert table.is_accounted_for(HOUR)


def test_a_scan_says_how_many_it_tried_again_caught_up_and_recorded(
    table: Table, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    table.schedule(6 * MINUTE, catchup="one", misfire_grace_seconds=1)
    replica.scan()
    (said,) = [record for record in caplog.records if vars(record).get("event") == "catchup"]
    assert said.args == (0, 1, 5)


def test_two_replicas_that_start_at_once_record_the_same(table: Table) -> None:
    table.schedules(3, 2 * HOUR, catchup="one")
    replicas = [Replica(table.db, table.now + n * SECOND) for n in range(2)]
    for replica in replicas:
        replica.watcher.reconcile()
    for _ in range(20):
        for replica in replicas:
            replica.scanner.tick()
    assert table.count("status = 'pending'") == 3
    assert [number for _, _, number in table.summaries()] == [119] * 3
    assert table.is_accounted_for(2 * HOUR)


# --- where it goes on ---


@pytest.mark.parametrize("silent_seconds", [0, 60])
def test_what_came_due_while_another_replica_was_there_waits_for_a_slot_and_is_no_downtime(
    table: Table, replica: Replica, silent_seconds: int
) -> None:
    """A replica that joins under load must not record others' backlog as missed; a dead one has no backlog."""
    table.schedule(10 * MINUTE, catchup="none", misfire_grace_seconds=1)
    table.schedule(3 * HOUR, catchup="none", misfire_grace_seconds=1)
    table.run(
        """INSERT INTO scheduler_instances (instance_id, incarnation, started_at, heartbeat_at)
           VALUES ('other', gen_random_uuid(), %(started)s, clock_timestamp() - make_interval(secs => %(silent)s))""",
        started=table.now - HOUR,
        silent=silent_seconds,
    )
    replica.scan()
    handed_over = [fire.scheduled_for for fire in replica.handed_over]
    if silent_seconds:
        assert (handed_over, table.count("status = 'missed'")) == ([], 11)
    else:
        assert handed_over == minutes(table.now - 10 * MINUTE, 10)
        assert [number for _, _, number in table.summaries()] == [180], "nobody was there when that began"


def test_a_spread_fire_was_somebody_s_to_run_who_was_there_when_it_came_due(table: Table, replica: Replica) -> None:
    """Planned before that replica started, and due after it."""
    late = next(UUID(int=n) for n in range(1, 100) if spread_offset(UUID(int=n), 1800) > 20 * MINUTE)
    planned = table.now - 50 * MINUTE
    daily = {"time_config": {"days": 1}, "start_at": planned, "spread_seconds": 1800}
    table.schedule(HOUR, schedule_id=late, catchup="none", misfire_grace_seconds=1, **daily)
    table.run(
        """INSERT INTO scheduler_instances (instance_id, incarnation, started_at)
           VALUES ('other', gen_random_uuid(), %(started)s)""",
        started=table.now - 40 * MINUTE,
    )
    replica.scan()
    assert ([fire.scheduled_for for fire in replica.handed_over], table.count()) == ([planned], 0)


def test_a_restart_goes_on_where_the_last_scan_ended(table: Table, replica: Replica) -> None:
    """What was looked at is not looked at again, but for the hour in which a transaction may have been open."""
    schedule_id = table.schedule(30 * HOUR)
    table.ran(schedule_id, minutes(table.now - DAY, 24 * 60))
    replica.scan()
    assert table.rows("SELECT until FROM fires_watched") == [(table.now - 2 * LIMITS.settle,)]
    table.run("DELETE FROM job_executions")
    Replica(table.db, table.now).scan()
    ((first, _, _),) = table.summaries()
    assert first == table.now.replace(second=0) - HOUR + MINUTE


def test_downtime_longer_than_the_horizon_is_recorded_and_not_run(table: Table, replica: Replica) -> None:
    table.schedule(9 * DAY, frequency="hourly", time_config={"minute": 0}, catchup="all")
    table.watched_until(table.now - 4 * DAY)
    replica.scan()
    assert table.count("status = 'pending'") == 1, "what is older than the window is never run"
    assert [number for _, _, number in table.summaries()] == [4 * 24]  # the hour before the end of the last scan, too
    assert table.is_accounted_for(4 * DAY)


def test_history_that_may_be_deleted_is_not_judged(table: Table) -> None:
    table.schedule(20 * DAY, frequency="hourly", time_config={"minute": 0}, catchup="none", misfire_grace_seconds=1)
    table.watched_until(table.now - 15 * DAY)
    Replica(table.db, table.now, replace(LIMITS, history=10 * DAY)).scan()
    assert [number for _, _, number in table.summaries()] == [10 * 24]


def test_what_has_no_row_yet_is_not_vouched_for(table: Table, replica: Replica) -> None:
    """Another session holds the schedule during the first scan; the next one finds the hole again: still downtime."""
    schedule_id = table.schedule(2 * HOUR, catchup="none", misfire_grace_seconds=1)
    first = minutes(table.now - 2 * HOUR, 1)[0]
    with table.db.transaction() as other:
        other.exec_driver_sql("SELECT FROM schedules WHERE schedule_id = %s FOR UPDATE", (schedule_id,))
        replica.scan()
        assert table.count() == 0
        assert table.rows("SELECT until FROM fires_watched") == [(first - SECOND,)]
    replica.scan(30 * SECOND)
    assert replica.handed_over == []
    assert [number for _, _, number in table.summaries()] == [120]


def test_a_summary_whose_place_was_taken_is_found_missing_by_the_next_scan(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica claims the first fire of the gap between our look and our row."""
    schedule_id = table.schedule(2 * HOUR, catchup="none", misfire_grace_seconds=1)
    unchanged = replica.scanner._unchanged_gaps

    def and_meanwhile(gaps: Any) -> Any:
        table.ran(schedule_id, [gaps[schedule_id].first])
        return unchanged(gaps)

    monkeypatch.setattr(replica.scanner, "_unchanged_gaps", and_meanwhile)
    replica.scan()
    assert table.summaries() == []
    monkeypatch.undo()
    replica.scan(SECOND)
    assert replica.handed_over == []
    assert [number for _, _, number in table.summaries()] == [119]


def between_look_and_row(replica: Replica, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """One scan; somebody else acts when it has seen what is missing and has not written anything about it yet."""
    unchanged = replica.scanner._unchanged_gaps

    def and_meanwhile(gaps: Any) -> Any:
        act()
        return unchanged(gaps)

    monkeypatch.setattr(replica.scanner, "_unchanged_gaps", and_meanwhile)
    replica.scan()
    monkeypatch.undo()


def test_a_fire_that_somebody_ran_after_the_look_is_not_recorded_as_missed(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_id = table.schedule(2 * HOUR, catchup="none", misfire_grace_seconds=1)
    ran = minutes(table.now - 2 * HOUR, 50)[-1:]
    between_look_and_row(replica, monkeypatch, lambda: table.ran(schedule_id, ran))
    assert table.summaries() == []
    replica.scan(SECOND)
    assert replica.handed_over == []
    assert [number for _, _, number in table.summaries()] == [119]


def test_a_claim_that_is_under_way_while_the_scan_looks_is_not_recorded_as_missed(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the look, and is committed between the look and the row."""
    schedule_id = table.schedule(2 * HOUR, catchup="none", misfire_grace_seconds=1)
    at = minutes(table.now - 2 * HOUR, 50)[-1]
    with table.db.engine.connect() as claim:
        claim.exec_driver_sql(CLAIM, {"id": schedule_id, "at": at})
        between_look_and_row(replica, monkeypatch, claim.commit)
    assert table.summaries() == []
    replica.scan(SECOND)
    assert [number for _, _, number in table.summaries()] == [119]


def test_a_row_that_was_there_before_the_look_delays_no_summary(table: Table, replica: Replica) -> None:
    """A replica claims one fire, dies, and so does the next: what they leave has its rows with the first scan."""
    schedule_id = table.schedule(2 * HOUR, catchup="none", misfire_grace_seconds=1)
    table.ran(schedule_id, minutes(table.now - 2 * HOUR, 50)[-1:])
    replica.scan()
    assert [number for _, _, number in table.summaries()] == [119]


def test_a_refused_summary_does_not_make_the_catch_up_rule_run_more(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_id = table.schedule(2 * HOUR, catchup="one")
    ran = minutes(table.now - 2 * HOUR, 50)[-1:]
    between_look_and_row(replica, monkeypatch, lambda: table.ran(schedule_id, ran))
    replica.scan(SECOND)
    assert table.count("status = 'pending'") == 1
    assert [number for _, _, number in table.summaries()] == [118]


def test_what_another_one_s_summary_speaks_for_is_not_caught_up(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_id = table.schedule(5 * MINUTE, catchup="all")
    first, *_, last = fires = minutes(table.now - 5 * MINUTE, 5)
    between_look_and_row(replica, monkeypatch, lambda: missed(table.db, schedule_id, first, last))
    assert table.rows("SELECT status, reason, scheduled_for FROM job_executions") == [
        ("missed", "catchup_cap", fires[0])
    ]


def test_a_scan_does_not_wait_for_somebody_who_holds_what_all_scans_write(table: Table, replica: Replica) -> None:
    table.schedule(HOUR)
    table.watched_until(table.now - HOUR)
    with table.db.transaction() as frozen:
        frozen.exec_driver_sql("UPDATE fires_watched SET until = until")
        replica.scan()
        assert table.rows("SELECT until FROM fires_watched") == [(table.now - HOUR,)]
    replica.scan(30 * SECOND)
    assert table.rows("SELECT until FROM fires_watched") == [(table.now + 30 * SECOND - 2 * LIMITS.settle,)]
    Replica(table.db, table.now - 20 * MINUTE).scan()
    assert table.rows("SELECT until FROM fires_watched") == [(table.now + 30 * SECOND - 2 * LIMITS.settle,)]


def test_a_clock_that_runs_ahead_records_nothing_that_is_still_to_come(table: Table) -> None:
    table.schedule(HOUR, time_config={"seconds": 1}, catchup="none")
    ((now,),) = table.rows("SELECT clock_timestamp()")
    Replica(table.db, table.now + HOUR, scanner_class=GapScanner).scan()
    ((_, last, _),) = table.summaries()
    assert last < now


# --- later scans ---


def test_a_fire_without_a_row_is_handed_over_until_it_has_one(table: Table, replica: Replica) -> None:
    schedule_id = table.schedule(HOUR)
    replica.scan()
    missing = minutes(table.now, 2)
    replica.scan(2 * MINUTE)
    replica.scan(10 * SECOND)
    assert [fire.scheduled_for for fire in replica.handed_over] == 2 * missing
    table.ran(schedule_id, missing)
    replica.scan(10 * SECOND)
    assert len(replica.handed_over) == 4


def test_after_a_long_pause_the_newest_are_tried_and_the_rest_shares_a_row(table: Table, replica: Replica) -> None:
    """As after a SIGSTOP: the timer hands over a few, the scan has to account for all others."""
    table.schedule(HOUR, time_config={"seconds": 1})
    replica.scan()
    before, last_seen = table.count(), table.now - LIMITS.settle
    replica.scan(2 * HOUR)
    newest = replica.now - LIMITS.settle
    assert [fire.scheduled_for for fire in replica.handed_over] == [
        newest - n * SECOND for n in reversed(range(HANDED_OVER))
    ]
    assert table.count() == before + 1
    rest = 7200 - HANDED_OVER
    assert table.summaries()[-1] == (last_seen + SECOND, newest - HANDED_OVER * SECOND, rest)


def test_after_a_pause_longer_than_the_horizon_nothing_stays_without_a_row(table: Table, replica: Replica) -> None:
    """A claim of such a fire would be refused, again and again."""
    table.schedule(timedelta(0), frequency="hourly", time_config={"minute": 0})
    replica.scan()
    replica.scan(30 * HOUR)
    assert len(replica.handed_over) == 24
    assert table.rows("SELECT status, reason FROM job_executions") == [("missed", "downtime")] * 6


def test_timing_that_was_committed_late_owes_its_fires(table: Table, replica: Replica) -> None:
    """Its transaction was open for ten minutes, in which other scans came and went."""
    replica.scan(-11 * MINUTE)
    table.schedule(10 * MINUTE)
    replica.scan(11 * MINUTE + SECOND)
    assert [fire.scheduled_for for fire in replica.handed_over] == minutes(table.now - 10 * MINUTE, 10)


def test_a_change_of_something_else_does_not_make_the_scan_look_back(table: Table, replica: Replica) -> None:
    table.schedule(2 * HOUR)
    replica.scan()
    table.run("DELETE FROM job_executions")
    table.run("UPDATE schedules SET priority = 7")
    replica.scan(SECOND)
    assert replica.handed_over == []


def test_a_fire_that_still_waits_for_its_spread_is_not_missing(table: Table, replica: Replica) -> None:
    table.schedule(30 * MINUTE, schedule_id=UUID(int=3), spread_seconds=86_400)
    replica.scan()
    replica.scan(MINUTE)
    assert table.count() == 0
    assert replica.handed_over == []


# --- definitions that have ended ---


@pytest.mark.parametrize("change", ["DELETE FROM schedules", "UPDATE schedules SET time_config = '{\"minutes\": 7}'"])
def test_what_a_definition_owed_when_it_ended_has_a_row(table: Table, replica: Replica, change: str) -> None:
    """The replica was frozen, and the schedule changed meanwhile."""
    table.schedule(HOUR)
    table.now -= 30 * MINUTE
    replica.scan(-30 * MINUTE)
    table.run(change)
    replica.scan(30 * MINUTE)
    table.now += 30 * MINUTE
    rows = table.rows(
        "SELECT reason, metadata->>'count' FROM job_executions WHERE scheduled_for > %(t)s", t=table.now - 30 * MINUTE
    )
    assert rows in ([("catchup_cap", "30")], [("catchup_cap", "29")])
    assert table.is_accounted_for(HOUR)


def test_a_scan_does_not_wait_long_for_another_one_that_records_the_fires_of_a_deleted_schedule(
    table: Table, replica: Replica
) -> None:
    """Nobody can hold a row that is gone, so the unique key lets one of them wait. The other one is frozen."""
    schedule_id = table.schedule(5 * MINUTE)
    table.run("DELETE FROM schedules")
    with table.db.transaction() as frozen:
        frozen.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, reason)
               SELECT %(id)s, 'job', 'job', %(id)s, 'missed', at, 'changed' FROM unnest(%(fires)s) AS at""",
            {"id": schedule_id, "fires": minutes(table.now - 6 * MINUTE, 6)},
        )
        with pytest.raises(OperationalError) as waited:
            replica.scan()
        assert sqlstate(waited.value) == LOCK_TIMEOUT
        frozen.rollback()
    replica.scan()
    assert table.is_accounted_for(HOUR)


def test_every_stretch_of_a_schedule_that_was_switched_off_and_on_has_its_own_summary(
    table: Table, replica: Replica
) -> None:
    schedule_id = table.schedule(HOUR)
    for minutes_ago, change in ((40, "false"), (25, "true"), (10, "false")):
        happened(table.db, schedule_id, f"enabled = {change}", table.now - minutes_ago * MINUTE)
    replica.scan()
    on = [(HOUR, 20), (25 * MINUTE, 15)]
    expected = [minutes(table.now - since, number) for since, number in on]
    assert table.summaries() == [(fires[0], fires[-1], len(fires)) for fires in expected]
    assert table.is_accounted_for(HOUR)


def test_a_change_of_many_rows_ends_a_timing_where_the_next_one_begins(table: Table, replica: Replica) -> None:
    """It is logged at its statement's end, minutes later; between the two the schedule was off already."""
    schedule_id = table.schedule(HOUR)
    happened(table.db, schedule_id, "enabled = false", table.now - 5 * MINUTE)
    table.run("UPDATE schedule_changes SET changed_at = %(at)s WHERE operation = 'update'", at=table.now - 2 * MINUTE)
    table.watched_until(table.now - 10 * MINUTE)
    replica.scan()
    assert table.rows("SELECT max(metadata->>'last')::timestamptz FROM job_executions") == [
        (minutes(table.now - 10 * MINUTE, 5)[-1],)
    ]


def test_many_ended_definitions_are_looked_at_page_by_page(
    table: Table, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.engine.gap_scan.scanner.FORMERS_PER_BLOCK", 7)
    table.schedules(30, 5 * MINUTE)
    table.run("DELETE FROM schedules")
    assert replica.scan() > 30 / 7
    assert table.rows("SELECT count(DISTINCT schedule_id) FROM job_executions WHERE reason = 'changed'") == [(30,)]
    assert table.is_accounted_for(HOUR)


def test_an_ended_definition_that_was_parked_owes_nothing(table: Table, replica: Replica) -> None:
    table.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
           VALUES (gen_random_uuid(), 'broken', 'noop', 'sometimes', '{}')"""
    )
    table.run("DELETE FROM schedules")
    replica.scan(HOUR)
    assert table.count() == 0


def test_what_came_due_right_before_the_start_does_not_wait_for_an_ordinary_scan(table: Table) -> None:
    """The first scan leaves the last seconds to whoever else is there; nobody may have been."""
    schedule_id = table.schedule(40 * SECOND)
    replica = Replica(table.db, table.now.replace(second=4))
    replica.watcher.reconcile()
    soon = next(seconds for seconds in iter(replica.scanner.tick, None) if seconds != AT_ONCE_SECONDS)
    assert (soon, replica.handed_over) == (LIMITS.settle.total_seconds(), [])
    replica.scan(after=timedelta(seconds=soon))
    assert [(fire.schedule_id, fire.scheduled_for) for fire in replica.handed_over] == [
        (schedule_id, table.now.replace(second=0))
    ]


# --- by bucket ---


def bucket_of_schedule(table: Table, schedule_id: UUID) -> int:
    return int(table.rows(f"SELECT {bucket_of('%(id)s::uuid')}", id=schedule_id)[0][0])


class Only(EveryBucket):
    """A replica that is first in some buckets, and holds all."""

    def __init__(self, *buckets: int) -> None:
        super().__init__()
        self.buckets = buckets

    def first_in(self) -> list[int]:
        return list(self.buckets)


def replica_lives(table: Table, since: timedelta = HOUR) -> None:
    table.run(
        """INSERT INTO scheduler_instances (instance_id, incarnation, started_at)
           VALUES ('other', gen_random_uuid(), clock_timestamp() - %(since)s)""",
        since=since,
    )


def test_a_scan_of_some_buckets_vouches_for_these_only(table: Table) -> None:
    mine, other = table.schedules(2, 2 * HOUR, catchup="none", misfire_grace_seconds=1)
    bucket = bucket_of_schedule(table, mine)
    Replica(table.db, table.now, shares=Only(bucket)).scan()
    assert table.rows("SELECT bucket FROM fires_watched_by_bucket WHERE until IS NOT NULL") == [(bucket,)]
    assert table.rows("SELECT until FROM fires_watched") == []
    assert table.rows("SELECT DISTINCT schedule_id FROM job_executions") == [(mine,)]
    report = audit(table.db, table.now - HOUR, table.now - LIMITS.settle, settle_seconds=0)
    assert (report.unexplained.count, {finding.schedule_id for finding in report.unwatched}) == (0, {other})


def test_a_hole_in_one_bucket_stays_a_hole_however_far_the_others_are(table: Table, replica: Replica) -> None:
    """Somebody holds a schedule of one bucket; everything else is scanned, and this bucket goes on from its hole."""
    held, other = table.schedules(2, 2 * HOUR, catchup="none", misfire_grace_seconds=1)
    first = minutes(table.now - 2 * HOUR, 1)[0]
    with table.db.transaction() as holder:
        holder.exec_driver_sql("SELECT FROM schedules WHERE schedule_id = %s FOR UPDATE", (held,))
        replica.scan()
    until = "SELECT until FROM fires_watched_by_bucket WHERE bucket = %(bucket)s"
    assert table.rows(until, bucket=bucket_of_schedule(table, held)) == [(first - SECOND,)]
    assert table.rows(until, bucket=bucket_of_schedule(table, other)) == [(table.now - 2 * LIMITS.settle,)]
    assert table.rows("SELECT until FROM fires_watched") == [(first - SECOND,)], "the least of all"
    Replica(table.db, table.now).scan()
    assert table.is_accounted_for(2 * HOUR)


def test_a_bucket_that_nobody_tries_is_scanned_from_the_table_by_anybody(table: Table) -> None:
    replica_lives(table, since=2 * HOUR)
    schedule_id = table.schedule(HOUR)
    number = bucket_of_schedule(table, schedule_id)
    table.run("UPDATE fires_watched_by_bucket SET tried_at = now() WHERE bucket <> %(number)s", number=number)
    replica = Replica(table.db, table.now, shares=Only())
    replica.scan()
    assert {fire.schedule_id for fire in replica.handed_over} == {schedule_id}
    assert table.rows("SELECT bucket FROM fires_watched_by_bucket WHERE until IS NOT NULL") == [(number,)]


def test_what_another_replica_tried_a_moment_ago_is_left_to_it(table: Table) -> None:
    replica_lives(table)
    table.schedule(HOUR)
    table.run("UPDATE fires_watched_by_bucket SET tried_at = clock_timestamp()")
    replica = Replica(table.db, table.now, shares=Only())
    replica.scan()
    assert (replica.handed_over, table.count()) == ([], 0)


def test_replicas_that_have_just_started_have_no_bucket_that_lags(table: Table) -> None:
    replica_lives(table, since=MINUTE)
    table.schedule(HOUR)
    replica = Replica(table.db, table.now, shares=Only())
    replica.scan()
    assert (replica.handed_over, table.count()) == ([], 0)


def test_a_frozen_session_on_the_row_of_one_bucket_delays_nobody(table: Table, replica: Replica) -> None:
    table.schedule(HOUR)
    with table.db.transaction() as frozen:
        frozen.exec_driver_sql("UPDATE fires_watched_by_bucket SET until = until WHERE bucket = 77")
        replica.scan()
        assert table.rows("SELECT bucket FROM fires_watched_by_bucket WHERE until IS NULL") == [(77,)]
    replica.scan(30 * SECOND)
    assert table.rows("SELECT bucket FROM fires_watched_by_bucket WHERE until IS NULL") == []


def test_what_a_replica_of_the_version_before_has_scanned_is_not_scanned_again(table: Table, replica: Replica) -> None:
    """It writes the one row of all buckets."""
    table.schedule(DAY, catchup="none", misfire_grace_seconds=1)
    table.watched_until(table.now - 3 * MINUTE)
    table.run("UPDATE fires_watched_by_bucket SET since = '2000-01-01', until = %(until)s", until=table.now - 9 * HOUR)
    replica.scan()
    ((first, _, _),) = table.summaries()
    assert first == table.now.replace(second=0) - HOUR - 2 * MINUTE  # less the hour of a late commit


def test_a_bucket_held_since_before_its_last_scan_is_looked_at_from_there_on(table: Table) -> None:
    """Its scanner died: only what is after its watermark is looked at, not the hour of a late commit before it."""
    schedule_id = table.schedule(5 * HOUR, catchup="none", misfire_grace_seconds=1)
    first_in = Only()
    replica = Replica(table.db, table.now, shares=first_in)
    replica.scan()
    later = table.now + 30 * MINUTE
    table.run("UPDATE fires_watched_by_bucket SET since = '2000-01-01', until = %(until)s", until=later - 5 * MINUTE)
    first_in.buckets = (bucket_of_schedule(table, schedule_id),)
    replica.scan(30 * MINUTE)
    fires = [at for (at,) in table.rows("SELECT scheduled_for FROM job_executions ORDER BY 1")]
    assert fires == minutes(later - 5 * MINUTE, 5)


def test_a_bucket_that_came_again_is_not_compared_over_the_whole_history(table: Table, replica: Replica) -> None:
    schedule_id = table.schedule(30 * DAY, frequency="hourly", time_config={"minute": 0}, catchup="none")
    replica.scan()
    number = bucket_of_schedule(table, schedule_id)
    replica.shares.dropped([number])
    replica.watcher.loaded.drop(number)
    table.run("DELETE FROM job_executions")
    replica.scan(30 * SECOND)
    assert table.count() <= 2, "the hour before its watermark"
