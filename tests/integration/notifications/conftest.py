"""What tests of notifications share: channels and deliveries, a receiver of webhooks, a mail server."""

from collections.abc import Iterator

import pytest

from database.connection import DatabaseConnection
from tests.support.ledger import Ledger
from tests.support.mail import MailServer
from tests.support.notifying import Notifying


@pytest.fixture
def notifying(db: DatabaseConnection) -> Notifying:
    return Notifying(db)


@pytest.fixture
def receiver() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server
