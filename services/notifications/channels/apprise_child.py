"""Calls apprise once: a JSON object on standard input, another on standard output. Imports nothing of ours."""

import json
import logging
import signal
import sys
from typing import Any

MOST_LINES = 3


class _Said(logging.Handler):
    """Collects apprise's log, the only place where it gives a reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def call(wanted: dict[str, Any]) -> dict[str, Any]:
    from apprise import Apprise, AppriseAsset  # slow to import: in here, so that the time limit already holds

    said = _Said()
    logging.getLogger("apprise").addHandler(said)
    service = Apprise.instantiate(wanted["url"], asset=AppriseAsset(secure_logging=True, async_mode=False))
    if service is None:
        return {"ok": False, "said": "apprise does not understand this URL"}
    if wanted.get("check"):
        return {"ok": True}
    caller = Apprise()
    caller.add(service)
    body = wanted["body"] or wanted["title"]
    # Named as text, it is escaped for services that send HTML or Markdown.
    ok = caller.notify(title=wanted["title"], body=body, notify_type=wanted["type"], body_format="text")
    return {"ok": bool(ok), "said": "; ".join(said.lines[-MOST_LINES:])}


if __name__ == "__main__":
    signal.alarm(int(sys.argv[1]) + 1)  # if nobody is left who would end it
    answer = call(json.loads(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps(answer))
