"""python -m benchmarks [scenario …]: run the named scenarios, or all of them."""

import argparse
from collections.abc import Callable

from benchmarks import engine, job_loop, pipeline, repository, sync, triggers

SCENARIOS: dict[str, Callable[[], None]] = {
    "triggers": triggers.run,
    "repository": repository.run,
    "sync": sync.run,
    "burst": engine.burst,
    "changes": engine.changes,
    "failover": engine.failover,
    "load": engine.load,
    "job-loop": job_loop.throughput,
    "contention": job_loop.contention,
    "pipeline": pipeline.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure; results go to the terminal.")
    parser.add_argument("scenario", nargs="*", help=f"one or more of: {', '.join(SCENARIOS)} (default: all)")
    names = parser.parse_args().scenario or list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)} (known: {', '.join(SCENARIOS)})")
    for name in names:
        SCENARIOS[name]()


if __name__ == "__main__":
    main()
