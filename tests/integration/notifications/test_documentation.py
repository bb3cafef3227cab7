"""docs/notifications.md: the function with which receivers check a signature."""

import re
from collections.abc import Callable
from typing import Any, cast

from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from tests.support.ledger import Ledger
from tests.support.notifying import SECRET, Notifying, send_all, sender_of

DOCUMENT = (PROJECT_ROOT / "docs/notifications.md").read_text(encoding="utf-8")


def test_the_documented_check_accepts_our_signature_and_no_other(
    db: DatabaseConnection, notifying: Notifying, receiver: Ledger
) -> None:
    notifying.tell(notifying.webhook(f"{receiver.url}/hook"))
    send_all(sender_of(db))
    (request,) = receiver.requests()
    names: dict[str, Any] = {}
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(source, names)
    check = cast(Callable[[str, dict[str, str], bytes], bool], names["is_from_us"])
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert check(SECRET, headers, request.body)
    assert not check(SECRET, headers, request.body + b" ")
    assert not check("whsec_" + "QUFB" * 11, headers, request.body)
    assert not check(SECRET, headers | {"webhook-timestamp": "1700000000"}, request.body)
