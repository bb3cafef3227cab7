"""A project with an interpreter of its own: what it announces, and what happens when it does not answer."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from config import Settings
from database.models import ExecutionStatus
from services.engine.isolation import run_isolated
from services.errors import ConfigurationError, Problem
from services.jobs import JobRegistry, project
from services.jobs.users import load_users_jobs
from tests.support.contexts import a_context
from tests.support.waiting import eventually

SHOP = """
import os, sys, time
from pathlib import Path

import config
from enhanced_scheduler import job
from pydantic import BaseModel, field_validator

Path("pids").open("a").write(f"{os.getpid()}\\n")


class Export(BaseModel):
    format: str

    @field_validator("format")
    @classmethod
    def _known(cls, text):
        if text == "slow":
            time.sleep(600)
        if text not in config.FORMATS:
            raise ValueError("is no format of this shop")
        return text


@job("export", config_model=Export)
def export(context, export):
    return {"format": export.format, "python": sys.executable, "path": sys.path[0]}


@job("long")
def long(context, config):
    Path("long").touch()
    while True:
        time.sleep(60)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "config.py").write_text("FORMATS = ['csv', 'slow']\n")
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def registry_of(shop: Path, **more: Any) -> JobRegistry:
    registry = JobRegistry()
    load_users_jobs(Settings(job_project=shop, job_modules="shop", _env_file=None, **more), registry)
    return registry


def test_a_project_announces_its_job_types_and_checks_their_configurations(shop: Path) -> None:
    registry = registry_of(shop)
    assert registry.job_types() == {"export", "long"}
    assert registry.get("export").where == "shop.export"
    assert registry.check_config("export", {"format": "csv"}) == []
    assert registry.check_config("export", {"format": "pdf"}) == [
        Problem("job_config.format", "is no format of this shop")
    ]
    assert registry.check_config("long", {"anything": 1}) == []


def test_a_handler_runs_in_the_project(shop: Path) -> None:
    registry = registry_of(shop)
    context = a_context("export", job_config={"format": "csv"})
    context.begin()
    kept = run_isolated(registry.get("export"), context, (), 1.0).details["result"]
    assert kept["format"] == "csv"
    assert kept["path"] == str(shop)


def test_a_handler_that_hears_nothing_is_killed_at_its_timeout(shop: Path) -> None:
    registry = registry_of(shop)
    context = a_context("long", timeout_seconds=600.0)
    context.begin()
    assert context._live.begun_at is not None
    context._live.begun_at -= 600  # ten minutes pass
    assert run_isolated(registry.get("long"), context, (), 0.2).status is ExecutionStatus.TIMED_OUT


def test_a_question_without_an_answer_is_refused_in_time_and_the_next_ones_at_once(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedules are saved under row locks."""
    registry = registry_of(shop)
    monkeypatch.setattr(project, "ANSWER_SECONDS", 0.3)
    (problem,) = registry.check_config("export", {"format": "slow"})
    assert problem.reason == "cannot be checked: JOB_PROJECT does not answer at the moment; try again"
    begun = time.monotonic()
    monkeypatch.setattr(project, "ANSWER_SECONDS", 60.0)
    registry.check_config("export", {"format": "csv"})
    assert time.monotonic() - begun < 30, "it does not wait for the next child"
    eventually(lambda: registry.check_config("export", {"format": "csv"}) == [], 30)


def test_a_project_whose_process_was_killed_answers_again(shop: Path) -> None:
    registry = registry_of(shop)
    os.kill(int((shop / "pids").read_text().split()[-1]), signal.SIGKILL)
    eventually(lambda: registry.check_config("export", {"format": "csv"}) == [], 30)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"job_project": Path("/no/such/place")}, "JOB_PROJECT='/no/such/place': there is no such directory"),
        ({"job_project_python": Path("/no/such/python")}, "'/no/such/python': there is no such program"),
        ({"job_project_python": Path("/bin/false")}, "/bin/false has not named the job types of shop"),
        ({"job_modules": "shop, nothing"}, "JOB_MODULES: 'nothing' cannot be imported: there is no such module"),
    ],
)
def test_a_project_that_cannot_be_asked_ends_the_program_with_the_reason(
    shop: Path, settings: dict[str, Any], reason: str
) -> None:
    given = {"job_project": shop, "job_modules": "shop", **settings}
    with pytest.raises(ConfigurationError) as caught:
        load_users_jobs(Settings(**given, _env_file=None), JobRegistry())
    assert reason in str(caught.value)


@pytest.mark.parametrize("option", ["labels=lambda config, profile: ['gpu']", "offers=lambda: ['gpu']"])
def test_labels_and_offers_are_refused_because_no_engine_thread_may_wait_for_another_process(
    shop: Path, option: str
) -> None:
    more = f'\n\n@job("labelled", {option})\ndef labelled(context, config): ...\n'
    (shop / "shop.py").write_text(SHOP + more)
    word = option.partition("=")[0]
    with pytest.raises(ConfigurationError, match=f"job type 'labelled': `{word}` has no effect in JOB_PROJECT"):
        registry_of(shop)
