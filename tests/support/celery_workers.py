"""A worker of the users' Celery app in tests/support/celery_shop.py, as a real process, and the ledger of its calls."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery

from config import PROJECT_ROOT, child_environment
from tests.support.waiting import eventually

QUIETLY = ("--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat")


def broker_beside(redis_url: str) -> str:
    """Another database of the embedded Redis, as Celery writes it."""
    path = redis_url.removeprefix("unix://").partition("?")[0]
    return f"redis+socket://{path}?virtual_host=5"


@dataclass(slots=True)
class ShopWorker:
    broker_url: str
    queue: str
    ledger: Path
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, redis_url: str, directory: Path) -> "ShopWorker":
        broker_url = broker_beside(redis_url)
        queue, ledger = f"shop-{uuid4().hex}", directory / "shop-calls"
        command = [sys.executable, "-m", "celery", "--app", "tests.support.celery_shop", "worker", *QUIETLY]
        with (directory / "shop-worker.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--queues", queue],
                cwd=PROJECT_ROOT,
                env=child_environment(SHOP_BROKER_URL=broker_url, LEDGER=str(ledger), CELERY_BROKER_URL=""),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return cls(broker_url, queue, ledger, process)

    def calls(self) -> list[dict[str, Any]]:
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [json.loads(line) for line in lines]

    def calls_before_now(self) -> list[dict[str, Any]]:
        """All calls of messages that are in the queue by now: one worker takes them in their order."""
        last = uuid4().hex
        with Celery(set_as_current=False) as app, app.connection_for_write(self.broker_url) as connection:
            app.send_task("shop.note", kwargs={"last": last}, queue=self.queue, connection=connection)
        eventually(lambda: any(call["kwargs"].get("last") == last for call in self.calls()), 30)
        return [call for call in self.calls() if "last" not in call["kwargs"]]

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)
