"""Limits as programs and people write them: validation, and the log of who changed what."""

from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.errors import InvalidInput, LimitNotFound
from services.schedules.limits import Limits


@pytest.fixture
def limits(db: DatabaseConnection) -> Limits:
    return Limits(db)


def test_every_wrong_field_of_a_limit_is_named_with_its_reason(limits: Limits) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.add({"name": "two words", "max_running": -1, "enabled": "yes", "maximum": 2}, "test")
    reasons = {problem.field: problem.reason for problem in refused.value.problems}
    assert reasons.keys() == {"name", "max_running", "enabled", "maximum"}
    assert reasons["max_running"] == "must be between 0 and 100000, got -1"
    assert "without spaces" in reasons["name"]
    with pytest.raises(InvalidInput, match="max_running: is required"):
        limits.add({"name": "customer:42"}, "test")
    with pytest.raises(InvalidInput, match="name: cannot be changed"):
        limits.edit("customer:42", {"name": "customer:43"}, "test")


def test_a_second_limit_of_the_same_name_is_refused(limits: Limits) -> None:
    limits.add({"name": "customer:*", "max_running": 5}, "test")
    with pytest.raises(InvalidInput, match=r"name: limit customer:\* already exists"):
        limits.add({"name": "customer:*", "max_running": 6}, "test")
    assert limits.find("customer:*").max_running == 5


def test_the_log_says_who_changed_what_and_survives_the_limit(limits: Limits, db: DatabaseConnection) -> None:
    limits.add({"name": "customer:42", "max_running": 2, "note": "small server"}, "cli:anna")
    before, after = limits.edit("customer:42", {"max_running": 0}, "token:ci")
    assert (before.max_running, after.max_running, after.stops) == (2, 0, True)
    assert after.updated_at > before.updated_at
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE limits SET enabled = false")
    limits.delete("customer:42", "cli:anna")
    assert limits.get("customer:42") is None
    told = [(change.operation, change.changed_by, change.differences) for change in limits.changes("customer:42")]
    deleted, disabled, stopped, added = told
    assert deleted[:2] == ("delete", "cli:anna")
    assert disabled[0] == "update"
    assert disabled[1].startswith("sql:")
    assert disabled[2] == {"enabled": (True, False)}
    assert stopped == ("update", "token:ci", {"max_running": (2, 0)})
    assert added[:2] == ("insert", "cli:anna")


def test_a_change_to_the_same_values_writes_nothing(limits: Limits) -> None:
    first = limits.add({"name": "customer:42", "max_running": 2}, "test")
    assert limits.edit("customer:42", {"max_running": 2, "note": ""}, "test") == (first, first)
    assert len(limits.changes("customer:42")) == 1


def test_what_is_not_there_cannot_be_changed_or_deleted(limits: Limits) -> None:
    for act in (lambda: limits.edit("gone", {"max_running": 1}, "test"), lambda: limits.delete("gone", "test")):
        with pytest.raises(LimitNotFound, match="there is no limit gone"):
            act()


def test_the_pages_of_the_limits_have_each_one_once(limits: Limits) -> None:
    names = [f"customer:{number}" for number in range(7)]
    for name in reversed(names):
        limits.add({"name": name, "max_running": 1}, "test")
    found, cursor = [], None
    while True:
        page = limits.page(limit=3, cursor=cursor)
        found += [record.name for record in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert found == names


def test_old_changes_are_forgotten_and_young_ones_stay(limits: Limits, db: DatabaseConnection) -> None:
    limits.add({"name": "old", "max_running": 1}, "test")
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE limit_changes SET changed_at = now() - interval '91 days'")
    limits.add({"name": "young", "max_running": 1}, "test")
    assert limits.forget_changes(90) == 1
    assert (limits.changes("old"), len(limits.changes("young"))) == ([], 1)


def test_a_truncated_table_of_limits_is_in_the_log(limits: Limits, db: DatabaseConnection) -> None:
    limits.add({"name": "customer:42", "max_running": 1}, "test")
    with db.transaction() as connection:
        connection.exec_driver_sql("TRUNCATE limits")
        rows: Any = connection.exec_driver_sql("SELECT name, operation FROM limit_changes ORDER BY change_id").all()
    assert [tuple(row) for row in rows] == [("customer:42", "insert"), (None, "truncate")]
