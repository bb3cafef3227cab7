"""The scenario `replicas` of `make bench`, for a few seconds on real servers."""

import shutil
from pathlib import Path

from benchmarks.beside import Checkout
from benchmarks.replicas import FIRES_PER_SECOND, measure
from config import PROJECT_ROOT


def test_a_turn_accounts_for_every_fire_and_for_the_cpu_of_each_part() -> None:
    turn = measure(2, settle_seconds=3, idle_seconds=1, fire_seconds=3)
    assert (turn.found.run, turn.found.twice, turn.found.missing) == (3 * FIRES_PER_SECOND, 0, 0)
    assert min(turn.per_fire.replicas, turn.per_fire.postgres, turn.per_fire.redis) > 0
    assert len(turn.loaded) == 2
    assert sum(turn.loaded) >= FIRES_PER_SECOND


def test_a_checkout_from_before_the_scenario_is_measured_with_the_file_of_this_one(tmp_path: Path) -> None:
    lacking = shutil.ignore_patterns("replicas.py", "costs.py", "growth.py", "beside.py", "turn.py", "__pycache__")
    shutil.copytree(PROJECT_ROOT / "benchmarks", tmp_path / "benchmarks", ignore=lacking)
    for name in ("config.py", "run_migrations.py", "database", "enhanced_scheduler", "migrations", "services", "tests"):
        (tmp_path / name).symlink_to(PROJECT_ROOT / name)
    figures, is_borrowed = Checkout(tmp_path).turn("replicas", {"replicas": 1, "seconds": (2, 1, 2)})
    assert is_borrowed
    assert (figures["run twice"], figures["not run"]) == (0, 0)
    assert figures["Postgres' CPU/fire, us"] > 0
