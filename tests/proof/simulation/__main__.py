"""Plays histories and judges them. Exit code 1: a promise was broken, or a seed gave two different histories."""

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have one order
    os.execve(
        sys.executable,
        [sys.executable, "-m", "tests.proof.simulation", *sys.argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )

from tests.proof import results
from tests.proof.simulation.figures import Figures
from tests.proof.simulation.net import KINDS
from tests.proof.simulation.options import Options, Result
from tests.proof.simulation.shrinking import Shrinking, told

if TYPE_CHECKING:
    from tests.proof.simulation.playing import Stage

EXAMPLES = """examples:
  python -m tests.proof.simulation --seed 1 --runs 1000 --processes 2
  python -m tests.proof.simulation --seed 106 --trace             one history, step by step
  python -m tests.proof.simulation --seed 106 --shrink            the same with as little as possible
  python -m tests.proof.simulation --runs 500 --faults late_reply,freeze --until-found
  python -m tests.proof.simulation --runs 20000 --processes 2 --write long.json --resume
                                                                  hours of it: the same command goes on after a stop
  make simulate SEED=1 RUNS=150
"""
TWICE_EVERY = 100
ROUND = 250  # histories of each process until the next line of progress
MANY = 1_000_000  # more than anybody waits for
FOUND = Path(__file__).with_name("found.toml")
MONOTONIC = time.monotonic  # before anybody replaces it


def main() -> int:
    given = _arguments()
    with_children = given.resume or (given.processes > 1 and given.runs > 1)
    figures = _play_in_children(given) if with_children else _play_here(given)
    if given.json:
        print(json.dumps(figures.as_json()))
    else:
        for line in figures.told(given.processes if with_children else 1):
            print(line)
    if given.record:
        results.record("simulation", f"make simulate SEED={given.seed} RUNS={given.runs}", figures.in_short())
    if given.write:
        given.write.write_text(json.dumps(figures.as_json()))
    return 1 if figures.failed or figures.different else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.proof.simulation", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds")
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next")
    parser.add_argument("--seeds", type=_numbers, help="these, by comma, instead")
    parser.add_argument("--kept", action="store_true", help="the seeds that once broke a promise (found.toml) instead")
    parser.add_argument("--processes", type=int, default=1, help="each with a database of its own")
    parser.add_argument("--faults", type=_kinds, default=KINDS, help=f"kinds by comma, none: '' ({', '.join(KINDS)})")
    parser.add_argument("--only", type=_texts, help="keys of the faults that may strike, by comma")
    parser.add_argument("--schedules", type=_numbers, help="numbers of the schedules that are left, by comma")
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--pace", choices=("quick", "usual"))
    parser.add_argument("--queue", action=argparse.BooleanOptionalAction, help="each with a status queue, or none")
    parser.add_argument("--fleet", action=argparse.BooleanOptionalAction, help="each with Celery workers, or none")
    parser.add_argument("--until-found", action="store_true", help="stop at the first broken promise")
    parser.add_argument("--shrink", action="store_true", help="make the first broken history small, and show it")
    parser.add_argument("--trace", action="store_true", help="show every step")
    parser.add_argument("--twice", action="store_true", help="play every seed twice, not one in a hundred")
    parser.add_argument("--seconds", type=float, help="real ones, instead of a number of seeds")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--record", action="store_true", help="note the figures for docs/guarantees.md")
    parser.add_argument("--write", type=Path, help="write the figures into this file, too")
    parser.add_argument("--resume", action="store_true", help="go on where the file of --write ends")
    parser.add_argument("--server", help="the URL of a Postgres in which databases may be made; else an embedded one")
    parser.add_argument("--database", default=f"simulation_{os.getpid()}", help="made, and dropped at the end")
    given = parser.parse_args()
    if given.resume and (given.write is None or given.seconds is not None):
        parser.error("--resume needs --write FILE and a number of --runs")
    if given.seconds is not None:
        given.runs = MANY
    return given


def _texts(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _texts(text)))


def _kinds(text: str) -> tuple[str, ...]:
    if unknown := set(_texts(text)) - set(KINDS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    return _texts(text)


def _options(given: argparse.Namespace) -> Options:
    return Options(
        faults=given.faults,
        only=None if given.only is None else frozenset(given.only),
        schedules=None if given.schedules is None else frozenset(given.schedules),
        replicas=given.replicas,
        pace=given.pace,
        queue=given.queue,
        fleet=given.fleet,
    )


def _wanted(given: argparse.Namespace) -> Iterator[tuple[int, Options]]:
    if given.kept:
        for each in tomllib.loads(FOUND.read_text())["found"]:
            only = frozenset(each["only"]) if "only" in each else None
            schedules = frozenset(each["schedules"]) if "schedules" in each else None
            kinds = tuple(each.get("faults", KINDS))
            yield (
                each["seed"],
                Options(
                    faults=kinds,
                    only=only,
                    schedules=schedules,
                    replicas=each.get("replicas"),
                    pace=each.get("pace"),
                    queue=each.get("queue"),
                    fleet=each.get("fleet"),
                ),
            )
        return
    seeds: Sequence[int] = given.seeds or range(given.seed, given.seed + given.runs * given.step, given.step)
    for seed in seeds:
        yield seed, _options(given)


# --- in this process ---


def _play_here(given: argparse.Namespace) -> Figures:
    from tests.proof.simulation import playing
    from tests.proof.simulation.server import a_server

    with a_server(given.server) as url:
        stage = playing.Stage(url, given.database)
        try:
            return _play_all(stage, given)
        finally:
            stage.close()


def _play_all(stage: "Stage", given: argparse.Namespace) -> Figures:
    figures, cpu, began = Figures(), time.process_time(), MONOTONIC()
    for seed, options in _wanted(given):
        if given.seconds is not None and MONOTONIC() - began > given.seconds:
            break
        result = stage.play(seed, options)
        figures.add(result)
        if given.twice or seed % TWICE_EVERY == 0 or seed == given.seed:
            figures.twice += 1
            again = stage.play(seed, options)
            if again.digest != result.digest:
                figures.different.append(seed)
                _tell(f"seed {seed} gave two histories: {_first_difference(result, again)}")
        if given.trace:
            _tell("\n".join(told(result, everything=True)))
        if result.violations:
            _tell(_broken(result))
            if given.shrink:
                small = Shrinking(stage.play)(result)
                _tell("\n".join(["as small as it gets:", *told(small), _broken(small)]))
            if given.until_found or given.shrink:
                break
    figures.cpu_seconds, figures.seconds = time.process_time() - cpu, MONOTONIC() - began
    return figures


def _broken(result: Result) -> str:
    lines = [f"seed {result.seed}: {len(result.violations)} broken, digest {result.digest}"]
    lines += [f"  {text}" for text in result.violations[:8]]
    lines += [f"    {fault}" for fault in result.faults[:40]]
    keys = ",".join(fault.key for fault in result.faults)
    if len(result.faults) <= 12:
        chosen = f" --schedules {','.join(map(str, result.schedules))} --replicas {result.replicas}"
        lines.append(f"  again: --seed {result.seed} --only '{keys}'{chosen}")
    return "\n".join(lines)


def _first_difference(one: Result, two: Result) -> str:
    pairs = zip(one.lines, two.lines, strict=False)
    return next((f"{a} / {b}" for a, b in pairs if a != b), "one is longer")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- in several ---


def _play_in_children(given: argparse.Namespace) -> Figures:
    """In rounds: each ends with a line of progress, and with figures in the file from which --resume goes on."""
    from tests.proof.simulation.server import a_server

    figures = Figures()
    if given.resume and given.write.exists():
        figures = Figures.from_json(json.loads(given.write.read_text()))
        _tell(f"{figures.histories:,} histories are in {given.write}")
    with a_server(given.server) as url:
        while (left := given.runs - figures.histories) > 0:
            runs = left if given.seconds is not None else min(left, ROUND * given.processes)
            seed, began = given.seed + figures.histories, MONOTONIC()
            children = [_child(given, seed, runs, number, url) for number in range(given.processes)]
            for child in children:
                out, _ = child.communicate()
                if not out.strip():
                    raise SystemExit(f"a process of the simulation ended with {child.returncode}")
                figures.merge(Figures.from_json(json.loads(out.splitlines()[-1])))
            figures.seconds += MONOTONIC() - began
            if given.write:
                given.write.write_text(json.dumps(figures.as_json()))
            if given.seconds is not None or (given.until_found and figures.failed):
                break
            _tell(f"{figures.histories:,} of {given.runs:,} histories, {len(figures.failed)} broke a promise; "
                  f"{(given.runs / figures.histories - 1) * figures.seconds / 60:.0f} minutes to go")  # fmt: skip
    return figures


def _child(given: argparse.Namespace, seed: int, runs: int, number: int, url: str) -> "subprocess.Popen[str]":
    own = (runs - number + given.processes - 1) // given.processes
    passed = {"--seed": seed + number, "--runs": own, "--step": given.processes, "--server": url,
              "--database": f"{given.database}_{number}", "--faults": ",".join(given.faults)}  # fmt: skip
    command = [sys.executable, "-m", "tests.proof.simulation", "--json"]
    command += [str(part) for pair in passed.items() for part in pair]
    command += [f"--{name}" for name in ("until_found", "twice") if getattr(given, name)]
    command = [part.replace("--until_found", "--until-found") for part in command]
    if given.seconds is not None:
        command += ["--seconds", str(given.seconds)]
    if given.replicas:
        command += ["--replicas", str(given.replicas)]
    if given.pace:
        command += ["--pace", given.pace]
    if given.queue is not None:
        command.append("--queue" if given.queue else "--no-queue")
    if given.fleet is not None:
        command.append("--fleet" if given.fleet else "--no-fleet")
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    sys.exit(main())
