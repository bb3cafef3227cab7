"""`manage.py import celery-beat`: what becomes of each entry, and what a second import changes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery.schedules import crontab
from typer.testing import CliRunner, Result

import manage
from services.job_types.celery_apps.beat import schedule_id_of
from services.schedule_repository import ScheduleRepository
from tests.support import celery_beat_app
from tests.support.celery_beat_app import NOT_PORTABLE, PORTABLE

Cli = Callable[..., Result]
TARGET = "tests.support.celery_beat_app:app"


@pytest.fixture
def cli(own_process: dict[str, str]) -> Cli:
    return lambda *more: CliRunner().invoke(manage.app, ["import", "celery-beat", TARGET, *more])


@pytest.fixture
def use_beat(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    return lambda entries: monkeypatch.setitem(celery_beat_app.app.conf, "beat_schedule", entries)


def test_an_entry_becomes_a_schedule_that_calls_its_task_where_the_apps_routes_lead(
    cli: Cli, repository: ScheduleRepository
) -> None:
    result = cli()
    assert result.exit_code == 0, result.output
    assert "5 created, 0 updated, 0 unchanged, 0 refused" in result.stdout
    found = {record.name: record for record in repository.get_all_schedules()}
    assert {record.timezone for record in found.values()} == {"Europe/Berlin"}
    assert {name: (record.frequency, dict(record.time_config)) for name, record in found.items()} == {
        "morning": ("cron", {"expression": "30 7 * * *"}),
        "mail": ("interval", {"seconds": 30}),
        "poll": ("interval", {"seconds": 120}),
        "close": ("cron", {"expression": "0 6 * * 1#1"}),
        "beat": ("interval", {"seconds": 10}),
    }
    plain = {"app": "shop", "args": [], "kwargs": {}}
    assert {name: record.job_config for name, record in found.items()} == {
        "morning": {**plain, "task": "shop.report", "args": [1, ["a"]], "queue": "reports", "expires_seconds": 90},
        "mail": {**plain, "task": "shop.mail.send", "kwargs": {"full": True}, "queue": "mail", "priority": 2},
        "poll": {**plain, "task": "shop.poll", "queue": "io", "expires_seconds": 60},
        "close": {**plain, "task": "shop.close", "queue": "celery"},
        "beat": {**plain, "task": "shop.poll", "queue": "celery"},
    }
    assert "note: beat: option 'retry' is left to our sender" in result.stderr
    assert "CELERY_APPS_SHOP_TASKS=shop.close,shop.mail.send,shop.poll,shop.report" in result.stdout


def test_a_dry_run_writes_nothing(cli: Cli, repository: ScheduleRepository) -> None:
    result = cli("--dry-run")
    assert result.exit_code == 0
    assert "would be: 5 created" in result.stdout
    assert repository.count_schedules() == 0


def test_a_second_import_changes_what_beat_changed_and_nothing_that_is_ours(
    cli: Cli, repository: ScheduleRepository, use_beat: Callable[[dict[str, Any]], None]
) -> None:
    assert cli("--disabled").exit_code == 0
    mail, morning = schedule_id_of("shop", "mail"), schedule_id_of("shop", "morning")
    assert all(not record.enabled for record in repository.get_all_schedules())
    repository.switch_schedules([mail, morning], True, actor="test")
    repository.update_schedule(mail, max_retries=3)
    use_beat({**PORTABLE, "morning": {**PORTABLE["morning"], "schedule": crontab(minute=45, hour=7)}})
    result = cli("--disabled")
    assert result.exit_code == 0
    assert "0 created, 1 updated, 4 unchanged, 0 refused" in result.stdout
    assert repository.find_schedule("morning").time_config == {"expression": "45 7 * * *"}
    assert repository.find_schedule("morning").enabled
    assert (repository.find_schedule("mail").max_retries, repository.find_schedule("mail").enabled) == (3, True)
    use_beat({"mail": PORTABLE["mail"]})
    gone = cli()
    assert "note: poll: no longer in the beat schedule" in gone.stderr
    assert repository.count_schedules() == 5


def test_what_cannot_be_carried_over_is_named_and_then_nothing_is_written(
    cli: Cli, repository: ScheduleRepository, use_beat: Callable[[dict[str, Any]], None]
) -> None:
    use_beat({**PORTABLE, **NOT_PORTABLE})
    result = cli()
    assert result.exit_code == 2
    assert repository.count_schedules() == 0
    named = [line for line in result.stderr.splitlines() if line.startswith("! ")]
    assert named == [
        "! sunset: schedule: solar schedules (sunset) depend on a place; there is nothing like it here",
        "! own class: schedule: tests.support.celery_beat_app.Fortnightly is a class of its own making",
        "! own clock: schedule: its nowfun replaces the clock, which no schedule of ours can do",
        "! both days: schedule: day_of_month=1,15 and day_of_week=1 must both match in Celery; a cron line with both "
        "runs when either matches",
        "! too fast: schedule: every 0.5 s: an interval here is a whole number of seconds",
        "! no JSON: args: datetime datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc) is not JSON",
        "! no JSON: kwargs: dict {1: 2} is not JSON",
        "! later: option 'countdown' cannot be carried over",
        "! later: option 'link' cannot be carried over",
        "! routed: queue: is reached by exchange, routing_key; name the queue itself",
        "! until: expires: must be a number of seconds after the fire, got datetime.datetime(2030, 1, 1, 0, 0, "
        "tzinfo=datetime.timezone.utc)",
    ]
    skipped = cli("--skip-invalid", "--json")
    assert skipped.exit_code == 2
    said = json.loads(skipped.stdout)
    assert (said["created"], said["written"]) == (5, True)
    assert [entry["name"] for entry in said["not_carried_over"]] == list(NOT_PORTABLE)
    assert repository.count_schedules() == 5


def test_a_schedule_of_somebody_else_with_the_same_name_is_left_alone(cli: Cli, repository: ScheduleRepository) -> None:
    stranger = repository.create_schedule(
        domain="mail",
        name="mail",
        frequency="daily",
        time_config={"hour": 1},
        job_type="http_request",
        job_config={"url": "https://example.com"},
    )
    result = cli()
    assert result.exit_code == 2
    assert f"name: 'mail' is already used by schedule {stranger}" in result.stderr
    assert repository.count_schedules() == 1


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("tests.support.celery_beat_app", "app: must be MODULE:app, such as shop.celery:app"),
        ("tests.no_such_module:app", "app: tests.no_such_module:app cannot be loaded: ModuleNotFoundError"),
        ("tests.support.celery_beat_app:PORTABLE", "is a dict, not a Celery app"),
    ],
)
def test_an_app_that_cannot_be_read_is_one_line(own_process: dict[str, str], target: str, reason: str) -> None:
    result = CliRunner().invoke(manage.app, ["import", "celery-beat", target])
    assert result.exit_code == 2
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_without_a_time_zone_by_name_none_is_guessed(
    cli: Cli, repository: ScheduleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(celery_beat_app.app.conf, "timezone", None)
    monkeypatch.setitem(celery_beat_app.app.conf, "enable_utc", False)
    assert "timezone: the app has none by name" in cli().stderr
    assert cli("--timezone", "Europe/Rome").exit_code == 0
    assert repository.find_schedule("morning").timezone == "Europe/Rome"


def test_an_app_of_a_project_with_our_names_is_read_with_its_own_modules(
    own_process: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "config.py": "EVERY = 30.0\n",
        "services/billing.py": "TASK = 'shop.bill'\n",
        "own_names_app.py": """
from celery import Celery
import config
from services.billing import TASK

app = Celery("shop", broker="memory://")
app.conf.timezone = "UTC"
app.conf.beat_schedule = {"bills": {"task": TASK, "schedule": config.EVERY}}
""",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    before, path = {name: sys.modules[name] for name in ("config", "services", "services.errors")}, sys.path[:]
    result = CliRunner().invoke(manage.app, ["import", "celery-beat", "own_names_app:app", "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["created"], "CELERY_APPS_SHOP_TASKS=shop.bill" in said["environment"]) == (1, True), said
    assert {name: sys.modules[name] for name in before} == before, "ours are back"
    assert sys.path == path
    assert "services.billing" not in sys.modules
