"""The state of a loaded schedule: written by the watcher, read by the gap scan."""

from dataclasses import dataclass
from datetime import datetime

from services.engine.timer import Entry


@dataclass(frozen=True, slots=True)
class Loaded:
    """What this replica knows about a schedule; without an entry in the timer it is disabled or parked."""

    revision: int
    effective_from: datetime
    entry: Entry | None
    load: int = 0  # how many loads were finished when this timing came
