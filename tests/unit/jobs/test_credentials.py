"""Credentials inside a job's configuration: found by name and by form, masked, and warned about."""

from typing import Any

import pytest

from services.jobs.credentials import credential_warnings, without_credentials


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"headers": {"Authorization": "Bearer hunter2"}}, {"headers": {"Authorization": "***"}}),
        ({"headers": {"X-Api-Key": "hunter2"}}, {"headers": {"X-Api-Key": "***"}}),
        ({"headers": {"X-Anything": "Bearer hunter2"}}, {"headers": {"X-Anything": "Bearer ***"}}),
        ({"headers": {"Cookie": "sid=hunter2"}}, {"headers": {"Cookie": "***"}}),
        ({"url": "https://anna:hunter2@a.example/x"}, {"url": "https://anna:***@a.example/x"}),
        ({"url": "https://a.example/?a=1&api_key=hunter2&b=2"}, {"url": "https://a.example/?a=1&api_key=***&b=2"}),
        ({"json": {"user": "anna", "password": "hunter2"}}, {"json": {"user": "anna", "password": "***"}}),
        (
            {"json": {"credentials": {"user": "hunter2", "pin": 1234}}},
            {"json": {"credentials": {"user": "***", "pin": "***"}}},
        ),
        ({"json": [{"token": ["hunter2"]}]}, {"json": [{"token": ["***"]}]}),
        ({"body": "user=anna&password=hunter2&x=1"}, {"body": "user=anna&password=***&x=1"}),
        ({"body": '{"api_key": "hunter2", "x": 1}'}, {"body": '{"api_key": "***", "x": 1}'}),
    ],
)
def test_a_literal_credential_is_masked_and_warned_about(config: Any, shown: Any) -> None:
    assert without_credentials(config) == shown
    [warning, *_] = credential_warnings(config)
    assert warning.startswith("job_config.")
    assert "hunter2" not in warning


@pytest.mark.parametrize(
    "config",
    [
        {},
        None,
        {"url": "https://a.example/?page=2&sort=name#top", "method": "GET", "timeout_seconds": 3},
        {"url": "https://anna:${env:PW}@a.example/?key=${env:KEY}"},
        {"headers": {"Authorization": "Bearer ${env:TOKEN}", "X-Trace": "1"}},
        {"body": "password=${env:PW}", "json": {"use_token": True, "secret": None, "password": ""}},
        {"engine": "browser", "accept_selector": "#accept", "max_pages": 50},
    ],
)
def test_what_is_no_credential_stays_as_it_is(config: Any) -> None:
    assert without_credentials(config) == config
    assert credential_warnings(config) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hc-ping.com/0ec8f7a2", "https://hc-ping.com/***"),
        ("https://hc.example:8443/ping/0ec8?create=1", "https://hc.example:8443/***"),
        ("https://hc.example?key=0ec8", "https://hc.example/***"),
        ("https://hc-ping.com/${env:HC_KEY}/nightly", "https://hc-ping.com/${env:HC_KEY}/nightly"),
    ],
)
def test_the_path_of_a_ping_url_is_its_secret(url: str, shown: str) -> None:
    assert without_credentials(url, "ping_url") == shown
    assert without_credentials({"ping_url": url}) == {"ping_url": shown}
