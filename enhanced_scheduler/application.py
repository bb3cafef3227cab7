"""Where the application is, and how one of its programs is started in a process of its own.

Its modules are called `services`, `database` and `config`, as they are in many programs. They are found by these names
only in processes that this module starts, whose search path begins with the application's directory. In the wheel that
is a private directory inside this package; in a checkout it is the checkout.

`python -P …/enhanced_scheduler/application.py PROGRAM [ARGUMENT …]` runs a program, such as manage.py.
"""

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PRIVATE = Path(__file__).resolve().parent / "_application"
ROOT = PRIVATE if PRIVATE.is_dir() else PRIVATE.parent.parent
PR_SET_PDEATHSIG = 1
DIES_WITH = "--dies-with="  # the number of the process whose end ends the program, too: by SIGTERM, so it drains


def command(program: str, *arguments: str, python: str = sys.executable, dies_with: int | None = None) -> list[str]:
    """For subprocess; `-P` keeps the working directory and this package's directory off the search path."""
    tie = [] if dies_with is None else [f"{DIES_WITH}{dies_with}"]
    return [python, "-P", str(Path(__file__).resolve()), *tie, program, *arguments]


def run(program: str, arguments: Sequence[str]) -> None:
    """In this process, which belongs to the application from now on. Modules of users' are found in the directory in
    which it was started, after everything else.
    """
    script = ROOT / program
    beside = Path(__file__).resolve().parent.parent
    entries = [str(ROOT), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    missing = [str(place) for place in (beside, Path.cwd()) if str(place) not in entries]
    sys.path[:] = entries + missing
    sys.argv[:] = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")


def main() -> None:
    """The command `enhanced-scheduler`: what manage.py is in a checkout."""
    if not sys.flags.safe_path:
        del sys.path[0]  # the directory of the command, or with `-m` the working directory
    run("manage.py", sys.argv[1:])


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given and given[0].startswith(DIES_WITH):
        _die_with(int(given.pop(0).removeprefix(DIES_WITH)))
    run(given[0], given[1:])
