"""The notifier: what rules tell, once when it begins and once when it is over, whatever happens to transactions."""

from datetime import UTC, datetime, timedelta

import pytest

from database.connection import DatabaseConnection
from services.notifications import notifier_sql
from tests.support.newsroom import Newsroom, all_of


@pytest.fixture
def newsroom(db: DatabaseConnection) -> Newsroom:
    return Newsroom(db)


def test_a_replica_asks_every_second_only_if_it_is_the_notifier_and_has_rules(newsroom: Newsroom) -> None:
    first, second = newsroom.notifier(), newsroom.notifier("replica-2")
    assert [each.loop._tick_safely() for each in (first, second)] == [5.0, 5.0]
    newsroom.rule()
    all_of(first)
    assert [each.loop._tick_safely() for each in (first, second)] == [1.0, 5.0]


def test_a_failure_is_told_once_and_so_is_its_end(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule("nightly"), newsroom.notifier()
    all_of(notifier)
    first = newsroom.failed(schedule)
    all_of(notifier)
    newsroom.failed(schedule)
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert (told.event, told.title, told.severity) == ("failed", "nightly failed: connection refused", "error")
    assert told.subject == f"{schedule}:{first}"
    assert told.message["data"]["execution_id"] == str(first)

    newsroom.ended(schedule, "success")
    all_of(notifier)
    newsroom.ended(schedule, "success")
    all_of(notifier)
    _, over = newsroom.told()
    assert (over.event, over.severity) == ("recovered", "resolved")
    assert over.title.startswith("nightly recovered after")
    assert over.message["facts"]["Failures in a row"] == "2"

    newsroom.failed(schedule)
    all_of(notifier)
    assert newsroom.events() == ["failed", "recovered", "failed"]


def test_what_ended_before_the_first_look_is_no_news(newsroom: Newsroom) -> None:
    newsroom.rule()
    newsroom.failed(newsroom.schedule())
    all_of(newsroom.notifier())
    assert newsroom.told() == []


def test_an_attempt_that_is_retried_is_not_told_and_the_last_one_is(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    at = datetime.now(UTC) - timedelta(minutes=5)
    with newsroom.open_transaction() as connection:  # as a replica writes it
        newsroom.ended(schedule, "failed", connection, at=at, error="first")
        newsroom.ended(schedule, "pending", connection, at=at, attempt=2, started_at=None)
    all_of(notifier)
    assert newsroom.told() == []
    newsroom.run(
        "UPDATE job_executions SET status = 'failed', error_message = 'second', completed_at = clock_timestamp() "
        "WHERE attempt = 2"
    )
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.endswith("failed: second")


def test_a_failure_whose_retry_was_cancelled_is_told_with_its_own_error(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    at = datetime.now(UTC) - timedelta(minutes=5)
    with newsroom.open_transaction() as connection:
        newsroom.ended(schedule, "failed", connection, at=at, error="disk full")
        newsroom.ended(schedule, "pending", connection, at=at, attempt=2, started_at=None)
    all_of(notifier)
    newsroom.run("UPDATE job_executions SET status = 'cancelled', completed_at = clock_timestamp() WHERE attempt = 2")
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.endswith("failed: disk full")


def test_a_transaction_that_ends_an_execution_and_commits_late_is_not_missed(newsroom: Newsroom) -> None:
    newsroom.rule()
    late, others, notifier = newsroom.schedule("late"), newsroom.schedule("others"), newsroom.notifier()
    all_of(notifier)
    with newsroom.open_transaction() as held:
        newsroom.failed(late, connection=held, error="told late")
        for _ in range(20):
            newsroom.ended(others, "success")
            all_of(notifier)
        newsroom.failed(others)
        all_of(notifier)
        assert [row.title for row in newsroom.told()] == ["others failed: connection refused"]
    all_of(notifier)
    assert [row.title for row in newsroom.told()][1:] == ["late failed: told late"]


def test_rows_of_a_savepoint_in_a_late_transaction_are_not_missed(newsroom: Newsroom) -> None:
    newsroom.rule()
    late, others, notifier = newsroom.schedule("late"), newsroom.schedule("others"), newsroom.notifier()
    all_of(notifier)
    with newsroom.open_transaction() as held:
        newsroom.ended(late, "success", held)
        with held.begin_nested():
            newsroom.failed(late, connection=held)
        newsroom.ended(others, "success")
        all_of(notifier)
        assert newsroom.told() == []
    newsroom.failed(others)
    all_of(notifier)
    assert sorted(row.title for row in newsroom.told()) == [
        "late failed: connection refused",
        "others failed: connection refused",
    ]


def test_a_late_commit_of_an_older_fire_does_not_undo_the_success_after_it(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    newsroom.failed(schedule)
    all_of(notifier)
    newsroom.failed(schedule)
    all_of(notifier)
    with newsroom.open_transaction() as held:
        newsroom.failed(schedule, connection=held)
        newsroom.ended(schedule, "success")
        all_of(notifier)
    all_of(notifier)
    assert newsroom.events() == ["failed", "recovered"]


def test_failing_is_told_after_so_many_failures_in_a_row(newsroom: Newsroom) -> None:
    newsroom.rule("failing", "recovered", after_failures=3)
    schedule, notifier = newsroom.schedule("flaky"), newsroom.notifier()
    all_of(notifier)
    for status in ("failed", "failed", "success", "failed", "failed"):
        newsroom.ended(schedule, status)
        all_of(notifier)
    assert newsroom.told() == []
    newsroom.ended(schedule, "timed_out")
    newsroom.ended(schedule, "failed")
    all_of(notifier)
    (told,) = newsroom.told()
    assert (told.event, told.title) == ("failing", "flaky keeps failing: timed_out")
    newsroom.ended(schedule, "success")
    all_of(notifier)
    assert newsroom.events() == ["failing", "recovered"]


def test_filters_choose_by_schedule_tag_job_type_and_queue(newsroom: Newsroom) -> None:
    one, two = (
        newsroom.schedule("one", tags=("billing",)),
        newsroom.schedule("two", job_type="cookie_scan", queue="slow"),
    )
    newsroom.rule(name="by-tag", tags=["billing"])
    newsroom.rule(name="by-type", job_types=["cookie_scan"])
    newsroom.rule(name="by-queue", queues=["slow"])
    newsroom.rule(name="by-id", schedule_ids=[str(one)])
    newsroom.rule(name="by-both", tags=["billing"], queues=["slow"])
    newsroom.rule(name="off", enabled=False)
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.failed(one)
    newsroom.failed(two)
    all_of(notifier)
    told = {(row.message["data"]["rule"], row.title.split()[0]) for row in newsroom.told()}
    assert told == {("by-tag", "one"), ("by-id", "one"), ("by-type", "two"), ("by-queue", "two")}


def test_each_channel_of_a_rule_gets_its_delivery(newsroom: Newsroom) -> None:
    newsroom.rule(channels=("ops", "chat"))
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.failed(newsroom.schedule())
    all_of(notifier)
    assert len({row.channel_id for row in newsroom.told()}) == 2


def test_a_late_start_is_told_and_the_next_one_on_time_is_its_end(newsroom: Newsroom) -> None:
    newsroom.rule("late", "recovered", late_seconds=60)
    schedule, notifier = newsroom.schedule("tardy"), newsroom.notifier()
    all_of(notifier)
    for minutes_late in (5, 6, 0, 0):
        at = datetime.now(UTC) - timedelta(minutes=10)
        newsroom.ended(schedule, "success", at=at, started_at=at + timedelta(minutes=minutes_late))
        all_of(notifier)
    assert newsroom.events() == ["late", "recovered"]
    assert newsroom.told()[0].title == "tardy started 5 min late"


def test_a_fire_that_still_waits_is_late_already(newsroom: Newsroom) -> None:
    newsroom.rule("late", late_seconds=60)
    schedule, notifier = newsroom.schedule("tardy"), newsroom.notifier()
    all_of(notifier)
    newsroom.ended(schedule, "pending", at=datetime.now(UTC) - timedelta(minutes=3), started_at=None)
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("tardy is late: it has waited for 3 min")


def test_an_execution_that_still_runs_is_slow_already_and_is_told_once(newsroom: Newsroom) -> None:
    newsroom.rule("slow", "recovered", slower_than_usual=3.0)
    schedule, notifier = newsroom.schedule("slowpoke"), newsroom.notifier()
    for _ in range(20):
        newsroom.ended(schedule, "success", duration=2.0)
    all_of(notifier)
    at = datetime.now(UTC)
    newsroom.ended(schedule, "running", at=at, started_at=at - timedelta(seconds=5))
    all_of(notifier)
    assert newsroom.told() == []
    newsroom.run("UPDATE job_executions SET started_at = started_at - interval '5 seconds' WHERE status = 'running'")
    all_of(notifier)
    all_of(notifier)
    newsroom.run(
        "UPDATE job_executions SET status = 'success', duration_seconds = 12, completed_at = clock_timestamp() "
        "WHERE status = 'running'"
    )
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("slowpoke has been running for 10 s, usually at most 2.0 s")
    newsroom.ended(schedule, "success", duration=2.0, at=at + timedelta(seconds=30))
    all_of(notifier)
    assert newsroom.events() == ["slow", "recovered"]


def test_an_execution_that_took_too_long_between_two_looks_is_slow(newsroom: Newsroom) -> None:
    newsroom.rule("slow", slower_than_seconds=5)
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    newsroom.ended(schedule, "success", duration=4.0)
    newsroom.ended(schedule, "success", duration=6.0)
    all_of(notifier)
    assert newsroom.events() == ["slow"]


def test_a_missed_fire_is_told_and_the_next_that_runs_is_its_end(newsroom: Newsroom) -> None:
    newsroom.rule("missed", "recovered")
    schedule, notifier = newsroom.schedule("absent"), newsroom.notifier()
    all_of(notifier)
    for status in ("missed", "missed", "success", "success"):
        newsroom.ended(schedule, status, reason="misfire" if status == "missed" else None)
        all_of(notifier)
    assert newsroom.events() == ["missed", "recovered"]
    assert newsroom.told()[0].title == "absent missed a fire: misfire"


def test_no_success_for_a_time_is_told_until_one_succeeds(newsroom: Newsroom) -> None:
    newsroom.rule("no_success", "recovered", no_success_seconds=3600)
    quiet, fine, new = newsroom.schedule("quiet"), newsroom.schedule("fine"), newsroom.schedule("new")
    newsroom.run(
        "SET LOCAL session_replication_role = replica; "
        "UPDATE schedules SET effective_from = now() - interval '2 hours' WHERE name <> 'new'"
    )
    newsroom.ended(fine, "success")
    newsroom.run("UPDATE schedules SET last_status = 'success', last_run = now() WHERE name = 'fine'")
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.failed(quiet)
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title == "quiet has had no success for 1 h"
    newsroom.ended(quiet, "success")
    all_of(notifier)
    assert newsroom.events() == ["no_success", "recovered"]
    assert new != fine


def test_a_parked_schedule_is_told_until_it_is_repaired(newsroom: Newsroom) -> None:
    newsroom.rule("parked", "recovered")
    schedule, notifier = newsroom.schedule("broken"), newsroom.notifier()
    all_of(notifier)
    for reason in ("time_config.hour: is required", "time_config.hour: is required", None, None):
        newsroom.run(
            "UPDATE schedules SET invalid_reason = %(reason)s WHERE schedule_id = %(id)s", reason=reason, id=schedule
        )
        all_of(notifier)
    assert newsroom.events() == ["parked", "recovered"]
    assert newsroom.told()[0].title == "broken is parked: time_config.hour: is required"


REPLICA = """
INSERT INTO scheduler_instances (instance_id, incarnation, alive_since, heartbeat_at)
VALUES (%(name)s, gen_random_uuid(), now() - interval '1 hour', now() - make_interval(secs => %(age)s))
"""


def test_a_lost_replica_is_told_until_it_lives_again(newsroom: Newsroom) -> None:
    newsroom.rule("replica_lost", "recovered")
    notifier = newsroom.notifier()
    newsroom.run(REPLICA, name="b", age=60)
    all_of(notifier)
    assert newsroom.told() == [], "nobody lives: the silence may be the server's"
    newsroom.run(REPLICA, name="a", age=0)
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("replica b is lost: no heartbeat for 1 min")
    newsroom.run(REPLICA, name="b", age=0)
    all_of(notifier)
    assert newsroom.events() == ["replica_lost", "recovered"]


def test_a_need_that_nobody_meets_is_told_until_a_replica_has_it(newsroom: Newsroom) -> None:
    newsroom.rule("nobody_able", "recovered")
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    newsroom.run(REPLICA, name="a", age=0)
    newsroom.run("UPDATE scheduler_instances SET abilities = '{job:http_request}', queues = '{default}'")
    all_of(notifier)
    newsroom.ended(schedule, "pending", started_at=None)
    newsroom.run("UPDATE job_executions SET queue = 'default', needs = '{gpu,job:http_request}'")
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert "1 execution waits: no live replica has gpu" in told.title
    newsroom.run("UPDATE scheduler_instances SET abilities = '{gpu,job:http_request}'")
    all_of(notifier)
    assert newsroom.events() == ["nobody_able", "recovered"]


def test_an_open_circuit_is_told_until_it_is_closed(newsroom: Newsroom) -> None:
    newsroom.rule("queue_open", "recovered", queues=["deep_scan"])
    notifier = newsroom.notifier()
    newsroom.run("INSERT INTO workflow_queues (queue) VALUES ('deep_scan'), ('other')")
    all_of(notifier)
    for circuit in ("open", "half_open", "open", "closed"):
        newsroom.run("UPDATE workflow_queues SET circuit = %(circuit)s", circuit=circuit)
        all_of(notifier)
    assert newsroom.events() == ["queue_open", "recovered"]
    assert newsroom.told()[0].title.startswith("queue deep_scan is not running")


AUDITED = """
INSERT INTO audited_hours (since, claimed_until, audited_at, instance_id, schedules, expected, accounted, duplicates,
                           unexplained, extra, contradicted, seconds)
VALUES (date_trunc('hour', now(), 'UTC') - make_interval(hours => %(hours)s), now(), now(), 'a', 1, 60,
        60 - %(wrong)s, 0, %(wrong)s, 0, 0, 0.1)
ON CONFLICT (since) DO UPDATE SET accounted = EXCLUDED.accounted, unexplained = EXCLUDED.unexplained
"""


def test_an_hour_whose_audit_found_something_is_told_until_another_audit_finds_nothing(newsroom: Newsroom) -> None:
    newsroom.rule("audit_failed", "recovered")
    notifier = newsroom.notifier()
    newsroom.run(AUDITED, hours=3, wrong=0)
    newsroom.run(AUDITED, hours=2, wrong=3)
    for _ in range(2):
        all_of(notifier)
    (told,) = newsroom.told()
    hour = datetime.now(UTC).replace(minute=0) - timedelta(hours=2)
    assert told.title == (
        f"the audit of {hour:%Y-%m-%d %H}:00 to {hour + timedelta(hours=1):%H}:00 UTC found 3 fires without a row"
    )
    assert told.message["text"] == "python manage.py audit --since 48h lists them."
    assert (told.severity, told.message["data"]["unexplained"]) == ("error", 3)
    newsroom.run(AUDITED, hours=1, wrong=1)
    all_of(notifier)
    assert newsroom.events() == ["audit_failed"] * 2, "another hour is news"
    newsroom.run(AUDITED, hours=2, wrong=0)
    all_of(notifier)
    assert newsroom.events() == ["audit_failed"] * 2 + ["recovered"]


def test_an_hour_that_is_older_than_a_day_is_forgotten_and_never_called_recovered(newsroom: Newsroom) -> None:
    newsroom.rule("audit_failed", "recovered")
    notifier = newsroom.notifier()
    newsroom.run(AUDITED, hours=23, wrong=3)
    all_of(notifier)
    newsroom.run("UPDATE audited_hours SET since = since - interval '2 hours'")
    for _ in range(2):
        all_of(notifier)
    assert newsroom.events() == ["audit_failed"]


def test_a_scan_that_found_new_cookies_is_told_and_one_that_did_not_is_not(newsroom: Newsroom) -> None:
    newsroom.rule("scan_changed")
    schedule, notifier = newsroom.schedule("shop"), newsroom.notifier()
    all_of(notifier)
    first = newsroom.run(
        "INSERT INTO scans (domain, engine, started_at) VALUES ('a.example', 'http', now()) RETURNING scan_id"
    )[0].scan_id
    changes = '[{"kind": "new", "name": "_ga", "domain": "a.example"}, {"kind": "gone", "name": "x", "domain": "a"}]'
    for found in (changes, "[]"):
        scan = newsroom.run(
            "INSERT INTO scans (domain, engine, started_at, previous_scan_id, changes) "
            "VALUES ('a.example', 'http', now(), %(first)s, %(found)s::jsonb) RETURNING scan_id",
            first=first,
            found=found,
        )[0].scan_id
        newsroom.ended(schedule, "success", scan_id=scan)
        all_of(notifier)
    (told,) = newsroom.told()
    assert told.title == "shop has 1 new cookie since the previous scan"
    assert told.message["text"] == "new: _ga (a.example)"
    assert told.severity == "info"


def test_a_schedule_that_is_disabled_is_forgotten_and_failing_again_is_news(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    newsroom.failed(schedule)
    all_of(notifier)
    newsroom.run("UPDATE schedules SET enabled = false")
    all_of(notifier)
    newsroom.run("UPDATE schedules SET enabled = true")
    newsroom.failed(schedule)
    all_of(notifier)
    assert newsroom.events() == ["failed", "failed"]


def test_failing_and_recovering_while_it_is_gathered_is_one_message(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule("blink"), newsroom.notifier(gather_seconds=0.3)
    all_of(notifier)
    newsroom.failed(schedule)
    newsroom.ended(schedule, "success")
    all_of(notifier)
    newsroom.run("SELECT pg_sleep(0.4)")
    all_of(notifier)
    (told,) = newsroom.told()
    assert (told.event, told.title) == ("failed", "blink failed: connection refused (recovered since)")


def test_one_that_hangs_behind_many_that_run_long_is_seen(newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier_sql, "STILL_MOST", 3)
    newsroom.rule("slow", "late", slower_than_seconds=60, late_seconds=60, tags=["billing"])
    notifier = newsroom.notifier()
    all_of(notifier)
    now = datetime.now(UTC)
    for number in range(8):
        at = now - timedelta(hours=5, minutes=-number)
        newsroom.ended(newsroom.schedule(), "running", at=at, started_at=at)
        newsroom.ended(newsroom.schedule(), "pending", at=at, started_at=None)
    at = now - timedelta(minutes=10)
    newsroom.ended(newsroom.schedule("hangs", tags=("billing",)), "running", at=at, started_at=at)
    newsroom.ended(newsroom.schedule("waits", tags=("billing",)), "pending", at=at, started_at=None)
    for _ in range(5):
        all_of(notifier)
    assert sorted(row.event for row in newsroom.told()) == ["late", "slow"]
    newsroom.ended(
        newsroom.schedule("hangs-too", tags=("billing",)),
        "running",
        at=now - timedelta(hours=6),
        started_at=now - timedelta(hours=6),
    )
    for _ in range(5):
        all_of(notifier)
    assert newsroom.events().count("slow") == 2
