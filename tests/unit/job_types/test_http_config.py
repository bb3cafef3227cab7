"""What an http_request may say, and how its references to secrets become values."""

from typing import Any

import pytest

from config import environment_secret
from services.checks.job_secrets import JobSecrets
from services.errors import Problem
from services.job_types.http_config import HttpRequestConfig, resolve
from services.jobs import PermanentFailure, default_registry

ALLOWED = JobSecrets.parse("TOKEN,HOST,PW,A,NOPE")
SECRETS = {"TOKEN": "t0p", "HOST": "example.com", "PW": "p@ss"}


def config(**fields: Any) -> HttpRequestConfig:
    return HttpRequestConfig.model_validate({"url": "https://example.com/", **fields})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, Problem("job_config.url", "is required")),
        ({"url": "example.com"}, Problem("job_config.url", "must start with http:// or https://")),
        ({"url": "ftp://example.com"}, Problem("job_config.url", "must start with http:// or https://")),
        ({"url": "http://"}, Problem("job_config.url", "names no host")),
        ({"url": "http://a:99999/"}, Problem("job_config.url", "port out of range 0-65535")),
        ({"url": "http://a", "verb": "GET"}, Problem("job_config.verb", "is not a field of this job")),
        (
            {"url": "http://a", "json": None, "body": ""},
            Problem("job_config", "json and body are both given; keep one of them"),
        ),
        ({"url": "http://a", "headers": {"a b": "x"}}, Problem("job_config.headers", "'a b' is not a header name")),
        (
            {"url": "http://a", "headers": {"a": "x\r\ny"}},
            Problem("job_config.headers", "the value of a must be one line"),
        ),
    ],
)
def test_a_bad_configuration_is_refused_with_field_and_reason(fields: dict[str, Any], problem: Problem) -> None:
    assert default_registry.check_config("http_request", fields) == [problem]


@pytest.mark.parametrize("name", ["Transfer-Encoding", "host", "CONNECTION", "Content-Length", "TE", "Upgrade"])
def test_headers_that_say_where_a_message_ends_or_goes_are_not_for_users(name: str) -> None:
    reason = f"{name!r} is set by the connection, not by a job"
    problems = default_registry.check_config("http_request", {"url": "http://a", "headers": {name: "x"}})
    assert problems == [Problem("job_config.headers", reason)]


@pytest.mark.parametrize(
    "fields", [{"method": "TRACE"}, {"expected_status": []}, {"expected_status": 99}, {"timeout_seconds": 0}]
)
def test_values_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    [problem, *_] = default_registry.check_config("http_request", {"url": "http://a", **fields})
    assert problem.field.startswith(f"job_config.{next(iter(fields))}")


@pytest.mark.parametrize(("expected", "good", "bad"), [(None, 204, 301), (404, 404, 200), ([200, 404], 404, 201)])
def test_the_expected_status_is_a_range_a_number_or_several(expected: Any, good: int, bad: int) -> None:
    assert config(expected_status=expected).expects(good)
    assert not config(expected_status=expected).expects(bad)


def test_references_are_replaced_in_every_place() -> None:
    wanted = resolve(
        config(
            url="https://${env:HOST}/?t=${env:TOKEN}",
            headers={"Authorization": "Bearer ${env:TOKEN}", "X-Plain": "$TOKEN ${TOKEN}"},
            json={"${env:TOKEN}": [{"deep": "a ${env:PW} b ${env:TOKEN}"}, 1, None]},
        ),
        SECRETS.get,
        ALLOWED,
    )
    assert wanted.url == "https://example.com/?t=t0p"
    assert wanted.headers == {"Authorization": "Bearer t0p", "X-Plain": "$TOKEN ${TOKEN}"}
    assert wanted.json == {"t0p": [{"deep": "a p@ss b t0p"}, 1, None]}
    assert wanted.secrets == {"t0p", "example.com", "p@ss"}
    assert (list(wanted.private.headers), wanted.private.body) == (["Authorization"], True)
    assert "t0p" not in repr(wanted)


def test_a_value_is_not_searched_for_references_again() -> None:
    assert resolve(config(body="${env:A}"), {"A": "${env:B}"}.get, ALLOWED).body == b"${env:B}"


def test_a_missing_secret_fails_for_good_and_is_named() -> None:
    with pytest.raises(PermanentFailure, match="the environment variable NOPE is not set"):
        resolve(config(body="${env:NOPE}"), SECRETS.get, ALLOWED)


@pytest.mark.parametrize("field", ["url", "headers", "json", "body"])
def test_a_variable_that_the_operator_did_not_allow_fails_for_good_whatever_it_is_in(field: str) -> None:
    text = "https://example.com/${env:PGPASSWORD}"
    fields = {field: {"X": text} if field in ("headers", "json") else text}
    for variables in ({"PGPASSWORD": "p"}, {}):  # the same words: who asks does not even learn whether it is set
        with pytest.raises(PermanentFailure, match=r"^JOB_SECRETS does not list the environment variable PGPASSWORD"):
            resolve(config(**fields), variables.get, ALLOWED)


@pytest.mark.parametrize("url", ["https://evil.test/", "https://${env:HOST}/", "https://evil.test/?t=${env:TOKEN}"])
def test_a_secret_goes_to_its_own_host_only(url: str) -> None:
    bound = JobSecrets.parse("HOST,TOKEN@good.example")
    with pytest.raises(PermanentFailure, match=r"allows TOKEN for good\.example only, not for (evil|exa)"):
        resolve(config(url=url, headers={"Authorization": "${env:TOKEN}"}), SECRETS.get, bound)
    assert resolve(config(url="https://good.example/", body="${env:TOKEN}"), SECRETS.get, bound).body == b"t0p"


def test_a_url_that_is_none_with_its_secret_fails_without_showing_it() -> None:
    with pytest.raises(PermanentFailure, match=r"url '\$\{env:TOKEN\}': must start with http"):
        resolve(config(url="${env:TOKEN}"), SECRETS.get, ALLOWED)


def test_a_password_inside_the_url_is_a_secret_also_as_it_is_sent() -> None:
    wanted = resolve(config(url="https://anna:se%20cret@example.com/"), SECRETS.get, ALLOWED)
    assert wanted.secrets == {"se%20cret", "se cret", "YW5uYTpzZSBjcmV0"}


def test_secrets_come_from_the_environment_or_the_env_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env").write_text("IN_FILE=one\nIN_BOTH=file\n")
    monkeypatch.setenv("ENV_FILE", str(tmp_path / "env"))
    monkeypatch.setenv("IN_BOTH", "environment")
    monkeypatch.setenv("IS_EMPTY", "")
    names = ("IN_FILE", "IN_BOTH", "IS_EMPTY", "IS_NOT_THERE")
    assert [environment_secret(name) for name in names] == ["one", "environment", None, None]


@pytest.mark.parametrize("name", ["DATABASE_URL", "database_url", "REDIS_PASSWORD"])
def test_jobs_cannot_read_the_schedulers_own_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "postgresql://u:secret@h/d")
    assert environment_secret(name) is None
