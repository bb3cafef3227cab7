"""On the PYTHONPATH of a replica: its clock is off by SKEW_SECONDS from the first moment on."""

import os
from datetime import UTC, datetime, timedelta

import time_machine

_wrong = datetime.now(UTC) + timedelta(seconds=float(os.environ["SKEW_SECONDS"]))
time_machine.travel(_wrong, tick=True).start()
