"""Which files count, and when a save is over."""

from pathlib import Path
from threading import Thread

import pytest

from services.cli import source_files
from services.cli.source_files import SourceFiles
from services.errors import ConfigurationError


def write(root: Path, name: str, text: str = "") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_modules_count_and_environments_caches_and_hidden_directories_do_not(tmp_path: Path) -> None:
    files = SourceFiles(tmp_path, [tmp_path / ".env"])
    files.learn()
    for name in (
        "env/pyvenv.cfg",
        "env/lib/a.py",
        ".git/hook.py",
        "__pycache__/b.py",
        "node_modules/c.py",
        "notes.txt",
    ):
        write(tmp_path, name)
    assert files.changes() == []
    for name in ("shop/jobs.py", "services/billing.py", ".env"):
        write(tmp_path, name)
    assert files.changes() == [".env", "services/billing.py", "shop/jobs.py"]
    assert files.changes() == []
    (tmp_path / "shop" / "jobs.py").unlink()
    assert files.changes() == ["shop/jobs.py"]


def test_many_writes_in_a_row_are_one_change(tmp_path: Path) -> None:
    files = SourceFiles(tmp_path)
    files.learn()

    def check_out() -> None:
        for number in range(200):
            write(tmp_path, f"package_{number % 7}/module_{number}.py", "x = 1\n")

    writer = Thread(target=check_out)
    writer.start()
    while not (changed := files.changes()):
        pass
    writer.join()
    assert len(changed) == 200
    assert files.changes() == []


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path, "package/module.py")
    (tmp_path / "package" / "again").symlink_to(tmp_path, target_is_directory=True)
    files = SourceFiles(tmp_path)
    files.learn()
    assert len(files) == 1


def test_a_directory_that_is_no_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_FILES", 2)
    for number in range(3):
        write(tmp_path, f"{number}.py")
    with pytest.raises(ConfigurationError, match="more than 2 modules to watch: set JOB_PROJECT"):
        SourceFiles(tmp_path).learn()
