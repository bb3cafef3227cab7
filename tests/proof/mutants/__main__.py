"""Makes mutants and runs their tests. Exit code 1 when one survived, or when the table is not in step with the code."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import TypeVar

from tests.proof import results
from tests.proof.mutants.mutant import Mutant, Simulated, Unfit
from tests.proof.mutants.sampling import GOAL, TESTS, Drawn, Reach, Sample, draw, judge, score
from tests.proof.mutants.table import MUTANTS
from tests.proof.mutants.workshop import Outcome, Report, Workshop, patience, workshops

EXAMPLES = """examples:
  make mutants                                        all named mutants
  make mutants ARGS="no_unique_key retry_lost"        some of them
  make mutants SAMPLE=40 SEED=1                       mutants drawn from services/engine and services/ledger
  python -m tests.proof.mutants --list
"""
SECONDS_PER_HISTORY = 10.0

T = TypeVar("T")
R = TypeVar("R")


class Fate(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"  # its test proves nothing


FATES = {
    Outcome.RED: Fate.CAUGHT,
    Outcome.GREEN: Fate.SURVIVED,
    Outcome.BROKEN: Fate.BROKEN,
    Outcome.HUNG: Fate.BROKEN,
}


@dataclass(frozen=True, slots=True)
class Judged:
    mutant: Mutant
    fate: Fate
    why: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.fate:8}  {self.mutant.breaks}  {self.mutant.name:34} {self.seconds:5.0f} s  {self.why}"


def main() -> int:
    given = _arguments()
    chosen = [mutant for mutant in MUTANTS if not given.names or mutant.name in given.names]
    if unknown := set(given.names) - {mutant.name for mutant in MUTANTS}:
        print(f"unknown: {', '.join(sorted(unknown))}; --list shows all", file=sys.stderr)
        return 2
    if given.list:
        for mutant in chosen:
            print(f"{mutant.breaks}  {mutant.name:34} {mutant.takes_away}\n{'':39}caught by {mutant.caught_by}")
        return 0
    with workshops(given.jobs) as shops:
        return _sampled(shops, given) if given.sample else _named(shops, chosen, given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.proof.mutants", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", help="of mutants; none: all")
    parser.add_argument("--list", action="store_true", help="show them, and what catches each")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once, each with servers of its own")
    parser.add_argument("--sample", type=int, default=0, help="instead, draw so many from the engine and the ledger")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--record", action="store_true", help="note the figures for docs/guarantees.md")
    return parser.parse_args()


# --- the table ---


def _named(shops: Sequence[Workshop], chosen: Sequence[Mutant], given: argparse.Namespace) -> int:
    _tell(f"{len(chosen)} mutants; first their tests on the tree as it is")
    before = _before(shops, chosen)
    judged = _in_parallel(shops, chosen, lambda shop, mutant: _judge(shop, mutant, before))
    lost = [each for each in judged if each.fate is not Fate.CAUGHT]
    _tell("")
    for each in sorted(judged, key=lambda each: (each.mutant.breaks, each.mutant.name)):
        _tell(f"{each.fate:8}  {each.mutant.breaks}  {each.mutant.name:34} {each.mutant.caught_by}")
    _tell(f"\n{len(judged) - len(lost)} of {len(judged)} mutants are caught")
    for each in lost:
        _tell(str(each))
    if given.record:
        results.record("mutants", "make mutants", {"mutants": len(judged), "caught": len(judged) - len(lost)})
    return 1 if lost else 0


def _before(shops: Sequence[Workshop], chosen: Sequence[Mutant]) -> dict[str | Simulated, Report]:
    """Each test, or simulation, on the tree as it is: it must be green there."""
    tests = sorted({mutant.caught_by for mutant in chosen if isinstance(mutant.caught_by, str)})
    shares = [share for number in range(len(shops)) if (share := tests[number :: len(shops)])]
    found: dict[str | Simulated, Report] = {}
    for share, report in zip(
        shares, _in_parallel(shops, shares, lambda shop, share: shop.run_tests(shop.clean, share)), strict=True
    ):
        for test in share:
            red = [each for each in report.red if each.partition("[")[0] == test]
            is_green = test in report.seconds and not red
            why = "" if is_green else f"its test is not green on the tree as it is: {report.why}"
            seconds = {test: report.seconds.get(test, 0.0)}
            found[test] = Report(Outcome.GREEN if is_green else Outcome.BROKEN, why, seconds)
    for simulated in {mutant.caught_by for mutant in chosen if isinstance(mutant.caught_by, Simulated)}:
        limit = SECONDS_PER_HISTORY * simulated.histories
        report = shops[0].run_simulation(shops[0].clean, simulated.arguments, limit)
        why = (
            "" if report.outcome is Outcome.GREEN else f"the simulation is not green on the tree as it is: {report.why}"
        )
        found[simulated] = Report(report.outcome, why)
    return found


def _judge(shop: Workshop, mutant: Mutant, before: dict[str | Simulated, Report]) -> Judged:
    began, tree, catcher = time.monotonic(), shop.fresh(), mutant.caught_by
    if before[catcher].outcome is not Outcome.GREEN:
        judged = Judged(mutant, Fate.BROKEN, before[catcher].why)
    else:
        try:
            mutant.apply(tree)
        except Unfit as error:
            judged = Judged(mutant, Fate.BROKEN, str(error))
        else:
            if isinstance(catcher, Simulated):
                report = shop.run_simulation(tree, catcher.arguments, SECONDS_PER_HISTORY * catcher.histories)
            else:
                limit = patience(before[catcher].seconds[catcher])
                report = shop.run_tests(tree, [catcher], "-x", limit_seconds=limit)
            judged = Judged(mutant, FATES[report.outcome], report.why, time.monotonic() - began)
    _tell(str(judged))
    return judged


# --- the draw ---


def _sampled(shops: Sequence[Workshop], given: argparse.Namespace) -> int:
    """Exit code 1 when fewer are caught than the goal asks for."""
    samples = draw(given.sample, given.seed)
    _tell(f"{len(samples)} mutants drawn by seed {given.seed}; first the tests of their rooms, to see which reach what")
    shares = [share for number in range(len(shops)) if (share := TESTS[number :: len(shops)])]
    reach = Reach.of_all(_in_parallel(shops, shares, Reach.measured))

    def one(shop: Workshop, sample: Sample) -> Drawn:
        drawn = judge(shop, sample, reach)
        _tell(str(drawn))
        return drawn

    drawn = _in_parallel(shops, samples, one)
    _tell("\nsurvivors:")
    for each in drawn:
        if each.fate in ("SURVIVED", "accepted"):
            _tell(str(each))
    number = Counter(each.fate for each in drawn)
    _tell(
        f"\n{number['caught']} caught, {number['SURVIVED']} survived: {score(drawn):.0%}; besides,"
        f" {number['accepted']} survived for a known reason, {number['invalid']} did not even run"
    )
    if given.record:
        command = f"make mutants SAMPLE={given.sample} SEED={given.seed}"
        results.record("sample", command, {name: number[name] for name in ("caught", "SURVIVED", "accepted")})
    return 0 if score(drawn) >= GOAL else 1


def _in_parallel(shops: Sequence[Workshop], work: Sequence[T], do: Callable[[Workshop, T], R]) -> list[R]:
    """One piece of work at a time in each workshop; answers in the order of the work."""
    free: SimpleQueue[Workshop] = SimpleQueue()
    for shop in shops:
        free.put(shop)

    def one(piece: T) -> R:
        shop = free.get()
        try:
            return do(shop, piece)
        finally:
            free.put(shop)

    with ThreadPoolExecutor(len(shops)) as pool:
        return list(pool.map(one, work))


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
