"""CPU seconds of replicas, Postgres and Redis from /proc, and the cost of a period of work beyond an idle period."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.embedded import running
from tests.support.replicas import Cluster

PROCESS_CPU_CLOCK = 2  # the kernel builds the id of a process's CPU clock from its pid and this constant


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds by part and wall-clock seconds: one reading, or the difference of two."""

    replicas: float
    postgres: float
    redis: float
    clock: float

    def since(self, before: "Cost") -> "Cost":
        return Cost(
            self.replicas - before.replicas,
            self.postgres - before.postgres,
            self.redis - before.redis,
            self.clock - before.clock,
        )

    def beyond(self, idle: "Cost") -> "Cost":
        """The cost beyond what the same set-up uses in the same time when idle."""
        share = self.clock / idle.clock
        return Cost(
            self.replicas - idle.replicas * share,
            self.postgres - idle.postgres * share,
            self.redis - idle.redis * share,
            self.clock,
        )

    def by(self, number: float) -> "Cost":
        """Divided: per fire, or per second."""
        return Cost(self.replicas / number, self.postgres / number, self.redis / number, self.clock / number)


def read(made: Cluster) -> Cost:
    """CPU time used so far."""
    servers = running(made.directory / "servers")
    if servers is None or servers.postgres_pid is None or servers.redis_pid is None:
        raise RuntimeError("the servers of the benchmark do not run")
    return Cost(
        replicas=family_cpu_seconds([replica.pid for replica in made.replicas]),
        postgres=family_cpu_seconds([servers.postgres_pid]),
        redis=family_cpu_seconds([servers.redis_pid]),
        clock=time.monotonic(),
    )


def family_cpu_seconds(parents: Sequence[int]) -> float:
    """Of these processes and their children, living or ended: Postgres has one for each session.

    The kernel adds a child's time to its parent's when the parent has waited for it. A child that comes or goes during
    the reading would be counted twice or not at all, so everything is read again.
    """
    while True:
        children = _children(parents)
        used = sum(_cpu_seconds(pid) for pid in parents)
        with suppress(OSError):  # a child is gone
            used += sum(_cpu_seconds(pid) for pid in children)
            if _children(parents) == children:
                return used


def _cpu_seconds(pid: int) -> float:
    """Its own by its clock, because /proc counts in hundredths and Redis uses less than one in a second; the children
    that it has waited for by /proc, where the hundredth is that of their sum.
    """
    own = time.clock_gettime(~pid << 3 | PROCESS_CPU_CLOCK)
    return own + sum(int(ticks) for ticks in _stat(pid)[13:15]) / os.sysconf("SC_CLK_TCK")


def _children(parents: Sequence[int]) -> set[int]:
    found = set()
    for file in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended since it was listed
            if int(_stat(int(file.name))[1]) in parents:
                found.add(int(file.name))
    return found


def _stat(pid: int) -> list[str]:
    """What follows the name, which may contain blanks: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
