"""Items become schedules: new ones, changed ones, and those that are left alone."""

import pytest
from sqlalchemy.exc import ProgrammingError

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.edits import LocalEdits
from services.api_sync.report import Kind, Outcome
from services.api_sync.state import SyncState
from services.api_sync.sync import open_api_sync
from services.schedule_repository import ScheduleRepository
from tests.integration.api_sync.looking import EXACTLY, Run, counts, of, rows, write
from tests.support.api_stand_in import SEED_ITEM, ApiStandIn, item, many_items

# --- created, updated, unchanged ---


def test_the_documented_answer_becomes_a_schedule(api: ApiStandIn, run: Run, repository: ScheduleRepository) -> None:
    api.items = [SEED_ITEM]
    report = run()
    assert (report.outcome, report.documented_counts) == (Outcome.DONE, {"created": 1, "updated": 0, "skipped": 0})
    record = repository.get_schedule_by_config_id("abc-123")
    assert record is not None
    assert (record.domain, record.source, record.external_id, record.frequency, record.time_config) == (
        "example.com", "api", "abc-123", "daily", {"hour": 2, "minute": 0},
    )  # fmt: skip
    assert (record.job_type, record.job_config["custom_pages"], record.enabled) == (
        "cookie_scan",
        ["/page1", "/page2"],
        True,
    )
    assert record.next_run is not None


def test_unchanged_items_are_not_written(api: ApiStandIn, run: Run, db: DatabaseConnection) -> None:
    run()
    before = rows(db, EXACTLY)
    items = rows(db, "SELECT schedule_id, xmin::text FROM api_sync_items ORDER BY 1")
    api.etag = False  # the whole answer comes again
    api.items = list(reversed(api.items))
    report = run()
    assert counts(report) == {"unchanged": 10}
    assert rows(db, EXACTLY) == before
    assert rows(db, "SELECT schedule_id, xmin::text FROM api_sync_items ORDER BY 1") == items


def test_a_changed_item_changes_its_schedule_alone(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    run()
    api.items[3] = item(3, maxPages=7, schedule={"frequency": "hourly", "time": {"minute": 5}})
    report = run()
    assert counts(report) == {"updated": 1, "unchanged": 9}
    (entry,) = report.of(Kind.UPDATED)
    assert (entry.item, entry.label, set(entry.changes)) == (
        4, "host000003.example", {"frequency", "time_config", "job_config"},
    )  # fmt: skip
    assert of(repository, 3).frequency == "hourly"
    assert rows(db, "SELECT count(*) FROM schedule_changes WHERE operation = 'update'") == [(1,)]


def test_what_the_api_no_longer_says_about_a_scan_is_gone(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    api.items[0] = item(0, maxPages=None)
    run()
    assert "max_pages" not in of(repository, 0).job_config


def test_a_manual_schedule_of_the_same_configuration_is_left_alone(run: Run, repository: ScheduleRepository) -> None:
    mine = repository.create_schedule(
        domain="mine.example", domain_config_id="config-1", frequency="hourly", time_config={"minute": 1}
    )
    assert counts(run()) == {"created": 10}
    untouched = repository.get_schedule(mine)
    assert untouched is not None
    assert (untouched.domain, untouched.source) == ("mine.example", "manual")
    assert of(repository, 1).source == "api"


def test_changes_are_recorded_under_the_sync_s_name(run: Run, db: DatabaseConnection) -> None:
    run(actor="api-sync (cli:anna)")
    assert rows(db, "SELECT DISTINCT changed_by FROM schedule_changes") == [("api-sync (cli:anna)",)]


def test_a_thousand_rows_are_committed_at_a_time(api: ApiStandIn, run: Run, db: DatabaseConnection) -> None:
    api.items = many_items(2500)
    run()
    per_commit = rows(db, "SELECT count(*) FROM schedule_changes GROUP BY txid ORDER BY min(change_id)")
    assert per_commit == [(1000,), (1000,), (500,)]


def test_an_adopted_schedule_of_the_api_is_found_again(
    run: Run, repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    """It was synced before anything was remembered about it."""
    run()
    write(db, "DELETE FROM api_sync_items")
    repository.update_schedule(of(repository, 1).schedule_id, domain="former.example")
    assert counts(run()) == {"updated": 1, "unchanged": 9}
    assert of(repository, 1).domain == "host000001.example"
    assert rows(db, "SELECT count(*) FROM api_sync_items") == [(10,)]


# --- bad items ---


def test_a_bad_item_is_skipped_with_its_reason_and_spoils_nothing(api: ApiStandIn, run: Run) -> None:
    api.items[2:2] = [None, item(90, domain="localhost"), item(1)]
    report = run()
    assert counts(report) == {"created": 10, "skipped": 3}
    assert [(entry.item, entry.reasons) for entry in report.of(Kind.SKIPPED)] == [
        (3, ("must be an object, got None",)),
        (
            4,
            ("data.domain: 'localhost' has no dot; a public domain name such as example.com is required",),
        ),
        (5, ("domain_config_id: 'config-1' is already used by item 2",)),
    ]


def test_an_item_that_went_bad_leaves_its_schedule_as_it_was(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    before = of(repository, 3)
    api.items[3] = item(3, schedule={"frequency": "daily", "time": {"hour": "two"}})
    report = run()
    assert (report.outcome, counts(report)) == (Outcome.DONE, {"unchanged": 9, "skipped": 1})
    assert of(repository, 3) == before


def test_a_bad_item_is_not_hidden_by_a_local_edit_of_what_is_bad(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    repository.update_schedule(of(repository, 3).schedule_id, job_config={"description": "mine"})
    api.items[3] = item(3, description="a\0b")
    report = run()
    assert [entry.reasons for entry in report.of(Kind.SKIPPED)] == [("data: must not contain NUL characters",)]
    assert of(repository, 3).job_config == {"description": "mine"}


def test_an_item_that_only_the_database_refuses_spoils_nothing_and_is_tried_again(
    api: ApiStandIn, run: Run, db: DatabaseConnection
) -> None:
    write(db, "ALTER TABLE schedules ADD CONSTRAINT unforeseen CHECK (domain !~ '00000[36]')")
    report = run()
    assert (report.outcome, counts(report)) == (Outcome.DONE, {"created": 8, "skipped": 2})
    reason = 'the database refuses it: new row for relation "schedules" violates check constraint "unforeseen"'
    assert [(entry.item, entry.label, entry.reasons) for entry in report.of(Kind.SKIPPED)] == [
        (4, "host000003.example", (reason,)),
        (7, "host000006.example", (reason,)),
    ]
    write(db, "ALTER TABLE schedules DROP CONSTRAINT unforeseen")
    assert counts(run()) == {"created": 2, "unchanged": 8}


def test_a_database_that_refuses_everything_is_nobodys_item(run: Run, db: DatabaseConnection) -> None:
    write(db, "ALTER TABLE schedules RENAME TO elsewhere")
    with pytest.raises(ProgrammingError):
        run()
    assert not SyncState(db).read().is_busy


# --- nothing new ---


def test_an_answer_that_is_known_is_a_success_without_a_write(
    api: ApiStandIn, run: Run, db: DatabaseConnection
) -> None:
    run()
    before = rows(db, EXACTLY)
    report = run()
    assert (report.outcome, report.documented_counts) == (
        Outcome.NOT_MODIFIED,
        {"created": 0, "updated": 0, "skipped": 0},
    )
    assert "if-none-match" in api.requests[1]
    assert rows(db, EXACTLY) == before


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM schedules WHERE domain = 'host000001.example'",
        "UPDATE schedules SET domain = 'x.example' WHERE domain = 'host000001.example'",
        "UPDATE schedules SET source = 'manual' WHERE domain = 'host000001.example'",
        "UPDATE schedules SET source = 'api' WHERE domain = 'mine.example'",
    ],
)
def test_whoever_changed_something_here_is_compared_with_the_whole_answer(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, db: DatabaseConnection, sql: str
) -> None:
    repository.create_schedule(domain="mine.example", frequency="hourly", time_config={"minute": 1})
    run()
    write(db, sql)
    run()
    assert "if-none-match" not in api.requests[1]


def test_the_next_sync_after_that_asks_for_what_is_new_again(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    repository.update_schedule(of(repository, 1).schedule_id, domain="mine.example", priority=3)
    run()
    run()
    assert ["if-none-match" in request for request in api.requests] == [False, False, True]


def test_another_rule_for_local_edits_needs_the_whole_answer(api: ApiStandIn, run: Run) -> None:
    run()
    run(local_edits=LocalEdits.OVERWRITE)
    assert "if-none-match" not in api.requests[1]


def test_another_api_is_not_asked_with_the_former_one_s_tag(
    api: ApiStandIn, settings: Settings, db: DatabaseConnection, run: Run
) -> None:
    run()
    with ApiStandIn(many_items(10)) as other:
        moved = settings.model_copy(update={"api_url": other.url})
        with open_api_sync(moved, db) as sync:
            sync.run()
        assert "if-none-match" not in other.requests[0]


def test_a_sync_that_died_on_the_way_is_followed_by_a_whole_one(
    api: ApiStandIn, run: Run, settings: Settings, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    first_items = api.items
    api.items = many_items(12)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("services.api_sync.applying.find_missing", dies)
        with pytest.raises(KeyboardInterrupt):
            run()
    api.items = first_items  # and the API is back at what it said before
    report = run()
    assert "if-none-match" not in api.requests[-1]
    assert report.count(Kind.DISABLED) == 2


# --- dry run ---


def test_a_dry_run_tells_everything_and_writes_nothing(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    run()
    repository.update_schedule(of(repository, 1).schedule_id, domain="mine.example")
    api.items[2] = item(2, maxPages=1)
    api.items[3] = item(3, domain="localhost")
    del api.items[9]
    api.items.append(item(77))
    tables = ("schedules", "api_sync_items", "api_sync_state", "schedule_changes")
    before = {table: rows(db, f"SELECT t.*, xmin::text FROM {table} AS t ORDER BY 1") for table in tables}
    planned = run(preview=True)
    after = {table: rows(db, f"SELECT t.*, xmin::text FROM {table} AS t ORDER BY 1") for table in tables}
    assert after == before
    done = run()
    assert (planned.outcome, planned.counts, planned.entries) == (done.outcome, done.counts, done.entries)
    assert counts(done) == {"created": 1, "updated": 1, "unchanged": 7, "skipped": 1, "disabled": 1, "kept": 1}


def test_a_dry_run_lists_all_and_the_stored_status_the_first_ones(
    api: ApiStandIn, run: Run, db: DatabaseConnection
) -> None:
    api.items = many_items(120)
    assert len(run(preview=True).of(Kind.CREATED)) == 120
    report = run()
    assert (len(report.of(Kind.CREATED)), report.count(Kind.CREATED)) == (50, 120)
    assert SyncState(db).read().last == report
