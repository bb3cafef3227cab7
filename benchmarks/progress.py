"""Progress display: a heading per scenario and one line that changes with each step."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


class _Shown:
    status: Status | None = None


@contextmanager
def scenario(name: str, number: int, total: int, about: str) -> Iterator[None]:
    """Written to stderr, so that the results can be piped."""
    out, begun = Console(stderr=True, highlight=False), time.perf_counter()
    out.print(f"\n[{number}/{total}] {name}: {about}", style="cyan", markup=False)
    _Shown.status = out.status("starting servers ...")
    try:
        if sys.stderr.isatty():
            _Shown.status.start()
        yield
    finally:
        _Shown.status.stop()
        _Shown.status = None
    out.print(f"{name}: {time.perf_counter() - begun:.0f} s", style="dim", markup=False)


def doing(words: str) -> None:
    """Show the next step of the scenario; does nothing outside of one."""
    if _Shown.status is None:
        return
    _Shown.status.update(words)
    if not sys.stderr.isatty():
        sys.stderr.write(f"  {words}\n")
        sys.stderr.flush()
