"""One environment with the wheel for all tests of a worker."""

import pytest

from tests.support.installed import Installed, build_wheel, install


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    directory = tmp_path_factory.mktemp("installed")
    return install(build_wheel(directory), directory / "environment")
