"""What vanished from the API is switched off, never deleted, and only if the answer is to be trusted."""

import re

import pytest

from database.connection import DatabaseConnection
from services.api_sync.edits import LocalEdits
from services.api_sync.removals import switch_off
from services.api_sync.report import Kind, Outcome
from services.api_sync.state import SyncState
from services.schedule_repository import ScheduleRepository
from tests.integration.api_sync.looking import Run, counts, of, rows, write
from tests.support.api_stand_in import SEED_ITEM, ApiStandIn, item, many_items


def test_a_vanished_schedule_is_switched_off_and_never_deleted(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    del api.items[4]
    report = run()
    assert counts(report) == {"unchanged": 9, "disabled": 1}
    assert [entry.label for entry in report.of(Kind.DISABLED)] == ["host000004.example"]
    record = of(repository, 4)
    assert (record.enabled, record.next_run, record.source) == (False, None, "api")
    assert re.fullmatch(r"vanished from the API at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", record.disabled_note or "")


def test_a_second_sync_does_not_count_it_again(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    run()
    del api.items[4]
    run()
    api.etag = False
    assert counts(run()) == {"unchanged": 9}


def test_one_that_comes_back_is_enabled_again(api: ApiStandIn, run: Run, repository: ScheduleRepository) -> None:
    run()
    gone = api.items.pop(4)
    run()
    api.items.append(gone)
    report = run()
    assert counts(report) == {"unchanged": 9, "updated": 1, "returned": 1}
    record = of(repository, 4)
    assert (record.enabled, record.disabled_note) == (True, None)
    assert record.next_run is not None


def test_one_that_comes_back_stays_off_if_a_person_switched_it_off_before_it_vanished(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    repository.update_schedule(of(repository, 4).schedule_id, enabled=False)
    gone = api.items.pop(4)
    run()
    api.items.append(gone)
    assert counts(run()) == {"unchanged": 10}
    assert not of(repository, 4).enabled


@pytest.mark.parametrize("synced_between", [True, False])
def test_one_that_comes_back_stays_off_if_a_person_switched_it_on_and_off_meanwhile(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, db: DatabaseConnection, synced_between: bool
) -> None:
    run()
    gone = api.items.pop(4)
    run()
    schedule_id = of(repository, 4).schedule_id
    repository.update_schedule(schedule_id, enabled=True)
    repository.update_schedule(schedule_id, enabled=False)
    if synced_between:
        run()
        write(db, "TRUNCATE schedule_changes")  # history is not kept for ever
    api.items.append(gone)
    assert counts(run(preview=True)) == {"unchanged": 10}
    run()
    assert not of(repository, 4).enabled


def test_an_edit_of_something_else_meanwhile_does_not_keep_it_off(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    gone = api.items.pop(4)
    run()
    repository.update_schedule(of(repository, 4).schedule_id, priority=5)
    run()
    api.items.append(gone)
    run()
    assert (of(repository, 4).enabled, of(repository, 4).priority) == (True, 5)


def test_a_person_who_switches_a_vanished_one_on_again_is_right_or_not_as_the_setting_says(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    del api.items[4]
    run()
    repository.update_schedule(of(repository, 4).schedule_id, enabled=True)
    kept = run()
    assert [(entry.label, entry.changes) for entry in kept.of(Kind.KEPT)] == [
        ("host000004.example", {"enabled": (True, False)})
    ]
    assert of(repository, 4).enabled
    assert run(local_edits=LocalEdits.OVERWRITE).count(Kind.OVERWRITTEN) == 1
    assert not of(repository, 4).enabled


def test_a_bad_item_has_not_vanished(api: ApiStandIn, run: Run, repository: ScheduleRepository) -> None:
    run()
    api.items[4] = {"domain_config_id": "config-4", "data": None}
    assert counts(run()) == {"unchanged": 9, "skipped": 1}
    assert of(repository, 4).enabled


def test_nothing_is_switched_off_while_an_item_cannot_be_identified(
    api: ApiStandIn, run: Run, repository: ScheduleRepository
) -> None:
    run()
    api.items[4] = {"data": SEED_ITEM["data"]}
    report = run(allow_removals=True)
    assert (report.outcome, counts(report)) == (
        Outcome.REMOVALS_REFUSED,
        {"unchanged": 9, "skipped": 1, "refused": 1},
    )
    assert report.refused == "1 of the items cannot be identified: any of the 1 missing schedules may be meant"
    assert of(repository, 4).enabled


def test_schedules_of_other_origin_never_vanish(api: ApiStandIn, run: Run, repository: ScheduleRepository) -> None:
    mine = repository.create_schedule(domain="mine.example", frequency="hourly", time_config={"minute": 1})
    run()
    api.items = []
    run(allow_removals=True)
    record = repository.get_schedule(mine)
    assert record is not None
    assert record.enabled


def test_one_that_somebody_has_made_his_own_meanwhile_is_left_alone(
    run: Run, repository: ScheduleRepository, db: DatabaseConnection
) -> None:
    run()
    schedule_id = of(repository, 4).schedule_id
    repository.update_schedule(schedule_id, source="manual")
    with db.transaction() as connection:
        switch_off(connection, [schedule_id])
    record = repository.get_schedule(schedule_id)
    assert record is not None
    assert record.enabled


@pytest.mark.parametrize("left", [0, 7])
def test_a_landslide_is_refused_and_the_last_good_state_stays(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, db: DatabaseConnection, left: int
) -> None:
    run()
    api.items = api.items[:left] + ([item(99)] if left else [])
    report = run()
    assert (report.outcome, report.count(Kind.REFUSED), report.count(Kind.DISABLED)) == (
        Outcome.REMOVALS_REFUSED, 10 - left, 0,
    )  # fmt: skip
    assert report.refused
    assert rows(db, "SELECT count(*) FROM schedules WHERE NOT enabled") == [(0,)]
    assert report.count(Kind.CREATED) == bool(left)
    state = SyncState(db).read()
    assert state.last == state.applied == report
    run()
    assert "if-none-match" not in api.requests[-1], "a refused answer is looked at again as a whole"


def test_a_person_may_let_a_landslide_through_once(api: ApiStandIn, run: Run, db: DatabaseConnection) -> None:
    run()
    gone, api.items = api.items[3:], api.items[:3]
    assert counts(run(allow_removals=True)) == {"unchanged": 3, "disabled": 7}
    assert rows(db, "SELECT count(*) FROM schedules WHERE enabled") == [(3,)]
    api.items += gone
    assert run().count(Kind.RETURNED) == 7


def test_a_landslide_of_thousands_is_switched_off_in_portions(
    api: ApiStandIn, run: Run, db: DatabaseConnection
) -> None:
    api.items = many_items(2500)
    run()
    write(db, "TRUNCATE schedule_changes")
    api.items = []
    assert counts(run(allow_removals=True)) == {"disabled": 2500}
    per_commit = rows(db, "SELECT count(*) FROM schedule_changes GROUP BY txid ORDER BY min(change_id)")
    assert per_commit == [(1000,), (1000,), (500,)]
