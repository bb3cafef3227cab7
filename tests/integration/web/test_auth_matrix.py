"""Every route and method against every kind of caller. A route that is not in the table below fails the first test."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import jwt
import pytest
import requests
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount

from database.connection import DatabaseConnection
from services.web.auth.guard import GuardedRoute, rule_of
from services.web.auth.roles import Role
from services.web.auth.sessions import COOKIE
from services.web.auth.tokens import ApiTokens
from services.web.openapi import guarded_routes
from tests.integration.web.conftest import StartWeb
from tests.support.web import SECRET, Web, a_jwt, problem

NOBODY_IS_ASKED = """
GET /healthz
GET /readyz
GET /metrics
GET /api/docs
POST /api/v3/session
DELETE /api/v3/session
"""
VIEWER = """
GET /api/v3/schedules
POST /api/v3/schedules/preview
GET /api/v3/schedules/{schedule}
POST /api/v3/schedules/{schedule}/preview
GET /api/v3/schedules/{schedule}/changes
GET /api/v3/schedules/{schedule}/explain
GET /api/v3/limits
GET /api/v3/limits/{name:path}
GET /api/v3/channels
GET /api/v3/channels/{name}
GET /api/v3/rules
GET /api/v3/rules/{name}
GET /api/v3/deliveries
GET /api/v3/deliveries/{delivery_id}
GET /api/v3/executions
GET /api/v3/executions/{execution_id}
GET /api/v3/executions/{execution_id}/log
GET /api/v3/executions/{execution_id}/events
GET /api/v3/statistics
GET /api/v3/statistics/overview
GET /api/v3/statistics/forecast
GET /api/v3/statistics/errors
GET /api/v3/replicas
GET /api/v3/scans
GET /api/v3/scans/{scan_id}
GET /api/v3/scans/{scan_id}/cookies
GET /api/v3/scans/{scan_id}/diff
GET /api/v3/sync
GET /api/v3/session
GET /api/v3/dev-tools/scheduler_status
GET /api/v3/dev-tools/queues
GET /api/v3/places
GET /api/v3/local-businesses
GET /api/v3/domains
GET /api/v3/sitemap-files
GET /api/v3/pages
GET /api/v3/contacts
GET /api/v3/contacts/{contact_id}
GET /api/v3/queues
GET /api/v3/queues/{queue}
GET /api/v3/dead-letters
GET /api/v3/dead-letters/{letter_id}
"""
OPERATOR = """
POST /api/v3/schedules
PUT /api/v3/schedules/{schedule}
PATCH /api/v3/schedules/{schedule}
POST /api/v3/schedules/{schedule}/run
POST /api/v3/schedules/{schedule}/backfill
POST /api/v3/limits
PATCH /api/v3/limits/{name:path}
POST /api/v3/channels
PATCH /api/v3/channels/{name}
POST /api/v3/channels/{name}/test
POST /api/v3/channels/{name}/repeat
POST /api/v3/rules
PATCH /api/v3/rules/{name}
GET /api/v3/rules/{name}/trial
POST /api/v3/deliveries/{delivery_id}/repeat
POST /api/v3/executions/{execution_id}/cancel
POST /api/v3/executions/{execution_id}/retry
POST /api/v3/places
POST /api/v3/places/search
PUT /api/v3/places/staging/status
PUT /api/v3/places/staging/queue-deep-scan
PUT /api/v3/local-businesses/status
PUT /api/v3/domains/sitemap-curation/status
POST /api/v3/domains/direct-submit
PUT /api/v3/sitemap-files/sitemap_import_curation/status
PUT /api/v3/pages/status
POST /api/v3/contacts
PATCH /api/v3/contacts/{contact_id}
POST /api/v3/queues/{queue}/pause
POST /api/v3/queues/{queue}/resume
POST /api/v3/queues/{queue}/requeue
POST /api/v3/dead-letters/requeue
POST /api/v3/dev-tools/trigger/{job_id}
GET /api/v3/dev-tools/process-pending-domains
POST /api/v3/dev-tools/process-pending-domains
"""
ADMIN = """
POST /api/v3/schedules/bulk
POST /api/v3/executions/bulk
DELETE /api/v3/schedules/{schedule}
DELETE /api/v3/limits/{name:path}
DELETE /api/v3/channels/{name}
DELETE /api/v3/rules/{name}
POST /api/v3/sync/run
POST /api/v3/sync/preview
GET /api/v3/tokens
POST /api/v3/tokens
DELETE /api/v3/tokens/{token_id}
DELETE /api/v3/contacts/{contact_id}
"""
RULES: dict[str, Role | None] = {
    line: role
    for table, role in (
        (NOBODY_IS_ASKED, None),
        (VIEWER, Role.VIEWER),
        (OPERATOR, Role.OPERATOR),
        (ADMIN, Role.ADMIN),
    )
    for line in table.split("\n")
    if line
}
GUARDED = {line: role for line, role in RULES.items() if role is not None}


@pytest.fixture
def web(start_web: StartWeb) -> Web:
    return start_web(JWT_ISSUER="the other system")


def routes_of(web: Web) -> Iterator[tuple[str, Role | None]]:
    for route in guarded_routes(web.app):
        for method in route.methods or ():
            yield f"{method} {route.path}", rule_of(route).role


def test_every_route_has_the_rule_that_this_table_says(web: Web) -> None:
    assert dict(routes_of(web)) == RULES


def test_nothing_else_is_served_but_the_description_of_the_api(web: Web) -> None:
    others = [
        context.original_route
        for context in iter_route_contexts(web.app.routes)
        if not isinstance(context.original_route, GuardedRoute)
    ]
    pages = [route for route in others if isinstance(route, Mount)]  # the dashboard asks who is there by itself
    assert {getattr(route, "path", None) for route in others if route not in pages} <= {"/api/openapi.json"}


def test_a_route_without_a_rule_cannot_be_made() -> None:
    router = APIRouter(route_class=GuardedRoute)
    with pytest.raises(TypeError, match="/open has no rule"):
        router.get("/open")(lambda: None)


def nobodies(web: Web, db: DatabaseConnection) -> dict[str, dict[str, str]]:
    """Callers that are nobody, each with the headers that they send."""
    tokens = ApiTokens(db)
    made = {name: tokens.create(name, Role.ADMIN, "test").text for name in ("expired", "revoked")}
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE api_tokens SET expires_at = now() - interval '1 s' WHERE name = 'expired'")
    tokens.revoke("revoked", "test")
    good = web.tokens[Role.ADMIN]
    ours = {"iss": "the other system"}
    bearers = {
        "an expired token": made["expired"],
        "a revoked token": made["revoked"],
        "an unknown token": f"es_{'0' * 12}_{'0' * 64}",
        "a token with a wrong secret": good[:-1] + ("0" if good[-1] != "0" else "1"),
        "rubbish": "rubbish",
        "nothing": "",
        "halves of characters": "\xff\xfe",
        "a long token": "x" * 9000,
        "a JWT with alg none": jwt.encode(
            {"sub": "1", "aud": "authenticated", "exp": 9e9, "role": "admin", **ours}, "", algorithm="none"
        ),
        "a JWT with another algorithm": a_jwt(algorithm="HS512", **ours),
        "a JWT with another secret": a_jwt("another secret of more than thirty-two characters", **ours),
        "an expired JWT": a_jwt(exp=1_000_000_000, **ours),
        "a JWT without an expiry": a_jwt(exp=None, **ours),
        "a JWT whose expiry was meant in milliseconds": a_jwt(exp=9_000_000_000_000, **ours),
        "a JWT that expires at infinity": a_jwt(exp=float("inf"), **ours),
        "a JWT from the future": a_jwt(nbf=9_000_000_000, **ours),
        "a JWT for somebody else": a_jwt(aud="others", **ours),
        "a JWT without an audience": a_jwt(aud=None, **ours),
        "a JWT of another issuer": a_jwt(iss="somebody"),
        "a JWT without a subject": a_jwt(sub=None, **ours),
        "a JWT whose subject is no line": a_jwt(sub="a\nb", **ours),
        "a session's cookie as a token": web.app.state.parts.authenticator.sessions.begin(
            web.app.state.parts.authenticator.verify(good)
        )[0],
    }
    return {
        "nobody": {},
        "a user with a password": {"Authorization": "Basic YWRtaW46YWRtaW4="},
        "a forged session": {"Cookie": f"scheduler_session={a_jwt(**ours)}"},
        **{name: {"Authorization": f"Bearer {token}"} for name, token in bearers.items()},
    }


def somebodies(web: Web) -> dict[str, tuple[Role | None, dict[str, str]]]:
    ours = {"iss": "the other system"}
    found: dict[str, tuple[Role | None, str]] = {f"a {role} token": (role, web.tokens[role]) for role in Role}
    found |= {f"a JWT of {role}": (role, a_jwt(role=role, **ours)) for role in Role}
    found["a JWT that names no role"] = (None, a_jwt(role="authenticated", **ours))
    found["a JWT whose role is an object"] = (None, a_jwt(role={"admin": True}, **ours))
    return {name: (role, {"Authorization": f"Bearer {token}"}) for name, (role, token) in found.items()}


def ask(web: Web, line: str, headers: dict[str, str]) -> requests.Response:
    method, path = line.split()
    for name in ("schedule", "execution_id", "scan_id", "token_id", "contact_id", "job_id"):
        path = path.replace(f"{{{name}}}", str(uuid4()))
    body: dict[str, Any] | None = None if method == "GET" else {}
    return requests.request(method, web.url + path, headers=headers, json=body, timeout=30)


def test_who_is_nobody_gets_nowhere(web: Web, db: DatabaseConnection) -> None:
    callers = nobodies(web, db)
    wrong = [
        (name, line, answer.status_code)
        for name, headers in callers.items()
        for line in GUARDED
        if (answer := ask(web, line, headers)).status_code != 401
    ]
    assert wrong == []


def test_who_is_somebody_gets_as_far_as_the_role_reaches(web: Web) -> None:
    for name, (role, headers) in somebodies(web).items():
        for line, needed in GUARDED.items():
            status = ask(web, line, headers).status_code
            assert (status == 403) == (role is None or not role.includes(needed)), (name, line, status)
            assert status != 401, (name, line)


def test_what_is_open_is_open(web: Web) -> None:
    for line in set(RULES) - set(GUARDED):
        assert ask(web, line, {}).status_code not in (401, 403), line


def test_a_jwt_must_name_its_role(start_web: StartWeb) -> None:
    web = start_web(JWT_ROLE_CLAIM="app_metadata.scheduler")
    for claims, status in (
        ({"role": "admin"}, 403),
        ({"app_metadata": {"scheduler": "viewer"}}, 200),
        ({"app_metadata": "viewer"}, 403),
    ):
        answer = web.get("/replicas", None, headers={"Authorization": f"Bearer {a_jwt(**claims)}"})
        assert answer.status_code == status, claims


def test_a_jwt_without_a_role_may_be_given_one(start_web: StartWeb) -> None:
    web = start_web(JWT_DEFAULT_ROLE="viewer")
    assert web.get("/replicas", None, headers={"Authorization": f"Bearer {a_jwt(role=None)}"}).status_code == 200


def test_without_a_secret_no_jwt_is_accepted(start_web: StartWeb) -> None:
    web = start_web(JWT_SECRET_KEY="")
    assert web.get("/replicas", None, headers={"Authorization": f"Bearer {a_jwt()}"}).status_code == 401
    empty = jwt.encode({"sub": "1", "aud": "authenticated", "exp": 9e9}, "x" * 32, algorithm="HS256")
    assert web.get("/replicas", None, headers={"Authorization": f"Bearer {empty}"}).status_code == 401


# --- the order of refusals ---


def test_401_comes_before_everything_that_could_be_learned(web: Web) -> None:
    for more in (
        {"data": "no json", "headers": {"Content-Type": "text/plain"}},
        {"data": "{", "headers": {"Content-Type": "application/json"}},
        {"json": {"domain": 1}},
    ):
        answer = web.ask("POST", "/schedules", None, **more)
        assert problem(answer)["status"] == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert web.get("/executions/no-uuid", None).status_code == 401


def test_403_comes_before_404_and_422(web: Web) -> None:
    assert web.ask("DELETE", f"/schedules/{uuid4()}", "operator").status_code == 403
    assert problem(web.ask("POST", "/schedules", "viewer", json={}))["status"] == 403
    assert web.ask("PATCH", "/schedules/nobody", "viewer", data="{").status_code == 403


def test_a_refusal_says_what_is_wrong_only_to_who_has_the_secret(web: Web, db: DatabaseConnection) -> None:
    token = ApiTokens(db).create("short", Role.VIEWER, "test").text
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE api_tokens SET expires_at = now() - interval '1 s' WHERE name = 'short'")
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    told = {
        text: problem(web.get("/replicas", None, headers={"Authorization": f"Bearer {text}"}))["detail"]
        for text in (token, wrong, "rubbish")
    }
    assert told == {
        token: "the token has expired",
        wrong: "the token is not valid",
        "rubbish": "the token is not valid",
    }


# --- tokens ---


def test_a_token_that_was_revoked_stops_at_once(web: Web) -> None:
    made = web.post("/tokens", {"name": "ci", "role": "operator"}, "admin").json()
    mine = {"Authorization": f"Bearer {made['token']}"}
    assert web.get("/session", None, headers=mine).json()["actor"] == "token:ci"
    assert web.ask("DELETE", f"/tokens/{made['token_id']}", "admin").status_code == 204
    assert problem(web.get("/session", None, headers=mine))["detail"] == "the token was revoked"
    assert web.ask("DELETE", f"/tokens/{made['token_id']}", "admin").status_code == 404


def test_a_token_is_shown_once_and_kept_as_a_digest(web: Web, db: DatabaseConnection) -> None:
    made = web.post("/tokens", {"name": "ci", "role": "viewer"}, "admin").json()
    secret = made["token"].rpartition("_")[2]
    assert secret not in web.get("/tokens", "admin").text
    with db.transaction() as connection:
        rows = connection.exec_driver_sql("SELECT t::text FROM api_tokens AS t").scalars().all()
    assert not any(secret in row for row in rows)


def test_two_tokens_that_work_do_not_share_a_name(web: Web) -> None:
    body = {"name": "ci", "role": "viewer"}
    assert web.post("/tokens", body, "admin").status_code == 201
    assert problem(web.post("/tokens", body, "admin"))["errors"][0]["field"] == "name"
    assert web.ask("DELETE", "/tokens/ci", "admin").status_code == 204
    assert web.post("/tokens", body, "admin").status_code == 201


@pytest.mark.parametrize("body", [{"name": " ", "role": "viewer"}, {"name": "a\nb", "role": "viewer"}])
def test_a_name_is_one_line(web: Web, body: dict[str, Any]) -> None:
    assert problem(web.post("/tokens", body, "admin"))["errors"][0]["field"] == "name"


@pytest.mark.parametrize("instant", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_a_token_cannot_expire_at_an_instant_that_utc_does_not_have(web: Web, instant: str) -> None:
    answer = problem(web.post("/tokens", {"name": "x", "role": "viewer", "expires_at": instant}, "admin"))
    assert (answer["status"], answer["errors"][0]["field"]) == (422, "expires_at")


def test_the_last_use_of_a_token_is_known_to_the_minute(web: Web, db: DatabaseConnection) -> None:
    def used() -> Any:
        return next(token.last_used_at for token in ApiTokens(db).list() if token.name == "test-viewer")

    assert used() is None
    web.get("/replicas")
    first = used()
    web.get("/replicas")
    assert used() == first
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE api_tokens SET last_used_at = last_used_at - interval '61 s'")
    web.get("/replicas")
    assert used() - first >= timedelta(0)


# --- sessions ---


def log_in(web: Web, token: str) -> requests.Session:
    browser = requests.Session()
    answer = browser.post(f"{web.url}/api/v3/session", json={"token": token}, timeout=30)
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert "Secure" not in cookie  # over plain http a browser would not keep it
    return browser


def test_the_cookie_is_secure_if_the_setting_says_so(start_web: StartWeb) -> None:
    """Behind a proxy that ends TLS and is not trusted, a request does not look like https."""
    web = start_web(WEB_SECURE_COOKIE="true")
    for answer in (web.post("/session", {"token": web.tokens["viewer"]}, None), web.ask("DELETE", "/session", None)):
        assert "Secure" in answer.headers["Set-Cookie"]


def patch(web: Web, browser: requests.Session, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return browser.patch(f"{web.url}/api/v3/schedules/x", json={}, headers=named, timeout=30).status_code


def test_a_browser_acts_under_the_name_of_its_token(web: Web) -> None:
    browser = log_in(web, web.tokens["operator"])
    assert browser.get(f"{web.url}/api/v3/session", timeout=30).json()["actor"] == "token:test-operator"
    assert patch(web, browser, Origin=web.url) == 404


def test_a_cookie_is_good_for_our_own_pages_only(web: Web) -> None:
    browser = log_in(web, web.tokens["operator"])
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {}, {"Sec_Fetch_Site": "cross-site"}):
        assert patch(web, browser, **headers) == 403
    assert patch(web, browser, Sec_Fetch_Site="same-origin") == 404


def test_a_session_ends_with_its_token(web: Web) -> None:
    made = web.post("/tokens", {"name": "ci", "role": "viewer"}, "admin").json()
    browser = log_in(web, made["token"])
    web.ask("DELETE", f"/tokens/{made['token_id']}", "admin")
    assert browser.get(f"{web.url}/api/v3/replicas", timeout=30).status_code == 401


def test_a_session_has_the_role_that_its_token_has_now(web: Web, db: DatabaseConnection) -> None:
    browser = log_in(web, web.tokens["operator"])
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE api_tokens SET role = 'viewer' WHERE name = 'test-operator'")
    assert patch(web, browser, Origin=web.url) == 403


def test_logging_out_ends_the_session_for_everybody_who_kept_the_cookie(web: Web) -> None:
    browser = log_in(web, web.tokens["viewer"])
    kept = dict(browser.cookies)
    answer = browser.delete(f"{web.url}/api/v3/session", timeout=30)
    assert (answer.status_code, dict(browser.cookies)) == (204, {})
    assert requests.get(f"{web.url}/api/v3/replicas", cookies=kept, timeout=30).status_code == 401


def test_a_session_of_a_jwt_lasts_no_longer_than_the_jwt(web: Web) -> None:
    browser = log_in(web, a_jwt(iss="the other system", role="viewer"))
    claims = jwt.decode(browser.cookies[COOKIE], options={"verify_signature": False})
    assert claims["exp"] <= time.time() + 601  # a_jwt holds for ten minutes, a session for twelve hours
    assert browser.get(f"{web.url}/api/v3/session", timeout=30).json()["actor"] == "jwt:4711"


def test_a_jwt_is_no_session_although_one_secret_is_behind_both(web: Web) -> None:
    forged = jwt.encode(
        {"aud": "enhanced-scheduler-session", "exp": 9e9, "jti": "1", "sub": "jwt:1", "actor": "x", "role": "admin"},
        SECRET,
        algorithm="HS256",
    )
    answer = requests.get(f"{web.url}/api/v3/replicas", cookies={"scheduler_session": forged}, timeout=30)
    assert answer.status_code == 401


def test_a_bad_token_begins_no_session(web: Web) -> None:
    answer = web.post("/session", {"token": "rubbish"}, None)
    assert problem(answer)["status"] == 401
    assert "Set-Cookie" not in answer.headers
