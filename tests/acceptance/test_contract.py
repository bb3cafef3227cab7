"""Every Python example of the public contract (contract.md), run as it stands there, each in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from config import PROJECT_ROOT
from tests.support.replicas import Cluster
from tests.support.rows import count
from tests.support.waiting import eventually

CONTRACT = (Path(__file__).parent / "contract.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", CONTRACT, re.DOTALL | re.MULTILINE)
API_ANSWER = json.loads(re.findall(r"^```json\n(.*?)^```", CONTRACT, re.DOTALL | re.MULTILINE)[0])

# Names that a block takes from an earlier one.
PRELUDES = {
    "history.get_executions_by_schedule(schedule_id)": "schedule_id = '11111111-0000-0000-0000-000000000001'",
    "# Enable API sync": "from services.enhanced_scheduler import EnhancedScheduler",
    "# Check Redis connectivity": "from services.redis_client import get_redis_client\n"
    "from database.connection import get_db_connection",
}
OLD_SCHEDULER = "from schedule_manager import run_scheduler"


@pytest.fixture
def api() -> Iterator[str]:
    """The external system, with exactly the documented answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(API_ANSWER).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/schedules"
    server.shutdown()
    server.server_close()


def prelude(block: str) -> str:
    return "\n".join(lines for mark, lines in PRELUDES.items() if mark in block)


def is_blocking(block: str) -> bool:
    return "scheduler.run()" in block or "run_enhanced_scheduler()" in block


def start(block: str, cluster: Cluster, api: str, more: str = "") -> "subprocess.Popen[str]":
    environment = {**cluster.environment, "API_URL": api, "INSTANCE_ID": "contract", "PATH": os.defpath}
    return subprocess.Popen(
        [sys.executable, "-c", f"{prelude(block)}\n{block}\n{more}"],
        cwd=PROJECT_ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_runs_as_it_stands(cluster: Cluster, api: str, number: int) -> None:
    block = BLOCKS[number]
    if OLD_SCHEDULER in block:
        pytest.skip("what is replaced: the scheduler that this project takes over from")
    process = start(block, cluster, api)
    if is_blocking(block):
        eventually(lambda: cluster.rows("SELECT 1 FROM scheduler_instances WHERE schedules > 0"), 20)
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors


def test_there_is_one_example_that_cannot_run() -> None:
    assert [OLD_SCHEDULER in block for block in BLOCKS].count(True) == 1
    assert len(BLOCKS) >= 12


def test_a_sync_returns_the_documented_counts_and_fills_the_table(cluster: Cluster, api: str) -> None:
    (block,) = [block for block in BLOCKS if "# Enable API sync" in block]
    for expected in ({"created": 1, "updated": 0, "skipped": 0}, {"created": 0, "updated": 0, "skipped": 0}):
        output, errors = start(block, cluster, api, "print(stats)").communicate(timeout=180)
        assert output.strip() == str(expected), errors
    assert cluster.rows("SELECT domain, external_id, source, frequency, job_config->>'max_pages' FROM schedules") == [
        ("example.com", "abc-123", "api", "daily", "50")
    ]
    assert count(cluster) == 0


def test_statistics_have_the_documented_keys_in_their_order(cluster: Cluster, api: str) -> None:
    (block,) = [block for block in BLOCKS if "get_execution_statistics" in block]
    output, errors = start(block, cluster, api, "print(list(stats))").communicate(timeout=180)
    documented = re.findall(r"#   '(\w+)':", block)
    assert output.strip().startswith(str(documented)[:-1]), errors
