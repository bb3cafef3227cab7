"""/api/v3/queues: list, pause, resume and requeue, in every environment; and the names of the operations."""

import re

from config import Settings
from database.connection import DatabaseConnection
from services.web.app import create_app
from services.web.openapi import guarded_routes
from tests.support.web import Web, problem


def test_a_queue_is_paused_with_a_reason_and_resumed(web: Web) -> None:
    names = [item["name"] for item in web.get("/queues").json()["items"]]
    assert "deep_scan" in names
    paused = web.post("/queues/deep_scan/pause", {"reason": "quota until Monday"}).json()
    assert (paused["paused_by"], paused["paused_reason"]) == ("token:test-operator", "quota until Monday")
    assert web.get("/queues/deep_scan").json()["paused_at"] == paused["paused_at"]
    assert web.post("/queues/deep_scan/resume").json()["paused_at"] is None


def test_failed_rows_are_counted_by_a_dry_run_and_then_queued_again(web: Web, db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO domains (domain, status, last_error) "
            "SELECT 'host' || n || '.example', 'error', 'no' FROM generate_series(1, 3) AS n"
        )
    would = web.post("/queues/domain_metadata/requeue", {"dry_run": True}).json()
    assert would == {"queue": "domain_metadata", "found": 3, "requeued": 0, "dry_run": True}
    assert web.post("/queues/domain_metadata/requeue", {"limit": 2}).json()["requeued"] == 2
    assert web.post("/queues/domain_metadata/requeue", {"dry_run": True}).json()["found"] == 1


def test_an_unknown_queue_is_not_found_and_a_pause_needs_a_reason(web: Web) -> None:
    assert problem(web.post("/queues/nowhere/pause", {"reason": "x"}))["status"] == 404
    assert problem(web.post("/queues/deep_scan/pause", {}))["errors"][0]["field"] == "reason"


def test_every_operation_has_a_name_of_its_own_that_reads_as_a_method() -> None:
    app = create_app(Settings(database_url="postgresql://nowhere/nothing", redis_url="redis://nowhere"))
    operations = [
        operation["operationId"] for methods in app.openapi()["paths"].values() for operation in methods.values()
    ]
    assert len(set(operations)) == len(operations) == sum(route.include_in_schema for route in guarded_routes(app))
    assert {"list_schedules", "pause_queue", "change_many_schedules", "retry_execution"} <= set(operations)
    assert [name for name in operations if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []
