"""/api/v3/limits over HTTP: add, read with what runs and waits, change, delete."""

from urllib.parse import quote

from database.connection import DatabaseConnection
from services.schedule_repository import ScheduleRepository
from tests.support.web import Web, problem

# One runs, one waits, and neither is of the other key.
USE = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, limit_keys, due_at)
VALUES (gen_random_uuid(), 'scan', 'a.example', gen_random_uuid(), 'running', NULL, '{customer:42,job:noop}', now()),
       (gen_random_uuid(), 'scan', 'b.example', gen_random_uuid(), 'pending', 'limit:customer:42', '{}',
        now() - interval '40 s'),
       (gen_random_uuid(), 'scan', 'c.example', gen_random_uuid(), 'running', NULL, '{other}', now())
"""


def run_sql(db: DatabaseConnection, statement: str) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(statement)


def test_a_limit_is_added_once_and_read_with_what_runs_and_waits(
    web: Web, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    repository.create_schedule(
        domain="a", frequency="daily", time_config={"hour": 2}, job_type="http_request",
        job_config={"url": "https://a.example/"}, limit_keys=["customer:42"],
    )  # fmt: skip
    body, once = {"name": "customer:42", "max_running": 1, "note": "small"}, {"Idempotency-Key": "one"}
    first, again = (web.post("/limits", body, headers=once) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert first.headers["Location"] == "/api/v3/limits/customer%3A42"
    run_sql(db, USE)
    found = web.get("/limits/customer:42").json()
    assert (found["running"], found["waiting"], found["schedules"], found["next_limit"]) == (1, 1, 1, None)
    assert 40 <= found["oldest_wait_seconds"] < 100
    assert [(one["status"], one["key"]) for one in found["executions"]] == [
        ("running", "customer:42"),
        ("pending", "customer:42"),
    ]
    (change,) = found["changes"]
    assert (change["operation"], change["changed_by"]) == ("insert", "token:test-operator")
    (listed,) = web.get("/limits").json()["items"]
    assert listed.pop("oldest_wait_seconds") >= found["oldest_wait_seconds"]
    assert listed == {name: found[name] for name in listed}


def test_what_is_wrong_with_a_limit_is_named_field_by_field(web: Web) -> None:
    answer = web.post("/limits", {"name": "a,b", "max_running": "two", "colour": "red"})
    assert {error["field"] for error in problem(answer)["errors"]} == {"name", "max_running", "colour"}
    assert web.post("/limits", {"name": "a", "max_running": 1}).status_code == 201
    (error,) = problem(web.post("/limits", {"name": "a", "max_running": 1}))["errors"]
    assert error == {"field": "name", "reason": "limit a already exists; change it instead"}
    (error,) = problem(web.ask("PATCH", "/limits/a", json={"name": "b"}))["errors"]
    assert error["field"] == "name"
    assert web.ask("PATCH", "/limits/gone", json={"max_running": 1}).status_code == 404


def test_a_limit_is_changed_by_operators_and_deleted_by_administrators(web: Web) -> None:
    name = quote("site:https://a.example/*", safe="")
    assert web.post("/limits", {"name": "site:https://a.example/*", "max_running": 3}).status_code == 201
    changed = web.ask("PATCH", f"/limits/{name}", "operator", json={"max_running": 0, "enabled": False})
    assert (changed.json()["max_running"], changed.json()["enabled"]) == (0, False)
    assert web.ask("DELETE", f"/limits/{name}", "operator").status_code == 403
    assert web.ask("DELETE", f"/limits/{name}").status_code == 204
    assert web.get(f"/limits/{name}").status_code == 404
    assert web.ask("DELETE", f"/limits/{name}").status_code == 404


def test_the_list_of_limits_has_pages(web: Web) -> None:
    for number in range(3):
        web.post("/limits", {"name": f"customer:{number}", "max_running": 1})
    first = web.get("/limits?limit=2").json()
    last = web.get(f"/limits?limit=2&cursor={first['next_cursor']}").json()
    assert [item["name"] for item in first["items"] + last["items"]] == [f"customer:{n}" for n in range(3)]
    assert last["next_cursor"] is None
    assert problem(web.get("/limits?cursor=rubbish"))["errors"][0]["field"] == "cursor"
