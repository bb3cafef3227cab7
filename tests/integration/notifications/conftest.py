"""What tests of notifications share: a mail server."""

from collections.abc import Iterator

import pytest

from tests.support.mail import MailServer


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server
