"""The program: a replica whose clock a test can move. Its argument is the file of the clock."""

import sys
from functools import partial
from pathlib import Path

from services.cli.virtual_time.clock import ReplicaClock, local_time
from services.engine.parts import Parts
from services.engine.timer import Timer
from services.enhanced_scheduler import run_enhanced_scheduler

LONGEST_SLEEP_SECONDS = 0.02  # until a jump is noticed


class WatchfulTimer(Timer):
    def seconds_to_sleep(self) -> float:
        return min(LONGEST_SLEEP_SECONDS, super().seconds_to_sleep())


if __name__ == "__main__":
    run_enhanced_scheduler(Parts(clock=partial(ReplicaClock, local=local_time(Path(sys.argv[1]))), timer=WatchfulTimer))
