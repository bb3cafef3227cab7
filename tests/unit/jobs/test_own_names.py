"""Users' modules in this interpreter: which of them took a module of ours for one of their project."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.jobs.own_names import mistaken

RESENTFUL = """
class Proxy:
    def __getattribute__(self, name):
        raise RuntimeError("working outside of its context")

current = Proxy()
"""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Saves a file of a project whose directory is on the search path, behind ours."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    def save(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        monkeypatch.delitem(sys.modules, "shop_tasks", raising=False)
        return file

    return save


def mistakes() -> list[str]:
    __import__("shop_tasks")
    return list(mistaken(["shop_tasks"]))


@pytest.mark.parametrize("text", ["import config\n", "from config import Settings\n"])
def test_a_module_that_got_our_config_although_its_project_has_one_is_named(
    saved: Callable[[str, str], Path], text: str
) -> None:
    saved("shop_tasks.py", text)
    directory = saved("config.py", "CURRENCY = 'EUR'\n").parent
    assert mistakes() == [
        f"JOB_MODULES: 'shop_tasks' uses the scheduler's own `config`, not the one in {directory}: "
        "set JOB_PROJECT to the directory of your project to have its modules"
    ]


def test_a_package_is_looked_for_beside_the_outermost_one(saved: Callable[[str, str], Path]) -> None:
    saved("shop_tasks/__init__.py", "import services\n")
    saved("services/billing.py", "")
    assert [line.split("`")[1] for line in mistakes()] == ["services"]


@pytest.mark.parametrize("others", ["settings.py", "config.py"])
def test_one_that_means_ours_or_does_not_use_it_is_left_alone(saved: Callable[[str, str], Path], others: str) -> None:
    saved("shop_tasks.py", f"import json\nfrom services import errors\n{RESENTFUL}")
    saved(others, "")
    assert mistakes() == []
