"""manage.py queues, queue …, dead-letters …: as operators meet them."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import manage
from database.connection import DatabaseConnection
from services.queues.queue_table import FailedFilter
from services.queues.requeue import MAX_ROWS, SLOWEST, Requeue
from services.workflows.domain_extraction import DOMAIN_EXTRACTION
from services.workflows.sitemap_jobs import SITEMAP_JOBS
from tests.support.places import query
from tests.support.waiting import eventually

Cli = Callable[..., Result]
QUEUE = "domain_extraction"


@pytest.fixture
def cli(own_process: dict[str, str]) -> Cli:
    def run(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(manage.app, list(arguments), input=answer)

    return run


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def add(db: DatabaseConnection, status: str, count: int = 1, error: str | None = None, age: str = "0") -> list[str]:
    rows = query(
        db,
        """INSERT INTO local_businesses
               (place_id, domain_extraction_status, domain_extraction_error, not_before, attempts)
           SELECT gen_random_uuid(), :status, :error, now() - CAST(:age AS interval), 3 FROM generate_series(1, :count)
           RETURNING id""",
        status=status, count=count, error=error, age=age,
    )  # fmt: skip
    return [str(row[0]) for row in rows]


def die(db: DatabaseConnection, error: str = "no answer", count: int = 1) -> list[str]:
    keys = add(db, "Error", count, error)
    for key in keys:
        query(
            db,
            """INSERT INTO dead_letters (queue, item_key, attempts, error, traceback)
               VALUES (:queue, :key, 3, :error, 'Traceback: deep inside')""",
            queue=QUEUE, key=key, error=error,
        )  # fmt: skip
    return keys


def statuses(db: DatabaseConnection) -> list[str]:
    return [row[0] for row in query(db, "SELECT domain_extraction_status FROM local_businesses ORDER BY created_at")]


# --- looking ---


def test_queues_tells_depth_age_work_failures_circuit_and_pause(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Queued", 2, age="2 hours")
    add(db, "Queued", age="-1 hour")
    add(db, "Processing")
    add(db, "Completed", 5)
    add(db, "Error")
    die(db)
    (view,) = [one for one in answer(cli("queues", "--json")) if one["name"] == QUEUE]
    numbers = {name: view[name] for name in ("depth", "due", "processing", "stale", "failed", "dead")}
    assert numbers == {"depth": 3, "due": 2, "processing": 1, "stale": 0, "failed": 2, "dead": 1}
    assert 7190 < view["oldest_seconds"] < 7300
    assert (view["circuit"], view["paused_reason"], view["batch_size"]) == ("closed", None, None)


def test_rows_whose_worker_vanished_are_shown(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Processing", 7)
    (gone,) = add(db, "Processing")
    query(db, "UPDATE local_businesses SET claimed_at = now() - interval '1 hour' WHERE id = :id", id=gone)
    (view,) = [one for one in answer(cli("queues", "--json")) if one["name"] == QUEUE]
    assert (view["processing"], view["stale"]) == (8, 1)
    heading, *lines = cli("queues").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith(QUEUE)]
    assert line[heading.index("stale") :].split()[0] == "1"
    assert "8, 1 of them stale" in cli("queue", "show", QUEUE).stdout


def test_queues_is_a_table_for_people(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Queued", 3, age="2 hours 5 minutes")
    cli("queue", "pause", QUEUE, "--reason", "under repair")
    lines = cli("queues").stdout.splitlines()
    assert lines[0].split()[:4] == ["queue", "waiting", "oldest", "processing"]
    (line,) = [line for line in lines if line.startswith(QUEUE)]
    assert "3" in line.split()
    assert "2 h 5 min" in line
    assert line.endswith("under repair")


def test_show_tells_everything_about_one_queue(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Queued", 3)
    DOMAIN_EXTRACTION.run(db=db)
    shown = cli("queue", "show", DOMAIN_EXTRACTION.job_id).stdout
    assert "process_domain_extraction_queue (WF3 - Domain Extraction Queue Processor)" in shown
    assert "3 claimed, 3 succeeded" in shown
    assert answer(cli("queue", "show", QUEUE, "--json"))["totals"]["succeeded"] == 3


@pytest.mark.parametrize(
    "arguments",
    [("queue", "show", "x"), ("queue", "pause", "x"), ("queue", "requeue", "x"), ("dead-letters", "list", "-q", "x")],
)
def test_an_unknown_queue_is_one_clear_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("queue: unknown queue 'x' (known: ")


# --- pause and resume ---


def test_a_queue_is_paused_and_resumed_by_hand(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Queued")
    assert "has been paused since" in cli("queue", "pause", QUEUE, "--reason", "under repair").stdout
    state = query(db, "SELECT paused_reason, paused_by LIKE 'cli:%' FROM workflow_queues")
    assert state == [("under repair", True)]
    assert DOMAIN_EXTRACTION.run(db=db).skipped == "paused"
    assert cli("queue", "resume", QUEUE).exit_code == 0
    assert DOMAIN_EXTRACTION.run(db=db).succeeded == 1


# --- requeue ---


def test_failed_rows_are_queued_again_with_all_their_attempts(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Error", 2, "no answer")
    add(db, "Completed")
    result = answer(cli("queue", "requeue", QUEUE, "--yes", "--json"))
    assert (result["found"], result["requeued"]) == (2, 2)
    rows = query(
        db, "SELECT domain_extraction_status, domain_extraction_error, attempts FROM local_businesses ORDER BY 1"
    )
    assert rows == [("Completed", None, 3), ("Queued", None, 0), ("Queued", None, 0)]


def test_a_dry_run_only_counts(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Error", 2)
    assert cli("queue", "requeue", QUEUE, "--dry-run").stdout == f"2 failed rows of {QUEUE}; nothing was changed\n"
    assert statuses(db) == ["Error", "Error"]


def test_requeuing_asks_first(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Error")
    assert cli("queue", "requeue", QUEUE, answer="n\n").exit_code == 1
    assert statuses(db) == ["Error"]
    assert cli("queue", "requeue", QUEUE, answer="y\n").exit_code == 0
    assert statuses(db) == ["Queued"]


def test_only_what_the_filter_means_is_requeued(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Error", 1, "HTTP 404")
    add(db, "Error", 1, "Timed Out after 60 s")
    (chosen,) = add(db, "Error", 1, "100% odd")
    cli("queue", "requeue", QUEUE, "--error", "timed out", "--yes")
    assert statuses(db) == ["Error", "Queued", "Error"]
    cli("queue", "requeue", QUEUE, "--key", chosen, "--yes")
    assert statuses(db) == ["Error", "Queued", "Queued"]
    assert answer(cli("queue", "requeue", QUEUE, "--since", "1h", "--dry-run", "--json"))["found"] == 1


def test_a_limit_takes_the_oldest(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Error", 1)
    add(db, "Error", 1)
    cli("queue", "requeue", QUEUE, "--limit", "1", "--yes")
    assert statuses(db) == ["Queued", "Error"]


def test_a_rate_makes_rows_due_one_after_the_other(cli: Cli, db: DatabaseConnection) -> None:
    add(db, "Error", 4)
    cli("queue", "requeue", QUEUE, "--rate", "0.5", "--yes")
    gaps = query(
        db,
        "SELECT round(extract(epoch FROM not_before - min(not_before) OVER ()))::int FROM local_businesses ORDER BY 1",
    )
    assert gaps == [(0,), (2,), (4,), (6,)]


def add_jobs(db: DatabaseConnection, domain: str, *statuses: str) -> list[int]:
    """Sitemap jobs of one domain, the oldest first; those that failed are dead letters, too."""
    query(db, "INSERT INTO domains (domain) VALUES (:domain)", domain=domain)
    job = """INSERT INTO jobs (domain_id, status, error)
             SELECT id, :status, 'no answer' FROM domains WHERE domain = :domain RETURNING id"""
    keys = [query(db, job, status=status, domain=domain)[0][0] for status in statuses]
    query(
        db,
        """INSERT INTO dead_letters (queue, item_key, attempts, error)
           SELECT 'sitemap_jobs', id, 3, error FROM jobs WHERE id = ANY(:keys) AND status = 'failed'""",
        keys=keys,
    )
    return keys


def job_statuses(db: DatabaseConnection) -> list[str]:
    return [row[0] for row in query(db, "SELECT status FROM jobs ORDER BY id")]


ONE_LIVE_JOB = ["failed", "pending", "failed", "running", "failed", "pending", "complete", "pending"]


@pytest.mark.parametrize("command", [("queue", "requeue", "sitemap_jobs"), ("dead-letters", "requeue")])
def test_of_rows_that_may_not_live_together_one_is_requeued_and_none_beside_a_live_one(
    cli: Cli, db: DatabaseConnection, command: tuple[str, ...]
) -> None:
    add_jobs(db, "waits.example", "failed", "pending")
    add_jobs(db, "runs.example", "failed", "running")
    add_jobs(db, "failed-twice.example", "failed", "failed")
    add_jobs(db, "failed-once.example", "complete", "failed")
    requeued = answer(cli(*command, "--yes", "--json"))["requeued"]
    assert requeued in (2, {"sitemap_jobs": 2})
    assert job_statuses(db) == ONE_LIVE_JOB
    assert len(answer(cli("dead-letters", "list", "--json"))) == 3
    assert answer(cli(*command, "--yes", "--json"))["requeued"] in (0, {"sitemap_jobs": 0})


def test_of_rows_that_may_not_live_together_the_one_that_is_named_is_requeued(cli: Cli, db: DatabaseConnection) -> None:
    older, _ = add_jobs(db, "failed-twice.example", "failed", "failed")
    dry = answer(cli("queue", "requeue", "sitemap_jobs", "--dry-run", "--json"))
    assert dry["found"] == 1
    cli("queue", "requeue", "sitemap_jobs", "--key", str(older), "--yes")
    assert job_statuses(db) == ["pending", "failed"]


def test_two_who_requeue_what_may_not_live_together_do_not_collide(db: DatabaseConnection) -> None:
    """The second one begins before the first one has ended, and waits for it at the unique index."""
    older, newer = add_jobs(db, "failed-twice.example", "failed", "failed")
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as first:
            first.exec_driver_sql("UPDATE jobs SET status = 'pending' WHERE id = %s", (older,))
            second = pool.submit(Requeue(db, "anna").failed, SITEMAP_JOBS, FailedFilter(keys=[str(newer)]))
            eventually(lambda: query(db, "SELECT FROM pg_locks WHERE NOT granted"))
        assert second.result(30) == 0
    assert job_statuses(db) == ["pending", "failed"]


def test_the_slowest_rate_keeps_the_last_row_within_years_that_python_can_read() -> None:
    assert (datetime.now(UTC) + timedelta(seconds=MAX_ROWS / SLOWEST)).year < 3000


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--limit=0", "limit: must be between 1 and 100000, got 0"),
        ("--rate=-1", "rate: must be 0 (all at once) or between 0.00001 and 100000 rows per second, got -1"),
        ("--rate=1e-300", "rate: must be 0 (all at once) or between 0.00001 and 100000 rows per second, got 1e-300"),
        ("--rate=nan", "rate: must be 0"),
        ("--rate=inf", "rate: must be 0"),
    ],
)
def test_a_bad_number_is_refused(cli: Cli, db: DatabaseConnection, option: str, line: str) -> None:
    die(db)
    (letter,) = answer(cli("dead-letters", "list", "--json"))
    by_id = ("dead-letters", "requeue", str(letter["id"]))
    for command in (("queue", "requeue", QUEUE), ("dead-letters", "requeue"), by_id):
        result = cli(*command, option, "--yes")
        assert (result.exit_code, result.stderr.startswith(line)) == (2, True)
    assert statuses(db) == ["Error"]


# --- dead letters ---


def test_dead_letters_are_listed_newest_first_with_their_reason(cli: Cli, db: DatabaseConnection) -> None:
    die(db, "first")
    (newest,) = die(db, "second")
    letters = answer(cli("dead-letters", "list", "--json"))
    assert [letter["error"] for letter in letters] == ["second", "first"]
    assert (letters[0]["item_key"], letters[0]["queue"], letters[0]["attempts"]) == (newest, QUEUE, 3)
    assert "second" in cli("dead-letters", "list").stdout.splitlines()[1]


def test_dead_letters_are_filtered_and_come_in_pages(cli: Cli, db: DatabaseConnection) -> None:
    die(db, "HTTP 404")
    die(db, "timed out", 3)
    assert len(answer(cli("dead-letters", "list", "--error", "TIMED", "--json"))) == 3
    assert answer(cli("dead-letters", "list", "--error", "%", "--json")) == []
    first = cli("dead-letters", "list", "--limit", "2").stdout.splitlines()
    assert first[-1].startswith("next page: --before ")
    rest = answer(cli("dead-letters", "list", "--before", first[-1].split()[-1], "--json"))
    assert [letter["error"] for letter in rest] == ["timed out", "HTTP 404"]


@pytest.mark.parametrize("command", [("list",), ("show", "1")])
def test_what_a_stranger_wrote_into_an_error_is_shown_and_not_obeyed(
    cli: Cli, db: DatabaseConnection, command: tuple[str, ...]
) -> None:
    die(db, "answered \x1b]0;yours\x07\x1b[31m [/red], not HTML")
    shown = cli("dead-letters", *command).stdout
    assert "answered \\x1b]0;yours\\x07\\x1b[31m [/red], not HTML" in shown
    assert not {"\x1b", "\x07"} & set(shown)


def test_one_dead_letter_is_shown_with_its_traceback(cli: Cli, db: DatabaseConnection) -> None:
    die(db)
    (letter,) = answer(cli("dead-letters", "list", "--json"))
    shown = cli("dead-letters", "show", str(letter["id"])).stdout
    assert "Traceback: deep inside" in shown


@pytest.mark.parametrize("command", [("show",), ("requeue", "--yes"), ("requeue", "--dry-run")])
def test_a_dead_letter_that_is_none_is_named(cli: Cli, command: tuple[str, ...]) -> None:
    missing = cli("dead-letters", *command, "999")
    assert (missing.exit_code, missing.stderr) == (2, "letter: there is no dead letter 999\n")


def test_requeuing_a_dead_letter_queues_its_row_and_closes_it(cli: Cli, db: DatabaseConnection) -> None:
    die(db, count=2)
    letters = answer(cli("dead-letters", "list", "--json"))
    result = answer(cli("dead-letters", "requeue", str(letters[1]["id"]), "--yes", "--json"))
    assert result == {"found": 1, "requeued": {QUEUE: 1}, "dry_run": False}
    assert sorted(statuses(db)) == ["Error", "Queued"]
    (closed,) = answer(cli("dead-letters", "list", "--closed", "--json"))
    assert (closed["id"], closed["requeued_by"].startswith("cli:")) == (letters[1]["id"], True)
    assert len(answer(cli("dead-letters", "list", "--json"))) == 1


def test_dead_letters_are_requeued_by_filter_oldest_first(cli: Cli, db: DatabaseConnection) -> None:
    die(db, "HTTP 404")
    die(db, "timed out", 2)
    dry = answer(cli("dead-letters", "requeue", "--error", "timed", "--dry-run", "--json"))
    assert (dry["found"], statuses(db)) == (2, ["Error"] * 3)
    assert answer(cli("dead-letters", "requeue", "--error", "timed", "--limit", "1", "-y", "--json"))["requeued"] == {
        QUEUE: 1
    }
    assert statuses(db).count("Queued") == 1


def test_a_letter_of_a_queue_that_nobody_knows_keeps_no_other_from_its_way(cli: Cli, db: DatabaseConnection) -> None:
    query(db, "INSERT INTO dead_letters (queue, item_key, attempts, error) VALUES ('gone', '1', 3, 'no answer')")
    die(db)
    result = answer(cli("dead-letters", "requeue", "--yes", "--json"))
    assert (result["requeued"], statuses(db)) == ({"gone": 0, QUEUE: 1}, ["Queued"])
