"""Which handler runs a job type, and what its configuration may say."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

import services
from enhanced_scheduler.calling import call_handler
from enhanced_scheduler.imports import OWN_MODULES
from services.errors import ConfigurationError, Problem, UnknownJobType
from services.jobs import BUILT_IN_JOB_TYPES, ExecutionContext, JobRegistry, default_registry
from tests.support.contexts import a_context

OURS = f"; `services` is the scheduler's own here: {OWN_MODULES}"


class Inner(BaseModel):
    port: int = Field(ge=1)


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    host: str
    inner: Inner | None = None


@pytest.fixture
def registry() -> JobRegistry:
    registry = JobRegistry(BUILT_IN_JOB_TYPES)

    @registry.job("fetch", config_model=Config, isolation="process")
    def fetch(context: ExecutionContext, config: Config) -> Mapping[str, Any]:
        return {"host": config.host}

    return registry


def test_a_registered_handler_is_found_with_its_facts(registry: JobRegistry) -> None:
    definition = registry.get("fetch")
    assert (definition.name, definition.config_model, definition.isolation) == ("fetch", Config, "process")


def test_an_unknown_type_is_named_with_the_known_ones(registry: JobRegistry) -> None:
    with pytest.raises(UnknownJobType) as caught:
        registry.get("ftp_fetch")
    assert str(caught.value) == (
        "no job type 'ftp_fetch' is registered (known: celery_task, cookie_scan, fetch, http_request, workflow)"
    )


def test_built_in_names_stay_known(registry: JobRegistry) -> None:
    assert registry.job_types() == BUILT_IN_JOB_TYPES | {"fetch"}
    assert default_registry.job_types() >= BUILT_IN_JOB_TYPES


def test_a_module_whose_job_is_refused_is_named_with_its_own_line(modules: Path) -> None:
    file = modules / "yielding.py"
    file.write_text("from services.jobs import job\n@job('pages')\ndef pages(context, config):\n    yield 1\n")
    with pytest.raises(ConfigurationError, match="write it without `yield`") as refused:
        default_registry.load_modules("yielding")
    assert str(refused.value).endswith(f"({file}, line 2)")


def test_a_built_in_handler_is_imported_when_its_type_is_first_asked_for(modules: Path) -> None:
    (modules / "shop_handlers.py").write_text(
        "from services.jobs import job\n@job('restock')\ndef run(context, config): ...\n"
    )
    default_registry._unloaded["restock"] = "shop_handlers"
    assert "restock" in default_registry.handled()
    assert "shop_handlers" not in sys.modules
    assert default_registry.get("restock").handler.__module__ == "shop_handlers"


def test_a_users_handler_cannot_take_the_name_of_a_built_in_one() -> None:
    registry = JobRegistry(modules={"http_request": "services.job_types.http_request"})
    with pytest.raises(ConfigurationError, match=r"registered twice: by services\.job_types\.http_request and by "):
        registry.job("http_request")(lambda context, config: None)


@pytest.mark.parametrize("job_type", ["cookie_scan", "workflow"])
def test_a_built_in_type_without_handler_fails_for_good_and_says_so(job_type: str) -> None:
    registry = JobRegistry(BUILT_IN_JOB_TYPES)
    assert registry.check_config(job_type, {"anything": 1}) == []
    result = call_handler(registry.get(job_type), a_context(job_type))
    assert result.error_message == f"job type {job_type!r} has no handler in this version"
    assert not result.retryable


def test_an_execution_of_an_unknown_type_fails_for_good(registry: JobRegistry) -> None:
    result = call_handler(registry.get_or_refusal("ftp"), a_context("ftp"))
    assert "no job type 'ftp' is registered" in str(result.error_message)
    assert not result.retryable


@pytest.mark.parametrize(
    ("job_config", "problems"),
    [
        ({"host": "a"}, []),
        ({"host": "a", "isolation": "thread"}, []),
        ({}, [Problem("job_config.host", "is required")]),
        ({"host": "a", "hots": 1}, [Problem("job_config.hots", "is not a field of this job")]),
        (
            {"host": 1, "inner": {"port": 0}},
            [
                Problem("job_config.host", "input should be a valid string"),
                Problem("job_config.inner.port", "input should be greater than or equal to 1"),
            ],
        ),
        (
            {"host": "a", "isolation": "vm"},
            [Problem("job_config.isolation", "must be 'thread' or 'process', got 'vm'")],
        ),
        (
            {"host": "a", "isolation": ["process"]},
            [Problem("job_config.isolation", "must be 'thread' or 'process', got ['process']")],
        ),
    ],
)
def test_every_problem_of_a_configuration_is_found(
    registry: JobRegistry, job_config: dict[str, Any], problems: list[Problem]
) -> None:
    assert registry.check_config("fetch", job_config) == problems


def test_the_configuration_can_choose_the_isolation(registry: JobRegistry) -> None:
    definition = registry.get("fetch")
    assert definition.isolation_of({}) == "process"
    assert definition.isolation_of({"isolation": "thread"}) == "thread"


def test_without_a_model_the_handler_is_given_the_plain_configuration() -> None:
    registry = JobRegistry()
    registry.job("plain")(lambda _context, config: {"config": config})
    context = a_context("plain", job_config={"a": 1, "isolation": "thread"})
    assert call_handler(registry.get("plain"), context).details == {"result": {"config": {"a": 1}}}


def test_two_handlers_under_one_name_are_an_error(registry: JobRegistry) -> None:
    def other(context: ExecutionContext, config: Config) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'fetch' is registered twice: by .*fetch and by .*other"):
        registry.job("fetch")(other)


def test_an_async_handler_runs_in_the_event_loop_unless_it_asks_for_a_process(registry: JobRegistry) -> None:
    @registry.job("later")
    async def later(context: ExecutionContext, config: Any) -> dict[str, bool]:
        return {"ran": True}

    registry.job("apart", isolation="process")(later)
    assert registry.async_types() == {"later"}
    assert [registry.is_async("later", config) for config in ({}, {"isolation": "process"})] == [True, False]
    assert not registry.is_async("fetch", {})
    assert call_handler(registry.get("later"), a_context("later")).details == {"result": {"ran": True}}


def test_a_generator_function_is_refused(registry: JobRegistry) -> None:
    async def pages(context: ExecutionContext, config: Any) -> Any:
        yield 1

    def rows(context: ExecutionContext, config: Any) -> Any:
        yield 1

    for handler in (pages, rows):
        with pytest.raises(ConfigurationError, match="is a generator function; write it without `yield`"):
            registry.job("later")(handler)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(default_registry, "_modules", [])
    monkeypatch.setattr(default_registry, "_definitions", {})
    monkeypatch.setattr(default_registry, "_unloaded", {})
    return tmp_path


def test_users_modules_register_their_handlers_also_when_loaded_twice(modules: Path) -> None:
    source = "from services.jobs import job\n@job('{0}')\ndef run(context, config): ...\n"
    for name in ("users_one", "users_two"):
        (modules / f"{name}.py").write_text(source.format(name))
    default_registry.load_modules(" users_one, users_two ,")
    del sys.modules["users_one"]
    default_registry.load_modules("users_one")
    assert {"users_one", "users_two"} <= default_registry.job_types()
    assert default_registry.modules.count("users_one") == 1


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (None, "there is no such module in HERE, on the PYTHONPATH or among the installed packages"),
        ("import services.x", f"ModuleNotFoundError: No module named 'services.x' (FILE, line 1){OURS}"),
        ("from services import x", f"ImportError: cannot import name 'x' from 'services' (PLACE) (FILE, line 1){OURS}"),
        ("import services\nservices.x", f"AttributeError: module 'services' has no attribute 'x' (FILE, line 2){OURS}"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing' (FILE, line 1)"),
        ("\n1 / 0", "ZeroDivisionError: division by zero (FILE, line 2)"),
        ("raise SystemExit(1)", "SystemExit: 1 (FILE, line 1)"),
        ("\n\nimport (", "SyntaxError: invalid syntax (FILE, line 3)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_cause(
    modules: Path, source: str | None, cause: str
) -> None:
    if source is not None:
        (modules / "users_broken.py").write_text(source)
    with pytest.raises(ConfigurationError) as caught:
        JobRegistry().load_modules("users_broken")
    places = {"FILE": modules / "users_broken.py", "HERE": Path.cwd(), "PLACE": services.__file__}
    cause = re.sub("FILE|HERE|PLACE", lambda found: str(places[found[0]]), cause)
    assert str(caught.value) == f"JOB_MODULES: 'users_broken' cannot be imported: {cause}"


def test_a_path_instead_of_a_module_is_told_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match="as `import` does: my_jobs, and put its directory, /srv/jobs, on the"):
        JobRegistry().load_modules("/srv/jobs/my_jobs.py")


def test_nothing_is_loaded_when_nothing_is_named() -> None:
    registry = JobRegistry()
    registry.load_modules("")
    assert registry.modules == ()
