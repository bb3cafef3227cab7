"""In JOB_MODULES of a replica: tells the kernel the names of its threads, so that /proc says which one used the CPU."""

import threading
import time
from contextlib import suppress
from pathlib import Path

PERIOD_SECONDS = 0.5
MOST_CHARACTERS = 15  # of a name in the kernel


def _name_threads() -> None:
    """Again and again: most of them start after the modules of JOB_MODULES have been imported."""
    named: set[int] = set()
    while True:
        for thread in threading.enumerate():
            if thread.native_id is not None and thread.native_id not in named:
                with suppress(OSError):  # it has ended
                    Path(f"/proc/self/task/{thread.native_id}/comm").write_text(thread.name[:MOST_CHARACTERS])
                    named.add(thread.native_id)
        time.sleep(PERIOD_SECONDS)


threading.Thread(target=_name_threads, name="names", daemon=True).start()
