"""One wheel, and one environment with it, for all tests of a worker."""

from pathlib import Path

import pytest

from tests.support.installed import Installed, build_wheel, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Installed:
    return install(wheel, wheel.parent / "environment")
