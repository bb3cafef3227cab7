"""JOB_SECRETS: which environment variables jobs may send away, and to whom."""

import pytest

from config import load_settings
from services.checks.job_secrets import JobSecrets
from services.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENV_FILE", "")


def test_by_default_jobs_may_read_no_variable() -> None:
    assert load_settings().job_secrets == ""
    assert JobSecrets.parse("").refusal("PGPASSWORD", "example.com") == (
        "JOB_SECRETS does not list the environment variable PGPASSWORD, so jobs cannot use it"
    )


@pytest.mark.parametrize(
    ("name", "host", "allowed"),
    [
        ("ANYWHERE", "example.com", True),
        ("BOUND", "hooks.example.com", True),
        ("BOUND", "HOOKS.example.com.", True),
        ("BOUND", "api.example.org", True),
        ("BOUND", "hooks.example.com.evil.test", False),
        ("BOUND", "evil-hooks.example.com", False),
        ("BELOW", "a.b.example.net", True),
        ("BELOW", "example.net", False),
        ("SIX", "::1", True),
        ("TWICE", "intranet", True),
        ("TWICE", "localhost", True),
        ("TWICE", "example.com", False),
        ("bound", "hooks.example.com", False),
    ],
)
def test_a_name_may_be_bound_to_hosts(name: str, host: str, allowed: bool) -> None:
    text = (
        "ANYWHERE, BOUND@hooks.example.com,api.example.org, BELOW@*.example.net,"
        "SIX@[::1],TWICE@intranet,TWICE@localhost"
    )
    assert (JobSecrets.parse(text).refusal(name, host) is None) == allowed


def test_a_secret_of_another_host_is_refused_with_the_hosts_it_is_for() -> None:
    refusal = JobSecrets.parse("TOKEN@a.example,b.example").refusal("TOKEN", "evil.test")
    assert refusal == "JOB_SECRETS allows TOKEN for a.example, b.example only, not for evil.test"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("example.com", "'example.com' is neither the name of a variable nor a host after NAME@"),
        ("A,example.com", "'example.com' is neither the name of a variable nor a host after NAME@"),
        ("A@", "'A@' has no valid host"),
        ("1A", "'1A' is neither the name of a variable nor a host after NAME@"),
        ("A@x.example,A", "'A' appears with and without hosts; keep only one"),
        ("DATABASE_URL", "'DATABASE_URL' is a setting of the scheduler; jobs cannot read it"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused_at_the_start(
    text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOB_SECRETS", text)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value) == f"JOB_SECRETS={text!r}: {reason}"
