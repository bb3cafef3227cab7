"""Credentials that somebody wrote into a schedule: viewers do not see them, and who saves them is warned."""

from typing import Any

from tests.support.schedules import VALID
from tests.support.web import Web

HEADERS = {"Authorization": "Bearer hunter2"}
CONFIG = {"url": "https://example.com/?page=1", "headers": HEADERS}


def made(web: Web, **changes: Any) -> dict[str, Any]:
    answer = web.post("/schedules", {**VALID, "job_type": "http_request", "job_config": CONFIG, **changes})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_viewers_see_neither_the_credentials_of_a_schedule_nor_those_of_its_history(web: Web) -> None:
    where = f"/schedules/{made(web)['schedule_id']}"
    web.ask("PATCH", where, "operator", json={"job_config": {**CONFIG, "json": {"api_key": "hunter3"}}})
    paths = ("/schedules", where, f"{where}/changes")
    shown = {path: web.get(path, "viewer").text for path in paths}
    assert [path for path, text in shown.items() if "hunter" in text] == []
    assert all('"Authorization":"***"' in text and "https://example.com/?page=1" in text for text in shown.values())
    assert all("hunter2" in web.get(path, "operator").text for path in paths)
    web.ask("DELETE", where, "admin")
    assert "hunter" not in web.get(f"{where}/changes", "viewer").text


def test_who_saves_a_credential_is_warned(web: Web) -> None:
    schedule = made(web)
    assert [words[:35] for words in schedule["warnings"]] == ["job_config.headers.Authorization co"]
    where = f"/schedules/{schedule['schedule_id']}"
    changed = web.ask("PATCH", where, "operator", json={"job_config": {"url": "https://a:hunter2@example.com/"}}).json()
    assert [words[:23] for words in changed["warnings"]] == ["job_config.url contains"]
    good = {"url": "https://example.com/", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
    assert web.ask("PATCH", where, "operator", json={"job_config": good}).json()["warnings"] == []


def test_a_preview_warns_before_it_is_saved(web: Web) -> None:
    warnings = web.post("/schedules/preview", {**VALID, "job_type": "http_request", "job_config": CONFIG}).json()
    assert [words[:35] for words in warnings["warnings"]] == ["job_config.headers.Authorization co"]


def test_viewers_see_the_host_of_a_ping_url_and_not_its_path(web: Web) -> None:
    where = f"/schedules/{made(web, ping_url='https://hc-ping.com/hunter2')['schedule_id']}"
    web.ask("PATCH", where, "operator", json={"ping_url": "https://hc-ping.com/hunter3"})
    paths = ("/schedules", where, f"{where}/changes")
    assert [path for path in paths if "hunter" in web.get(path, "viewer").text.replace("Bearer hunter2", "")] == []
    assert web.get(where, "viewer").json()["ping_url"] == "https://hc-ping.com/***"
    assert web.get(where, "operator").json()["ping_url"] == "https://hc-ping.com/hunter3"
