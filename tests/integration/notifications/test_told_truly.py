"""What is told is so: no end that was none, no silence after a storm, no second loss unsaid, no false alarm."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from database.connection import DatabaseConnection
from services.engine.heart_sql import GONE
from services.errors import InvalidInput
from services.notifications import rules as rules_module
from services.notifications.events import looking
from services.notifications.rules import Rules
from tests.support.newsroom import Newsroom, all_of

REPLICA = """
INSERT INTO scheduler_instances (instance_id, incarnation, alive_since, heartbeat_at, started_at)
VALUES (%(name)s, %(id)s, now() - interval '1 hour', now() - make_interval(secs => %(age)s),
        now() - make_interval(secs => %(began)s))
"""
BEAT = (
    "UPDATE scheduler_instances SET heartbeat_at = clock_timestamp() - make_interval(secs => %(age)s) "
    "WHERE instance_id = %(name)s"
)


@pytest.fixture
def newsroom(db: DatabaseConnection) -> Newsroom:
    return Newsroom(db)


def replica(newsroom: Newsroom, name: str, age: float, began: float = 3600) -> str:
    found = str(uuid4())
    newsroom.run(REPLICA, name=name, id=found, age=age, began=began)
    return found


def test_a_replica_that_is_lost_twice_in_one_life_is_told_twice(newsroom: Newsroom) -> None:
    newsroom.rule("replica_lost", "recovered")
    notifier = newsroom.notifier()
    replica(newsroom, "a", age=0)
    replica(newsroom, "b", age=60)
    all_of(notifier)
    for age in (0, 50, 0):  # its network comes, goes and comes again
        newsroom.run(BEAT, name="b", age=age)
        all_of(notifier)
    assert newsroom.events() == ["replica_lost", "recovered", "replica_lost", "recovered"]


def test_a_replica_that_stopped_cleanly_is_not_lost_because_its_former_life_ended_badly(newsroom: Newsroom) -> None:
    newsroom.rule("replica_lost", "recovered")
    notifier = newsroom.notifier()
    replica(newsroom, "a", age=0)
    replica(newsroom, "b", age=60)
    all_of(notifier)
    second = replica(newsroom, "b", age=0, began=10)
    all_of(notifier)
    newsroom.run("DELETE FROM scheduler_instances WHERE incarnation = %(id)s", id=second)  # it unregisters
    all_of(notifier)
    assert newsroom.events() == ["replica_lost", "recovered"]


def test_a_replica_that_stops_cleanly_after_a_quick_restart_was_never_lost(newsroom: Newsroom) -> None:
    newsroom.rule("replica_lost")
    notifier = newsroom.notifier()
    replica(newsroom, "a", age=0)
    replica(newsroom, "b", age=1500)  # it was killed, and started again at once
    second = replica(newsroom, "b", age=0, began=1490)
    all_of(notifier)
    newsroom.run(GONE, instance_id="b", incarnation=second, timeout=15)
    all_of(notifier)
    assert newsroom.told() == []


def test_after_replicas_that_never_came_back_another_loss_is_told(newsroom: Newsroom) -> None:
    newsroom.rule("replica_lost", "recovered")
    notifier = newsroom.notifier()
    replica(newsroom, "a", age=0)
    for name in ("pod-1", "pod-2", "pod-3"):
        replica(newsroom, name, age=60)
    all_of(notifier)
    replica(newsroom, "pod-4", age=60)
    all_of(notifier)
    first, second = newsroom.told()
    assert first.title.startswith("3 replicas: replica lost, since ")
    assert second.title.startswith("replica pod-4 is lost")


def test_a_replica_that_is_forgotten_is_neither_lost_nor_back(newsroom: Newsroom) -> None:
    newsroom.rule("replica_lost", "recovered")
    notifier = newsroom.notifier()
    replica(newsroom, "a", age=0)
    for name in ("pod-1", "pod-2", "pod-3"):
        replica(newsroom, name, age=60)
    all_of(notifier)
    newsroom.run("DELETE FROM scheduler_instances WHERE instance_id LIKE 'pod-%%'")
    all_of(notifier)
    all_of(notifier)
    assert newsroom.events() == ["storm"]
    assert newsroom.run("SELECT FROM notification_incidents WHERE phase <> 'over'") == []


def test_a_failure_that_pauses_its_schedule_at_once_is_told(newsroom: Newsroom) -> None:
    newsroom.rule("failing", "recovered", after_failures=2)
    schedule, notifier = newsroom.schedule("nightly"), newsroom.notifier(gather_seconds=0.3)
    all_of(notifier)
    newsroom.failed(schedule)
    newsroom.failed(schedule)
    all_of(notifier)
    newsroom.run("UPDATE schedules SET enabled = false")  # as pause_after_failures does, before anybody was told
    all_of(notifier)
    newsroom.run("SELECT pg_sleep(0.4)")
    all_of(notifier)
    assert [row.title for row in newsroom.told()] == ["nightly keeps failing: connection refused"]
    all_of(notifier)
    assert newsroom.run("SELECT FROM notification_incidents WHERE phase <> 'over'") == []


def test_an_end_that_was_seen_is_told_although_its_schedule_is_disabled_then(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule("nightly"), newsroom.notifier(gather_seconds=0.3)
    all_of(notifier)
    newsroom.failed(schedule)
    newsroom.run("SELECT pg_sleep(0.4)")
    all_of(notifier)
    newsroom.run("SELECT pg_sleep(0.4)")
    all_of(notifier)
    newsroom.ended(schedule, "success")
    all_of(notifier)
    newsroom.run("UPDATE schedules SET enabled = false")
    all_of(notifier)
    newsroom.run("SELECT pg_sleep(0.4)")
    all_of(notifier)
    assert newsroom.events() == ["failed", "recovered"]


def test_scans_are_counted_once_in_a_digest_however_often_the_walk_sees_them(newsroom: Newsroom) -> None:
    newsroom.rule("scan_changed", digest="daily")
    schedule, notifier = newsroom.schedule("shop"), newsroom.notifier()
    all_of(notifier)
    scan = newsroom.run(
        "INSERT INTO scans (domain, engine, started_at, previous_scan_id, changes) VALUES ('a.example', 'http', now(), "
        """gen_random_uuid(), '[{"kind": "new", "name": "_ga", "domain": "a.example"}]') RETURNING scan_id"""
    )[0].scan_id
    with newsroom.open_transaction() as held:
        newsroom.ended(newsroom.schedule(), "success", held)  # when this commits, the walk goes back to here
        execution = newsroom.ended(schedule, "success", scan_id=scan)
        for _ in range(3):
            all_of(notifier)
    for _ in range(3):
        all_of(notifier)
    newsroom.run("UPDATE job_executions SET metadata = '{}' WHERE execution_id = %(id)s", id=execution)
    for _ in range(3):
        all_of(notifier)
    (digest,) = newsroom.run("SELECT content FROM notification_incidents WHERE event = 'digest'")
    assert digest.content["counts"] == {"scan_changed": 1}


def age_timing(newsroom: Newsroom, hours: float, next_run: timedelta | None) -> None:
    """The schedules have had their timing for so long."""
    newsroom.run(
        "SET LOCAL session_replication_role = replica; "
        "UPDATE schedules SET effective_from = now() - make_interval(hours => %(hours)s), next_run = %(next_run)s",
        hours=hours,
        next_run=None if next_run is None else datetime.now(UTC) + next_run,
    )


def test_a_schedule_that_was_not_due_since_its_success_lacks_none(newsroom: Newsroom) -> None:
    newsroom.rule("no_success", "recovered", no_success_seconds=3600)
    newsroom.schedule("weekly")
    age_timing(newsroom, 30, next_run=timedelta(days=3))
    notifier = newsroom.notifier()
    all_of(notifier)
    assert newsroom.told() == [], "its first fire is to come"
    newsroom.run("UPDATE schedules SET last_status = 'success', last_run = now() - interval '1 day'")
    all_of(notifier)
    newsroom.run("UPDATE schedules SET next_run = NULL")  # it was to run once
    all_of(notifier)
    assert newsroom.told() == []
    newsroom.run("UPDATE schedules SET next_run = now() - interval '65 minutes'")
    all_of(notifier)
    assert newsroom.events() == ["no_success"], "it is due, and nothing runs"


def test_a_lack_of_success_is_told_again_after_the_schedule_was_off_for_a_while(newsroom: Newsroom) -> None:
    newsroom.rule("no_success", "recovered", no_success_seconds=3600)
    schedule = newsroom.schedule("quiet")
    age_timing(newsroom, 30, next_run=timedelta(minutes=-65))
    newsroom.ended(schedule, "success")
    newsroom.run(
        "UPDATE job_executions SET completed_at = now() - interval '5 hours', created_at = now() - interval '5 hours'"
    )
    newsroom.run("UPDATE schedules SET last_status = 'success', last_run = now() - interval '5 hours'")
    notifier = newsroom.notifier()
    all_of(notifier)
    assert newsroom.events() == ["no_success"]
    newsroom.run("UPDATE schedules SET enabled = false")
    all_of(notifier)
    newsroom.run("UPDATE schedules SET enabled = true")
    age_timing(newsroom, 2, next_run=timedelta(minutes=-65))
    all_of(notifier)
    assert newsroom.events() == ["no_success", "no_success"]


def test_another_timing_is_no_success(newsroom: Newsroom) -> None:
    newsroom.rule("no_success", "recovered", no_success_seconds=3600)
    schedule = newsroom.schedule("quiet")
    age_timing(newsroom, 30, next_run=timedelta(minutes=-65))
    newsroom.ended(schedule, "success")
    newsroom.run("UPDATE job_executions SET completed_at = now() - interval '5 hours'")
    newsroom.run("UPDATE schedules SET last_status = 'success', last_run = now() - interval '5 hours'")
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.run("""UPDATE schedules SET time_config = '{"hour": 3, "minute": 0}'""")
    all_of(notifier)
    assert newsroom.events() == ["no_success"]
    newsroom.ended(schedule, "success")
    all_of(notifier)
    assert newsroom.events() == ["no_success", "recovered"]


def test_a_rule_that_is_switched_on_again_knows_nothing_of_before(newsroom: Newsroom) -> None:
    rule = newsroom.rule()
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    Rules(newsroom.db).edit("all", {"enabled": False}, "test")
    newsroom.run(  # by a notifier that had read the rule before
        "INSERT INTO notification_incidents (rule_id, event, subject, phase, began_at, key) "
        "VALUES (%(rule)s, 'failed', %(subject)s, 'told', now(), 'old')",
        rule=rule.rule_id,
        subject=str(schedule),
    )
    Rules(newsroom.db).edit("all", {"enabled": True}, "test")
    newsroom.failed(schedule)
    all_of(notifier)
    assert newsroom.events() == ["failed"]


def test_a_rule_that_would_never_be_looked_at_is_refused(newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "MOST_RULES", 2)
    newsroom.rule(name="one")
    newsroom.rule(name="two")
    newsroom.rule(name="off", enabled=False)
    with pytest.raises(InvalidInput, match="2 rules are enabled already"):
        newsroom.rule(name="three")
    with pytest.raises(InvalidInput, match="2 rules are enabled already"):
        Rules(newsroom.db).edit("off", {"enabled": True}, "test")


def test_a_schedule_that_skips_or_misses_all_its_fires_lacks_a_success(newsroom: Newsroom) -> None:
    newsroom.rule("no_success", no_success_seconds=3600)
    schedule = newsroom.schedule("held")
    age_timing(newsroom, 30, next_run=timedelta(minutes=5))
    newsroom.ended(schedule, "success", at=datetime.now(UTC) - timedelta(hours=5))
    newsroom.run("UPDATE job_executions SET completed_at = now() - interval '5 hours'")
    newsroom.run("UPDATE schedules SET last_status = 'success', last_run = now() - interval '5 hours'")
    for hours in (4, 3, 2):
        newsroom.ended(schedule, "skipped", at=datetime.now(UTC) - timedelta(hours=hours), reason="overlap")
    all_of(newsroom.notifier())
    assert [row.title for row in newsroom.told()] == ["held has had no success for 1 h"]


def test_a_success_that_lies_too_far_back_is_not_called_none(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "LOOKBACK", 3)
    newsroom.rule("no_success", no_success_seconds=3600)
    schedule = newsroom.schedule("busy")
    age_timing(newsroom, 30, next_run=timedelta(minutes=5))
    newsroom.ended(schedule, "success", at=datetime.now(UTC) - timedelta(hours=9))
    for hours in (8, 7, 6, 5):
        newsroom.failed(schedule, at=datetime.now(UTC) - timedelta(hours=hours))
    all_of(newsroom.notifier())
    (told,) = newsroom.told()
    assert told.title == "busy has had no success in its last 3 executions"
    assert told.message["facts"]["Last success"] == "before its last 3 executions"
