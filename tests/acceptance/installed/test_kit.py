"""A project's own tests, with the pytest plugin that the wheel brings. Embedded servers, a real replica."""

from pathlib import Path

from tests.support.installed import Installed

# scope="module": the environment is made once
FILES = {
    "services/__init__.py": "VAT = 19\n",
    "shop_jobs.py": """
from enhanced_scheduler import JobFailed, job

import services


@job("note")
def note(context, config):
    with open("calls", "a") as calls:
        print(context.scheduled_for.isoformat(), context.attempt, file=calls)


@job("third_time")
def third_time(context, config):
    if context.attempt < 3:
        raise JobFailed("not yet")


@job("vat")
def vat(context, config):
    context.log("adding")
    return {"vat": config["net"] * services.VAT / 100}
""",
    "test_shop.py": """
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from enhanced_scheduler.testing import ClockStands, fires_between, run_job
from shop_jobs import vat


def test_alone():
    assert run_job(vat, {"net": 100}).result == {"vat": 19.0}


def test_by_a_replica(scheduler):
    done = scheduler.run("vat", {"net": 200}, max_retries=0)
    assert done["details"]["result"] == {"vat": 38.0}


def test_every_fire_of_an_hour_runs_once_at_its_own_instant(scheduler):
    scheduler.add("notes", "every 10m", "note")
    begun = scheduler.clock.now()
    ended = scheduler.clock.move(hours=1)
    assert timedelta(hours=1) <= scheduler.clock.now() - begun < timedelta(hours=2)
    fires = fires_between("every 10m", begun, begun + timedelta(hours=1))
    assert [(each["scheduled_for"], each["status"]) for each in ended] == [(fire, "success") for fire in fires]
    assert Path("calls").read_text().splitlines() == [f"{fire.isoformat()} 1" for fire in fires]
    assert len(scheduler.executions("notes")) == len(fires) == 6


def test_retries_come_when_their_backoff_is_over(scheduler):
    scheduler.add("third", "daily 12:00", "third_time", max_retries=5, retry_backoff_seconds=600)
    ended = scheduler.clock.move(days=1)
    assert [(each["attempt"], each["status"]) for each in ended] == [(1, "failed"), (2, "failed"), (3, "success")]


@pytest.mark.parametrize("night", ["2027-03-28", "2027-10-31"])
def test_a_night_with_a_clock_change_fires_as_foretold(scheduler, night):
    timing = {"when": "daily 02:30", "timezone": "Europe/Berlin"}
    midnight = datetime.fromisoformat(night).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    scheduler.clock.move_to(midnight - timedelta(days=1))
    scheduler.add(night, timing["when"], "note", timezone=timing["timezone"])
    begun = scheduler.clock.now()
    ended = scheduler.clock.move_to(midnight + timedelta(days=2))
    assert [each["scheduled_for"] for each in ended] == fires_between(timing, begun, midnight + timedelta(days=2))
    assert [each["scheduled_for"].strftime("%H:%M") for each in ended] == {
        "2027-03-28": ["01:30", "01:00", "00:30"],
        "2027-10-31": ["00:30", "00:30", "01:30"],
    }[night]
    assert {each["status"] for each in ended} == {"success"}


def test_a_clock_that_waits_for_a_job_says_for_which(scheduler):
    scheduler.add("nobody", "every 1h", "vat", requires=["gpu"], misfire_grace_seconds=3600)
    with pytest.raises(ClockStands, match="has waited 1 s for nobody [(]pending"):
        scheduler.clock.move(hours=2, patience_seconds=1)
    with pytest.raises(ValueError, match="forward only"):
        scheduler.clock.move_to(datetime(2026, 1, 1, tzinfo=UTC))
""",
    "pytest.ini": "[pytest]\nscheduler_modules = shop_jobs\npythonpath = .\n",
}


def test_a_project_tests_its_jobs_alone_and_with_a_replica(installed: Installed, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = installed.run(installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "7 passed" in done.stdout, done.stdout + done.stderr
    called = installed.scheduler("job", "run", "vat", "--config", '{"net": 50}', "--json", cwd=tmp_path,
                                 environment={"JOB_MODULES": "shop_jobs", "JOB_PROJECT": "."})  # fmt: skip
    assert '"vat": 9.5' in called.stdout
    assert not (tmp_path / ".embedded").exists(), "neither a schedule nor a server is needed"
