"""Projects that have modules with the names of ours: which module got the wrong one, and how to load the right one."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType

from enhanced_scheduler.application import ROOT
from enhanced_scheduler.imports import OUR_NAMES, OWN_MODULES, is_ours, top


@contextmanager
def project_first(directory: Path) -> Iterator[None]:
    """Imports find the project's modules; those of ours with the same names are away meanwhile, and come back.

    For a command that reads something of the project and needs none of its modules later. Handlers get a process.
    """
    away = {name for name in OUR_NAMES if is_ours(name) and _has_its_own(directory, name)}
    path, ours = sys.path[:], _loaded(away)
    _forget(ours)
    sys.path[:] = [str(directory), *(entry for entry in path if not away or entry != str(ROOT))]
    try:
        yield
    finally:
        _forget(_loaded(away))
        sys.modules.update(ours)
        sys.path[:] = path


def _loaded(names: set[str]) -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if top(name) in names}


def _forget(modules: Iterable[str]) -> None:
    for name in modules:
        del sys.modules[name]


def mistaken(names: Iterable[str]) -> Iterator[str]:
    """Modules that got a module of ours, and stand beside one of the same name: `import config`, with a config.py."""
    for module in map(sys.modules.__getitem__, names):
        directory = _search_path_entry(module)
        for name in sorted({top(origin) for origin in map(_origin, vars(module).values()) if is_ours(origin)}):
            if _has_its_own(directory, name):
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


def _has_its_own(directory: Path, name: str) -> bool:
    return directory != ROOT and ((directory / f"{name}.py").is_file() or (directory / name).is_dir())
