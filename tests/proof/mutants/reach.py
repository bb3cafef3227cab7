"""A pytest plugin that writes down which test reaches which line: `-p tests.proof.mutants.reach --reach=FILE`.

A mutant can only be noticed by a test that reaches it, so a drawn mutant is judged by these tests, the quickest first.
"""

import json
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class Tracer:
    def __init__(self, root: Path) -> None:
        self._root = f"{root}/"
        self._services = f"{root / 'services'}/"
        self.test = ""
        self.reached: dict[str, dict[int, set[str]]] = {}

    def calls(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._lines if frame.f_code.co_filename.startswith(self._services) else None

    def _lines(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line" and self.test:
            path = frame.f_code.co_filename.removeprefix(self._root)
            self.reached.setdefault(path, {}).setdefault(frame.f_lineno, set()).add(self.test)
        return self._lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach", type=Path, help="where to write which test reaches which line")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--reach"):
        config.pluginmanager.register(_Plugin(Tracer(config.rootpath), config.getoption("--reach")))


class _Plugin:
    def __init__(self, tracer: Tracer, file: Path) -> None:
        self._tracer, self._file = tracer, file

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        self._tracer.test = item.nodeid
        threading.settrace(self._tracer.calls)
        sys.settrace(self._tracer.calls)
        yield
        sys.settrace(None)
        threading.settrace(None)
        self._tracer.test = ""

    def pytest_sessionfinish(self) -> None:
        found = self._tracer.reached.items()
        lines = {path: {line: sorted(tests) for line, tests in lines.items()} for path, lines in found}
        self._file.write_text(json.dumps(lines))
