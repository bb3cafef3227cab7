"""Settings: every knob by its name and default, bad values refused in one line, documentation that cannot go stale."""

import os
import re
import socket
from pathlib import Path

import pytest

import config
from config import PROJECT_ROOT, Settings, load_settings, masked
from services.cli.settings_page import settings_page
from services.cli.settings_table import env_example
from services.embedded.servers import database_url, redis_url
from services.errors import ConfigurationError
from services.redis_client import RedisClient


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*config.knobs(), "ENV_FILE"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENV_FILE", "")


# Names and defaults that other programs rely on.
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("database_url", None), ("redis_host", None), ("redis_port", 6379), ("redis_db", 0), ("redis_password", None),
        ("max_workers", 5), ("job_replace_existing_instance", True), ("job_max_instances", 1), ("job_coalesce", True),
        ("job_misfire_grace_time", 300), ("api_url", None), ("request_timeout", 10), ("enable_api_sync", None),
        ("api_sync_interval", 300), ("schedule_check_interval", 60), ("lock_timeout", 60),
        ("heartbeat_interval_seconds", 4), ("heartbeat_timeout_seconds", 15), ("rescue_interval_seconds", 5),
        ("verify_after_seconds", 3), ("gap_scan_seconds", 30), ("max_clock_skew_seconds", 5),
        ("shutdown_grace_seconds", 30), ("job_timeout_seconds", 3600), ("job_max_retries", 0),
        ("job_retry_backoff_seconds", 30), ("catchup_window_seconds", 3600), ("catchup_max_fires", 10),
        ("fence_horizon_seconds", 86400), ("history_retention_days", 90), ("fetch_allow_private_addresses", False),
        ("deep_scan_scheduler_interval_minutes", 5), ("domain_scheduler_batch_size", 50),
        ("domain_scheduler_max_instances", 3), ("domain_extraction_scheduler_interval_minutes", 2),
        ("sitemap_job_timeout_seconds", 55), ("environment", "production"),
    ],
)  # fmt: skip
def test_a_default_is_what_the_contract_says(name: str, default: object) -> None:
    assert getattr(load_settings(), name) == default


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"MAX_WORKERS": "zero"}, "MAX_WORKERS='zero': input should be a valid integer"),
        ({"MAX_WORKERS": "0"}, "MAX_WORKERS='0': input should be greater than or equal to 1"),
        ({"REDIS_PORT": "70000"}, "REDIS_PORT='70000': input should be less than or equal to 65535"),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL='loud': input should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ({"JOB_COALESCE": "maybe"}, "JOB_COALESCE='maybe': input should be a valid boolean"),
        ({"LOCK_FAILURE_POLICY": "x"}, "LOCK_FAILURE_POLICY='x': input should be 'degrade' or 'pause'"),
        ({"API_URL": "ftp://x"}, "API_URL='ftp://x': must start with http:// or https://"),
        ({"API_TOKEN": "two words"}, "API_TOKEN='***': must consist of printable ASCII characters without spaces"),
        ({"API_TOKEN": "line\nbreak"}, "API_TOKEN='***': must consist of printable ASCII characters without spaces"),
        (
            {"API_SYNC_MAX_REMOVALS_PERCENT": "101"},
            "API_SYNC_MAX_REMOVALS_PERCENT='101': input should be less than or equal to 100",
        ),
        ({"API_SYNC_LOCAL_EDITS": "x"}, "API_SYNC_LOCAL_EDITS='x': input should be 'keep' or 'overwrite'"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL='http://x': must start with redis://, rediss://, unix:// or"),
        (
            {"DATABASE_URL": "mysql://u:se/c@ret@h/x"},
            "DATABASE_URL='mysql://u:***@h/x': must start with postgresql://",
        ),
        (
            {"REDIS_URL": "redis://a", "REDIS_HOST": "b"},
            "REDIS_URL and REDIS_HOST are both set; keep only one",
        ),
        (
            {"JOB_MISFIRE_GRACE_TIME": "4000"},
            "JOB_MISFIRE_GRACE_TIME=4000 must not be longer than CATCHUP_WINDOW_SECONDS=3600",
        ),
        (
            {"CATCHUP_WINDOW_SECONDS": "90000"},
            "CATCHUP_WINDOW_SECONDS=90000 must not be longer than FENCE_HORIZON_SECONDS=86400",
        ),
        (
            {"HISTORY_RETENTION_DAYS": "1"},
            "FENCE_HORIZON_SECONDS=86400 must be shorter than HISTORY_RETENTION_DAYS=1",
        ),
        (
            {"WORKFLOW_CIRCUIT_FAILURES": "21"},
            "WORKFLOW_CIRCUIT_FAILURES=21 must not exceed WORKFLOW_CIRCUIT_WINDOW=20",
        ),
        (
            {"HEARTBEAT_INTERVAL_SECONDS": "8"},
            "HEARTBEAT_INTERVAL_SECONDS=8 must be at most a third of HEARTBEAT_TIMEOUT_SECONDS=15",
        ),
        ({"VERIFY_AFTER_SECONDS": "40"}, "VERIFY_AFTER_SECONDS=40 must be shorter than GAP_SCAN_SECONDS=30"),
        ({"ENABLE_API_SYNC": "true"}, "ENABLE_API_SYNC is true but API_URL is not set"),
        ({"HEARTBEAT_TIMEOUT_SECONDS": "inf"}, "HEARTBEAT_TIMEOUT_SECONDS='inf': input should be a finite number"),
        ({"HEARTBEAT_INTERVAL_SECONDS": "nan"}, "HEARTBEAT_INTERVAL_SECONDS='nan': input should be a finite number"),
        (
            {"DATABASE_STATEMENT_TIMEOUT_SECONDS": "99999999999"},
            "DATABASE_STATEMENT_TIMEOUT_SECONDS='99999999999': input should be less than or equal to 86400",
        ),
        ({"INSTANCE_ID": "a\nb"}, "INSTANCE_ID='a\\nb': must not contain control characters"),
        (
            {"DEEP_SCAN_SCHEDULER_CONCURRENCY": "many"},
            "DEEP_SCAN_SCHEDULER_CONCURRENCY='many': input should be a valid integer",
        ),
        ({"ENV_FILE": "missing.env"}, "ENV_FILE='missing.env': file not found"),
        ({"ENV_FILE": "/"}, "/: cannot be read: is a directory"),
    ],
)
def test_a_bad_value_is_one_line_with_name_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


def test_every_bad_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_WORKERS", "zero")
    monkeypatch.setenv("REDIS_DB", "-1")
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert {line.split("=")[0] for line in str(refused.value).splitlines()} == {"MAX_WORKERS", "REDIS_DB"}


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "")
    monkeypatch.setenv("MAX_WORKERS", "")
    settings = load_settings()
    assert (settings.redis_password, settings.max_workers) == (None, 5)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().max_workers = 7  # type: ignore[misc]


def test_the_env_file_supplies_what_the_environment_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("MAX_WORKERS=7\nREDIS_DB=3\nMAX_WORKRES=9\nPOSTGRES_IMAGE=x\nREDIS_PASSWORD=  # Optional\n")
    monkeypatch.setenv("ENV_FILE", str(file))
    monkeypatch.setenv("REDIS_DB", "4")
    settings = load_settings()
    assert (settings.max_workers, settings.redis_db, settings.redis_password) == (7, 4, None)
    assert config.unknown_variables() == {"MAX_WORKRES": "MAX_WORKERS", "POSTGRES_IMAGE": None}


def test_variables_of_version_0_1_are_still_read_wherever_they_are_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those whose numbers live in the schedules of the workflows now. They are no settings, and no strangers either."""
    file = tmp_path / ".env"
    file.write_text("DEEP_SCAN_SCHEDULER_CONCURRENCY=7\nDEEP_SCAN_SCHEDULER_MAX_ATTEMPTS=4\n")
    monkeypatch.setenv("ENV_FILE", str(file))
    monkeypatch.setenv("DEEP_SCAN_SCHEDULER_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("DEEP_SCAN_SCHEDULER_CONCURRENCY", "")
    settings = load_settings()
    assert settings.former_queue_numbers("deep_scan_scheduler").given() == {"concurrency": 7, "max_attempts": 9}
    assert settings.former_queue_numbers("domain_scheduler").given() == {}
    assert config.unknown_variables() == {}
    assert "DEEP_SCAN_SCHEDULER_CONCURRENCY" not in config.knobs()


def test_an_env_file_that_is_no_text_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"MAX_WORKERS=\xff\n")
    monkeypatch.setenv("ENV_FILE", str(file))
    for read in (load_settings, config.unknown_variables):
        with pytest.raises(ConfigurationError, match=r"\.env: is not UTF-8 text$"):
            read()


def test_secrets_never_show() -> None:
    settings = Settings(
        database_url="postgresql://user:hunter2@host/db",
        redis_url="rediss://user:hunter2@host/0?password=hunter2",
        redis_password="hunter2",
    )
    assert "hunter2" not in repr(settings) + str(settings.model_dump())
    assert masked(settings.database_url) == "postgresql://user:***@host/db"
    assert "hunter2" not in masked(settings.redis_url)
    assert masked(settings.redis_password) == "***"


def test_a_key_in_the_query_of_the_api_s_url_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert masked("https://api.example/x?key=hunter2&page=1#hunter2") == "https://api.example/x?key=***&page=***#***"
    assert masked("postgresql://host/db?sslmode=require&password=hunter2").endswith("?sslmode=require&password=***")
    monkeypatch.setenv("API_URL", "htps://api.example/x?apikey=hunter2")
    with pytest.raises(ConfigurationError, match=r"apikey=\*\*\*'") as refused:
        load_settings()
    assert "hunter2" not in str(refused.value)


def test_one_server_given_and_the_other_missing_is_refused_with_the_way_out() -> None:
    only_postgres = Settings(database_url="postgresql://host/db")
    assert database_url(only_postgres) == "postgresql://host/db"
    with pytest.raises(ConfigurationError, match="DATABASE_URL is set but neither REDIS_URL nor REDIS_HOST is"):
        redis_url(only_postgres)
    with pytest.raises(ConfigurationError, match="REDIS_HOST is set but DATABASE_URL is not"):
        database_url(Settings(redis_host="host"))


def test_the_redis_address_is_put_together_from_its_parts() -> None:
    settings = Settings(redis_host="cache", redis_port=6380, redis_db=2, redis_password="p@ss/word")
    assert redis_url(settings) == "redis://:p%40ss%2Fword@cache:6380/2"


def test_an_ipv6_address_of_redis_is_put_in_brackets() -> None:
    assert redis_url(Settings(redis_host="::1")) == "redis://[::1]:6379/0"
    assert redis_url(Settings(redis_host="[::1]")) == "redis://[::1]:6379/0"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://host/0?bogus=1", "has no option 'bogus'"),
        ("redis+sentinel://host:abc/main", "ports and db must be numbers"),
        ("redis+sentinel://host:1/main?db=x", "ports and db must be numbers"),
        ("rediss://host/0?ssl_cert_reqs=nonsense", "Invalid SSL Certificate Requirements Flag: nonsense"),
    ],
)
def test_an_address_of_redis_that_cannot_be_used_is_one_clear_line(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RedisClient(url)
    assert str(refused.value) == f"REDIS_URL={url!r}: {reason}"


def test_api_sync_is_on_when_there_is_an_api(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().syncs_from_api is False
    monkeypatch.setenv("API_URL", "https://api.example.com/schedules")
    assert load_settings().syncs_from_api is True
    monkeypatch.setenv("ENABLE_API_SYNC", "false")
    assert load_settings().syncs_from_api is False


def test_a_setting_that_cannot_be_obeyed_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().warnings == []
    monkeypatch.setenv("JOB_REPLACE_EXISTING_INSTANCE", "false")
    (warning,) = load_settings().warnings
    assert warning.startswith("JOB_REPLACE_EXISTING_INSTANCE=false has no effect: ")


def test_a_project_without_modules_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_PROJECT", "/srv/shop")
    (warning,) = load_settings().warnings
    assert warning.startswith("JOB_PROJECT=/srv/shop has no effect: JOB_MODULES names no module")
    monkeypatch.setenv("JOB_MODULES", "shop.jobs")
    assert load_settings().warnings == []


def test_the_env_example_is_complete_and_current() -> None:
    assert (PROJECT_ROOT / ".env.example").read_text() == env_example() + "\n"
    assert re.findall(r"^# ([A-Z_]+)=", env_example(), re.MULTILINE) == list(config.knobs())


def test_the_page_of_settings_is_current() -> None:
    page = (PROJECT_ROOT / "docs" / "settings.md").read_text()
    assert page == settings_page() + "\n"
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == list(config.knobs())


def test_every_variable_of_the_environment_example_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    computed = ("INSTANCE_ID", "ENABLE_API_SYNC", "WEB_SECURE_COOKIE")
    lines = [line[2:] for line in env_example().splitlines() if re.match(r"# [A-Z_]+=.", line)]
    file = tmp_path / ".env"
    file.write_text("\n".join(line for line in lines if not line.startswith(computed)))
    monkeypatch.setenv("ENV_FILE", str(file))
    assert load_settings().model_dump(exclude={"instance_id"}) == Settings().model_dump(exclude={"instance_id"})


def test_the_instance_is_named_after_its_process() -> None:
    assert load_settings().instance_id.endswith(f"-{os.getpid()}")


def test_two_long_host_names_that_differ_at_their_end_give_two_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for end in "ab":
        monkeypatch.setattr(socket, "gethostname", lambda end=end: "h" * 62 + end)
        names.add(load_settings().instance_id)
    assert {len(name) for name in names} == {63}
    assert len(names) == 2
