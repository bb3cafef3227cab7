"""One turn of one scenario, our own design alone, with the code of the checkout that is the working directory.

beside.py runs this same file in two checkouts: `python -P turn.py replicas '{"replicas": 3, …}'` prints the figures as
one line of JSON. The checkout's own `benchmarks` package measures. A module that it lacks is taken from beside this
file, so a new scenario can be run against an older commit. Names with an underscore are the ones older commits have.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# By name. Figures with a unit are medians of the turns; figures without one are counts, of which the worst is shown.
Figures = dict[str, float]
Turn = Callable[..., Figures]


def burst() -> Turn:
    from benchmarks.burst import _measure
    from benchmarks.designs.catalogue import OURS

    def turn(fires: int) -> Figures:
        found = _measure(fires, OURS)
        return {
            "last start, s": found.last_start,
            "all ended, s": found.last_end,
            "p99 late, ms": found.p99 * 1000,
            "CPU/fire, us": found.cpu * 1e6,
            "run twice": found.twice,
            "not run": found.missing,
        }

    return turn


def steady() -> Turn:
    from benchmarks.designs.catalogue import OURS
    from benchmarks.steady import _measure

    def turn(seconds: int) -> Figures:
        minute = _measure(OURS, seconds)
        return {**_lateness(minute.found), "CPU of the replicas, s": minute.cpu, **_exactness(minute.found)}

    return turn


def changes() -> Turn:
    from benchmarks.changes import run
    from benchmarks.scale import QUICK

    def turn(changes: int) -> Figures:
        (sheet,) = run(replace(QUICK, changes=changes))
        facts = sheet.facts
        return {"median, ms": facts["median_seconds"] * 1000, "slowest, ms": facts["slowest_seconds"] * 1000}

    return turn


def failover() -> Turn:
    from benchmarks.failover import _once

    def turn() -> Figures:
        found = _once()
        return {
            "given up after, s": found.takeover_seconds,
            "run twice": found.run_twice,
            "not run": found.not_run,
            "later than 1 s, or never": found.late,
            "held by the killed replica": found.held,
        }

    return turn


def replicas() -> Turn:
    from benchmarks.replicas import measure

    def turn(replicas: int, seconds: tuple[int, int, int]) -> Figures:
        one = measure(replicas, *seconds)
        return {
            "replicas' CPU/fire, us": one.per_fire.replicas * 1e6,
            "Postgres' CPU/fire, us": one.per_fire.postgres * 1e6,
            "Redis' CPU/fire, us": one.per_fire.redis * 1e6,
            "idle replicas, % of a core": one.idle.replicas * 100,
            "idle Postgres, % of a core": one.idle.postgres * 100,
            "idle Redis, % of a core": one.idle.redis * 100,
            **_lateness(one.found),
            **_exactness(one.found),
            "most loaded by a replica": max(one.loaded),
        }

    return turn


TURNS: dict[str, Callable[[], Turn]] = {
    "burst": burst,
    "steady": steady,
    "changes": changes,
    "failover": failover,
    "replicas": replicas,
}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    try:
        borrowed = _fall_back_to_this_checkout(name)
        turn = TURNS[name]()
    except (ImportError, AttributeError) as error:  # too different: nothing has been measured yet
        print(json.dumps({"lacks": str(error)}))
        return
    print(json.dumps({"borrowed": borrowed, "figures": turn(**arguments)}))


def _fall_back_to_this_checkout(name: str) -> bool:
    """Whether the checkout lacks the scenario."""
    import benchmarks

    own, here = Path(benchmarks.__path__[0]), Path(__file__).resolve().parent
    benchmarks.__path__.append(str(here))
    return not (own / f"{name}.py").exists()


def _lateness(found: Any) -> Figures:
    return {"p50 late, ms": found.percentile(50) * 1000, "p99 late, ms": found.percentile(99) * 1000}


def _exactness(found: Any) -> Figures:
    return {"run twice": found.twice, "not run": found.missing}


if __name__ == "__main__":
    main()
