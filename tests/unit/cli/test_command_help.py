"""What manage.py says about itself: help, version, job types, and what the Tab key finds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner, Result

import manage
import run_migrations
from config import PROJECT_ROOT, VERSION
from services.cli.jobs import markdown_tables
from services.cli.lazy import Later, lazy
from services.cli.schedules import OTHER_FILES
from services.jobs import BUILT_IN_JOB_TYPES, JobRegistry, default_registry
from services.jobs.schema import JobField, fields_of, summary


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(manage.app, list(arguments), env={"COLUMNS": "120"})


@pytest.mark.parametrize("command", [[], ["schedule"], ["schedule", "list"], ["doctor"], ["scans", "export"]])
def test_help_shows_a_switch_as_a_switch(command: list[str]) -> None:
    said = cli(*command, "--help").stdout
    assert "--help" in said
    assert "<bool>" not in said


def test_so_does_the_help_of_the_migrations() -> None:
    said = CliRunner().invoke(run_migrations.app, ["--help"], env={"COLUMNS": "120"}).stdout
    assert "--status" in said
    assert "<bool>" not in said


def test_the_version_is_told() -> None:
    said = cli("--version")
    assert (said.exit_code, said.stdout.split(" (")[0]) == (0, f"enhanced-scheduler {VERSION}")


@pytest.mark.parametrize("listed", [*manage.COMMANDS, *OTHER_FILES.later], ids=lambda listed: listed.name)
def test_the_list_of_commands_says_what_the_command_says(listed: Later) -> None:
    group = lazy(listed)(name="manage.py")
    _, command, _ = group.resolve_command(typer.Context(group), [listed.name])
    assert listed.help == " ".join(command.help.partition("\n\n")[0].split())


# --- what a command loads ---

LOADED = """
import contextlib, io, sys
import manage
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    manage.app()
print(*sys.modules, sep="\\n")
"""
DATABASE = {"sqlalchemy", "psycopg2", "pydantic_settings", "config", "database"}
SERVERS = {"redis", "apscheduler", "prometheus_client", "services.engine", "services.enhanced_scheduler"}
WEB = {"fastapi", "starlette", "nicegui", "uvicorn", "services.web"}
SITES = {"requests", "urllib3", "lxml", "defusedxml", "playwright", "phonenumbers", "services.workflows"}


def loaded_by(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", LOADED, *arguments]
    return set(subprocess.check_output(command, cwd=PROJECT_ROOT, text=True).split())


@pytest.mark.parametrize("arguments", [["--help"], ["--no-such-option"], ["no-such-command"]])
def test_the_list_of_commands_loads_none_of_them(arguments: list[str]) -> None:
    loaded = loaded_by(*arguments)
    assert not loaded & (DATABASE | SERVERS | WEB | SITES)
    assert {name for name in loaded if name.startswith("services.cli.")} == {
        "services.cli.lazy",
        "services.cli.output",
        "services.cli.version",
    }


@pytest.mark.parametrize("command", ["schedule list", "schedule run", "audit", "web"])
def test_a_command_loads_what_it_needs_and_nothing_of_others(command: str) -> None:
    assert not loaded_by(*command.split(), "--help") & (SERVERS | WEB | SITES)


# --- job types ---


def test_all_job_types_are_listed_with_what_they_do() -> None:
    lines = cli("jobs").stdout.splitlines()
    assert {line.split()[0] for line in lines if line} >= BUILT_IN_JOB_TYPES  # other tests register theirs
    assert any(re.match(r"http_request +Call a URL", line) for line in lines)


def test_a_job_type_shows_every_field_of_its_configuration() -> None:
    said = cli("jobs", "http_request").stdout
    for name in ("url", "method", "headers", "json", "body", "timeout_seconds", "expected_status", "follow_redirects"):
        assert re.search(rf"^{name} ", said, re.MULTILINE), name
    assert re.search(r"^isolation +thread, process +\"thread\"", said, re.MULTILINE)


def test_a_job_type_as_json_is_a_schema() -> None:
    found = json.loads(cli("jobs", "cookie_scan", "--json").stdout)
    assert found["job_config"]["properties"]["max_pages"]["maximum"] == 10_000
    assert {item["job_type"] for item in json.loads(cli("jobs", "--json").stdout)} >= BUILT_IN_JOB_TYPES


def test_an_unknown_job_type_is_named_with_those_that_there_are() -> None:
    said = cli("jobs", "ftp_fetch")
    assert (said.exit_code, said.stdout) == (2, "")
    assert said.stderr.startswith("type: no job type 'ftp_fetch' is registered (known: celery_task")


def test_every_field_of_the_built_in_types_says_what_it_is_for() -> None:
    for name in BUILT_IN_JOB_TYPES:
        definition = default_registry.get(name)
        assert summary(definition)
        assert [field.name for field in fields_of(definition) if not field.description or field.kind == "any JSON"] in (
            [],
            ["json"],
        )


def test_a_users_own_model_is_shown_as_it_is_written() -> None:
    class Report(BaseModel):
        customer: str = Field(description="whose report")
        pages: list[int] = Field(default_factory=list)
        share: float = Field(0.5, gt=0, le=1)

    registry = JobRegistry()

    @registry.job("report", config_model=Report, isolation="process")
    def report(context: Any, config: Report) -> None:
        """Make a report.

        And more.
        """

    definition = registry.get("report")
    assert summary(definition) == "Make a report."
    assert fields_of(definition)[:3] == [
        JobField("customer", "text", True, "", "whose report"),
        JobField("pages", "list of whole number", False, "", ""),
        JobField("share", "number (above 0, at most 1)", False, "0.5", ""),
    ]
    assert fields_of(definition)[3].default == '"process"'


def test_the_tables_of_the_documentation_are_those_of_the_models() -> None:
    text = (PROJECT_ROOT / "docs" / "jobs.md").read_text()
    assert text.split("<!-- jobs -->\n")[1].split("\n<!-- /jobs -->")[0] == markdown_tables()


# --- the Tab key ---


def pressed_tab(tmp_path: Path, line: str) -> set[str]:
    """What bash offers behind these words."""
    script = tmp_path / "completion.bash"
    script.write_text(cli("completion", "bash").stdout)
    words = line.split(" ")
    program = f"""source {script}
        COMP_WORDS=({" ".join(word or "''" for word in words)}); COMP_CWORD={len(words) - 1}
        _manage_py; printf '%s\\n' "${{COMPREPLY[@]}}" """
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    found = subprocess.run(
        ["bash", "-c", program], cwd=PROJECT_ROOT, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert found.stderr == ""
    return set(found.stdout.split())


def test_the_tab_key_completes_commands_and_options(tmp_path: Path) -> None:
    assert pressed_tab(tmp_path, "python manage.py sche") == {"schedule"}
    assert {"dev", "audit", "token"} <= pressed_tab(tmp_path, "python manage.py ")
    assert {"list", "add", "run"} <= pressed_tab(tmp_path, "python ./manage.py schedule ")
    assert pressed_tab(tmp_path, "python manage.py schedule list --js") == {"--json"}
    assert pressed_tab(tmp_path, "python manage.py schedule run --wa") == {"--wait"}
    assert pressed_tab(tmp_path, "python manage.py audit --si") == {"--since"}


def test_the_tab_key_leaves_other_programs_of_python_to_the_shell(tmp_path: Path) -> None:
    program, ran = tmp_path / "other.py", tmp_path / "ran"
    program.write_text(f"open({str(ran)!r}, 'w')")
    assert pressed_tab(tmp_path, f"python {program} sche") == set()
    assert not ran.exists(), "nobody wants a program started by the Tab key"
