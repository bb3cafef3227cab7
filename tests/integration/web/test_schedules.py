"""/api/v3/schedules: create, read, change, delete, lists, previews, changes; ETags and idempotency on the way."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.errors import Unavailable
from services.schedule_repository import ScheduleRepository
from tests.support.schedules import BAD_INPUT, TAKEN, VALID
from tests.support.web import Web, problem


def create(web: Web, **more: Any) -> dict[str, Any]:
    answer = web.post("/schedules", {**VALID, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def run_sql(db: DatabaseConnection, sql: str, *values: Any) -> list[Any]:
    with db.transaction() as connection:
        result = connection.exec_driver_sql(sql, values)
        return list(result) if result.returns_rows else []


# --- create and read ---


def test_a_created_schedule_is_answered_whole_and_found_again(web: Web) -> None:
    answer = web.post("/schedules", {**VALID, "name": "nightly", "tags": ["a"]})
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["Location"] == f"/api/v3/schedules/{made['schedule_id']}"
    assert (made["name"], made["domain"], made["tags"], made["source"]) == ("nightly", "example.com", ["a"], "manual")
    assert web.get(f"/schedules/{made['schedule_id']}").json() == made
    assert web.get("/schedules/nightly").json() == made


def test_what_no_live_replica_offers_is_a_warning(web: Web, db: DatabaseConnection) -> None:
    run_sql(
        db,
        """INSERT INTO scheduler_instances (instance_id, incarnation, abilities, queues)
           VALUES ('replica', gen_random_uuid(), '{eu,job:cookie_scan,job:theirs}', '{default}')""",
    )
    made = web.post("/schedules", {**VALID, "requires": ["eu"]}).json()
    assert (made["requires"], made["queue"], made["warnings"]) == (["eu"], None, [])
    answer = web.ask("PATCH", f"/schedules/{made['schedule_id']}", "operator", json={"queue": "browser"})
    (warning,) = answer.json()["warnings"]
    assert warning.startswith("no live replica offers queue:browser: ")
    theirs = web.post("/schedules", {**VALID, "job_type": "theirs", "job_config": {"known": "there"}})
    assert (theirs.status_code, theirs.json()["warnings"]) == (201, [])
    refused = web.post("/schedules", {**VALID, "queue": "Not A Label"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "queue")


def test_the_caller_is_named_in_the_audit_trail(web: Web) -> None:
    made = create(web)
    web.ask("PATCH", f"/schedules/{made['schedule_id']}", "operator", json={"priority": 7})
    changes = web.get(f"/schedules/{made['schedule_id']}/changes").json()["items"]
    assert [(change["operation"], change["changed_by"]) for change in changes] == [
        ("update", "token:test-operator"),
        ("insert", "token:test-operator"),
    ]
    assert changes[0]["differences"] == [{"field": "priority", "old": 0, "new": 7}]


def test_every_problem_of_the_input_is_told_as_everywhere_else(web: Web, repository: ScheduleRepository) -> None:
    repository.create_schedule(**VALID, schedule_id=TAKEN, name="taken")
    for given, lines in BAD_INPUT:
        answer = web.post("/schedules", {**VALID, **given})
        assert answer.status_code == 422
        assert [f"{item['field']}: {item['reason']}" for item in problem(answer)["errors"]] == lines


def test_a_stranger_among_the_fields_hides_no_other_mistake(web: Web) -> None:
    wrong = {"hour": 25, "minute": 0}
    mistakes = {**VALID, "frequency": "daily", "time_config": wrong, "timezone": "Europe/Berln", "foo": 1}
    named = {error["field"] for error in problem(web.post("/schedules", mistakes))["errors"]}
    assert named == {"foo", "time_config.hour", "timezone"}
    made = web.post("/schedules", VALID).json()["schedule_id"]
    changed = web.ask("PATCH", f"/schedules/{made}", json={"foo": 1, "priority": "high"})
    assert {error["field"] for error in problem(changed)["errors"]} == {"foo", "priority"}


def test_a_stranger_among_the_fields_is_no_argument_of_ours(web: Web) -> None:
    made = create(web)
    for name in ("actor", "expected_revision", "self", "schedule_id", "revision"):
        answer = web.ask("PATCH", f"/schedules/{made['schedule_id']}", "operator", json={name: "evil"})
        assert answer.status_code == 422
        assert [item["field"] for item in problem(answer)["errors"]] == [name]


def test_an_unknown_schedule_is_not_found(web: Web) -> None:
    for reference in (str(uuid4()), "nobody", "example.com"):
        assert problem(web.get(f"/schedules/{reference}"))["status"] == 404


def test_a_schedule_is_never_found_by_something_like_its_name(web: Web) -> None:
    made = create(web, name="nightly")
    assert web.get(f"/schedules/{made['schedule_id'][:8]}").status_code == 404
    assert web.get("/schedules/night").status_code == 404


# --- ETags ---


def test_a_reader_that_knows_it_already_is_told_so(web: Web) -> None:
    made = create(web)
    path = f"/schedules/{made['schedule_id']}"
    etag = web.get(path).headers["ETag"]
    again = web.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert web.get(path, headers={"If-None-Match": f'"{made["revision"]}"'}).status_code == 304
    assert web.get(path, headers={"If-None-Match": '"1-00000000"'}).status_code == 200


def test_what_happened_to_a_schedule_is_news_although_its_definition_is_the_same(
    web: Web, db: DatabaseConnection
) -> None:
    made = create(web)
    path = f"/schedules/{made['schedule_id']}"
    etag = web.get(path).headers["ETag"]
    run_sql(db, "UPDATE schedules SET last_status = 'failed'")
    assert web.get(path, headers={"If-None-Match": etag}).json()["last_status"] == "failed"


def test_a_change_based_on_an_old_revision_is_refused(web: Web) -> None:
    made = create(web)
    path, old = f"/schedules/{made['schedule_id']}", f'"{made["revision"]}"'
    first = web.ask("PATCH", path, json={"priority": 1}, headers={"If-Match": old})
    assert first.status_code == 200
    for method in ("PATCH", "PUT", "DELETE"):
        second = web.ask(method, path, json=VALID, headers={"If-Match": old})
        assert problem(second)["status"] == 412
        assert second.headers["ETag"] == f'"{first.json()["revision"]}"'
    assert web.get(path).json()["priority"] == 1


def test_a_change_based_on_the_present_revision_is_made(web: Web) -> None:
    path = f"/schedules/{create(web)['schedule_id']}"
    forms = ["*", "{etag}", '"{revision}"', '"1", "x", "{revision}"', "{revision}"]
    for priority, form in enumerate(forms, 1):
        present = web.get(path)
        condition = form.format(etag=present.headers["ETag"], revision=present.json()["revision"])
        answer = web.ask("PATCH", path, json={"priority": priority}, headers={"If-Match": condition})
        assert (answer.status_code, answer.json()["priority"]) == (200, priority)


def test_bookkeeping_in_between_does_not_refuse_a_change(web: Web, db: DatabaseConnection) -> None:
    made = create(web)
    path = f"/schedules/{made['schedule_id']}"
    etag = web.get(path).headers["ETag"]
    run_sql(db, "UPDATE schedules SET last_status = 'failed'")
    assert web.ask("PATCH", path, json={"priority": 2}, headers={"If-Match": etag}).status_code == 200


def test_a_condition_that_is_no_etag_of_ours_never_holds(web: Web) -> None:
    path = f"/schedules/{create(web)['schedule_id']}"
    for condition in ('"abc"', '"٣"', '"' + "9" * 30 + '"'):
        answer = web.ask("PATCH", path, json={"priority": 2}, headers={"If-Match": condition.encode()})
        assert answer.status_code == 412


def test_a_condition_that_is_no_etag_at_all_is_said_to_be_none(web: Web) -> None:
    path = f"/schedules/{create(web)['schedule_id']}"
    answer = problem(web.ask("PATCH", path, json={"priority": 2}, headers={"If-Match": "abc"}))
    assert (answer["status"], answer["detail"]) == (400, "If-Match must be the ETag or \"<revision>\", got 'abc'")


def test_what_became_of_a_deleted_schedule_is_found_by_its_name(web: Web) -> None:
    made = create(web, name="nightly")
    assert web.ask("DELETE", "/schedules/nightly").status_code == 204
    changes = web.get("/schedules/nightly/changes").json()["items"]
    assert [change["operation"] for change in changes] == ["delete", "insert"]
    again = create(web, name="nightly")
    assert again["schedule_id"] != made["schedule_id"]
    assert [change["operation"] for change in web.get("/schedules/nightly/changes").json()["items"]] == ["insert"]
    assert problem(web.get("/schedules/never was/changes"))["status"] == 404


def test_a_filter_with_a_typo_is_refused_and_named(web: Web) -> None:
    for path in ("/schedules", "/executions", "/scans", "/dead-letters", "/contacts"):
        answer = problem(web.get(path, params={"serach": "x", "limit": 5}))
        assert (answer["status"], [error["field"] for error in answer["errors"]]) == (422, ["serach"]), path
    assert "search" in problem(web.get("/schedules", params={"serach": "x"}))["detail"]


def test_a_replacement_needs_the_revision_that_it_replaces(web: Web) -> None:
    path = f"/schedules/{create(web)['schedule_id']}"
    assert problem(web.ask("PUT", path, json=VALID))["status"] == 428


def test_a_replacement_puts_back_what_it_does_not_mention(web: Web) -> None:
    made = create(web, name="nightly", priority=5, max_retries=3, timezone="Europe/Berlin")
    answer = web.ask("PUT", "/schedules/nightly", json=VALID, headers={"If-Match": "*"})
    after = answer.json()
    assert (after["name"], after["priority"], after["max_retries"], after["timezone"]) == (None, 0, None, "UTC")
    assert after["schedule_id"] == made["schedule_id"]


# --- delete ---


def test_a_deleted_schedule_is_gone_but_not_its_history(web: Web) -> None:
    made = create(web)
    path = f"/schedules/{made['schedule_id']}"
    answer = web.ask("DELETE", path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert web.get(path).status_code == 404
    assert web.ask("DELETE", path).status_code == 404
    assert web.get(f"{path}/changes").json()["items"][0]["operation"] == "delete"


# --- lists ---


def test_pages_put_together_are_the_whole_list(web: Web) -> None:
    for number in range(5):
        create(web, domain=f"host{number}.example")
    seen, cursor = [], None
    while True:
        page = web.get("/schedules", params={"limit": 2, "sort": "-domain", **({"cursor": cursor} if cursor else {})})
        seen += [item["domain"] for item in page.json()["items"]]
        if (cursor := page.json()["next_cursor"]) is None:
            break
    assert seen == [f"host{number}.example" for number in (4, 3, 2, 1, 0)]


def test_a_list_can_be_searched_filtered_and_counted(web: Web) -> None:
    create(web, domain="shop.example", tags=["night"])
    create(web, domain="other.example", enabled=False)
    found = web.get("/schedules", params={"search": "SHOP", "count": "true"}).json()
    assert ([item["domain"] for item in found["items"]], found["total"]) == (["shop.example"], 1)
    assert [i["domain"] for i in web.get("/schedules", params={"enabled": "false"}).json()["items"]] == [
        "other.example"
    ]
    assert [i["domain"] for i in web.get("/schedules", params={"tag": "night"}).json()["items"]] == ["shop.example"]


BAD_QUESTIONS = [
    ({"sort": "colour"}, "sort"),
    ({"limit": "0"}, "limit"),
    ({"limit": "many"}, "limit"),
    ({"cursor": "e30="}, "cursor"),
    ({"search": "a\0b"}, "search"),
    ({"enabled": "perhaps"}, "enabled"),
]


def test_a_bad_question_names_its_field(web: Web) -> None:
    for parameters, field in BAD_QUESTIONS:
        assert [item["field"] for item in problem(web.get("/schedules", params=parameters))["errors"]] == [field]


# --- many at once ---


def test_many_are_switched_off_and_on_again(web: Web, db: DatabaseConnection) -> None:
    ids = [create(web, domain=f"host{number}.example")["schedule_id"] for number in range(3)]
    stranger = str(uuid4())
    off = web.post("/schedules/bulk", {"action": "disable", "schedule_ids": [*ids, stranger]}, "admin").json()
    assert (sorted(off["changed"]), off["missing"]) == (sorted(ids), [stranger])
    assert run_sql(db, "SELECT count(*) FROM schedules WHERE enabled")[0][0] == 0
    again = web.post("/schedules/bulk", {"action": "disable", "schedule_ids": ids}, "admin").json()
    assert sorted(again["unchanged"]) == sorted(ids)
    on = web.post("/schedules/bulk", {"action": "enable", "schedule_ids": ids}, "admin").json()
    assert sorted(on["changed"]) == sorted(ids)
    assert run_sql(db, "SELECT count(*) FROM schedules WHERE next_run IS NOT NULL")[0][0] == 3


def test_many_are_switched_off_with_a_note(web: Web, db: DatabaseConnection) -> None:
    broken, fine = create(web)["schedule_id"], create(web, domain="fine.example")["schedule_id"]
    run_sql(db, "UPDATE schedules SET frequency = 'dayly' WHERE schedule_id = %s", UUID(broken))
    both = {"schedule_ids": [broken, fine]}
    off = web.post("/schedules/bulk", {"action": "disable", **both, "note": "moving house"}, "admin").json()
    assert sorted(off["changed"]) == sorted([broken, fine])
    assert {web.get(f"/schedules/{one}").json()["disabled_note"] for one in (broken, fine)} == {"moving house"}
    for body in ({"action": "enable", "note": "why not"}, {"action": "disable", "note": "\x1b[2J"}):
        answer = web.post("/schedules/bulk", {**body, **both}, "admin")
        assert answer.status_code == 422
        assert [item["field"] for item in problem(answer)["errors"]] == ["note"]


def test_a_note_is_changed_previewed_and_ended_with_its_time(web: Web) -> None:
    path = f"/schedules/{create(web)['schedule_id']}"
    off = web.ask("PATCH", path, json={"enabled": False, "disabled_note": "moving house"}).json()
    assert (off["enabled"], off["disabled_note"]) == (False, "moving house")
    changed = web.ask("PATCH", path, json={"disabled_note": "still moving"}).json()
    assert (changed["disabled_note"], changed["effective_from"]) == ("still moving", off["effective_from"])
    differences = web.get(f"{path}/changes").json()["items"][0]["differences"]
    assert differences == [{"field": "disabled_note", "old": "moving house", "new": "still moving"}]
    assert web.post(f"{path}/preview", {"enabled": True}, "viewer").json()["problems"] == []
    on = web.ask("PATCH", path, json={"enabled": True})
    assert (on.json()["enabled"], on.json()["disabled_note"]) == (True, None)
    replaced = web.ask("PUT", path, json={**VALID, "disabled_note": "x"}, headers={"If-Match": on.headers["ETag"]})
    assert [item["field"] for item in problem(replaced)["errors"]] == ["disabled_note"]


def test_a_broken_schedule_can_be_switched_off_with_others_but_not_on(web: Web, db: DatabaseConnection) -> None:
    broken, fine = create(web)["schedule_id"], create(web, domain="fine.example")["schedule_id"]
    run_sql(db, "UPDATE schedules SET frequency = 'dayly' WHERE schedule_id = %s", UUID(broken))
    off = web.post("/schedules/bulk", {"action": "disable", "schedule_ids": [broken, fine]}, "admin").json()
    assert sorted(off["changed"]) == sorted([broken, fine])
    on = web.post("/schedules/bulk", {"action": "enable", "schedule_ids": [broken, fine]}, "admin").json()
    assert on["changed"] == [fine]
    assert [(item["schedule_id"], item["errors"][0]["field"]) for item in on["refused"]] == [(broken, "frequency")]


# --- previews ---


def test_a_definition_is_previewed_in_the_zone_that_was_asked_for(web: Web) -> None:
    body = {"frequency": "daily", "time_config": {"hour": 2, "minute": 30}, "timezone": "Europe/Berlin"}
    shown = web.post("/schedules/preview", body, "viewer", params={"n": 3, "zone": "Asia/Tokyo"}).json()
    assert len(shown["fires"]) == 3
    assert all(fire["local"].endswith("JST") for fire in shown["fires"])
    assert any("2027-03-28" in warning or "does not exist" in warning for warning in shown["warnings"])
    assert [item["field"] for item in shown["problems"]] == ["domain"]


def test_a_timing_that_makes_no_sense_has_no_preview(web: Web) -> None:
    answer = web.post("/schedules/preview", {"frequency": "daily", "time_config": {"hour": 25}}, "viewer")
    assert [item["field"] for item in problem(answer)["errors"]] == ["domain", "time_config.hour"]


def test_a_change_of_an_existing_schedule_is_previewed_without_being_made(web: Web) -> None:
    made = create(web)
    path = f"/schedules/{made['schedule_id']}"
    shown = web.post(f"{path}/preview", {"frequency": "interval", "time_config": {"hours": 6}}, "viewer").json()
    assert (shown["description"], len(shown["fires"])) == ("every 6 hours", 5)
    assert web.get(path).json()["frequency"] == "daily"
    assert web.post(f"{path}/preview", None, "viewer").json()["description"] == "daily at 02:00 UTC"


def test_an_unknown_zone_is_named(web: Web) -> None:
    answer = web.post("/schedules/preview", VALID, "viewer", params={"zone": "Mars/Base"})
    assert [item["field"] for item in problem(answer)["errors"]] == ["zone"]


# --- idempotency ---


def test_the_same_request_under_the_same_key_is_done_once(web: Web, db: DatabaseConnection) -> None:
    headers = {"Idempotency-Key": "k1"}
    first, second = (web.post("/schedules", VALID, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == first.json()
    assert (first.headers.get("Idempotency-Replayed"), second.headers["Idempotency-Replayed"]) == (None, "true")
    assert (second.headers["Location"], second.headers["ETag"]) == (first.headers["Location"], first.headers["ETag"])
    assert run_sql(db, "SELECT count(*) FROM schedules")[0][0] == 1


def test_another_request_under_the_same_key_is_refused(web: Web) -> None:
    made = create(web)
    path = f"/schedules/{made['schedule_id']}/run"
    assert web.post("/schedules", {**VALID, "name": "a"}, headers={"Idempotency-Key": "k"}).status_code == 201
    for answer in (
        web.post("/schedules", {**VALID, "name": "b"}, headers={"Idempotency-Key": "k"}),
        web.post(path, headers={"Idempotency-Key": "k"}),
    ):
        assert problem(answer)["type"] == "/api/docs#idempotency-key-reused"


def test_a_key_belongs_to_its_caller(web: Web, db: DatabaseConnection) -> None:
    for role in ("operator", "admin"):
        assert web.post("/schedules", VALID, role, headers={"Idempotency-Key": "k"}).status_code == 201
    assert run_sql(db, "SELECT count(*) FROM schedules")[0][0] == 2


def test_a_refused_request_does_not_use_up_its_key(web: Web) -> None:
    headers = {"Idempotency-Key": "k"}
    assert web.post("/schedules", {**VALID, "frequency": "dayly"}, headers=headers).status_code == 422
    assert web.post("/schedules", VALID, headers=headers).status_code == 201


def test_of_many_at_once_under_one_key_one_is_done(web: Web, db: DatabaseConnection) -> None:
    together = threading.Barrier(12)

    def send(_: int) -> int:
        together.wait()
        return web.post("/schedules", VALID, headers={"Idempotency-Key": "race"}).status_code

    with ThreadPoolExecutor(12) as pool:
        statuses = set(pool.map(send, range(12)))
    assert 201 in statuses
    assert statuses <= {201, 409}
    assert run_sql(db, "SELECT count(*) FROM schedules")[0][0] == 1


def test_a_request_that_is_being_worked_on_is_not_begun_again(web: Web, db: DatabaseConnection) -> None:
    headers = {"Idempotency-Key": "k"}
    assert web.post("/schedules", VALID, headers=headers).status_code == 201
    run_sql(db, "UPDATE idempotency_keys SET status_code = NULL")
    answer = web.post("/schedules", VALID, headers=headers)
    assert (problem(answer)["status"], answer.headers["Retry-After"]) == (409, "1")


def test_what_a_dead_process_left_under_a_key_may_have_been_done_and_is_not_done_again(
    web: Web, db: DatabaseConnection
) -> None:
    headers = {"Idempotency-Key": "k"}
    assert web.post("/schedules", VALID, headers=headers).status_code == 201
    run_sql(db, "UPDATE idempotency_keys SET status_code = NULL, started_at = now() - interval '10 minutes'")
    answer = problem(web.post("/schedules", VALID, headers=headers))
    assert (answer["status"], "may have" in answer["detail"]) == (409, True)
    assert run_sql(db, "SELECT count(*) FROM schedules")[0][0] == 1


@pytest.mark.parametrize("error", [Unavailable("Postgres", "a", "gone"), RuntimeError("a mistake of ours")])
def test_what_was_committed_before_its_answer_got_lost_is_not_done_again(
    web: Web, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    create = ScheduleRepository.create_schedule

    def commit_and_vanish(*given: Any, **more: Any) -> None:
        create(*given, **more)
        raise error

    headers = {"Idempotency-Key": "k"}
    with monkeypatch.context() as patched:
        patched.setattr(ScheduleRepository, "create_schedule", commit_and_vanish)
        assert web.post("/schedules", VALID, headers=headers).status_code in (500, 503)
    assert problem(web.post("/schedules", VALID, headers=headers))["status"] == 409
    assert run_sql(db, "SELECT count(*) FROM schedules")[0][0] == 1


def test_what_postgres_refused_was_not_done_and_may_be_sent_again(
    web: Web, db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: Any, **__: Any) -> None:
        run_sql(db, "SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(60)")

    headers = {"Idempotency-Key": "k"}
    with monkeypatch.context() as patched:
        patched.setattr(ScheduleRepository, "create_schedule", too_slow)
        assert web.post("/schedules", VALID, headers=headers).status_code == 503
    assert web.post("/schedules", VALID, headers=headers).status_code == 201


def test_a_key_is_free_again_after_a_day(web: Web, db: DatabaseConnection) -> None:
    headers = {"Idempotency-Key": "k"}
    assert web.post("/schedules", VALID, headers=headers).status_code == 201
    run_sql(db, "UPDATE idempotency_keys SET started_at = now() - interval '25 hours'")
    assert web.post("/schedules", {**VALID, "priority": 1}, headers=headers).status_code == 201


def test_a_key_that_is_none_is_refused(web: Web) -> None:
    for key in ("", "x" * 256, "schlüssel"):
        answer = web.post("/schedules", VALID, headers={"Idempotency-Key": key.encode("latin-1")})
        assert answer.status_code in (400, 422)
