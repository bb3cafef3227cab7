"""Limits: a burst on 100 keys with at most two executions each, beside the same burst without limits.

The handlers keep the ledger: each appends when it begins and when it ends, by the clock that all processes share. How
many ran at once of a key is read from there, not from the database.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from benchmarks.cluster import REPLICAS, WORKERS, cluster, sleep_until, soon
from benchmarks.designs.keyed import Call, calls_in, ledger_file
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.support.replicas import Cluster

KEYS, MOST = 100, 2
JOBS = {"no-op": 0.0, "100 ms": 0.1}  # seconds of work
LEAD_SECONDS = 12  # replicas load and sort the schedules before they are due
QUIET_SECONDS = 3.0  # without a new call: nothing waits any more
LONGEST_SECONDS = 600.0

INSERT = f"""
INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, job_config, limit_keys)
SELECT gen_random_uuid(), 'd' || n, 'keyed', 'once', jsonb_build_object('at', %s::text),
       jsonb_build_object('seconds', %s::float8, 'key', n %% {KEYS}), ARRAY['bench:' || n %% {KEYS}]
FROM generate_series(1, %s) AS n
"""


@dataclass(frozen=True, slots=True)
class Drained:
    seconds: float  # from the instant to the last end of a handler
    most: int  # handlers of one key at once
    twice: int
    missing: int


def run(scale: Scale) -> Iterator[Sheet]:
    title = (
        f"Limits: {scale.limited:,} fires at one instant on {KEYS} keys, {REPLICAS} replicas, MAX_WORKERS={WORKERS}, "
        f"medians of {scale.rounds} rounds"
    )
    columns = ["job", "limit of each key", "all ended", "fires/s", "of unlimited", "most at once", "twice", "not run"]
    sheet = Sheet("limits", title, columns)
    for job, seconds in JOBS.items():
        measured: dict[int | None, list[Drained]] = {None: [], MOST: []}
        for number in range(scale.rounds):
            for limit, rounds in measured.items():
                doing(f"{job}, round {number + 1} of {scale.rounds}: {_words(limit)}")
                rounds.append(measure(scale.limited, seconds, limit))
        _add(sheet, job, scale.limited, measured)
    yield sheet


def measure(count: int, seconds: float, limit: int | None) -> Drained:
    with cluster() as made:
        if limit is not None:
            made.run("INSERT INTO limits (name, max_running) VALUES ('bench:*', %s)", limit)
        made.start(REPLICAS)
        at = soon(LEAD_SECONDS)
        made.run(INSERT, at.isoformat(), seconds, count)
        made.run("ANALYZE schedules")
        sleep_until(at)
        return _drained(list(_until_quiet(made, count)), at, count)


def _until_quiet(made: Cluster, count: int) -> Iterable[Call]:
    file, deadline, before = ledger_file(made.environment), time.monotonic() + LONGEST_SECONDS, -1
    while time.monotonic() < deadline:
        calls = calls_in(file)
        ended = {call.schedule for call in calls if call.ended_at}
        if len(ended) == count and len(calls) == before:
            break
        before = len(calls)
        time.sleep(QUIET_SECONDS)
    return calls_in(file)


def _drained(calls: list[Call], at: datetime, count: int) -> Drained:
    ended = [call.ended_at for call in calls if call.ended_at]
    different = len({call.schedule for call in calls})
    return Drained(
        seconds=max(ended) - at.timestamp() if ended else float("nan"),
        most=most_at_once(calls),
        twice=len(calls) - different,
        missing=count - different,
    )


def most_at_once(calls: Iterable[Call]) -> int:
    """Of any key. A handler that has not ended runs for ever."""
    steps: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for call in calls:
        steps[call.key].append((call.began_at, 1))
        if call.ended_at:
            steps[call.key].append((call.ended_at, -1))
    most = 0
    for of_key in steps.values():
        running = 0
        for _, step in sorted(of_key):  # at one instant ends come first
            running += step
            most = max(most, running)
    return most


def _words(limit: int | None) -> str:
    return "none" if limit is None else str(limit)


def _add(sheet: Sheet, job: str, count: int, measured: dict[int | None, list[Drained]]) -> None:
    """Times are medians; the most at once, duplicates and losses are the worst of all rounds."""
    medians = {limit: statistics.median(one.seconds for one in rounds) for limit, rounds in measured.items()}
    for limit, rounds in measured.items():
        seconds, ratio = medians[limit], medians[None] / medians[limit]
        worst = [max(getattr(one, name) for one in rounds) for name in ("most", "twice", "missing")]
        share = "" if limit is None else f"{ratio:.0%}"
        sheet.add(job, _words(limit), f"{seconds:.2f} s", f"{count / seconds:,.0f}", share, *map(str, worst))
        sheet.facts.setdefault(job, {})[_words(limit)] = {
            "seconds": seconds, "throughput_of_unlimited": ratio, "most_at_once": worst[0], "run_twice": worst[1],
            "not_run": worst[2], "rounds": [one.seconds for one in rounds],
        }  # fmt: skip
