"""A run of mixed faults on real replicas, judged from outside. Exit code 1 when a promise was broken.

It starts servers of its own in a temporary directory, and several replicas with the product's default timings, each
behind its own doors to Postgres and Redis. Several hundred schedules fire while episodes of faults are drawn from the
seed. At the end everything is healed and comes to rest; then `checker.py` and `manage.py audit` judge what happened.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2

from config import PROJECT_ROOT
from services.errors import ConfigurationError
from tests.proof import faults, results, workload
from tests.proof.checker import Bounds, Verdict, Violation, clock, judge
from tests.proof.faults import Stage
from tests.proof.records import Disturbance, read
from tests.proof.world import Journal, Replica, World

EXAMPLES = """examples:
  python -m tests.proof.fault_run --minutes 5 --seed 7
      five minutes of all kinds of faults; the same seed draws the same faults
  python -m tests.proof.fault_run --minutes 60 --fires-per-second 62 --json hour.json
      the hour that the guarantees are measured by: more than 200,000 fires
  python -m tests.proof.fault_run --minutes 3 --only freeze,late_answer --keep
      two kinds only, and the directory with logs, ledger and database stays for a look
  make faults MINUTES=5 SEED=7
"""
PROGRESS_SECONDS = 10.0
TICK_SECONDS = 0.1
AT_ONCE = 10  # faults
FIRST_CALM_SECONDS = 12.0
SETTLE_SECONDS = 240.0
STOP_SECONDS = 90.0
AROUND_SECONDS = 45.0  # faults so long before a violation are shown with it
EPISODE_SECONDS = (40.0, 90.0)
CALM_SECONDS = (22.0, 40.0)
OPEN = "SELECT count(*) FROM job_executions WHERE status IN ('pending', 'claimed', 'running')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    minutes: float
    seed: int
    fires_per_second: float
    replicas: int
    only: Sequence[str]
    strength: float
    directory: Path
    quiet: bool
    settings: Mapping[str, str]


@dataclass(slots=True)
class Outcome:
    """Everything that a run found."""

    seed: int
    seconds: float
    verdict: Verdict
    faults: Counter[str]
    audit: dict[str, Any]
    troubles: list[str]  # of the run as a whole
    disturbances: Sequence[Disturbance] = field(repr=False)

    @property
    def is_clean(self) -> bool:
        return self.verdict.is_clean and not self.troubles and bool(self.audit.get("clean"))

    def as_json(self) -> dict[str, Any]:
        return {
            "clean": self.is_clean, "seed": self.seed, "seconds": round(self.seconds), "faults": dict(self.faults),
            "audit": self.audit, "troubles": self.troubles, **self.verdict.as_json(),
        }  # fmt: skip

    def in_short(self) -> dict[str, Any]:
        """What docs/guarantees.md shows."""
        found = self.verdict.found
        return {
            "histories": 1,
            "fires": self.verdict.fires,
            "calls": self.verdict.calls,
            "faults": self.faults.total(),
            "called_twice": found["called twice"],
            "unaccounted": found["unaccounted"],
            "broken": found.total() + len(self.troubles),
            "worst_takeover": round(self.verdict.worst_takeover, 1),
            "worst_takeover_any": round(self.verdict.worst_takeover_any, 1),
            "worst_lateness": round(self.verdict.worst_lateness, 2),
        }


class Run:
    """One run, from the empty directory to the verdict."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rng = random.Random(options.seed)
        self._threads: list[threading.Thread] = []
        self._troubles: list[str] = []
        self._said_at = 0.0

    def __call__(self) -> Outcome:
        options = self._options
        journal = Journal(options.directory / "faults.jsonl")
        ledger = options.directory / "ledger.tsv"
        ledger.touch()
        begun_at = time.time()
        with World(options.directory, options.replicas, journal, options.settings) as world:
            stage = Stage(
                world, workload.draw(self._rng, options.fires_per_second, str(ledger)), self._rng, options.strength
            )
            self._say(f"seed {options.seed}: {len(stage.workload.schedules)} schedules, "
                      f"{stage.workload.fires_per_second:.0f} fires/s, {options.replicas} replicas, "
                      f"{options.minutes:g} minutes, in {options.directory}")  # fmt: skip
            self._start(world)
            with world.session() as connection:
                stage.workload.create(connection)
            self._disturb(stage, begun_at)
            end = self._come_to_rest(stage)
            self._stop(world)
            self._say("judging")
            history = read(
                world.database_url, ledger, options.directory / "faults.jsonl", options.directory / "scratch"
            )
            verdict = judge(history, end, Bounds())
            audit = self._audit(world, begun_at)
            if not audit.get("clean"):
                self._troubles.append("manage.py audit is not clean")
            troubles = [*self._troubles, *world.died]
        counted = Counter(each.kind for each in journal.noted if each.kind not in ("start", "exit"))
        return Outcome(options.seed, time.time() - begun_at, verdict, counted, audit, troubles, journal.noted)

    # --- the way through ---

    def _start(self, world: World) -> None:
        at = time.time()
        for replica in world.replicas:
            replica.start()
        for replica in world.replicas:
            if not world.await_alive(replica):
                raise RuntimeError(f"{replica.name} does not start: {replica.log.read_text()[-2000:]}")
            world.journal.note(
                Disturbance(kind="start", at=at, until=time.time(), scope="replica", replica=replica.name)
            )

    def _disturb(self, stage: Stage, begun_at: float) -> None:
        until = time.monotonic() + 60 * self._options.minutes
        calm_until = time.monotonic() + FIRST_CALM_SECONDS * self._options.strength
        while time.monotonic() < until:
            self._wait(stage, calm_until)
            names = self._some_kinds()
            pace = self._rng.uniform(0.4, 2.5)
            episode_until = min(until, time.monotonic() + self._rng.uniform(*EPISODE_SECONDS))
            self._say(f"faults every {pace:.1f} s: {', '.join(names)}")
            while time.monotonic() < episode_until:
                self._strike(stage, names)
                self._wait(stage, min(episode_until, time.monotonic() + self._rng.expovariate(1 / pace)))
            self._heal(stage)
            calm_until = min(until, time.monotonic() + self._rng.uniform(*CALM_SECONDS))

    def _some_kinds(self) -> list[str]:
        """Each episode has its own few kinds: everything at once hides a lot."""
        kinds = list(self._options.only or faults.KINDS)
        most = self._rng.randint(2, 7)
        often = [name for name in kinds if name not in faults.SELDOM]
        seldom = [name for name in kinds if name in faults.SELDOM]
        some = self._rng.sample(often, min(len(often), most))
        few = self._rng.sample(seldom, min(len(seldom), self._rng.choice((0, 0, 1, 2))))
        return sorted([*some, *few]) or kinds

    def _strike(self, stage: Stage, names: Sequence[str]) -> None:
        name, strike = faults.draw(stage, names)  # drawn in any case: the seed decides, not the machine
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < AT_ONCE:
            thread = threading.Thread(target=self._guarded, args=(name, strike), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _guarded(self, name: str, strike: faults.Strike) -> None:
        try:
            strike()
        except (psycopg2.Error, OSError, ConfigurationError) as error:  # its victim went away under it
            self._say(f"{name}: {str(error).strip()}")

    def _wait(self, stage: Stage, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            stage.world.obey()
            self._progress(stage)
            time.sleep(min(left, TICK_SECONDS))

    def _heal(self, stage: Stage) -> None:
        """Until every fault has ended by itself, and everybody is back."""
        while any(thread.is_alive() for thread in self._threads):
            self._wait(stage, time.monotonic() + TICK_SECONDS)
        self._threads = []
        with suppress(psycopg2.Error):
            faults.mend_schedules(stage)

    def _come_to_rest(self, stage: Stage) -> float:
        """Everything is switched off; what is due ends, and a gap scan has looked at all of it."""
        self._say("healed: everything is switched off and comes to rest")
        self._wait(stage, time.monotonic() + 15 * self._options.strength)
        world = stage.world
        with world.session() as connection:
            workload.switch(connection, [each.schedule_id for each in stage.workload.schedules], enabled=False)
        ((end,),) = world.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            self._wait(stage, time.monotonic() + 1)
            ((open_rows,),) = world.rows(OPEN)
            watched = world.rows("SELECT until > to_timestamp(%s) FROM fires_watched", end)
            if open_rows == 0 and watched == [(True,)]:
                return float(end)
        self._troubles.append(f"not at rest after {SETTLE_SECONDS:.0f} s: {open_rows} rows open, watched {watched}")
        return float(end)

    def _stop(self, world: World) -> None:
        self._say("stopping the replicas")
        for replica in world.replicas:
            replica.expected_to_end = True
            replica.send(signal.SIGTERM)
        for replica in world.replicas:
            self._await_end(replica)
        left = world.rows("SELECT instance_id FROM scheduler_instances WHERE heartbeat_at > now() - interval '15 s'")
        if left:
            self._troubles.append(f"still registered after the end: {left}")
        sessions = world.rows(
            """SELECT application_name, state, left(query, 60) FROM pg_stat_activity
               WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
                 AND application_name <> 'somebody'"""
        )
        if sessions:
            self._troubles.append(f"sessions that nobody uses any more: {sessions}")

    def _await_end(self, replica: Replica) -> None:
        assert replica.process is not None
        try:
            code = replica.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            replica.process.kill()
            self._troubles.append(f"{replica.name} did not stop within {STOP_SECONDS:.0f} s")
        else:
            if code != 0:
                self._troubles.append(f"{replica.name} stopped with exit code {code}")

    def _audit(self, world: World, begun_at: float) -> dict[str, Any]:
        minutes = int((time.time() - begun_at) / 60) + 2
        done = subprocess.run(
            [sys.executable, "manage.py", "audit", "--since", f"{minutes}m", "--json"],
            cwd=PROJECT_ROOT,
            env={"DATABASE_URL": world.database_url, "REDIS_URL": "redis://127.0.0.1:1/0", "PATH": os.defpath,
                 "ENV_FILE": "", "LOG_LEVEL": "ERROR"},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            return {"clean": False, "error": (done.stdout + done.stderr)[-2000:]}
        return answer

    # --- what people see meanwhile ---

    def _progress(self, stage: Stage) -> None:
        if time.monotonic() < self._said_at + PROGRESS_SECONDS:
            return
        active = Counter(thread.name for thread in self._threads if thread.is_alive())
        size = (self._options.directory / "ledger.tsv").stat().st_size
        living = sum(replica.runs for replica in stage.world.replicas)
        self._say(f"about {size // 190:,} calls, {len(stage.world.journal.noted)} faults, {living} replicas"
                  + (f"; now {', '.join(active)}" if active else ""))  # fmt: skip

    def _say(self, text: str) -> None:
        self._said_at = time.monotonic()
        if not self._options.quiet:
            print(f"{clock(time.time())[:8]}  {text}", flush=True)


# --- the report ---


def report(outcome: Outcome) -> Iterator[str]:
    verdict = outcome.verdict
    found = verdict.found
    yield ""
    yield f"seed {outcome.seed}, {outcome.seconds / 60:.1f} minutes"
    for name, value in {
        "fires": f"{verdict.fires:,}",
        "calls": f"{verdict.calls:,}",
        "rows": ", ".join(f"{status} {count:,}" for status, count in verdict.rows.most_common()),
        "not run": ", ".join(f"{reason} {count:,}" for reason, count in verdict.reasons.most_common()),
        "in summaries": f"{verdict.summarised:,}",
        "faults": ", ".join(f"{kind} {count}" for kind, count in outcome.faults.most_common()),
        "called twice": found["called twice"],
        "unaccounted": found["unaccounted"],
        "invented": found["invented"],
        "living given up": found["a living one was given up"],
        "worst takeover": f"{verdict.worst_takeover:.1f} s ({verdict.worst_takeover_any:.1f} s with other faults)",
        "worst lateness": f"{verdict.worst_lateness:.2f} s of {verdict.undisturbed_calls:,} calls while all was well",
        "audit": _of_audit(outcome.audit),
    }.items():
        yield f"  {name:16} {value}"
    for kind, count in sorted(found.items()):
        yield f"  {'VIOLATION':16} {kind}: {count}"
    for trouble in outcome.troubles:
        yield f"  {'TROUBLE':16} {trouble}"
    yield "  nothing is broken" if outcome.is_clean else "  BROKEN"
    yield from _explained(outcome)


def _of_audit(audit: dict[str, Any]) -> str:
    if "expected" not in audit:
        return f"failed: {audit.get('error')}"
    parts = {name: audit[name]["count"] for name in ("unexplained", "unwatched", "extra", "unfinished")}
    told = ", ".join(f"{name} {count}" for name, count in parts.items())
    return f"expected {audit['expected']:,}, accounted {audit['accounted']:,}, duplicates {audit['duplicates']}, {told}"


def _explained(outcome: Outcome, shown_per_kind: int = 3) -> Iterator[str]:
    """The first violations of each kind, and the faults around them."""
    seen: Counter[str] = Counter()
    for violation in outcome.verdict.violations:
        seen[violation.kind] += 1
        if seen[violation.kind] <= shown_per_kind:
            yield ""
            yield str(violation)
            for each in _around(violation, outcome.disturbances):
                who = (
                    f"{each.replica} ({each.pid})"
                    if each.replica
                    else (f"{len(each.schedules)} schedules" if each.schedules else each.scope)
                )
                yield f"    {clock(each.at)} to {clock(each.until)}  {each.kind} of {who} {each.note}"


def _around(violation: Violation, disturbances: Sequence[Disturbance]) -> list[Disturbance]:
    near = [
        each
        for each in disturbances
        if each.at <= violation.at + 1
        and each.until >= min(violation.at, violation.fire) - AROUND_SECONDS
        and (each.scope != "nothing" or violation.schedule in each.schedules)
    ]
    return sorted(near, key=lambda each: each.at)[-12:]


# --- the program ---


@contextmanager
def _directory(kept: bool) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        yield directory
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.fault_run",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults; start and rest come on top (5)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what is drawn (random)")
    parser.add_argument("--fires-per-second", type=float, default=60.0, help="over all schedules (60)")
    parser.add_argument("--replicas", type=int, default=4, help="processes (4)")
    parser.add_argument("--only", default="", help=f"kinds of faults, comma-separated: {', '.join(faults.KINDS)}")
    parser.add_argument("--strength", type=float, default=1.0, help="factor on all lengths of time (1)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the replicas")
    parser.add_argument("--json", type=Path, help="write everything that was found into this file")
    parser.add_argument("--record", action="store_true", help="note the figures for docs/guarantees.md")
    parser.add_argument("--keep", action="store_true", help="keep the directory: logs, ledger, faults")
    parser.add_argument("--nice", type=int, default=5, help="how much the run steps back behind others (5)")
    parser.add_argument("--quiet", action="store_true", help="only the report")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    only = [name for name in given.only.split(",") if name]
    if unknown := set(only) - faults.KINDS.keys():
        print(f"no such fault: {', '.join(sorted(unknown))} (known: {', '.join(faults.KINDS)})", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))  # ends everything, as Ctrl-C does
    os.nice(given.nice)
    with _directory(given.keep) as directory:
        options = Options(
            minutes=given.minutes,
            seed=given.seed,
            fires_per_second=given.fires_per_second,
            replicas=given.replicas,
            only=only,
            strength=given.strength,
            directory=directory,
            quiet=given.quiet,
            settings=dict(each.split("=", 1) for each in given.set),
        )
        outcome = Run(options)()
        for line in report(outcome):
            print(line, flush=True)
        if given.record:
            results.record("faults", f"make faults MINUTES={given.minutes:g} SEED={given.seed}", outcome.in_short())
        if given.json:
            given.json.write_text(json.dumps(outcome.as_json(), indent=1, default=str))
        if not outcome.is_clean and given.keep:
            print(f"logs, ledger and faults are in {directory}")
    return 0 if outcome.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
