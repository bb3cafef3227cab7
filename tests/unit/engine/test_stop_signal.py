"""A replica hears SIGTERM whenever it comes, also in the moment in which it begins to wait for it."""

import subprocess
import sys

from config import PROJECT_ROOT

PROGRAM = """
import random, signal
from services.engine import stop_signal

stop_signal.WAIT_SECONDS = 0.02
stop = stop_signal.StopSignal()
signal.signal(signal.SIGALRM, stop.hear)
for _ in range(500):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1.2e-4))
    stop.wait()
print("heard all")
"""


def test_no_signal_is_lost_while_the_wait_begins() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT_ROOT,
        env={"ENV_FILE": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.stdout, result.stderr) == ("heard all\n", "")
