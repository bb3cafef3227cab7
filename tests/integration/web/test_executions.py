"""/api/v3/executions and the rest: statistics, replicas, explain, scans, sync, development tools."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.jobs import JobRegistry
from services.queues.system_schedules import install_system_schedules
from services.scanning.findings import EngineName
from services.scanning.outcome import ScanOutcome
from services.schedule_repository import ScheduleRepository
from services.workflows import queues
from tests.integration.web.conftest import StartWeb
from tests.support.ledger import Ledger
from tests.support.sample_scan import a_cookie, a_page
from tests.support.schedules import VALID
from tests.support.web import Web, problem

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def schedule_id(repository: ScheduleRepository) -> UUID:
    return repository.create_schedule(**{**VALID, "name": "nightly"})


def add(db: DatabaseConnection, schedule_id: UUID, status: str = "success", **columns: Any) -> str:
    at = columns.pop("at", NOW - timedelta(minutes=5))
    given = {
        "schedule_id": schedule_id,
        "job_id": "nightly",
        "domain": "example.com",
        "domain_config_id": schedule_id,
        "status": status,
        "scheduled_for": at,
        "created_at": at,
        "due_at": at,
        **columns,
    }
    with db.transaction() as connection:
        row = connection.exec_driver_sql(
            f"INSERT INTO job_executions ({', '.join(given)}) VALUES ({', '.join(['%s'] * len(given))}) "
            "RETURNING execution_id",
            tuple(given.values()),
        )
        return str(row.scalar_one())


def rows(db: DatabaseConnection, sql: str) -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


# --- lists ---


def test_executions_come_newest_first_page_by_page(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    made = [add(db, schedule_id, at=NOW - timedelta(minutes=number)) for number in range(5)]
    for parameters in ({}, {"schedule": "nightly"}, {"domain": "EXAMPLE.com"}):
        first = web.get("/executions", params={"limit": 3, **parameters}).json()
        rest = web.get("/executions", params={"limit": 3, "cursor": first["next_cursor"], **parameters}).json()
        assert [item["execution_id"] for item in (*first["items"], *rest["items"])] == made
        assert rest["next_cursor"] is None


def test_executions_are_filtered(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    failed = add(db, schedule_id, "failed", at=NOW - timedelta(hours=2))
    manual = add(db, schedule_id, cause="manual")
    for parameters, expected in (
        ({"status": "failed"}, [failed]),
        ({"cause": "manual"}, [manual]),
        ({"since": (NOW - timedelta(hours=1)).isoformat()}, [manual]),
        ({"until": (NOW - timedelta(hours=1)).isoformat()}, [failed]),
        ({"schedule": str(uuid4())}, []),
    ):
        found = web.get("/executions", params=parameters).json()["items"]
        assert [item["execution_id"] for item in found] == expected, parameters


BAD_QUESTIONS = [
    ({"status": "done"}, "status"),
    ({"cause": "weather"}, "cause"),
    ({"since": "yesterday"}, "since"),
    ({"since": "2027-01-01T00:00:00"}, "since"),
    ({"domain": "a\0b"}, "domain"),
    ({"cursor": "WyJjcmVhdGVkIiwgMWU5OTksIDFd"}, "cursor"),
    ({"cursor": "WyJjcmVhdGVkIiwgIjIwMjctMDEtMDEiLCAiMSJd"}, "cursor"),
]


def test_a_bad_question_names_its_field(web: Web) -> None:
    for parameters, field in BAD_QUESTIONS:
        answer = web.get("/executions", params=parameters)
        assert [item["field"] for item in problem(answer)["errors"]] == [field], parameters


# --- one ---


def test_an_execution_is_shown_with_its_attempts_and_its_timeline(
    web: Web, db: DatabaseConnection, schedule_id: UUID
) -> None:
    at = NOW - timedelta(minutes=5)
    first = add(
        db,
        schedule_id,
        "failed",
        claimed_at=at,
        started_at=at + timedelta(seconds=1),
        completed_at=at + timedelta(seconds=3),
        duration_seconds=2.0,
        instance_id="replica-1",
        error_message="boom",
        error_details=json.dumps({"traceback": "…"}),
        metadata=json.dumps({"log": "said"}),
    )
    second = add(db, schedule_id, "pending", attempt=2, created_at=NOW)
    shown = web.get(f"/executions/{first}").json()
    assert [attempt["execution_id"] for attempt in shown["attempts"]] == [first, second]
    assert [moment["what"] for moment in shown["timeline"]] == ["scheduled", "due", "claimed", "started", "failed"]
    assert shown["timeline"][-1]["text"] == "failed after 2.0 s: boom"
    assert (shown["error_details"], shown["metadata"]) == ({"traceback": "…"}, {"log": "said"})


def test_an_unknown_execution_is_not_found(web: Web) -> None:
    for path in (f"/executions/{uuid4()}", f"/executions/{uuid4()}/cancel", f"/executions/{uuid4()}/retry"):
        method = "GET" if path.count("/") == 2 else "POST"
        assert problem(web.ask(method, path))["status"] == 404


# --- run, cancel, retry ---


def test_a_run_is_asked_for_and_found(web: Web, schedule_id: UUID) -> None:
    answer = web.post("/schedules/nightly/run")
    assert answer.status_code == 202
    shown = web.get(answer.headers["Location"]).json()
    assert (shown["status"], shown["cause"]) == ("pending", "manual")
    assert shown["metadata"] == {"requested_by": "token:test-operator"}


def test_a_run_under_a_key_is_asked_for_once(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    made = {web.post("/schedules/nightly/run", headers={"Idempotency-Key": "k"}).text for _ in range(3)}
    assert len(made) == 1
    assert rows(db, "SELECT count(*) FROM job_executions") == [(1,)]


def a_backfill(**more: Any) -> dict[str, Any]:
    """The last three nights of the schedule, as its people write them."""
    day = NOW.replace(hour=0, minute=0, second=0)
    return {"from": f"{day - timedelta(days=3):%Y-%m-%dT%H:%M}", "to": f"{day:%Y-%m-%dT%H:%M}", **more}


def test_past_fires_are_asked_for_under_a_key_once(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    night = NOW.replace(hour=2, minute=0, second=0) - timedelta(days=2)
    add(db, schedule_id, at=night)
    planned = web.post("/schedules/nightly/backfill", a_backfill(dry_run=True)).json()
    assert [fire["execution_id"] for fire in planned["fires"]] == [None, None]
    made = [web.post("/schedules/nightly/backfill", a_backfill(), headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert made[0].status_code == 202
    assert made[0].text == made[1].text
    answer = made[0].json()
    assert (len(answer["fires"]), answer["succeeded"], answer["open"], answer["not_due"]) == (2, 1, 0, 0)
    shown = web.get(f"/executions/{answer['fires'][0]['execution_id']}").json()
    assert (shown["status"], shown["cause"]) == ("pending", "backfill")
    assert shown["metadata"] == {"requested_by": "token:test-operator"}
    assert rows(db, "SELECT count(*) FROM job_executions") == [(3,)]


def test_a_backfill_that_cannot_be_names_its_field(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    for more, field in (
        ({"from": "yesterday"}, "from"),
        ({"to": "2199-01-01T00:00"}, "to"),
        ({"limit": 2}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"untill": "now"}, "untill"),
    ):
        answer = problem(web.post("/schedules/nightly/backfill", a_backfill(**more)))
        assert (answer["status"], [item["field"] for item in answer["errors"]]) == (422, [field]), more
    assert problem(web.post("/schedules/nobody/backfill", a_backfill()))["status"] == 404
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET timezone = 'Nowhere/Land'")
    broken = problem(web.post("/schedules/nightly/backfill", a_backfill()))
    assert (broken["status"], [item["field"] for item in broken["errors"]]) == (422, ["timezone"])
    assert rows(db, "SELECT count(*) FROM job_executions") == [(0,)]


def test_what_waits_is_cancelled_at_once_and_what_ended_is_not(web: Web, schedule_id: UUID) -> None:
    execution_id = web.post("/schedules/nightly/run").json()["execution_id"]
    answer = web.post(f"/executions/{execution_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
    assert problem(web.post(f"/executions/{execution_id}/cancel"))["status"] == 409


def test_what_runs_is_asked_to_stop(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    execution_id = add(db, schedule_id, "running", started_at=NOW)
    assert web.post(f"/executions/{execution_id}/cancel").json()["status"] == "running"
    assert rows(db, "SELECT cancel_requested_at IS NOT NULL FROM job_executions") == [(True,)]


@pytest.mark.parametrize("status", ["failed", "timed_out", "abandoned", "cancelled", "skipped", "missed"])
def test_what_did_not_succeed_is_tried_again(web: Web, db: DatabaseConnection, schedule_id: UUID, status: str) -> None:
    first = add(db, schedule_id, status)
    answer = web.post(f"/executions/{first}/retry")
    assert answer.status_code == 202
    again = web.get(answer.headers["Location"]).json()
    assert (again["attempt"], again["status"], again["cause"]) == (2, "pending", "manual")
    assert again["metadata"] == {"requested_by": "token:test-operator", "retry_of": first}
    assert again["scheduled_for"] == web.get(f"/executions/{first}").json()["scheduled_for"]
    assert "already pending" in problem(web.post(f"/executions/{first}/retry"))["detail"]


def test_what_succeeded_or_goes_on_is_not_tried_again(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    for number, (status, why) in enumerate(
        [("success", "it succeeded"), ("running", "has not ended"), ("pending", "has not ended")]
    ):
        execution_id = add(db, schedule_id, status, at=NOW - timedelta(hours=number + 1))
        assert why in problem(web.post(f"/executions/{execution_id}/retry"))["detail"]


def test_what_belongs_to_a_deleted_schedule_is_not_tried_again(web: Web, db: DatabaseConnection) -> None:
    execution_id = add(db, uuid4(), "failed")
    assert "its schedule was deleted" in problem(web.post(f"/executions/{execution_id}/retry"))["detail"]


# --- numbers ---


def test_statistics_are_what_the_history_says(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    add(db, schedule_id, "success", duration_seconds=2.0)
    add(db, schedule_id, "failed", duration_seconds=4.0, at=NOW - timedelta(hours=1))
    numbers = web.get("/statistics", params={"days": 1}).json()
    assert (numbers["total_executions"], numbers["success_rate"], numbers["avg_duration"]) == (2, 50.0, 3.0)
    assert problem(web.get("/statistics", params={"days": 0}))["status"] == 422


def test_a_retry_that_mended_a_fire_is_told_apart_from_a_failure_for_good(
    web: Web, db: DatabaseConnection, schedule_id: UUID
) -> None:
    failed = add(db, schedule_id, "failed", error_message="503 from a.example", at=NOW - timedelta(minutes=9))
    mended = add(db, schedule_id, "failed", error_message="503 from b.example")
    add(db, schedule_id, "success", attempt=2)
    fires = web.get("/statistics", params={"days": 1}).json()["fires"]
    assert fires == {"failed": 1, "recovered": 1, "retrying": 0, "is_complete": True}
    for outcome, execution_id in (("failed", failed), ("recovered", mended)):
        items = web.get("/executions", params={"outcome": outcome}).json()["items"]
        assert [item["execution_id"] for item in items] == [execution_id]
    (group,) = web.get("/statistics/errors").json()["items"]
    assert (group["attempts"], group["execution_id"], group["counts"]) == (2, mended, fires)
    assert len(web.get("/executions", params={"error": "503 FROM"}).json()["items"]) == 2
    assert problem(web.get("/executions", params={"outcome": "fine"}))["errors"][0]["field"] == "outcome"


def test_executions_are_found_by_the_tag_and_the_job_type_of_their_schedule(
    web: Web, db: DatabaseConnection, repository: ScheduleRepository, schedule_id: UUID
) -> None:
    add(db, schedule_id, "success")
    tagged = repository.create_schedule(**{**VALID, "name": "tagged", "tags": ["billing"]})
    of_tag = add(db, tagged, "failed")
    (job_type,) = {record.job_type for record in repository.list_schedules().items}
    for asked, found in (({"tag": "billing"}, 1), ({"tag": "shop"}, 0), ({"job_type": job_type}, 2)):
        assert len(web.get("/executions", params=asked).json()["items"]) == found, asked
    for asked_type, changed in ((job_type, [of_tag]), ("another", [])):
        match = {"outcome": "failed", "tag": "billing", "job_type": asked_type}
        body = {"action": "retry", "filter": match, "dry_run": True}
        assert web.post("/executions/bulk", body, "admin").json()["changed"] == changed


def test_the_overview_names_what_needs_attention(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET last_status = 'failed', last_run = now()")
    overview = web.get("/statistics/overview", params={"minutes": 5}).json()
    assert [item["trouble"] for item in overview["attention"]] == ["failing"]
    assert len(overview["minutes"]) == 6


def test_the_forecast_counts_what_is_coming(web: Web) -> None:
    web.post("/schedules", {**VALID, "frequency": "interval", "time_config": {"minutes": 1}})
    coming = web.get("/statistics/forecast", params={"minutes": 10}).json()["minutes"]
    assert sum(minute["fires"] for minute in coming) == pytest.approx(10, abs=1)


def test_replicas_say_who_has_the_newest_change(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    nobody = web.get("/replicas").json()
    assert (nobody["items"], nobody["are_converged"]) == ([], False)
    (revision,) = rows(db, "SELECT max(revision) FROM schedules")[0]
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, revision, heartbeat_at, started_at, facts)
               VALUES ('new', gen_random_uuid(), %(revision)s, now(), now(), '{"version": "1", "tzdata": "2026.6"}'),
                      ('old', gen_random_uuid(), 0, now(), now(), '{}'),
                      ('dead', gen_random_uuid(), 0, now() - interval '1 hour', now(), '{}'),
                      ('new', gen_random_uuid(), 0, now() - interval '1 hour', now() - interval '2 hours', '{}')""",
            {"revision": revision},
        )
    answer = web.get("/replicas").json()
    known = [(item["instance_id"], item["is_live"], item["is_converged"]) for item in answer["items"]]
    assert known == [("new", True, True), ("old", True, False), ("dead", False, False)]
    assert (answer["newest_revision"], answer["are_converged"]) == (revision, False)
    assert (answer["items"][0]["version"], answer["items"][0]["tzdata"]) == ("1", "2026.6")


def test_replicas_say_which_share_they_hold_and_what_they_can_run(web: Web, db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, host, holds, abilities)
               VALUES ('new', gen_random_uuid(), 'machine', decode('ff01', 'hex'), '{browser,job:noop}'),
                      ('old', gen_random_uuid(), NULL, NULL, NULL)"""
        )
    shown = [(item["host"], item["buckets"], item["abilities"]) for item in web.get("/replicas").json()["items"]]
    assert shown == [("machine", 9, ["browser", "job:noop"]), (None, None, None)]


def test_executions_of_several_statuses_are_one_list(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    for number, status in enumerate(("success", "failed", "timed_out")):
        add(db, schedule_id, status, at=NOW - timedelta(minutes=number + 1))
    found = web.get("/executions", params={"status": "failed,timed_out"}).json()["items"]
    assert {item["status"] for item in found} == {"failed", "timed_out"}
    assert problem(web.get("/executions", params={"status": "failed,bad"}))["errors"][0]["field"] == "status"


def test_an_overlap_with_an_execution_of_a_replica_that_is_gone_says_so(
    web: Web, db: DatabaseConnection, schedule_id: UUID
) -> None:
    begun, at = NOW - timedelta(minutes=6), NOW - timedelta(minutes=5)
    add(db, schedule_id, "abandoned", at=begun, claimed_at=begun, completed_at=NOW - timedelta(minutes=4))
    skipped = add(db, schedule_id, "skipped", at=at, reason="overlap", completed_at=at)
    words = "overlap with an execution of a dead replica"
    found = web.get(f"/executions/{skipped}").json()
    assert (found["reason"], found["note"], found["timeline"][-1]["text"]) == ("overlap", words, f"skipped: {words}")
    listed = {item["execution_id"]: item["note"] for item in web.get("/executions").json()["items"]}
    assert listed.pop(skipped) == words
    assert set(listed.values()) == {None}


# --- explain ---


def test_a_fire_is_explained_over_http(web: Web, db: DatabaseConnection, schedule_id: UUID) -> None:
    at = NOW - timedelta(minutes=5)
    add(db, schedule_id, "skipped", reason="overlap", completed_at=at)
    answer = web.get("/schedules/nightly/explain", params={"at": at.isoformat()}).json()
    assert answer["verdict"] == "skipped"
    assert "max_instances" in " ".join(answer["sentences"])
    assert [item["status"] for item in answer["executions"]] == ["skipped"]


def test_an_offset_that_nobody_encoded_is_understood(web: Web, schedule_id: UUID) -> None:
    answer = web.get("/schedules/nightly/explain?at=2099-01-01T02:00:00+00:00").json()
    assert answer["verdict"] == "upcoming"


def test_a_question_about_no_time_at_all_is_refused(web: Web, schedule_id: UUID) -> None:
    answer = web.get("/schedules/nightly/explain", params={"at": "noon"})
    assert [item["field"] for item in problem(answer)["errors"]] == ["at"]
    assert web.get(f"/schedules/{uuid4()}/explain").status_code == 404


# --- scans ---


def test_a_scan_is_shown_with_its_pages_cookies_and_changes(web: Web) -> None:
    first, second = save_scan(web, "session", "old"), save_scan(web, "session", "new")
    listed = web.get("/scans", params={"domain": "shop.example"}).json()["items"]
    assert [item["scan_id"] for item in listed] == [second, first]
    assert web.get(f"/scans/{second}").json()["pages"][0]["url"] == "https://shop.example/"
    assert [item["name"] for item in web.get(f"/scans/{second}/cookies").json()["items"]] == ["session", "new"]
    diff = web.get(f"/scans/{second}/diff").json()
    assert diff["previous_scan_id"] == first
    assert sorted((change["kind"], change["name"]) for change in diff["changes"]) == [("gone", "old"), ("new", "new")]


def save_scan(web: Web, *names: str) -> str:
    cookies = tuple(a_cookie(name) for name in names)
    outcome = ScanOutcome(
        domain="shop.example",
        engine=EngineName.HTTP,
        started_at=NOW,
        start_url="https://shop.example/",
        config={},
        pages=(a_page(),),
        cookies=cookies,
        notes=(),
        is_complete=True,
    )
    return str(web.app.state.parts.scans.save(outcome).scan_id)


def test_an_unknown_scan_is_not_found(web: Web) -> None:
    for path in ("", "/cookies", "/diff"):
        assert problem(web.get(f"/scans/{uuid4()}{path}"))["status"] == 404
    assert problem(web.get("/scans", params={"engine": "netscape"}))["errors"][0]["field"] == "engine"


# --- sync ---


def test_without_an_api_there_is_nothing_to_sync(web: Web) -> None:
    status = web.get("/sync").json()
    assert (status["configured"], status["periodic"], status["last"]) == (False, False, None)
    for action in ("run", "preview"):
        assert "API_URL is not set" in problem(web.post(f"/sync/{action}", None, "admin"))["detail"]


def test_a_sync_is_looked_at_and_then_run(start_web: StartWeb, db: DatabaseConnection) -> None:
    with Ledger() as api:
        item = {"domain": "example.com", "schedule": {"frequency": "daily", "time": {"hour": 2, "minute": 0}}}
        body = json.dumps({"data": [{"domain_config_id": "abc-123", "data": item}]}).encode()
        api.answer("/", body=body, headers={"Content-Type": "application/json"})
        web = start_web(API_URL=api.url + "/", FETCH_ALLOWED_NETWORKS="127.0.0.0/8")
        preview = web.post("/sync/preview", None, "admin").json()
        assert (preview["outcome"], preview["counts"]["created"]) == ("done", 1)
        assert rows(db, "SELECT count(*) FROM schedules") == [(0,)]
        done = web.post("/sync/run", {"allow_removals": False}, "admin").json()
        assert [(entry["kind"], entry["label"]) for entry in done["entries"]] == [("created", "example.com")]
        assert rows(db, "SELECT source FROM schedules") == [("api",)]
        assert rows(db, "SELECT changed_by FROM schedule_changes") == [("token:test-admin",)]
        assert web.get("/sync").json()["last"]["outcome"] == "done"


def test_an_api_that_answers_rubbish_is_a_bad_gateway(start_web: StartWeb) -> None:
    with Ledger() as api:
        api.answer("/", body=b"<html>")
        web = start_web(API_URL=api.url + "/", FETCH_ALLOWED_NETWORKS="127.0.0.0/8")
        assert problem(web.post("/sync/run", None, "admin"))["status"] == 502


# --- development tools ---


def test_the_status_lists_all_jobs_of_the_one_scheduler(
    start_web: StartWeb, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    web = start_web(ENVIRONMENT="Development")
    ScheduleRepository(db, JobRegistry({"noop"})).create_schedule(
        **{**VALID, "domain": "Process Pending Domains", "job_type": "noop", "name": "process_pending_domains"}
    )
    web.post("/schedules/process_pending_domains/run")
    status = web.get("/dev-tools/scheduler_status").json()
    assert (status["status"], status["total_jobs"]) == ("stopped", 1)
    (job,) = status["jobs"]
    assert (job["id"], job["name"]) == ("process_pending_domains", "Process Pending Domains")
    assert (job["trigger"], job["pending"]) == ("daily at 02:00 UTC", True)
    assert job["next_run_time"] is not None
    assert datetime.fromisoformat(status["timestamp"]) > NOW - timedelta(minutes=1)


def test_the_status_lists_every_workflow(start_web: StartWeb, db: DatabaseConnection) -> None:
    install_system_schedules(db, Settings())
    status = start_web(ENVIRONMENT="development").get("/dev-tools/scheduler_status").json()
    jobs = {job["id"]: job["name"] for job in status["jobs"] if job["enabled"]}
    assert jobs == {queue.job_id: queue.display_name for queue in queues.all()}
    assert status["total_jobs"] == len(jobs) >= 7


@pytest.mark.parametrize(
    ("environment", "status"),
    [("development", 200), ("dev", 200), ("DEV", 200), ("production", 404), ("staging", 404), ("", 404)],
)
def test_only_development_opens_the_tools(start_web: StartWeb, environment: str, status: int) -> None:
    assert start_web(ENVIRONMENT=environment).get("/dev-tools/scheduler_status").status_code == status


def test_in_production_the_tools_do_not_exist(web: Web) -> None:
    assert problem(web.get("/dev-tools/scheduler_status"))["status"] == 404
    assert web.get("/dev-tools/scheduler_status", None).status_code == 401
