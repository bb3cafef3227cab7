"""The work given to every design. Imports only the standard library: other schedulers have their own environments."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# The table of every design but ours: one INSERT and one UPDATE per run.
RUNS = """
CREATE TABLE runs (
    id bigserial PRIMARY KEY, schedule_id uuid, scheduled_for timestamptz, started_at timestamptz,
    completed_at timestamptz, status text
)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """`count` schedules fire at `at` and every second after it, `fires_each` times."""

    count: int
    at: datetime
    fires_each: int = 1

    @property
    def end(self) -> datetime:
        """Between the last fire and the one that would follow."""
        return self.at + timedelta(seconds=self.fires_each - 0.5)

    @property
    def fires(self) -> int:
        return self.count * self.fires_each

    def instants(self) -> Iterator[datetime]:
        """Of each schedule's fires."""
        return (self.at + timedelta(seconds=number) for number in range(self.fires_each))

    def timing(self) -> tuple[str, dict[str, Any]]:
        """As columns of `schedules`."""
        if self.fires_each == 1:
            return "once", {"at": self.at.isoformat()}
        return "interval", {"seconds": 1}


def await_plan(sql: Callable[[str], Sequence[Sequence[Any]]]) -> Plan:
    """In the process of a design: report ready, then wait for the plan."""
    sql("INSERT INTO runs (status) VALUES ('ready')")
    while not (found := sql("SELECT scheduled_for FROM runs WHERE status = 'plan'")):
        time.sleep(0.05)
    return Plan(0, found[0][0], int(os.environ["FIRES_EACH"]))


def say_planned(sql: Callable[[str], object]) -> None:
    """In the process of a design: report that its scheduler has the whole plan."""
    sql("INSERT INTO runs (status) VALUES ('planned')")
