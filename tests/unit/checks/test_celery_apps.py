"""CELERY_APPS_<NAME>_…: which apps there are, and what is wrong with a variable, without its value."""

import pytest

from config import environment_secret, get_settings, load_settings, masked
from services.checks.celery_apps import CeleryApp, read_celery_apps
from services.errors import ConfigurationError

URL = "redis://:s3cret@broker:6379/3"


def test_an_app_has_a_broker_and_the_tasks_that_jobs_may_call() -> None:
    given = {"CELERY_APPS_SHOP_EU_BROKER_URL": URL, "CELERY_APPS_SHOP_EU_TASKS": "shop.mail.*, shop.close", "PATH": "/"}
    apps, problems = read_celery_apps(given)
    assert problems == []
    assert apps == {"shop_eu": CeleryApp("shop_eu", URL, ("shop.mail.*", "shop.close"))}
    assert apps["shop_eu"].refusal("shop.mail.send") is None
    assert apps["shop_eu"].refusal("shop.close_account") is not None
    assert "s3cret" not in repr(apps)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"CELERY_APPS_SHOP_BROKER_URL": URL}, "CELERY_APPS_SHOP_TASKS is not: name the tasks"),
        ({"CELERY_APPS_SHOP_TASKS": "*"}, "CELERY_APPS_SHOP_BROKER_URL is not"),
        ({"CELERY_APPS_SHOP_BROKR_URL": URL}, "CELERY_APPS_SHOP_BROKR_URL: must be named"),
        ({"CELERY_APPS_1_BROKER_URL": URL}, "CELERY_APPS_1_BROKER_URL: must be named"),
        ({"CELERY_APPS_SHOP_BROKER_URL": "sqs://s3cret", "CELERY_APPS_SHOP_TASKS": "*"}, "must start with redis://"),
        (
            {"CELERY_APPS_SHOP_BROKER_URL": "redis://:p/s3cret@broker/0", "CELERY_APPS_SHOP_TASKS": "*"},
            "CELERY_APPS_SHOP_BROKER_URL: is not a valid address",
        ),
        ({"CELERY_APPS_SHOP_BROKER_URL": URL, "CELERY_APPS_SHOP_TASKS": " , "}, "names no task"),
    ],
)
def test_a_program_does_not_start_with_half_an_app(
    given: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENV_FILE", "")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert problem in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_jobs_cannot_read_a_broker_as_a_secret_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENV_FILE", "")
    monkeypatch.setenv("CELERY_APPS_SHOP_BROKER_URL", URL)
    monkeypatch.setenv("CELERY_APPS_SHOP_TASKS", "*")
    assert environment_secret("CELERY_APPS_SHOP_BROKER_URL") is None
    monkeypatch.setenv("JOB_SECRETS", "CELERY_APPS_SHOP_BROKER_URL")
    with pytest.raises(ConfigurationError, match="jobs cannot read it"):
        load_settings()
    get_settings.cache_clear()


def test_a_broker_is_shown_without_its_password() -> None:
    assert masked(URL) == "redis://:***@broker:6379/3"
