"""One action on many, by id or by filter, with a dry run: /schedules/bulk and /executions/bulk."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.job_history import JobHistory
from services.schedule_repository import ScheduleRepository
from services.schedules.listing import ScheduleFilter
from services.web.bulk import Bulk, ScheduleAction
from tests.integration.web.test_executions import NOW, add, rows
from tests.support.schedules import VALID
from tests.support.web import Web, problem


@pytest.fixture
def three(repository: ScheduleRepository) -> list[str]:
    """Three schedules with a tag, in the order of their ids, beside one without it."""
    repository.create_schedule(**{**VALID, "name": "other"})
    made = [repository.create_schedule(**{**VALID, "name": f"n{number}", "tags": ["nightly"]}) for number in range(3)]
    return sorted(map(str, made))


def on(web: Web, path: str, **body: Any) -> Any:
    answer = web.post(f"/{path}/bulk", body, "admin")
    assert answer.status_code == 200, answer.text
    return answer.json()


NIGHTLY = {"tag": "nightly"}


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    web: Web, db: DatabaseConnection, repository: ScheduleRepository, three: list[str]
) -> None:
    repository.update_schedule(three[0], enabled=False)
    done = on(web, "schedules", action="disable", filter=NIGHTLY, dry_run=True)
    assert (done["matched"], done["changed"], done["unchanged"]) == (3, three[1:], three[:1])
    assert on(web, "schedules", action="run", filter=NIGHTLY, dry_run=True)["changed"] == three
    assert on(web, "schedules", action="delete", filter=NIGHTLY, dry_run=True)["changed"] == three
    assert repository.count_schedules(ScheduleFilter(enabled=True)) == 3
    assert rows(db, "SELECT count(*) FROM job_executions") == [(0,)]


def test_all_that_match_are_disabled_with_a_note_under_the_callers_name(
    web: Web, db: DatabaseConnection, repository: ScheduleRepository, three: list[str]
) -> None:
    done = on(web, "schedules", action="disable", filter=NIGHTLY, note="moving house", expected=3)
    assert done["changed"] == three
    assert {record.disabled_note for record in repository.iter_schedules(ScheduleFilter(tag="nightly"))} == {
        "moving house"
    }
    changed_by = "SELECT DISTINCT changed_by FROM schedule_changes WHERE operation = 'update'"
    assert rows(db, changed_by) == [("token:test-admin",)]
    assert repository.count_schedules(ScheduleFilter(enabled=True)) == 1


def test_what_is_disabled_already_keeps_its_reason(web: Web, repository: ScheduleRepository, three: list[str]) -> None:
    repository.update_schedule(three[0], enabled=False, disabled_note="contract ended")
    done = on(web, "schedules", action="disable", filter=NIGHTLY, note="moving house")
    assert (done["changed"], done["unchanged"]) == (three[1:], three[:1])
    kept = repository.get_schedule(three[0])
    assert kept is not None
    assert kept.disabled_note == "contract ended"


def test_all_that_match_run_once_each(web: Web, db: DatabaseConnection, three: list[str]) -> None:
    done = on(web, "schedules", action="run", filter=NIGHTLY)
    pending = rows(db, "SELECT execution_id::text, metadata->>'requested_by' FROM job_executions")
    assert sorted(pending) == sorted((each, "token:test-admin") for each in done["execution_ids"])
    assert len(pending) == 3


def test_all_that_match_are_deleted_and_their_deletions_are_in_the_change_log(
    web: Web, db: DatabaseConnection, repository: ScheduleRepository, three: list[str]
) -> None:
    stranger = str(uuid4())
    assert on(web, "schedules", action="delete", schedule_ids=[three[0], stranger])["missing"] == [stranger]
    assert on(web, "schedules", action="delete", filter=NIGHTLY)["changed"] == three[1:]
    assert [record.name for record in repository.iter_schedules()] == ["other"]
    deleted = "SELECT schedule_id::text FROM schedule_changes WHERE operation = 'delete' ORDER BY 1"
    assert [row[0] for row in rows(db, deleted)] == three


def test_if_another_number_matches_than_the_caller_has_seen_nothing_is_done(
    web: Web, repository: ScheduleRepository, three: list[str]
) -> None:
    answer = web.post("/schedules/bulk", {"action": "delete", "filter": NIGHTLY, "expected": 83}, "admin")
    assert problem(answer)["errors"][0]["field"] == "expected"
    assert repository.count_schedules() == 4


def test_more_than_the_limit_is_done_in_steps(web: Web, three: list[str]) -> None:
    first = on(web, "schedules", action="run", filter=NIGHTLY, limit=2)
    assert (first["matched"], first["changed"], first["next_after"]) == (3, three[:2], three[1])
    rest = on(web, "schedules", action="run", filter=NIGHTLY, limit=2, after=first["next_after"])
    assert (rest["changed"], rest["next_after"]) == (three[2:], None)


def test_a_schedule_that_another_session_has_locked_stays_and_the_others_go(
    db: DatabaseConnection, repository: ScheduleRepository, three: list[str]
) -> None:
    bulk = Bulk(repository, JobHistory(db), "test")
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT 1 FROM schedules WHERE schedule_id = %s FOR UPDATE", (three[1],))
        done = bulk.schedules(ScheduleAction.DELETE, ScheduleFilter(tag="nightly"))
    assert sorted(map(str, done.changed)) == [three[0], three[2]]
    assert [str(each) for each in done.refused] == [three[1]]
    assert repository.get_schedule(three[1]) is not None


def test_a_schedule_that_no_longer_matches_when_its_turn_comes_is_not_deleted(
    repository: ScheduleRepository, three: list[str]
) -> None:
    ids = [UUID(each) for each in three]
    repository.update_schedule(ids[0], tags=[])
    done = repository.delete_schedules(ScheduleFilter(tag="nightly", schedule_ids=ids), actor="test")
    assert (done.deleted, done.no_match) == (ids[1:], ids[:1])


@pytest.mark.parametrize("path", ["schedules", "executions"])
def test_who_names_neither_ids_nor_a_filter_changes_nothing(web: Web, path: str) -> None:
    action = "run" if path == "schedules" else "retry"
    assert problem(web.post(f"/{path}/bulk", {"action": action}, "admin"))["status"] == 422
    assert problem(web.post(f"/{path}/bulk", {"action": action, "filter": {"tga": "x"}}, "admin"))["status"] == 422
    assert web.post(f"/{path}/bulk", {"action": action, "filter": {}}, "operator").status_code == 403


# --- executions ---


def test_fires_that_failed_for_good_are_retried_once_however_often_it_is_asked(
    web: Web, db: DatabaseConnection, three: list[str]
) -> None:
    failed = [add(db, UUID(each), "failed", error_message="503 from the ledger") for each in three[:2]]
    add(db, UUID(three[2]), "failed", error_message="no such file")
    ok = add(db, UUID(three[2]), at=NOW - timedelta(minutes=9))
    where = {"outcome": "failed", "error": "503"}
    would = on(web, "executions", action="retry", filter=where, dry_run=True)
    assert (sorted(would["changed"]), would["execution_ids"]) == (sorted(failed), [])
    done = on(web, "executions", action="retry", filter=where)
    waiting = rows(db, "SELECT execution_id::text FROM job_executions WHERE status = 'pending' AND attempt = 2")
    assert sorted(row[0] for row in waiting) == sorted(done["execution_ids"])
    assert on(web, "executions", action="retry", filter=where)["matched"] == 0
    again = on(web, "executions", action="retry", execution_ids=[*failed, ok])
    assert again["changed"] == []
    assert {one["execution_id"]: one["reason"] for one in again["refused"]}[ok].startswith("it succeeded")


def test_what_waits_is_cancelled_and_what_has_ended_is_not(web: Web, db: DatabaseConnection, three: list[str]) -> None:
    waiting = add(db, UUID(three[0]), "pending")
    over = add(db, UUID(three[1]), "failed")
    done = on(web, "executions", action="cancel", execution_ids=[waiting, over, str(uuid4())])
    assert (done["changed"], len(done["missing"])) == ([waiting], 1)
    assert done["refused"] == [{"execution_id": over, "reason": "it has already ended"}]
