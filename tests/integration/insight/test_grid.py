"""The grid: trouble first, and a fire is one cell, by its last attempt."""

from uuid import UUID

from database.connection import DatabaseConnection
from services.insight.grid import RECOVERED, Grid
from tests.integration.insight.test_failures import add_fire
from tests.support.executions import Make


def cells_of(db: DatabaseConnection, *schedules: UUID) -> list[list[str]]:
    rows = {row.schedule_id: row for row in Grid(db).rows(24)}
    return [[cell.status for cell in rows[each].cells] for each in schedules]


def test_a_fire_is_one_cell_by_its_last_attempt_oldest_first(db: DatabaseConnection, make: Make) -> None:
    schedule_id = make()
    add_fire(db, ["failed", "success"], hours_ago=3, schedule_id=schedule_id)
    add_fire(db, ["success"], hours_ago=2, schedule_id=schedule_id)
    add_fire(db, ["failed", "timed_out"], hours_ago=1, schedule_id=schedule_id)
    assert cells_of(db, schedule_id) == [[RECOVERED, "success", "timed_out"]]


def test_what_fails_now_comes_first_then_what_failed_most(db: DatabaseConnection, make: Make) -> None:
    fine, wobbly, mended, broken = (make(domain=name) for name in ("fine", "wobbly", "mended", "broken"))
    for hours_ago in (4, 3, 2, 1):
        add_fire(db, ["success"], hours_ago=hours_ago, schedule_id=fine)
        add_fire(db, ["failed" if hours_ago > 2 else "success"], hours_ago=hours_ago, schedule_id=wobbly)
        add_fire(db, ["failed" if hours_ago == 3 else "success"], hours_ago=hours_ago, schedule_id=mended)
        add_fire(db, ["failed" if hours_ago == 1 else "success"], hours_ago=hours_ago, schedule_id=broken)
    assert [row.schedule_id for row in Grid(db).rows(24)] == [broken, wobbly, mended, fine]


def test_missed_fires_are_trouble_like_failed_ones(db: DatabaseConnection, make: Make) -> None:
    fine, was_missed, is_missed, skips = (make(domain=name) for name in ("fine", "was missed", "is missed", "skips"))
    add_fire(db, ["missed"], hours_ago=5, schedule_id=was_missed)
    add_fire(db, ["missed"], hours_ago=5, schedule_id=is_missed)
    for schedule_id in (was_missed, is_missed, skips, fine):
        add_fire(db, ["success"], hours_ago=4, schedule_id=schedule_id)
    add_fire(db, ["missed"], hours_ago=3, schedule_id=is_missed)
    add_fire(db, ["skipped"], hours_ago=2, schedule_id=is_missed)  # what was skipped says nothing new
    add_fire(db, ["skipped"], hours_ago=2, schedule_id=skips)
    add_fire(db, ["success"], hours_ago=1, schedule_id=fine)
    assert [row.schedule_id for row in Grid(db).rows(24)][:2] == [is_missed, was_missed]
    assert [row.schedule_id for row in Grid(db).rows(24, schedules=2)] == [is_missed, was_missed]


def test_what_retries_mend_all_the_time_does_not_hide_what_was_missed_in_the_night(
    db: DatabaseConnection, make: Make
) -> None:
    nightly = make(domain="nightly")
    add_fire(db, ["success"], hours_ago=10, schedule_id=nightly)
    add_fire(db, ["missed"], hours_ago=9, schedule_id=nightly)
    for number in range(3):
        add_fire(db, ["failed", "success"], hours_ago=1, schedule_id=make(domain=f"flaky {number}"))
    rows = Grid(db).rows(24, schedules=2)
    assert rows[0].label == "nightly"


def test_of_many_schedules_those_with_trouble_are_shown_and_only_their_last_fires(
    db: DatabaseConnection, make: Make
) -> None:
    broken = make(domain="broken")
    for hours_ago in range(9, 4, -1):
        add_fire(db, ["failed"], hours_ago=hours_ago, schedule_id=broken)
    for number in range(3):
        add_fire(db, ["success"], hours_ago=1, schedule_id=make(domain=f"fine {number}"))
    rows = Grid(db).rows(24, schedules=2, fires=3)
    assert [(row.label, len(row.cells)) for row in rows] == [("broken", 3), (rows[1].label, 1)]
