"""A running API with a database of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from config import load_settings
from services.web.auth.authenticator import OneTimeToken
from tests.support.web import SECRET, Web

StartWeb = Callable[..., Web]


@pytest.fixture
def start_web(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[StartWeb]:
    """Starts it with these settings besides the usual ones of a test."""
    with ExitStack() as running:

        def start(*, with_replica: bool = False, one_time: OneTimeToken | None = None, **environment: str) -> Web:
            usual = {"JWT_SECRET_KEY": SECRET, "WEB_RATE_LIMIT_PER_MINUTE": "0", "DATABASE_POOL_SIZE": "8"}
            for name, value in {**usual, **environment}.items():
                monkeypatch.setenv(name, value)
            return running.enter_context(Web(load_settings(), with_replica, one_time))

        yield start


@pytest.fixture
def web(start_web: StartWeb) -> Web:
    return start_web()
