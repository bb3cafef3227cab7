"""What somebody changed here is kept or overwritten, and told."""

from database.connection import DatabaseConnection
from services.api_sync.edits import LocalEdits
from services.api_sync.report import Kind
from services.schedule_repository import ScheduleRepository
from tests.integration.api_sync.looking import Run, counts, of, rows
from tests.support.api_stand_in import ApiStandIn, item


def test_a_local_edit_is_kept_counted_and_listed_every_time(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    api.etag = False
    repository.update_schedule(of(repository, 1).schedule_id, domain="mine.example")
    for _ in range(2):
        report = run()
        assert counts(report) == {"unchanged": 10, "kept": 1}
        (entry,) = report.of(Kind.KEPT)
        assert entry.changes == {"domain": ("mine.example", "host000001.example")}
    api.items[1] = item(1, domain="later.example", maxPages=3)
    report = run()
    assert counts(report) == {"unchanged": 9, "updated": 1, "kept": 1}
    assert (of(repository, 1).domain, of(repository, 1).job_config["max_pages"]) == ("mine.example", 3)


def test_a_local_edit_is_overwritten_visibly_if_the_setting_says_so(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run(local_edits=LocalEdits.OVERWRITE)
    repository.update_schedule(of(repository, 1).schedule_id, domain="mine.example", timezone="Europe/Berlin")
    report = run(local_edits=LocalEdits.OVERWRITE)
    assert counts(report) == {"unchanged": 9, "updated": 1, "overwritten": 1}
    assert [entry.changes for entry in report.of(Kind.OVERWRITTEN)] == [
        {"domain": ("mine.example", "host000001.example")}
    ]
    assert (of(repository, 1).domain, of(repository, 1).timezone) == ("host000001.example", "Europe/Berlin")


def test_an_edit_that_is_taken_back_is_no_edit_any_more(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    schedule_id = of(repository, 1).schedule_id
    repository.update_schedule(schedule_id, domain="mine.example")
    run()
    repository.update_schedule(schedule_id, domain="host000001.example")
    assert counts(run()) == {"unchanged": 10}
    api.items[1] = item(1, domain="later.example")
    run()
    assert of(repository, 1).domain == "later.example"


def test_a_schedule_deleted_here_comes_back_as_long_as_the_api_has_it(
    run: Run, repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    run()
    repository.delete_schedule(of(repository, 1).schedule_id)
    assert counts(run()) == {"created": 1, "unchanged": 9}
    assert rows(db, "SELECT count(*) FROM api_sync_items") == [(10,)]
