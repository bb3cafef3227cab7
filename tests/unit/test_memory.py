"""Where a test run keeps its data (tests/support/memory.py)."""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from config import PROJECT_ROOT
from tests.support import memory


def run(basetemp: str | None) -> pytest.Config:
    """Its configuration, as far as it counts here."""
    return cast(pytest.Config, SimpleNamespace(option=argparse.Namespace(basetemp=basetemp), stash=pytest.Stash()))


@pytest.fixture
def plenty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "MEMORY", tmp_path)
    monkeypatch.setattr(memory, "ENOUGH_BYTES", 1)
    return tmp_path


def test_all_processes_of_a_run_share_a_directory_that_is_gone_after_it(plenty: Path) -> None:
    first = run(None)
    memory.use_memory(first)
    worker = run(f"{first.option.basetemp}/popen-gw0")
    memory.use_memory(worker)
    servers = memory.servers_directory(first)
    assert memory.servers_directory(worker) == servers
    assert servers.is_relative_to(plenty)
    servers.mkdir()
    memory.leave_memory(worker)
    assert servers.exists()
    memory.leave_memory(first)
    assert list(plenty.iterdir()) == []


def test_a_directory_that_was_asked_for_is_used_and_kept(plenty: Path) -> None:
    asked = run(str(plenty / "mine"))
    memory.use_memory(asked)
    (plenty / "mine").mkdir()
    memory.leave_memory(asked)
    assert (plenty / "mine").exists()


@pytest.mark.parametrize(("place", "bytes_needed"), [("/dev/missing", 1), ("/", 1024**6)])
def test_without_room_the_data_is_on_the_disk(monkeypatch: pytest.MonkeyPatch, place: str, bytes_needed: int) -> None:
    monkeypatch.setattr(memory, "MEMORY", Path(place))
    monkeypatch.setattr(memory, "ENOUGH_BYTES", bytes_needed)
    config = run(None)
    memory.use_memory(config)
    assert config.option.basetemp is None
    assert memory.servers_directory(config) == PROJECT_ROOT / ".embedded" / "tests"
