"""The audit finds what is missing and what was invented, and nothing else. History is written here as it could be."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg2.extras import Json

from config import Settings
from database.connection import DatabaseConnection
from services.errors import InvalidInput
from services.insight.audit import SHOWN, AuditReport, audit, audit_by
from services.schedule_repository import ScheduleRepository
from services.triggers import spread_offset
from tests.support.past import Past
from tests.support.schedules import many

DAY = datetime(2025, 6, 10, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def past(db: DatabaseConnection, repository: ScheduleRepository) -> Past:
    """Replicas were running all the time, and looked."""
    past = Past(db, repository)
    past.run("INSERT INTO fires_watched (since, until) VALUES ('2000-01-01', '2100-01-01')")
    return past


def hourly(first: datetime, last: datetime) -> list[datetime]:
    return [first + n * HOUR for n in range(int((last - first) / HOUR) + 1)]


def of_that_day(past: Past, days: int = 1) -> AuditReport:
    return audit(past.db, DAY, DAY + timedelta(days=days))


HOURLY: dict[str, Any] = {"frequency": "hourly", "time_config": {"minute": 0}}


def test_a_perfect_history_is_clean(past: Past) -> None:
    daily = past.create(DAY - HOUR)
    every_hour = past.create(DAY - HOUR, **HOURLY)
    past.ran(daily, [DAY + 2 * HOUR])
    past.ran(every_hour, hourly(DAY + HOUR, DAY + 24 * HOUR))
    report = of_that_day(past)
    assert (report.schedules, report.expected, report.accounted, report.on_the_edge) == (2, 25, 25, 0)
    assert report.is_clean


def test_an_empty_database_is_clean(past: Past) -> None:
    report = of_that_day(past)
    assert (report.schedules, report.expected, report.is_clean) == (0, 0, True)


def test_one_deleted_row_is_found_by_schedule_and_time(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, name="every hour", **HOURLY)
    past.ran(schedule_id, hourly(DAY + HOUR, DAY + 24 * HOUR))
    past.run("DELETE FROM job_executions WHERE scheduled_for = %(at)s", at=DAY + 7 * HOUR)
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.is_clean) == (24, 23, False)
    assert [(finding.schedule_id, finding.schedule, finding.scheduled_for) for finding in report.unexplained] == [
        (schedule_id, "every hour", DAY + 7 * HOUR)
    ]


def test_many_unexplained_fires_are_counted_and_the_first_ones_named(past: Past) -> None:
    past.create(DAY - HOUR, frequency="interval", time_config={"minutes": 5})
    report = of_that_day(past)
    assert (len(report.unexplained), len(list(report.unexplained))) == (288, SHOWN)


@pytest.mark.parametrize("cause", ["schedule", "catchup"])
def test_an_invented_row_is_extra(past: Past, cause: str) -> None:
    schedule_id = past.create(DAY - HOUR)
    past.ran(schedule_id, [DAY + 2 * HOUR])
    past.ran(schedule_id, [DAY + HOUR, DAY + 3 * HOUR], cause=cause)
    report = of_that_day(past)
    assert [finding.scheduled_for for finding in report.extra] == [DAY + HOUR, DAY + 3 * HOUR]
    assert (report.expected, report.accounted, report.is_clean) == (1, 1, False)


def test_a_row_of_a_schedule_that_never_was_is_extra(past: Past) -> None:
    past.create(DAY - HOUR, schedule_id="80000000-0000-0000-0000-000000000000", **HOURLY)
    strangers = [UUID(int=1), UUID(int=2**128 - 1)]
    for stranger in strangers:
        past.ran(stranger, [DAY + 2 * HOUR])
    assert [finding.schedule_id for finding in of_that_day(past).extra] == strangers


def test_manual_runs_and_other_programs_rows_are_no_fires(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR)
    past.ran(schedule_id, [DAY + 2 * HOUR])
    past.ran(schedule_id, [DAY + 5 * HOUR], cause="manual")
    past.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, created_at, scheduled_for)
           VALUES (%(id)s, 'job', 'example.com', %(id)s, 'success', %(at)s, %(at)s)""",
        id=schedule_id,
        at=DAY + 6 * HOUR + timedelta(milliseconds=17),
    )
    assert of_that_day(past).is_clean


def test_a_manual_row_does_not_account_for_a_fire(past: Past) -> None:
    past.ran(past.create(DAY - HOUR), [DAY + 2 * HOUR], cause="manual")
    assert len(of_that_day(past).unexplained) == 1


def test_a_repeated_fire_is_a_duplicate(past: Past) -> None:
    past.run("ALTER TABLE job_executions DROP CONSTRAINT job_executions_schedule_id_scheduled_for_attempt_key")
    schedule_id = past.create(DAY - HOUR)
    past.ran(schedule_id, [DAY + 2 * HOUR] * 3)
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.duplicates, report.is_clean) == (1, 1, 2, False)


# --- what nobody has looked at ---


def watched(past: Past, since: datetime, until: datetime) -> None:
    past.run("UPDATE fires_watched SET since = %(since)s, until = %(until)s", since=since, until=until)


def test_fires_of_a_time_in_which_nobody_ran_are_told_apart(past: Past) -> None:
    past.create(DAY - HOUR, **HOURLY)
    watched(past, DAY + 3.5 * HOUR, DAY + 20.5 * HOUR)
    report = of_that_day(past)
    assert (len(report.unexplained), len(report.unwatched)) == (17, 3 + 4)
    assert [finding.scheduled_for for finding in report.unwatched] == [
        *hourly(DAY + HOUR, DAY + 3 * HOUR),
        *hourly(DAY + 21 * HOUR, DAY + 24 * HOUR),
    ]
    assert (report.expected, report.accounted) == (24, 0)


def test_a_database_that_no_replica_has_seen_has_nothing_unexplained(past: Past) -> None:
    past.create(DAY - HOUR, **HOURLY)
    past.run("DELETE FROM fires_watched")
    report = of_that_day(past)
    assert (len(report.unexplained), len(report.unwatched), report.is_clean) == (0, 24, False)


def test_what_has_a_row_needs_nobody_who_watched(past: Past) -> None:
    past.ran(past.create(DAY - HOUR), [DAY + 2 * HOUR])
    past.run("DELETE FROM fires_watched")
    assert of_that_day(past).is_clean


def test_a_spread_fire_is_watched_at_its_due_time(past: Past) -> None:
    """Nominal time before the scan's end, due after it: nobody could have looked."""
    schedule_id = UUID(int=2)
    past.create(DAY - HOUR, schedule_id=schedule_id, spread_seconds=86_400)
    wait = spread_offset(schedule_id, 86_400)
    for until, unwatched in ((DAY + 2 * HOUR + wait, 0), (DAY + 2 * HOUR + wait - MINUTE, 1)):
        watched(past, DAY - HOUR, until)
        assert len(of_that_day(past).unwatched) == unwatched


# --- changes ---


def test_timing_moved_to_an_earlier_hour_at_noon_invents_no_fire(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, time_config={"hour": 2, "minute": 0})
    past.change(DAY + 12 * HOUR, schedule_id, time_config={"hour": 1, "minute": 0})
    past.ran(schedule_id, [DAY + 2 * HOUR, DAY + 25 * HOUR])
    report = of_that_day(past, days=2)
    assert (report.expected, report.accounted, report.is_clean) == (2, 2, True)


def test_what_was_due_before_a_change_is_still_missed(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, time_config={"hour": 2, "minute": 0})
    past.change(DAY + 12 * HOUR, schedule_id, time_config={"hour": 1, "minute": 0})
    assert [finding.scheduled_for for finding in of_that_day(past).unexplained] == [DAY + 2 * HOUR]


def test_a_change_of_something_else_leaves_the_timing_alone(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    for n in range(3):
        past.change(DAY + n * HOUR + 1.5 * MINUTE, schedule_id, priority=n + 1)
    past.ran(schedule_id, hourly(DAY + HOUR, DAY + 24 * HOUR))
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.on_the_edge, report.is_clean) == (24, 24, 0, True)


def test_nothing_is_due_while_a_schedule_is_disabled(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.change(DAY + 6.5 * HOUR, schedule_id, enabled=False)
    past.change(DAY + 18.5 * HOUR, schedule_id, enabled=True)
    past.ran(schedule_id, hourly(DAY + HOUR, DAY + 6 * HOUR) + hourly(DAY + 19 * HOUR, DAY + 24 * HOUR))
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.is_clean) == (12, 12, True)
    past.ran(schedule_id, [DAY + 12 * HOUR])
    assert [finding.scheduled_for for finding in of_that_day(past).extra] == [DAY + 12 * HOUR]


@pytest.mark.parametrize("reason", ["changed", "disabled", "deleted"])
def test_a_skipped_row_belongs_to_a_fire_too(past: Past, reason: str) -> None:
    """It stands for a fire that came due before the change; there was none while the schedule was off."""
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.change(DAY + 1.1 * HOUR, schedule_id, enabled=False)
    past.change(DAY + 2.9 * HOUR, schedule_id, enabled=True)
    past.ran(schedule_id, [DAY + HOUR], status="skipped", reason=reason)
    past.ran(schedule_id, hourly(DAY + 3 * HOUR, DAY + 24 * HOUR))
    assert of_that_day(past).is_clean
    past.ran(schedule_id, [DAY + 2 * HOUR], status="skipped", reason=reason)
    report = of_that_day(past)
    assert [(finding.scheduled_for, finding.status) for finding in report.extra] == [(DAY + 2 * HOUR, "skipped")]
    assert not report.is_clean


def test_a_fire_that_was_claimed_a_moment_before_a_change_is_not_extra(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.change(DAY + HOUR - timedelta(milliseconds=15), schedule_id, enabled=False)
    past.ran(schedule_id, [DAY + HOUR])
    assert of_that_day(past).is_clean


def test_a_change_of_many_rows_ends_each_one_s_timing_when_it_was_changed_not_when_it_was_logged(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.change(DAY + HOUR + MINUTE, schedule_id, timezone="Europe/Lisbon")
    begun = {"id": schedule_id, "at": DAY + HOUR - MINUTE}
    past.run(
        """SET LOCAL session_replication_role = replica;
           UPDATE schedules SET effective_from = %(at)s;
           UPDATE schedule_changes SET new = jsonb_set(new, '{effective_from}', to_jsonb(%(at)s::timestamptz))
           WHERE operation = 'update'""",
        **begun,
    )
    past.ran(schedule_id, hourly(DAY + HOUR, DAY + 24 * HOUR))
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.is_clean) == (24, 24, True)


def test_a_schedule_deleted_and_created_again_owes_nothing_in_between(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.delete(DAY + 6.5 * HOUR, schedule_id)
    past.create(DAY + 18.5 * HOUR, schedule_id=schedule_id, **HOURLY)
    past.ran(schedule_id, hourly(DAY + HOUR, DAY + 6 * HOUR) + hourly(DAY + 19 * HOUR, DAY + 24 * HOUR))
    report = of_that_day(past)
    assert (report.schedules, report.expected, report.accounted, report.is_clean) == (1, 12, 12, True)


def test_a_deleted_schedule_still_owes_what_was_due_before(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.delete(DAY + 6.5 * HOUR, schedule_id)
    assert len(of_that_day(past).unexplained) == 6


def test_truncating_the_table_ends_all_schedules(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.delete(DAY + 0.5 * HOUR, past.create(DAY - HOUR, **HOURLY))
    past.run("TRUNCATE schedules")
    past.run("UPDATE schedule_changes SET changed_at = %(at)s WHERE operation = 'truncate'", at=DAY + 6.5 * HOUR)
    past.run("UPDATE schedule_changes SET new = jsonb_set(new, '{effective_from}', to_jsonb(changed_at))")
    past.ran(schedule_id, hourly(DAY + HOUR, DAY + 6 * HOUR))
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.is_clean) == (6, 6, True)


def test_a_schedule_whose_changes_were_cleaned_up_still_counts(past: Past) -> None:
    past.create(DAY - HOUR, **HOURLY)
    past.run("DELETE FROM schedule_changes")
    assert len(of_that_day(past).unexplained) == 24


def test_a_parked_schedule_owes_nothing(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.run("UPDATE schedules SET frequency = 'sometimes' WHERE schedule_id = %(id)s", id=schedule_id)
    past.run("UPDATE schedule_changes SET changed_at = %(at)s", at=DAY - 0.5 * HOUR)
    report = of_that_day(past)
    assert (report.schedules, report.expected, report.is_clean) == (1, 0, True)


# --- time ---


@pytest.mark.parametrize(
    ("night", "fire"),
    [
        (datetime(2025, 10, 26, tzinfo=UTC), datetime(2025, 10, 26, 0, 30, tzinfo=UTC)),  # 02:30 comes twice
        (datetime(2025, 3, 30, tzinfo=UTC), datetime(2025, 3, 30, 1, 0, tzinfo=UTC)),  # 02:30 does not exist
    ],
)
def test_in_a_night_of_a_clock_change_a_daily_schedule_owes_one_fire(
    past: Past, night: datetime, fire: datetime
) -> None:
    schedule_id = past.create(
        night - 3 * HOUR, frequency="daily", time_config={"hour": 2, "minute": 30}, timezone="Europe/Berlin"
    )
    past.ran(schedule_id, [fire])
    report = audit(past.db, night - 2 * HOUR, night + 20 * HOUR)
    assert (report.expected, report.accounted, report.is_clean) == (1, 1, True)


def test_a_fire_right_before_a_change_is_on_the_edge(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    past.change(DAY + HOUR + timedelta(seconds=1), schedule_id, enabled=False)
    report = of_that_day(past)
    assert (report.expected, report.on_the_edge, report.is_clean) == (0, 1, True)


def test_a_fire_that_just_came_due_is_on_the_edge(past: Past) -> None:
    now = datetime.now(UTC)
    past.create(now - MINUTE, frequency="interval", time_config={"seconds": 1})
    report = audit(past.db, now - timedelta(seconds=5), settle_seconds=30)
    assert (report.expected, report.is_clean) == (0, True)
    assert report.on_the_edge >= 5


@pytest.mark.parametrize(
    ("slow", "seconds_ago"), [({"verify_after_seconds": 20}, 15), ({"gap_scan_seconds": 300}, 200)]
)
def test_nothing_is_lost_that_still_has_its_chance_by_the_settings(
    past: Past, slow: dict[str, Any], seconds_ago: int
) -> None:
    """Redis said that somebody else has it; the verification, or the next gap scan, is still to come."""
    ago = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    past.run("UPDATE fires_watched SET until = %(at)s", at=ago - MINUTE)
    past.create(ago - MINUTE, frequency="once", time_config={"at": ago.replace(microsecond=0).isoformat()})
    report = audit_by(Settings(_env_file=None, **slow), past.db, ago - MINUTE)
    assert (report.on_the_edge, report.is_clean) == (1, True)
    quick = Settings(_env_file=None, verify_after_seconds=0.5, gap_scan_seconds=1)
    assert len(audit_by(quick, past.db, ago - MINUTE).unwatched) == 1


def test_what_a_scan_has_vouched_for_and_has_no_row_is_lost_at_once(past: Past) -> None:
    ago = datetime.now(UTC) - timedelta(seconds=15)
    past.create(ago - MINUTE, frequency="once", time_config={"at": ago.replace(microsecond=0).isoformat()})
    assert len(audit_by(Settings(_env_file=None), past.db, ago - MINUTE).unexplained) == 1


def test_an_execution_of_a_dead_replica_is_not_stuck_before_the_settings_let_anybody_notice(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR)
    past.ran(schedule_id, [DAY + 2 * HOUR], "claimed")
    past.run("UPDATE job_executions SET claimed_at = now() - interval '2 minutes'")
    patient = Settings(_env_file=None, heartbeat_timeout_seconds=300)
    until = DAY + 24 * HOUR
    assert audit_by(patient, past.db, DAY, until).in_progress == 1
    assert len(audit_by(Settings(_env_file=None), past.db, DAY, until).unfinished) == 1


def test_a_spread_schedule_is_due_at_its_own_later_moment(past: Past) -> None:
    """Disabled half an hour after the nominal time: who waits longer than that was never due."""
    ids = [past.create(DAY - HOUR, schedule_id=UUID(int=n), spread_seconds=3600, **HOURLY) for n in range(8)]
    for schedule_id in ids:
        past.change(DAY + 1.5 * HOUR, schedule_id, enabled=False)
    report = of_that_day(past)
    assert 0 < len(report.unexplained) < 8
    assert len(report.unexplained) + report.on_the_edge == 8


# --- what rows say ---


def summary(first: datetime, last: datetime, count: int) -> str:
    return f'{{"first": "{first.isoformat()}", "last": "{last.isoformat()}", "count": {count}}}'


def test_a_summary_row_accounts_for_everything_in_between(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    first, last = DAY + 3 * HOUR, DAY + 20 * HOUR
    past.ran(schedule_id, [DAY + HOUR, DAY + 2 * HOUR])
    more = {"cause": "catchup", "reason": "catchup_cap", "metadata": summary(first, last, 18)}
    past.ran(schedule_id, [first], "missed", created_at=DAY + 21 * HOUR, **more)
    past.ran(schedule_id, hourly(DAY + 22 * HOUR, DAY + 24 * HOUR))
    report = of_that_day(past)
    assert [finding.scheduled_for for finding in report.unexplained] == [DAY + 21 * HOUR], "it ends where it says"
    assert (report.expected, report.accounted, len(report.extra)) == (24, 23, 0)


def test_what_was_recorded_as_missed_and_run_is_called_by_its_name(past: Past) -> None:
    schedule_id = past.create(DAY - HOUR, **HOURLY)
    first, last = DAY + HOUR, DAY + 24 * HOUR
    more = {"cause": "catchup", "reason": "catchup_cap", "metadata": summary(first, last, 22)}
    past.ran(schedule_id, [first], "missed", created_at=last + HOUR, **more)
    past.ran(schedule_id, [DAY + 5 * HOUR], created_at=last)
    past.ran(schedule_id, [DAY + 6 * HOUR], cause="backfill", created_at=last + 2 * HOUR)
    past.ran(schedule_id, [DAY + 7 * HOUR], status="skipped", reason="overlap", created_at=last + 2 * HOUR)
    assert of_that_day(past).is_clean, "it ran before the summary, because somebody asked for it, or not at all"
    past.ran(schedule_id, [DAY + 8 * HOUR], "failed", created_at=last + 2 * HOUR)
    report = of_that_day(past)
    assert [(each.scheduled_for, each.status) for each in report.contradicted] == [(DAY + 8 * HOUR, "failed")]
    assert (report.accounted, report.is_clean) == (24, False)


def test_a_summary_row_from_before_the_window_reaches_into_it(past: Past) -> None:
    schedule_id = past.create(DAY - 24 * HOUR, **HOURLY)
    first, last = DAY - 12 * HOUR, DAY + 24 * HOUR
    more = {"cause": "catchup", "reason": "catchup_cap", "metadata": summary(first, last, 37)}
    past.ran(schedule_id, [first], "missed", created_at=DAY + 25 * HOUR, **more)
    report = of_that_day(past)
    assert (report.expected, report.accounted, report.is_clean) == (24, 24, True)


@pytest.mark.parametrize(
    ("status", "column"), [("claimed", "claimed_at"), ("running", "started_at"), ("pending", "due_at")]
)
def test_an_attempt_that_should_have_ended_by_now_is_unfinished(past: Past, status: str, column: str) -> None:
    schedule_id = past.create(DAY - HOUR)
    past.ran(schedule_id, [DAY + 2 * HOUR], "failed")
    past.ran(schedule_id, [DAY + 2 * HOUR], status, attempt=2)
    past.run(f"UPDATE job_executions SET {column} = now() - interval '30 seconds' WHERE attempt = 2")
    assert (of_that_day(past).in_progress, of_that_day(past).is_clean) == (1, True)
    past.run(f"UPDATE job_executions SET {column} = now() - interval '2 hours' WHERE attempt = 2")
    report = of_that_day(past)
    assert [(finding.scheduled_for, finding.status) for finding in report.unfinished] == [(DAY + 2 * HOUR, status)]
    assert not report.is_clean


def test_a_run_that_may_wait_for_room_longer_than_its_grace_is_not_unfinished(past: Past) -> None:
    """Retries and catch-up do: as long as a claim lets them wait, and not once there is room."""
    schedule_id = past.create(DAY - HOUR)
    past.ran(schedule_id, [DAY + HOUR], "running")
    past.ran(schedule_id, [DAY + 2 * HOUR], "pending", cause="catchup")
    past.ran(schedule_id, [DAY + 3 * HOUR], "pending", attempt=2)
    past.ran(schedule_id, [DAY + 4 * HOUR], "pending", cause="manual")
    past.run("UPDATE job_executions SET started_at = now() - interval '1 minute' WHERE status = 'running'")
    past.run("UPDATE job_executions SET due_at = now() - interval '2 hours' WHERE status = 'pending'")
    assert [finding.scheduled_for for finding in of_that_day(past).unfinished] == [DAY + 4 * HOUR]
    past.run("UPDATE job_executions SET status = 'success' WHERE status = 'running'")
    assert len(of_that_day(past).unfinished) == 3


def test_a_window_that_makes_no_sense_is_refused(past: Past) -> None:
    with pytest.raises(InvalidInput, match=r"since: must be before"):
        audit(past.db, datetime.now(UTC) + HOUR)
    with pytest.raises(InvalidInput, match=r"since: needs a UTC offset"):
        audit(past.db, datetime(2025, 1, 1))  # noqa: DTZ001 - that is the mistake


def test_many_schedules_are_told_apart(past: Past) -> None:
    past.repository.save_schedules(many(3000))
    past.run(
        """SET LOCAL session_replication_role = replica;
           UPDATE schedules SET effective_from = %(at)s""",
        at=DAY - HOUR,
    )
    past.run(
        """INSERT INTO job_executions
               (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, created_at, incarnation)
           SELECT schedule_id, domain, domain, domain_config_id, 'success', at, at, gen_random_uuid()
           FROM schedules, LATERAL (
               SELECT %(day)s::timestamptz + make_interval(hours => (time_config->>'hour')::int) AS at
           ) AS fire WHERE domain <> 'host001234.example'""",
        day=DAY,
    )
    heard: list[int] = []
    report = audit(past.db, DAY - MINUTE, DAY + 23 * HOUR, heard.append)
    assert (report.expected, report.accounted, len(report.extra)) == (3000, 2999, 0)
    assert [finding.schedule for finding in report.unexplained] == ["host001234.example"]
    assert heard == sorted(heard)
    assert (heard[-1], len({*heard})) == (3000, 7), "after each batch of 500, and before the first"


# --- in batches, each with a snapshot of its own ---


def a_day_with_everything(past: Past) -> dict[str, UUID]:
    """Schedules that are whole, lost, extra, deleted, changed and summed up, and rows without a schedule."""
    ids = {name: past.create(DAY - HOUR, name=name, **HOURLY) for name in ("whole", "lost", "gone", "moved", "summed")}
    for name in ("whole", "lost"):
        past.ran(ids[name], hourly(DAY + HOUR, DAY + 24 * HOUR))
    past.run(
        "DELETE FROM job_executions WHERE schedule_id = %(id)s AND scheduled_for = %(at)s",
        id=ids["lost"],
        at=DAY + HOUR,
    )
    past.ran(ids["gone"], hourly(DAY + HOUR, DAY + 5 * HOUR))
    past.delete(DAY + 7 * HOUR, ids["gone"])
    past.ran(ids["moved"], hourly(DAY + HOUR, DAY + 6 * HOUR))
    past.change(DAY + 6 * HOUR + MINUTE, ids["moved"], frequency="daily", time_config={"hour": 20, "minute": 0})
    past.ran(ids["moved"], [DAY + 8 * HOUR])
    summed = {"first": (DAY - 5 * HOUR).isoformat(), "last": (DAY + 20 * HOUR).isoformat(), "count": 26}
    late = {"created_at": DAY + 21 * HOUR, "reason": "catchup_cap", "metadata": Json(summed)}
    past.ran(ids["summed"], [DAY - 5 * HOUR], "missed", **late)
    past.ran(ids["summed"], hourly(DAY + 21 * HOUR, DAY + 24 * HOUR), cause="catchup")
    for stranger in (UUID(int=0), UUID(int=2**128 - 1)):
        past.ran(stranger, [DAY + 2 * HOUR, DAY + 3 * HOUR])
    return ids


def in_words(report: AuditReport) -> dict[str, Any]:
    kinds = ("unexplained", "unwatched", "extra", "contradicted", "unfinished")
    counts = ("schedules", "expected", "accounted", "duplicates", "on_the_edge", "in_progress")
    found = {kind: [(each.schedule_id, each.scheduled_for) for each in getattr(report, kind)] for kind in kinds}
    return found | {count: getattr(report, count) for count in counts}


def small_batches(monkeypatch: pytest.MonkeyPatch, schedules: int, fires: int) -> None:
    monkeypatch.setattr("services.insight.audit.BATCH_SCHEDULES", schedules)
    monkeypatch.setattr("services.insight.audit.BATCH_FIRES", fires)


def test_the_size_of_the_batches_changes_nothing(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    a_day_with_everything(past)
    whole = in_words(of_that_day(past))
    assert (whole["expected"], whole["accounted"], len(whole["extra"]), len(whole["unexplained"])) == (85, 82, 5, 3)
    for schedules, fires in ((1, 1), (1, 1000), (2, 30), (3, 1), (1000, 1)):
        small_batches(monkeypatch, schedules, fires)
        assert in_words(of_that_day(past)) == whole, (schedules, fires)


def test_what_happens_between_two_batches_is_judged_once(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 1, 1000)
    ids = [UUID(int=number << 96) for number in range(1, 5)]
    for schedule_id in ids:
        past.create(DAY - HOUR, schedule_id=schedule_id)
    past.ran(ids[2], [DAY + 2 * HOUR])
    heard: list[int] = []

    def meanwhile(schedules: int) -> None:
        heard.append(schedules)
        if schedules == 1:  # the first one is judged: its fire was lost, the others are still to come
            past.ran(ids[0], [DAY + 2 * HOUR])
            past.ran(ids[1], [DAY + 2 * HOUR])
            past.repository.delete_schedule(ids[2])
            past.repository.update_schedule(ids[3], enabled=False)
            past.create(DAY + 23 * HOUR, schedule_id=UUID(int=7 << 96))
            past.ran(UUID(int=8 << 96), [DAY + 2 * HOUR])

    report = audit(past.db, DAY, DAY + timedelta(days=1), meanwhile)
    assert (report.expected, report.accounted, report.duplicates) == (4, 2, 0)
    assert [finding.schedule_id for finding in report.unexplained] == [ids[0], ids[3]]
    assert heard[-1] == 5
    assert len(report.extra) == 0  # what the audit's beginning has not seen is left to the next one


def test_nothing_holds_a_snapshot_between_two_batches(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 2, 30)
    a_day_with_everything(past)
    held: list[int] = []

    def look(_: int) -> None:
        with past.db.transaction() as connection:
            held.append(
                connection.exec_driver_sql(
                    """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND pid <> pg_backend_pid() AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)
                       AND backend_type = 'client backend'"""
                ).scalar_one()
            )

    audit(past.db, DAY, DAY + timedelta(days=1), look)
    assert len(held) > 4
    assert set(held) == {0}
