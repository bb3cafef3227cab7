"""Equal failures become one message; quiet hours and digests decide when it is told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.notifications import notifier as module
from tests.support.newsroom import Newsroom, all_of


@pytest.fixture
def newsroom(db: DatabaseConnection) -> Newsroom:
    return Newsroom(db)


def many_fail(newsroom: Newsroom, count: int, error: str = "host name cannot be resolved") -> None:
    newsroom.run(
        """INSERT INTO schedules (domain_config_id, domain, frequency, time_config, name)
           SELECT gen_random_uuid(), 'example.com', 'daily', '{"hour": 2, "minute": 0}', 'job-' || n
           FROM generate_series(1, %(count)s) AS n ON CONFLICT DO NOTHING""",
        count=count,
    )
    end_all(newsroom, "failed", error)


def end_all(newsroom: Newsroom, status: str, error: str | None = None, where: str = "true") -> None:
    newsroom.run(
        f"""INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
               started_at, completed_at, duration_seconds, error_message)
           SELECT schedule_id, name, domain, domain_config_id, %(status)s, now(), now(), now(), clock_timestamp(), 1,
                  replace(%(error)s, '$', name) FROM schedules WHERE {where}""",
        status=status,
        error=error,
    )


def test_a_storm_of_500_equal_failures_is_one_message_and_its_end_is_another(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 500, "$.example: host name cannot be resolved")
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.event == "storm"
    assert told.title.startswith("500 schedules: …: host name cannot be resolved, since ")
    assert "and 480 more" in told.message["text"]

    end_all(newsroom, "success", where="name <> 'job-1'")
    all_of(notifier)
    assert newsroom.events() == ["storm"], "one of them still fails"
    end_all(newsroom, "success")
    all_of(notifier)
    all_of(notifier)
    assert newsroom.events() == ["storm", "recovered"]
    assert newsroom.told()[1].title.startswith("500 schedules: over after")


def test_a_storm_that_is_larger_than_one_batch_is_one_message(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSHED_AT_ONCE", 40)
    monkeypatch.setattr(module, "BATCH", 30)
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 100)
    for _ in range(5):
        all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("100 schedules: host name cannot be resolved")


def test_a_storm_that_grows_before_it_is_sent_says_so_and_is_not_told_again(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 5)
    all_of(notifier)
    many_fail(newsroom, 9)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("9 schedules")
    newsroom.run("UPDATE notification_deliveries SET state = 'sent', ended_at = now()")
    many_fail(newsroom, 12)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("9 schedules"), "what was sent was read so"
    end_all(newsroom, "success")
    all_of(notifier)
    assert newsroom.told()[1].title.startswith("12 schedules: over")


def test_the_title_of_a_storm_reads_for_several(newsroom: Newsroom) -> None:
    newsroom.rule("parked", "no_success", "queue_open", no_success_seconds=3600)
    notifier = newsroom.notifier()
    all_of(notifier)
    for name in ("a", "b", "c"):
        newsroom.schedule(name)
        newsroom.run("INSERT INTO workflow_queues (queue, circuit) VALUES (%(name)s, 'open')", name=name)
    newsroom.run("UPDATE schedules SET invalid_reason = 'hour: is required'")
    all_of(notifier)
    newsroom.run(
        "SET LOCAL session_replication_role = replica; UPDATE schedules SET invalid_reason = NULL, "
        "next_run = now() - interval '1 hour', effective_from = now() - interval '3 hours'"
    )
    all_of(notifier)
    assert [row.title.partition(", since")[0] for row in newsroom.told()] == [
        "3 schedules: parked: hour: is required",
        "3 queues: circuit breaker open",
        "3 schedules: no success for 1 h",
    ]


def test_a_storm_of_what_keeps_failing_does_not_read_like_that_of_the_first_failures(newsroom: Newsroom) -> None:
    newsroom.rule("failed", "failing", after_failures=2)
    schedules, notifier = [newsroom.schedule() for _ in range(3)], newsroom.notifier()
    all_of(notifier)
    for _ in range(2):
        for schedule in schedules:
            newsroom.failed(schedule, error="host 10.0.0.1 refused")
        all_of(notifier)
    assert [row.title.partition(", since")[0] for row in newsroom.told()] == [
        "3 schedules: host 10.0.0.1 refused",
        "3 schedules: keep failing: host 10.0.0.1 refused",
    ]


def test_different_errors_are_no_storm(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    for error in ("connection refused", "disk full", "no such table"):
        newsroom.failed(newsroom.schedule(), error)
    all_of(notifier)
    assert newsroom.events() == ["failed"] * 3


def test_after_a_storm_a_new_one_is_told(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    for status in ("failed", "success", "failed"):
        (many_fail(newsroom, 10) if status == "failed" else end_all(newsroom, status))
        all_of(notifier)
        all_of(notifier)
    assert newsroom.events() == ["storm", "recovered", "storm"]


def test_in_quiet_hours_a_message_waits_for_their_end_and_an_error_may_pass(newsroom: Newsroom) -> None:
    now = datetime.now(UTC)
    quiet: dict[str, Any] = {
        "quiet_from": f"{now - timedelta(hours=1):%H:%M}",
        "quiet_to": f"{now + timedelta(hours=2):%H:%M}",
        "quiet_timezone": "UTC",
    }
    newsroom.rule(name="quiet", **quiet)
    newsroom.rule(name="passes", quiet_errors_pass=True, **quiet)
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    newsroom.failed(schedule)
    all_of(notifier)
    newsroom.ended(schedule, "success")
    all_of(notifier)
    waits = {
        (row.message["data"]["rule"], row.event): row.due_at > now + timedelta(minutes=110) for row in newsroom.told()
    }
    assert waits == {
        ("quiet", "failed"): True,
        ("quiet", "recovered"): True,
        ("passes", "failed"): False,
        ("passes", "recovered"): True,
    }


def test_a_digest_is_one_message_at_its_time(newsroom: Newsroom) -> None:
    newsroom.rule(digest="daily", digest_at=f"{datetime.now(UTC) + timedelta(hours=3):%H:%M}")
    one, two, notifier = newsroom.schedule("one"), newsroom.schedule("two"), newsroom.notifier()
    all_of(notifier)
    newsroom.failed(one)
    all_of(notifier)
    newsroom.failed(two, error="disk full")
    newsroom.ended(one, "success")
    all_of(notifier)
    assert newsroom.told() == []
    newsroom.run("UPDATE notification_incidents SET flush_at = now() WHERE event = 'digest'")
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    assert told.event == "digest"
    assert told.title.startswith("3 notifications since ")
    assert told.message["facts"] == {"failed": "2", "recovered": "1"}
    assert "one failed: connection refused" in told.message["text"]
    newsroom.ended(two, "success")
    all_of(notifier)
    assert newsroom.events() == ["digest"]
    (waiting,) = newsroom.run("SELECT phase FROM notification_incidents WHERE event = 'digest'")
    assert waiting.phase == "gathering"


def test_after_a_storm_of_which_one_still_fails_the_next_one_is_told(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 10)
    all_of(notifier)
    end_all(newsroom, "success", where="name <> 'job-1'")
    all_of(notifier)
    rewind_storms(newsroom, hours=5)
    many_fail(newsroom, 10)
    all_of(notifier)
    assert newsroom.events() == ["storm", "storm"]
    assert newsroom.told()[1].title.startswith("9 schedules: host name cannot be resolved")
    end_all(newsroom, "success")
    all_of(notifier)
    all_of(notifier)
    assert newsroom.events() == ["storm", "storm", "recovered"]


def test_one_failure_long_after_an_equal_storm_is_told_by_itself(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 10)
    all_of(notifier)
    rewind_storms(newsroom, hours=5)
    newsroom.failed(newsroom.schedule("late"), "host name cannot be resolved")
    all_of(notifier)
    assert newsroom.told()[1].title == "late failed: host name cannot be resolved"


def test_a_schedule_that_joins_a_storm_twice_is_counted_once(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 10)
    all_of(notifier)
    for _ in range(3):
        end_all(newsroom, "success", where="name <> 'job-1'")
        all_of(notifier)
        many_fail(newsroom, 10)
        all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("10 schedules: ")


def test_a_storm_that_becomes_ten_times_as_large_is_told_again(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 5)
    all_of(notifier)
    newsroom.run("UPDATE notification_deliveries SET state = 'sent', ended_at = now()")
    many_fail(newsroom, 45)
    all_of(notifier)
    assert len(newsroom.told()) == 1
    many_fail(newsroom, 60)
    all_of(notifier)
    assert [row.title.split()[0] for row in newsroom.told()] == ["5", "60"]


def test_a_storm_whose_schedules_were_disabled_has_not_recovered(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    many_fail(newsroom, 10)
    all_of(notifier)
    newsroom.run("UPDATE schedules SET enabled = false")
    all_of(notifier)
    all_of(notifier)
    assert newsroom.events() == ["storm"]
    assert newsroom.run("SELECT FROM notification_incidents WHERE phase <> 'over'") == []


def test_what_is_found_at_the_moment_of_a_digest_is_in_it_or_in_the_next(newsroom: Newsroom) -> None:
    newsroom.rule(digest="daily", digest_at=f"{datetime.now(UTC) + timedelta(hours=3):%H:%M}")
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.failed(newsroom.schedule("one"))
    all_of(notifier)
    newsroom.run("UPDATE notification_incidents SET flush_at = now() WHERE event = 'digest'")
    newsroom.failed(newsroom.schedule("two"), "disk full")
    all_of(notifier)
    all_of(notifier)
    (told,) = newsroom.told()
    (waiting,) = newsroom.run(
        "SELECT content, flush_at > now() AS is_later FROM notification_incidents "
        "WHERE event = 'digest' AND phase = 'gathering'"
    )
    assert waiting.is_later
    assert told.message["facts"] == {"failed": "1"}
    assert "two failed: disk full" in waiting.content["lines"][0]


def test_five_thousand_different_errors_are_one_message(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.run(
        """INSERT INTO schedules (domain_config_id, domain, frequency, time_config, name)
           SELECT gen_random_uuid(), 'example.com', 'daily', '{"hour": 2, "minute": 0}',
                  'job-' || translate(n::text, '0123456789', 'abcdefghij')
           FROM generate_series(1, 5000) AS n"""
    )
    end_all(newsroom, "failed", "order of $ is incomplete")
    for _ in range(8):
        all_of(notifier)
    titles = [row.title for row in newsroom.told()]
    assert len(titles) <= 3, titles[:20]
    assert titles[-1].startswith("5,000 schedules: different errors, such as: order of job-")
    end_all(newsroom, "success")
    for _ in range(12):
        all_of(notifier)
    assert newsroom.events()[-1] == "recovered"
    assert newsroom.events().count("recovered") == 1


def rewind_storms(newsroom: Newsroom, hours: int) -> None:
    """As if what joined them last had done so that long ago."""
    newsroom.run(
        """UPDATE notification_incidents SET content = content || jsonb_build_object('joined_at',
               to_char(now() - make_interval(hours => %(hours)s), 'YYYY-MM-DD"T"HH24:MI:SS+00:00'))
           WHERE event = 'storm'""",
        hours=hours,
    )
