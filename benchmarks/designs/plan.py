"""The work that every design is given. Needs nothing but Python: other schedulers live in environments of their own."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# What every design but ours writes to: one INSERT and one UPDATE per run.
RUNS = """
CREATE TABLE runs (
    id bigserial PRIMARY KEY, schedule_id uuid, scheduled_for timestamptz, started_at timestamptz,
    completed_at timestamptz, status text
)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """`count` schedules fire at `at`, and every second after it until there were `fires_each`."""

    count: int
    at: datetime
    fires_each: int = 1

    @property
    def end(self) -> datetime:
        """After the last fire, before the next that would be."""
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
    """For the process of a design: say that it is ready, and wait until the plan is known."""
    sql("INSERT INTO runs (status) VALUES ('ready')")
    while not (found := sql("SELECT scheduled_for FROM runs WHERE status = 'plan'")):
        time.sleep(0.05)
    return Plan(0, found[0][0], int(os.environ["FIRES_EACH"]))


def say_planned(sql: Callable[[str], object]) -> None:
    """Everything that this process has to know is in its scheduler."""
    sql("INSERT INTO runs (status) VALUES ('planned')")
