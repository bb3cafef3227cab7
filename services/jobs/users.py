"""The users' own job types: modules of this interpreter (JOB_MODULES), or of a project with its own (JOB_PROJECT)."""

import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

from config import Settings
from enhanced_scheduler.application import ROOT
from enhanced_scheduler.imports import OWN_MODULES, is_ours, top
from services.jobs.project import JobProject, ask_again, jobs_of
from services.jobs.registry import JobRegistry, default_registry

logger = logging.getLogger(__name__)


def load_users_jobs(settings: Settings, registry: JobRegistry = default_registry) -> None:
    """Register them; raises ConfigurationError with the reason when a module cannot be imported."""
    project = JobProject.from_settings(settings)
    if project is None:
        registry.load_modules(settings.job_modules)
        for mistake in mistaken(registry.modules):
            logger.warning("%s", mistake, extra={"event": "job_module_uses_ours"})
        return
    for definition in jobs_of(project):
        registry.register(definition)


def ask_project_again(settings: Settings, registry: JobRegistry = default_registry) -> None:
    """The project's code has changed. If it cannot be imported: raises ConfigurationError and keeps what it knows."""
    project = JobProject.from_settings(settings)
    if project is None:
        return
    former, present = jobs_of(project), ask_again(project)
    for definition in former:
        registry.forget(definition.name)
    for definition in present:
        registry.register(definition)


def mistaken(names: Iterable[str]) -> Iterator[str]:
    """Modules that got a module of ours, and stand beside one of the same name: `import config`, with a config.py."""
    for module in map(sys.modules.__getitem__, names):
        directory = _search_path_entry(module)
        for name in sorted({top(origin) for origin in map(_origin, vars(module).values()) if is_ours(origin)}):
            if directory != ROOT and _has(directory, name):
                yield (
                    f"JOB_MODULES: {module.__name__!r} uses the scheduler's own `{name}`, not the one in {directory}: "
                    f"{OWN_MODULES}"
                )


def _search_path_entry(module: ModuleType) -> Path:
    is_package = hasattr(module, "__path__")
    return Path(module.__file__ or ".").resolve().parents[module.__name__.count(".") + is_package]


def _origin(value: object) -> str:
    """Empty for what is no module, class or function: a proxy of a framework may resent every question."""
    if not issubclass(type(value), ModuleType | FunctionType | type):
        return ""
    return str(vars(value).get("__name__", "") if issubclass(type(value), ModuleType) else value.__module__)


def _has(directory: Path, name: str) -> bool:
    return (directory / f"{name}.py").is_file() or (directory / name).is_dir()
