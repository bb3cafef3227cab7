"""Why a module of a user's cannot be imported, with the way out; and which modules have the names of ours."""

import importlib
import sys
import traceback
from pathlib import Path, PurePath
from types import ModuleType

from enhanced_scheduler.application import ROOT
from enhanced_scheduler.containment import contained
from enhanced_scheduler.extras import how_to_install

OUR_NAMES = frozenset({"config", "database", "manage", "migrations", "run_migrations", "services"})
OWN_MODULES = "set JOB_PROJECT to the directory of your project to have its modules"


def why_not_imported(name: str, error: BaseException) -> str:
    path = PurePath(name)
    if len(path.parts) > 1 or path.suffix == ".py":
        return f"name it as `import` does: {path.stem}, and put its directory, {path.parent}, on the PYTHONPATH"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        missing = f"there is no such module {_here()}, on the PYTHONPATH or among the installed packages"
        return f"{missing}{_hidden(error.name)}"
    if isinstance(error, ImportError) and "greenlet" in str(error):  # SQLAlchemy would name its own extra
        return f"sqlalchemy.ext.asyncio needs {how_to_install('async')}"
    return f"{type(error).__name__}: {_with_place(error)}{_hidden(_asked(error))}"


def top(name: str) -> str:
    return name.partition(".")[0]


def is_ours(name: str) -> bool:
    """Does this name mean a module of the application, in this process?"""
    file = getattr(sys.modules.get(top(name)), "__file__", None)
    return top(name) in OUR_NAMES and file is not None and Path(file).is_relative_to(ROOT)


def _here() -> str:
    """Where a user's module is looked for first."""
    here = str(Path.cwd())
    return f"in {here}" if here in sys.path else "beside manage.py"


def _asked(error: BaseException) -> str:
    """The module that has not what was imported from it, or is not there; empty if the error is another one."""
    match error:
        case AttributeError(obj=ModuleType() as module):
            return module.__name__
        case ImportError(name=str() as name):
            return name
        case _:
            return ""


def _hidden(name: str) -> str:
    """A project's own `services` is not found where ours is."""
    if not is_ours(name):
        return ""
    return f"; `{top(name)}` is the scheduler's own here: {OWN_MODULES}"


def _with_place(error: BaseException) -> str:
    """The message, with the file and the line that a person has to look at."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    callers = (f"{Path(__file__).parent}/", contained.__code__.co_filename, importlib.__file__, f"{ROOT / 'services'}/")
    imported = [frame for frame in frames if not frame.filename.startswith(callers)]
    return f"{error} ({imported[-1].filename}, line {imported[-1].lineno})" if imported else str(error)
