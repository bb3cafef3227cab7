"""One replica walks; a former holder of the lease writes nothing; kill -9 loses nothing and tells nothing twice."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from services.notifications import notifier as module
from services.notifications import notifier_sql
from services.notifications.notifier import Fenced, LeaseLost, Notifier
from services.notifications.notifier_sql import WALK
from services.notifications.rules import Rules, enabled_rules
from tests.support.newsroom import Newsroom, all_of
from tests.support.waiting import eventually


@pytest.fixture
def newsroom(db: DatabaseConnection) -> Newsroom:
    return Newsroom(db)


def test_of_two_replicas_one_walks_and_the_other_takes_over_when_it_leaves(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, one, two = newsroom.schedule(), newsroom.notifier("one"), newsroom.notifier("two")
    all_of(one)
    all_of(two)
    assert (one.is_holder, two.is_holder) == (True, False)
    newsroom.failed(schedule)
    all_of(two)
    assert newsroom.told() == []
    one.close()
    all_of(two)
    assert two.is_holder
    assert newsroom.events() == ["failed"]


def test_a_holder_that_froze_between_reading_and_writing_writes_nothing_when_it_thaws(newsroom: Newsroom) -> None:
    newsroom.rule()
    schedule, one, two = newsroom.schedule(), newsroom.notifier("one"), newsroom.notifier("two")
    all_of(one)
    newsroom.failed(schedule)
    newsroom.take_over()
    all_of(two)
    before = newsroom.position()
    with newsroom.db.transaction() as connection:
        rules = enabled_rules(connection)
    with pytest.raises(LeaseLost):
        one.walk(rules)
    with pytest.raises(LeaseLost):
        one._tell_gathered({})
    assert newsroom.position() == before
    assert newsroom.events() == ["failed"]
    all_of(one)
    assert not one.is_holder


def test_a_holder_that_froze_inside_its_transaction_is_waited_for_and_nothing_is_told_twice(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    newsroom.rule()
    schedule, one, two = newsroom.schedule(), newsroom.notifier("one"), newsroom.notifier("two")
    all_of(one)
    newsroom.failed(schedule)
    original = Notifier._judge

    def freeze(self: Notifier, fenced: Fenced, *rest: object) -> None:
        original(self, fenced, *rest)  # type: ignore[arg-type]
        fenced.connection.exec_driver_sql("UPDATE notifier SET held_until = '-infinity'")
        all_of(two)
        assert not two.is_holder, "the row is locked: its holder may still commit"
        pid = fenced.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        newsroom.run("SELECT pg_terminate_backend(%(pid)s)", pid=pid)  # as the server does with an idle transaction

    monkeypatch.setattr(Notifier, "_judge", freeze)
    with pytest.raises(Exception, match=r"terminat|does not answer"):
        one.tick()
    monkeypatch.undo()
    newsroom.take_over()
    all_of(two)
    assert newsroom.events() == ["failed"]


NOTIFIER = """
import os, sys, time
from config import Settings
from database.connection import DatabaseConnection
from datetime import timedelta
from services.notifications import notifier as module
from services.notifications import notifier_sql
from services.notifications.notifier import Notifier

where = sys.argv[2]
original = getattr(Notifier, where)
def stop(self, *given):
    found = original(self, *given)
    print("here", flush=True)
    time.sleep(60)
    return found
setattr(Notifier, where, stop)
module.BATCH = 10
Notifier(Settings(instance_id="doomed"), DatabaseConnection(sys.argv[1]), timedelta(0)).tick()
"""


@contextmanager
def doomed(database_url: str, where: str) -> Iterator[None]:
    """A process that has done this part of a tick, inside its transaction, and is killed with -9."""
    command = [sys.executable, "-c", NOTIFIER, database_url, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT_ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        yield
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("where", ["_judge", "_deliver", "_walk_on"])
def test_kill_9_in_the_middle_of_a_tick_loses_nothing_and_tells_nothing_twice(
    newsroom: Newsroom, database_url: str, where: str
) -> None:
    newsroom.rule()
    notifier = newsroom.notifier("survivor")
    all_of(notifier)
    schedules = [newsroom.schedule(f"job-{number}") for number in range(25)]
    for number, schedule in enumerate(schedules):
        newsroom.failed(schedule, error=f"{'abcdefghijklmnopqrstuvwxyz'[number] * 3} failed")
    notifier.close()
    with doomed(database_url, where):
        pass
    newsroom.take_over()

    def is_free() -> bool:
        all_of(notifier)
        return notifier.is_holder

    eventually(is_free, 20)
    all_of(notifier)
    told = newsroom.told()
    assert len(told) == 25
    assert {row.subject.split(":")[0] for row in told} == {str(schedule) for schedule in schedules}


def test_a_commit_whose_answer_was_lost_is_not_repeated(newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch) -> None:
    newsroom.rule()
    schedule, notifier = newsroom.schedule(), newsroom.notifier()
    all_of(notifier)
    newsroom.failed(schedule)
    whole = Notifier.fenced

    @contextmanager
    def committed_unheard(self: Notifier) -> Iterator[Fenced]:
        with whole(self) as fenced:
            yield fenced
        raise ConnectionError("the answer to COMMIT was lost")

    monkeypatch.setattr(Notifier, "fenced", committed_unheard)
    for _ in range(4):
        with pytest.raises(ConnectionError):
            notifier.tick()
    monkeypatch.undo()
    all_of(notifier)
    assert newsroom.events() == ["failed"]


def test_fifty_thousand_ended_executions_are_walked_in_bounded_batches(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    newsroom.rule("failed", "recovered", "late", "slow", late_seconds=3600, slower_than_seconds=600)
    notifier = newsroom.notifier()
    all_of(notifier)
    schedules = [newsroom.schedule(f"job-{number}") for number in range(100)]
    newsroom.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
               started_at, completed_at, duration_seconds, error_message)
           SELECT s.schedule_id, s.name, s.domain, s.domain_config_id,
                  CASE WHEN n %% 500 = 0 AND s.name = 'job-7' THEN 'failed' ELSE 'success' END,
                  now() - interval '1 day' + make_interval(secs => n),
                  now() - interval '1 day' + make_interval(secs => n),
                  now() - interval '1 day' + make_interval(secs => n), clock_timestamp(), 0.1, 'connection refused'
           FROM generate_series(1, 500) AS n CROSS JOIN schedules AS s"""
    )
    newsroom.run("ANALYZE job_executions")
    sizes: list[int] = []
    original = Notifier._judge

    def count(self: Notifier, fenced: Fenced, rules: object, rows: list[object]) -> None:
        sizes.append(len(rows))
        original(self, fenced, rules, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Notifier, "_judge", count)
    began, cpu = time.monotonic(), time.process_time()
    all_of(notifier)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    record_property("seconds_per_1000", round(seconds / 50, 4))
    record_property("cpu_seconds_per_1000", round(cpu / 50, 4))
    assert max(sizes) <= module.BATCH
    assert sum(sizes) <= 2_000, "a success of which nothing was open has no business here"
    assert newsroom.events() == ["failed"]
    assert len(schedules) == 100


def test_a_walk_reads_the_index_of_ends_and_never_the_table(newsroom: Newsroom) -> None:
    schedule = newsroom.schedule()
    newsroom.run(
        """INSERT INTO job_executions (
               schedule_id, job_id, domain, domain_config_id, status, scheduled_for, completed_at)
           SELECT %(id)s, 'job', 'example.com', gen_random_uuid(), 'success', now() - make_interval(secs => n),
                  now() - make_interval(secs => n) FROM generate_series(1, 20000) AS n""",
        id=schedule,
    )
    newsroom.run("ANALYZE job_executions")
    values = {"at": "2020-01-01T00:00Z", "id": str(schedule), "until": "2100-01-01", "from": 0, "most": 1000}
    plan = newsroom.run("EXPLAIN " + WALK, **values, late=None, slow=1.0, scans=True, all=False, target="1:1:")
    lines = "\n".join(row[0] for row in plan)
    assert "job_executions_ended_idx" in lines
    assert "Seq Scan on job_executions" not in lines


def test_a_row_that_makes_no_sense_is_said_and_all_others_are_told(
    newsroom: Newsroom, caplog: pytest.LogCaptureFixture
) -> None:
    newsroom.rule("failed", "scan_changed")
    notifier = newsroom.notifier()
    all_of(notifier)
    scan = newsroom.run(
        "INSERT INTO scans (domain, engine, started_at, previous_scan_id, changes) "
        "VALUES ('a.example', 'http', now(), gen_random_uuid(), '[1, 2]') RETURNING scan_id"
    )[0].scan_id
    newsroom.failed(newsroom.schedule("before"), "disk full")
    bad = newsroom.ended(newsroom.schedule(), "success", scan_id=scan)
    newsroom.failed(newsroom.schedule("after"))
    all_of(notifier)
    assert sorted(row.title.split()[0] for row in newsroom.told()) == ["after", "before"]
    assert f"execution {bad} cannot be judged" in caplog.text
    newsroom.failed(newsroom.schedule("later"), "no such table")
    all_of(notifier)
    assert len(newsroom.told()) == 3


def test_a_rule_that_makes_no_sense_tells_nothing_says_so_and_stops_no_other(
    newsroom: Newsroom, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad-zone", "bad-hours", "bad-day", "good"):
        newsroom.rule(name=name)
    change = "UPDATE notification_rules SET {} WHERE name = %(name)s"
    for name, written in {
        "bad-zone": "quiet_from = '00:00', quiet_to = '23:59', quiet_timezone = 'Nowhere/At_All'",
        "bad-hours": "quiet_from = '9 am', quiet_to = 'noon'",
        "bad-day": "digest = 'weekly', digest_day = 'someday'",
    }.items():
        newsroom.run(change.format(written), name=name)
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.failed(newsroom.schedule())
    all_of(notifier)
    assert [row.message["data"]["rule"] for row in newsroom.told()] == ["good"]
    assert caplog.text.count("rule bad-zone sends nothing: quiet_timezone: must be an IANA time zone") == 1
    bad, *_ = Rules(newsroom.db).page().items
    assert bad.problem is not None
    newsroom.run(change.format("digest = 'none', digest_day = 'monday'"), name="bad-day")
    newsroom.failed(newsroom.schedule())
    all_of(notifier)
    assert "bad-day" in {row.message["data"]["rule"] for row in newsroom.told()}


def test_a_look_that_fails_keeps_nothing_else_from_being_told(newsroom: Newsroom) -> None:
    newsroom.rule("failed", "queue_open", "parked")
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.run("ALTER TABLE workflow_queues RENAME COLUMN circuit TO circuit_")
    newsroom.failed(newsroom.schedule("failing"))
    newsroom.run("UPDATE schedules SET invalid_reason = 'hour: is required' WHERE name = %(n)s", n="failing")
    for _ in range(2):
        with pytest.raises(Exception, match=r"circuit|schema"):
            all_of(notifier)
    assert sorted(newsroom.events()) == ["failed", "parked"]
    walked = newsroom.run("SELECT walked_at FROM notifier")
    with pytest.raises(Exception, match=r"circuit|schema"):
        all_of(notifier)
    assert newsroom.run("SELECT walked_at FROM notifier") == walked, "the alert of a stalled notifier has to see it"
    newsroom.run("ALTER TABLE workflow_queues RENAME COLUMN circuit_ TO circuit")
    all_of(notifier)
    all_of(notifier)
    assert newsroom.run("SELECT walked_at FROM notifier") != walked


def test_a_notifier_in_a_restored_copy_tells_what_happens_there(newsroom: Newsroom) -> None:
    newsroom.rule()
    notifier = newsroom.notifier()
    all_of(notifier)
    newsroom.run(  # a dump of a server whose transactions had far higher ids
        """UPDATE notifier SET position = jsonb_set(jsonb_set(position, '{seen}', '"90000000000:90000000000:"'),
               '{marks}', '[[90000000000, "2026-01-01T00:00:00+00:00"]]')"""
    )
    all_of(notifier)
    newsroom.failed(newsroom.schedule())
    all_of(notifier)
    assert newsroom.events() == ["failed"]


def test_more_that_is_open_than_one_look_reads_is_told_once_and_ends_once(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier_sql, "OPEN_MOST", 4)
    newsroom.rule("parked", "recovered")
    notifier = newsroom.notifier()
    for _ in range(12):
        newsroom.schedule()
    newsroom.run("UPDATE schedules SET invalid_reason = 'hour: is required'")
    for _ in range(4):
        all_of(notifier)
    (told,) = newsroom.told()
    assert told.title.startswith("12 schedules: ")
    newsroom.run("UPDATE schedules SET invalid_reason = NULL")
    for _ in range(5):
        all_of(notifier)
    assert newsroom.events() == ["storm", "recovered"]
