"""What a replica has loaded of a schedule: the watcher writes it, the gap scan reads it."""

from dataclasses import dataclass
from datetime import datetime

from services.engine.timer import Entry


@dataclass(frozen=True, slots=True)
class Loaded:
    """What this replica knows about a schedule; without an entry in the timer it is switched off or parked."""

    revision: int
    effective_from: datetime
    entry: Entry | None
    load: int = 0  # how many loads were finished when this timing came
