"""Streaks, and the policies pause_after_failures and backoff_after_failures."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console
from sqlalchemy import Row

from config import Settings
from database.connection import DatabaseConnection
from services.cli.schedules import schedule_table
from services.engine import streaks as module
from services.engine import streaks_sql
from services.engine.streaks import ACTOR, FRESH, Streaks, backoff, is_landslide
from services.insight.explain.explainer import Explainer
from services.ledger.fires import Decision
from services.schedule_repository import ScheduleRepository
from services.telemetry import metrics
from services.wording.streaks import with_streak
from tests.support.executions import POLICY, Make, age, fire, rows, store_of
from tests.support.statements import each_statement

ENDED = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, attempt, cause,
                            created_at, started_at, completed_at, error_message, reason)
VALUES (%(id)s, 'job', 'job', %(id)s, %(status)s, %(at)s, %(attempt)s, %(cause)s, %(at)s, %(at)s,
        CASE WHEN %(status)s NOT IN ('pending', 'claimed', 'running') THEN clock_timestamp() END, %(error)s,
        CASE WHEN %(status)s IN ('skipped', 'missed') THEN 'overlap' END)
"""
FILL = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, completed_at)
SELECT %(id)s, 'job', 'job', %(id)s, %(status)s, date_trunc('second', now()) - n * interval '10 seconds',
       now() - interval '1 hour'
FROM generate_series(100, 3099) AS n
"""
OF_MANY = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, completed_at)
SELECT id, 'job', 'job', id, 'success', date_trunc('second', now()) - n * interval '1 minute', now()
FROM generate_series(1, 100) AS n, (SELECT gen_random_uuid() AS id FROM generate_series(1, 200)) AS schedule
"""
LAST = "UPDATE schedules SET last_run = now(), last_status = %s WHERE schedule_id = %s"


@dataclass
class History:
    """Writes what became of the fires of schedules, one minute after the other."""

    db: DatabaseConnection
    at: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0) - timedelta(hours=20))

    def ended(self, schedule_id: UUID, *words: str, cause: str = "schedule", attempt: int = 1) -> None:
        for status in words:
            self.at += timedelta(minutes=1) if attempt == 1 else timedelta()
            at = self.at + timedelta(milliseconds=3) if cause == "manual" and attempt == 1 else self.at
            values = {"id": schedule_id, "status": status, "at": at, "cause": cause, "attempt": attempt}
            with self.db.transaction() as connection:
                connection.exec_driver_sql(ENDED, values | {"error": f"{status} at {at:%H:%M}"})
                if status in ("success", "failed", "timed_out", "abandoned"):
                    connection.exec_driver_sql(LAST, (status, schedule_id))

    def schedule(self, schedule_id: UUID) -> Row[Any]:
        with self.db.transaction() as connection:
            found = connection.exec_driver_sql("SELECT * FROM schedules WHERE schedule_id = %s", (schedule_id,))
            return found.one()

    def streak(self, schedule_id: UUID) -> int:
        return int(self.schedule(schedule_id).failures_in_a_row)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def history(db: DatabaseConnection) -> History:
    return History(db)


@pytest.fixture
def old(db: DatabaseConnection, make: Make) -> Make:
    """A schedule whose timing holds since long ago."""

    def made(**more: Any) -> UUID:
        schedule_id = make(**more)
        age(db, schedule_id, 90_000)
        return schedule_id

    return made


def streaks_of(db: DatabaseConnection, **more: Any) -> Streaks:
    streaks = Streaks(db, settle_seconds=0, **more)
    streaks.look_if(lambda: True)
    return streaks


def look(streaks: Streaks) -> None:
    for _ in range(20):
        if streaks.tick() is None:
            return
    raise AssertionError("the streaks never come to an end")


def edit(db: DatabaseConnection, schedule_id: UUID, change: str) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE schedules SET {change} WHERE schedule_id = %s", (schedule_id,))


def changed_by(db: DatabaseConnection, schedule_id: UUID) -> list[str]:
    with db.transaction() as connection:
        sql = "SELECT changed_by FROM schedule_changes WHERE schedule_id = %s ORDER BY change_id"
        return list(connection.exec_driver_sql(sql, (schedule_id,)).scalars())


# --- counting ---


@pytest.mark.parametrize(
    ("words", "streak"),
    [
        ("failed failed failed", 3),
        ("failed success", 0),
        ("success failed timed_out abandoned", 3),
        ("failed skipped missed cancelled failed", 2),
        ("failed failed running", 2),
        ("failed success failed pending", 1),
    ],
)
def test_a_streak_counts_failures_since_the_last_success_and_ignores_what_did_not_run(
    db: DatabaseConnection, old: Make, history: History, words: str, streak: int
) -> None:
    schedule_id = old(coalesce=False)
    history.ended(schedule_id, *words.split())
    look(streaks_of(db))
    assert history.streak(schedule_id) == streak


def test_a_fire_that_will_be_tried_again_has_not_failed_yet_and_counts_once_however_often_it_was_tried(
    db: DatabaseConnection, old: Make, history: History
) -> None:
    schedule_id, streaks = old(), streaks_of(db)
    history.ended(schedule_id, "failed", "failed")
    history.ended(schedule_id, "pending", attempt=2)
    look(streaks)
    assert history.streak(schedule_id) == 1
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE job_executions SET status = 'failed', completed_at = now() WHERE status = 'pending'"
        )
    look(streaks)
    assert history.streak(schedule_id) == 2


def test_failures_of_runs_that_a_person_asked_for_do_not_count_and_their_success_ends_the_streak(
    db: DatabaseConnection, old: Make, history: History
) -> None:
    schedule_id, streaks = old(pause_after_failures=2), streaks_of(db)
    history.ended(schedule_id, "failed")
    history.ended(schedule_id, "failed", "failed", cause="manual")
    history.ended(schedule_id, "failed", cause="backfill")
    look(streaks)
    assert (history.streak(schedule_id), history.schedule(schedule_id).enabled) == (1, True)
    history.ended(schedule_id, "success", cause="manual")
    look(streaks)
    assert history.streak(schedule_id) == 0


def test_what_is_read_twice_by_two_replicas_counts_once(db: DatabaseConnection, old: Make, history: History) -> None:
    schedule_id, first, second = old(), streaks_of(db), streaks_of(db)
    history.ended(schedule_id, "failed", "failed")
    for each in (first, second, first, second):
        look(each)
    assert history.streak(schedule_id) == 2


def test_a_streak_longer_than_what_is_read_is_counted_on(
    db: DatabaseConnection, old: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = streaks_sql.COUNT.replace(f"LIMIT {streaks_sql.WALKED}", "LIMIT 4")
    monkeypatch.setattr(streaks_sql, "COUNT", few)
    monkeypatch.setattr(streaks_sql, "WALKED", 4)
    schedule_id, streaks = old(), streaks_of(db)
    history.ended(schedule_id, "failed", "failed", "failed")
    for more in (["failed"], ["skipped"] * 4, ["failed"], ["skipped", "skipped"], ["failed", "failed"]):
        history.ended(schedule_id, *more)
        look(streaks)
    assert history.streak(schedule_id) == 7
    history.ended(schedule_id, "success", "failed")
    look(streaks)
    assert history.streak(schedule_id) == 1


def test_a_count_reads_no_row_before_the_newest_success_and_few_of_a_long_history(
    db: DatabaseConnection, old: Make, history: History
) -> None:
    """It holds the locks of a hundred schedules meanwhile: their fires wait for it."""
    long, failing = old(), old()
    history.at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    with db.transaction() as connection:
        for schedule_id, newest in ((long, "success"), (failing, "failed")):
            connection.exec_driver_sql(FILL, {"id": schedule_id, "status": newest})
        connection.exec_driver_sql(OF_MANY)  # so the planner expects a hundred of each
        connection.exec_driver_sql("ANALYZE job_executions")
    history.ended(long, "failed", "failed")
    assert (rows_read_by_a_count(db, long), rows_read_by_a_count(db, failing)) == (7, 2 * streaks_sql.WALKED + 1)
    with heard(db) as statements:
        look(streaks_of(db))
    assert (history.streak(long), history.streak(failing)) == (2, 0)
    counted = statements.index(streaks_sql.COUNT)
    assert any(streaks_sql.ALONG_THE_INDEX in each for each in statements[counted - 3 : counted])


@contextmanager
def heard(db: DatabaseConnection) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_driver: Any, statement: str, _values: Any) -> None:
        statements.append(statement)

    with each_statement(db, note):
        yield statements


def rows_read_by_a_count(db: DatabaseConnection, schedule_id: UUID) -> int:
    with db.transaction() as connection:
        connection.exec_driver_sql(streaks_sql.ALONG_THE_INDEX)
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {streaks_sql.COUNT}"
        plan = connection.exec_driver_sql(explained, {"ids": [schedule_id]}).scalar_one()[0]["Plan"]
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan)
        if node.get("Relation Name") == "job_executions"
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def test_an_abandoned_or_late_committed_failure_is_found(db: DatabaseConnection, old: Make, history: History) -> None:
    """It commits after a look that already saw later ones."""
    early, late, streaks = old(), old(), streaks_of(db)
    with db.transaction() as open_one:
        values = {"id": early, "status": "failed", "at": history.at, "cause": "schedule", "attempt": 1, "error": None}
        open_one.exec_driver_sql(ENDED, values)
        history.ended(late, "abandoned")
        look(streaks)
        assert (history.streak(early), history.streak(late)) == (0, 1)
    look(streaks)
    assert history.streak(early) == 1


def test_a_replica_whose_turn_it_is_not_writes_nothing(db: DatabaseConnection, old: Make, history: History) -> None:
    schedule_id = old()
    history.ended(schedule_id, "failed")
    Streaks(db).tick()
    assert history.streak(schedule_id) == 0


def test_a_streak_makes_no_revision_and_no_line_in_the_log(db: DatabaseConnection, old: Make, history: History) -> None:
    schedule_id = old(backoff_after_failures=1)
    before = history.schedule(schedule_id).revision
    history.ended(schedule_id, "failed")
    look(streaks_of(db))
    assert history.schedule(schedule_id).backoff_until is not None
    assert history.schedule(schedule_id).revision == before
    assert len(changed_by(db, schedule_id)) == 1


# --- the pause ---


def test_a_schedule_is_paused_after_so_many_failures_and_says_why(
    db: DatabaseConnection, old: Make, history: History, caplog: pytest.LogCaptureFixture
) -> None:
    schedule_id, streaks = old(pause_after_failures=3), streaks_of(db)
    before = metrics.PAUSED_SCHEDULES.labels("noop")._value.get()
    history.ended(schedule_id, "success", "failed", "failed")
    look(streaks)
    assert history.schedule(schedule_id).enabled
    history.ended(schedule_id, "failed")
    with caplog.at_level(logging.WARNING):
        look(streaks)
    row = history.schedule(schedule_id)
    said = f"paused by pause_after_failures=3 after 3 failures in a row; the last: failed at {history.at:%H:%M}"
    assert (row.enabled, row.next_run, row.failures_in_a_row, row.disabled_note) == (False, None, 3, said)
    assert changed_by(db, schedule_id)[-1] == ACTOR
    assert [record.getMessage().partition(" was ")[2] for record in caplog.records] == [said]
    assert metrics.PAUSED_SCHEDULES.labels("noop")._value.get() == before + 1


def test_enabling_begins_anew(db: DatabaseConnection, old: Make, history: History) -> None:
    schedule_id, streaks = old(pause_after_failures=2, backoff_after_failures=1), streaks_of(db)
    history.ended(schedule_id, "failed", "failed")
    look(streaks)
    assert not history.schedule(schedule_id).enabled
    edit(db, schedule_id, "enabled = true")
    row = history.schedule(schedule_id)
    assert (row.failures_in_a_row, row.backoff_until, row.disabled_note) == (0, None, None)
    look(streaks)
    look(streaks_of(db))  # another replica, which reads the old failures again
    assert (history.schedule(schedule_id).enabled, history.streak(schedule_id)) == (True, 0)


def test_a_pause_waits_a_while_for_what_fails_together(db: DatabaseConnection, old: Make, history: History) -> None:
    clock = Clock()
    streaks = Streaks(db, settle_seconds=15, monotonic=clock)
    streaks.look_if(lambda: True)
    schedule_id = old(pause_after_failures=1)
    history.ended(schedule_id, "failed")
    look(streaks)
    clock.now += 14
    look(streaks)
    assert history.schedule(schedule_id).enabled
    clock.now += 2
    look(streaks)
    assert not history.schedule(schedule_id).enabled


def test_a_success_or_an_edit_before_the_pause_prevents_it(db: DatabaseConnection, old: Make, history: History) -> None:
    clock = Clock()
    streaks = Streaks(db, settle_seconds=15, monotonic=clock)
    streaks.look_if(lambda: True)
    saved, edited, lost = (old(pause_after_failures=1) for _ in range(3))
    for each in (saved, edited, lost):
        history.ended(each, "failed")
    look(streaks)
    history.ended(saved, "success")
    edit(db, edited, "pause_after_failures = NULL")
    clock.now += 15
    look(streaks)
    assert [history.schedule(each).enabled for each in (saved, edited, lost)] == [True, True, False]


def test_a_schedule_that_an_operator_edits_at_the_same_time_is_left_until_he_is_done(
    db: DatabaseConnection, old: Make, history: History
) -> None:
    schedule_id, other, streaks = old(pause_after_failures=1), old(pause_after_failures=1), streaks_of(db)
    history.ended(schedule_id, "failed")
    history.ended(other, "failed")
    with db.transaction() as operator:
        operator.exec_driver_sql(
            "UPDATE schedules SET pause_after_failures = NULL WHERE schedule_id = %s", (schedule_id,)
        )
        streaks.tick()  # waits for nobody
        assert history.schedule(other).enabled is False
    look(streaks)
    row = history.schedule(schedule_id)
    assert (row.enabled, row.failures_in_a_row) == (True, 1), "counted, and kept"


def test_a_landslide_pauses_nothing_and_is_said_once(
    db: DatabaseConnection, old: Make, history: History, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    streaks = streaks_of(db, monotonic=clock)
    well = [old() for _ in range(10)]
    ill = [old(pause_after_failures=1) for _ in range(5)]
    for each in well:
        history.ended(each, "success")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            for each in ill:
                history.ended(each, "failed")
            look(streaks)
    assert all(history.schedule(each).enabled for each in ill)
    said = "5 of 15 schedules of the job type noop fail at once: pause_after_failures pauses none of them"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert metrics.PAUSES_WITHHELD.labels("noop")._value.get() == 5
    look(streaks_of(db, monotonic=clock))  # a replica that begins now, and reads the same failures
    assert all(history.schedule(each).enabled for each in ill)
    clock.now += FRESH.total_seconds() + 1
    look(streaks)
    assert metrics.PAUSES_WITHHELD.labels("noop")._value.get() == 0


def test_a_landslide_of_all_schedules_is_judged_with_one_question_a_minute(
    db: DatabaseConnection, old: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question reads every schedule; asked for each hundred it would go on for hours."""
    monkeypatch.setattr(module, "BATCH", 2)
    clock = Clock()
    streaks = streaks_of(db, monotonic=clock)
    ill = [old(pause_after_failures=1) for _ in range(9)]
    asked = []
    for _ in range(3):
        for each in ill:
            history.ended(each, "failed")
        with heard(db) as statements:
            look(streaks)
        asked.append(statements.count(streaks_sql.SHARES))
        clock.now += 31
    assert asked == [1, 0, 1]
    assert metrics.PAUSES_WITHHELD.labels("noop")._value.get() == 9
    assert all(history.schedule(each).enabled for each in ill)


def test_those_that_recovered_are_found_page_by_page_among_all_that_fail(
    db: DatabaseConnection, old: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = streaks_sql.RECOVERED.replace(f"LIMIT {streaks_sql.FAILING_PAGE}", "LIMIT 2")
    monkeypatch.setattr(streaks_sql, "RECOVERED", page)
    monkeypatch.setattr(streaks_sql, "FAILING_PAGE", 2)
    ill, streaks = [old() for _ in range(6)], streaks_of(db)
    for each in ill:
        history.ended(each, "failed")
    look(streaks)
    for each in ill[::2]:
        history.ended(each, "success")
    for _ in range(4):
        look(streaks)
    assert [history.streak(each) for each in ill] == [0, 1] * 3


def test_a_failure_read_much_later_pauses_nothing(db: DatabaseConnection, old: Make, history: History) -> None:
    """What else failed with it can no longer be told."""
    schedule_id = old(pause_after_failures=1)
    history.ended(schedule_id, "failed")
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE job_executions SET completed_at = now() - interval '11 minutes'")
    look(streaks_of(db))
    assert (history.schedule(schedule_id).enabled, history.streak(schedule_id)) == (True, 1)


@pytest.mark.parametrize(
    ("ended", "failed", "slides"), [(4, 4, False), (5, 5, True), (16, 5, True), (17, 5, False), (100, 29, False)]
)
def test_a_landslide_is_a_third_of_a_job_type_and_five_schedules(ended: int, failed: int, slides: bool) -> None:
    assert is_landslide(ended, failed) is slides


# --- the backoff ---


def test_a_backoff_doubles_from_a_minute_to_an_hour() -> None:
    assert [backoff(each) / timedelta(minutes=1) for each in (0, 1, 2, 5, 6, 7, 900)] == [1, 2, 4, 32, 60, 60, 60]


def test_fires_during_a_backoff_are_skipped_with_their_reason_and_the_first_one_after_it_runs(
    db: DatabaseConnection, old: Make, history: History
) -> None:
    schedule_id, streaks = old(backoff_after_failures=2), streaks_of(db)
    history.at = fire(schedule_id, 180).scheduled_for
    history.ended(schedule_id, "failed", "failed")  # the second one a minute ago
    look(streaks)
    until = history.schedule(schedule_id).backoff_until
    assert until == fire(schedule_id, 0).scheduled_for
    within, after = fire(schedule_id, 1), fire(schedule_id, 0)
    with closing(store_of(db)) as store:
        assert store.claim([within]).decisions == {within: Decision.BACKOFF}
        assert store.claim([after]).decisions == {after: Decision.CLAIMED}
    assert rows(db)[-2:] == [("skipped", "backoff"), ("claimed", None)]


@pytest.mark.parametrize("end", ["success", "enabled", "policy"])
def test_a_success_an_enabling_and_the_end_of_the_policy_end_a_backoff(
    db: DatabaseConnection, old: Make, history: History, end: str
) -> None:
    schedule_id, streaks = old(backoff_after_failures=1), streaks_of(db)
    history.at = fire(schedule_id, 90).scheduled_for
    history.ended(schedule_id, "failed")
    look(streaks)
    assert history.schedule(schedule_id).backoff_until > fire(schedule_id).scheduled_for
    match end:
        case "success":
            history.at = fire(schedule_id, 80).scheduled_for
            history.ended(schedule_id, "success", cause="manual")
            look(streaks)
        case "enabled":
            for enabled in ("false", "true"):
                edit(db, schedule_id, f"enabled = {enabled}")
            age(db, schedule_id, 10)
        case _:
            edit(db, schedule_id, "backoff_after_failures = NULL")
    with closing(store_of(db)) as store:
        assert store.claim([fire(schedule_id)]).decisions == {fire(schedule_id): Decision.CLAIMED}


def test_figures_are_reported_by_every_replica(db: DatabaseConnection, old: Make, history: History) -> None:
    for words in (["failed"], ["failed", "failed"], ["success"]):
        history.ended(old(), *words)
    look(streaks_of(db))
    Streaks(db).tick()
    assert (metrics.FAILING._value.get(), metrics.LONGEST_STREAK._value.get()) == (2, 2)


# --- words ---


def test_explain_names_the_backoff_the_failure_behind_it_and_who_paused(
    db: DatabaseConnection, old: Make, history: History
) -> None:
    explainer = Explainer.from_settings(db, POLICY, Settings(_env_file=None))
    thinned, paused, streaks = old(backoff_after_failures=1), old(pause_after_failures=2), streaks_of(db)
    history.at = fire(thinned, 150).scheduled_for
    history.ended(thinned, "failed", "failed")
    look(streaks)
    skipped = fire(thinned)
    with closing(store_of(db)) as store:
        store.claim([skipped])
    said = " ".join(explainer.explain(thinned, skipped.scheduled_for).sentences)
    assert "after several failures in a row the schedule backs off (backoff_after_failures)" in said
    assert f"The last failure before it was that of {history.at:%Y-%m-%d %H:%M:%S} UTC: failed at" in said
    (planned,) = explainer.explain(thinned, skipped.scheduled_for + timedelta(seconds=30)).sentences
    assert "It will be skipped unless a run succeeds before: after 2 failures in a row" in planned
    history.ended(paused, "failed", "failed")
    look(streaks)
    (off,) = explainer.explain(paused, datetime.now(UTC) + timedelta(hours=1)).sentences
    assert f"The schedule was disabled (disabled by {ACTOR} at" in off
    assert off.endswith(history.schedule(paused).disabled_note)


def test_a_list_shows_a_streak_from_two_on(db: DatabaseConnection, old: Make, history: History) -> None:
    once, twice = old(name="once"), old(name="twice")
    history.ended(once, "failed")
    history.ended(twice, "failed", "timed_out")
    look(streaks_of(db))
    records = ScheduleRepository(db).get_all_schedules()
    said = {each.name: with_streak(each.last_status or "", each.failures_in_a_row) for each in records}
    assert said == {"once": "failed", "twice": "timed_out, 2 in a row"}
    written = StringIO()
    shown = Console(width=200, file=written)
    shown.print(schedule_table(list(records)))
    assert "timed_out, 2 in a row" in written.getvalue()
