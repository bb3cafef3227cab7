"""A bare Celery app with the no-op of ledger.py, and a process that sends what is due.

python -m benchmarks.designs.bare_celery reads lines of JSON: an instant, and the ids that are due then.
"""

import json
import os
import sys
import time
from datetime import datetime

from celery import Celery

from benchmarks.designs import ledger

app = Celery("bare", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(task_ignore_result=True, task_default_queue="bare")


@app.task(name="bare.noop")  # type: ignore[untyped-decorator]
def noop(schedule_id: str, planned: str) -> None:
    ledger.noop(schedule_id, datetime.fromisoformat(planned))


def send(instant: str, ids: list[str]) -> None:
    time.sleep(max(0.0, datetime.fromisoformat(instant).timestamp() - time.time()))
    for schedule_id in ids:
        noop.delay(schedule_id, instant)


if __name__ == "__main__":
    for line in sys.stdin:
        send(*json.loads(line))
