"""Two checkouts measured in one run: our own design takes turns here and in the directory of another commit.

A busy moment of the machine hits both, so their ratio means more than two runs an hour apart. Each turn is a process
of its own (turn.py) with the code of its checkout.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import replicas, turn
from benchmarks.growth import exponent
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from benchmarks.turn import Figures
from config import PROJECT_ROOT

COMPARABLE = tuple(turn.TURNS)
GROWING = {
    "replicas": "replicas' CPU/fire, us",
    "Postgres": "Postgres' CPU/fire, us",
    "Redis": "Redis' CPU/fire, us",
}


class CheckoutLacks(Exception):
    """The checkout cannot run the scenario: its code is too different."""


@dataclass(frozen=True, slots=True)
class Checkout:
    directory: Path

    @property
    def name(self) -> str:
        """Name of its commit, with a plus if files differ from it; name of the directory if there is no commit."""
        commit = self._git("rev-parse", "--short", "HEAD")
        is_changed = bool(self._git("status", "--porcelain", "--untracked-files=no"))
        return f"{commit}{'+' * is_changed}" if commit else self.directory.name

    def turn(self, scenario: str, arguments: dict[str, Any]) -> tuple[Figures, bool]:
        """Figures of one turn, and whether the scenario's file is ours because the checkout lacks it."""
        command = [str(self._python()), "-P", turn.__file__, scenario, json.dumps(arguments)]
        done = subprocess.run(
            command, cwd=self.directory, env={"PYTHONPATH": str(self.directory)}, stdout=subprocess.PIPE, check=True
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        if "lacks" in answer:
            raise CheckoutLacks(answer["lacks"])
        return answer["figures"], answer["borrowed"]

    def _python(self) -> Path:
        """The checkout's own virtual environment if it has one: another commit may need other packages."""
        own = self.directory / ".venv" / "bin" / "python"
        return own if own.exists() else Path(sys.executable)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.directory), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()


HERE = Checkout(PROJECT_ROOT)


@dataclass(slots=True)
class Pair:
    """The turns of both checkouts for one size of a scenario."""

    label: str
    arguments: dict[str, Any]
    here: list[Figures]
    there: list[Figures]


def compare(name: str, scale: Scale, there: Checkout, here: Checkout = HERE) -> Iterator[Sheet]:
    """One sheet: every figure here, there, and the ratio."""
    title = f"{name}: this checkout beside another commit, in turns; medians and worst counts of {scale.rounds} rounds"
    sheet = Sheet(f"{name}-beside", title, ["", "figure", f"here {here.name}", f"there {there.name}", "here / there"])
    pairs = [Pair(label, arguments, [], []) for label, arguments in _sizes(name, scale)]
    try:
        borrowed = _take_turns(name, pairs, scale.rounds, here, there)
    except CheckoutLacks as lacks:
        sheet.notes.append(f"{there.name} in {there.directory} lacks what {name} needs: {lacks}")
        yield sheet
        return
    if borrowed:
        sheet.notes.append(f"{there.name} has no scenario {name}: the file of this checkout measured its code")
    for pair in pairs:
        _add(sheet, pair.label, summary(pair.here), summary(pair.there))
    if name == "replicas":
        _add_growth(sheet, pairs)
    yield sheet


def _take_turns(name: str, pairs: Sequence[Pair], rounds: int, here: Checkout, there: Checkout) -> bool:
    """The order alternates from round to round. The other checkout begins, so a missing scenario shows at once."""
    borrowed = False
    for number in range(rounds):
        for pair in pairs:
            order = [(there, pair.there), (here, pair.here)]
            for checkout, turns in order if number % 2 == 0 else order[::-1]:
                doing(f"{pair.label} round {number + 1} of {rounds}: {checkout.name}".lstrip())
                figures, is_borrowed = checkout.turn(name, pair.arguments)
                turns.append(figures)
                borrowed |= is_borrowed
    return borrowed


def _sizes(name: str, scale: Scale) -> list[tuple[str, dict[str, Any]]]:
    """The measurements of the scenario at this scale."""
    match name:
        case "burst":
            return [(f"{count:,} fires", {"fires": count}) for count in scale.bursts]
        case "steady":
            return [("", {"seconds": scale.steady_seconds})]
        case "changes":
            return [("", {"changes": scale.changes})]
        case "replicas":
            return [
                (f"{number} replicas", {"replicas": number, "seconds": scale.replicas_seconds})
                for number in scale.replicas
            ]
        case _:
            return [("", {})]


def summary(turns: Sequence[Figures]) -> Figures:
    """Figures with a unit are medians; counts are the worst of all turns."""
    return {name: (statistics.median if "," in name else max)(one[name] for one in turns) for name in turns[0]}


def _add(sheet: Sheet, label: str, here: Figures, there: Figures) -> None:
    for name in here:
        if name in there:
            ratio = f"{here[name] / there[name]:.2f}" if there[name] > 0 else ""
            sheet.add(label, name, _number(here[name]), _number(there[name]), ratio)
    sheet.facts[label] = {"here": here, "there": there}


def _add_growth(sheet: Sheet, pairs: Sequence[Pair]) -> None:
    numbers = replicas.growing(pair.arguments["replicas"] for pair in pairs)
    chosen = [pair for pair in pairs if pair.arguments["replicas"] in numbers]

    def power(figure: str, side: str) -> float:
        costs = [summary(getattr(pair, side))[figure] / 1e6 for pair in chosen]
        return exponent(list(zip(numbers, costs, strict=True)))

    label = f"{numbers[0]} to {numbers[-1]}"
    for part, figure in GROWING.items():
        here, there = power(figure, "here"), power(figure, "there")
        sheet.add(label, f"growth exponent, {part}", f"{here:.2f}", f"{there:.2f}", "")
        sheet.facts.setdefault(label, {})[part] = {"here": here, "there": there}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"
