"""A replica hears SIGTERM whenever it comes, also in the moment in which it begins to wait for it."""

import subprocess
import sys

from config import PROJECT_ROOT

PROGRAM = """
import random, signal
from config import Settings
from services import enhanced_scheduler

enhanced_scheduler.SIGNAL_SECONDS = 0.02
replica = enhanced_scheduler.EnhancedScheduler(settings=Settings(database_url="postgresql://nobody@127.0.0.1:1/none"))
signal.signal(signal.SIGALRM, replica._on_signal)
for _ in range(500):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1.2e-4))
    replica._wait_for_the_end()
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
