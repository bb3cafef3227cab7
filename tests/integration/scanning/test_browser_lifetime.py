"""The browser engine from start to end: nothing is left behind, and what is missing is said."""

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config import PROJECT_ROOT, Settings
from services.errors import ConfigurationError
from services.fetching import Guard
from services.scanning.engines.browser import process
from services.scanning.engines.browser_engine import BrowserEngine, browser_engine_from
from services.scanning.findings import PageFailed
from tests.support.browsers import html, new_engine, plenty
from tests.support.scan_site import Answer, WebServer
from tests.support.waiting import eventually

Make = Callable[..., BrowserEngine]


@pytest.fixture
def page(web: WebServer) -> str:
    web.answer("/", html("<p>Hello</p>"))
    return f"{web.url}/"


class Stopped(BaseException):
    """As an execution's own exceptions that end it."""


def profile_of(engine: BrowserEngine) -> Path:
    assert engine._session is not None
    return engine._session._profile.path


def test_closing_leaves_no_process_and_no_file(page: str) -> None:
    before = children()
    engine = new_engine()
    engine.visit(page, plenty)
    profile = profile_of(engine)
    assert len(process.family(profile)) > 2
    engine.close()
    assert children() <= before
    assert process.family(profile) == []
    assert not profile.exists()
    engine.close()


def test_an_execution_that_has_to_stop_stops_a_page_and_leaves_nothing(web: WebServer) -> None:
    arrived = threading.Event()

    def drip() -> Iterator[bytes]:
        arrived.set()
        while True:
            yield b" " * 100_000
            time.sleep(0.1)

    def remaining_seconds() -> float:
        if arrived.is_set():
            raise Stopped
        return 600.0

    web.answer("/", lambda _: Answer(drip()))
    engine = new_engine()
    with pytest.raises(Stopped):
        engine.visit(f"{web.url}/", remaining_seconds)
    profile = profile_of(engine)
    engine.close()
    assert process.family(profile) == []


@pytest.mark.parametrize("asks", [1, 2, 4])  # of a quick start there are not many more
def test_an_execution_that_has_to_stop_while_the_browser_starts_leaves_nothing(page: str, asks: int) -> None:
    before, asked = children(), itertools.count()

    def remaining_seconds() -> float:
        if next(asked) >= asks:
            raise Stopped
        return 600.0

    engine = new_engine()
    with pytest.raises(Stopped):
        engine.visit(page, remaining_seconds)
    engine.close()
    assert children() <= before


def children() -> set[int]:
    return {pid for pid, parent in process._parents() if parent == os.getpid()}


def test_closing_after_a_failed_start_leaves_nothing_either(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PREFIX", "enhanced-scheduler-failed-start-")
    engine = new_engine("button[[")
    with pytest.raises(PageFailed):
        engine.visit(f"{web.url}/", plenty)
    engine.close()
    assert list(Path(tempfile.gettempdir()).glob(f"{process.PREFIX}*")) == []


@pytest.mark.parametrize("victim", ["browser", "driver"])
def test_a_browser_that_was_killed_costs_one_page(page: str, browser: Make, victim: str) -> None:
    """The driver is the program between us and the browser."""
    before, engine = children(), browser()
    engine.visit(page, plenty)
    killed = profile_of(engine)
    for pid in process.family(killed) if victim == "browser" else children() - before:
        process.kill(pid)
    eventually(lambda: process.family(killed) == [], 30)
    with pytest.raises(PageFailed, match="the browser ended unexpectedly") as failure:
        engine.visit(page, plenty)
    assert failure.value.retryable
    assert engine.visit(page, plenty).status_code == 200
    assert not killed.exists()


ORPHAN = """
import sys, time
from tests.support.browsers import new_engine, plenty
from tests.integration.scanning.test_browser_lifetime import profile_of
engine = new_engine()
engine.visit(sys.argv[1], plenty)
print(profile_of(engine), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_a_killed_replica_leaves_no_browser(page: str, kill: Callable[[int, int], None]) -> None:
    """Alone, or with the driver of the browser, which is in its process group."""
    replica = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, page], cwd=PROJECT_ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    with replica:
        assert replica.stdout is not None
        profile = Path(replica.stdout.readline().decode().strip())
        assert len(process.family(profile)) > 2
        kill(replica.pid, signal.SIGKILL)
    eventually(lambda: process.family(profile) == [], 30)

    def is_swept() -> bool:  # the kernel lets go of a killed process's locks in its own time
        process.sweep()
        return not profile.exists()

    eventually(is_swept, 30)


def test_what_a_living_process_uses_is_not_swept(page: str, browser: Make) -> None:
    engine = browser()
    engine.visit(page, plenty)
    process.sweep()
    assert engine.visit(page, plenty).status_code == 200


# --- what is missing -----------------------------------------------------------------------------------------------


def test_a_missing_browser_is_a_failure_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match=r"there is no browser .* `apt-get install chromium`.* SCAN_BROWSER"):
        browser_engine_from(Settings(_env_file=None))


def test_a_browser_that_is_named_must_be_there() -> None:
    with pytest.raises(ConfigurationError, match="looked for SCAN_BROWSER='/nowhere/chromium'"):
        browser_engine_from(Settings(_env_file=None, scan_browser="/nowhere/chromium"))


def test_a_missing_driver_is_a_failure_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError, match=r"pip install -r requirements-browser\.txt"):
        browser_engine_from(Settings(_env_file=None))


def test_a_program_that_is_no_browser_is_a_reason(tmp_path: Path, web: WebServer) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho 'this is no browser' >&2\nexit 1\n")
    program.chmod(0o755)
    engine = BrowserEngine(program, Guard.parse(False, "127.0.0.0/8"))
    with pytest.raises(PageFailed, match="the browser does not start"):
        engine.visit(f"{web.url}/", plenty)
    engine.close()
