from collections.abc import Iterator

import pytest

from tests.support.bad_servers import BadServer


@pytest.fixture
def bad() -> Iterator[BadServer]:
    with BadServer() as bad:
        yield bad
