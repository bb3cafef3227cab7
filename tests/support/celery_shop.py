"""A user's Celery app, as tests call it: each call of a task is a line in LEDGER, with its id and its headers."""

import json
import os
from typing import Any

from celery import Celery

HEADERS = ("idempotency_key", "execution_id", "schedule_id", "scheduled_for", "attempt", "fencing_token")

app = Celery("shop", broker=os.environ.get("SHOP_BROKER_URL"))
app.conf.worker_hijack_root_logger = False


@app.task(bind=True, name="shop.note")  # type: ignore[untyped-decorator]
def note(task: Any, *args: Any, **kwargs: Any) -> None:
    headers = {name: task.request.get(name) for name in HEADERS}
    line = json.dumps({"id": task.request.id, "args": args, "kwargs": kwargs, **headers}) + "\n"
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line.encode())  # in one piece, whoever else writes
    os.close(ledger)
