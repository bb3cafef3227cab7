"""What a mutant is: edits of the source, the promise that they break, and the run that has to notice."""

from dataclasses import dataclass
from pathlib import Path

from tests.proof.simulation.options import QUEUE


class Unfit(Exception):
    """The table is not in step with the code: an edit does not apply."""


@dataclass(frozen=True, slots=True)
class Edit:
    path: str
    old: str  # exactly as it stands in the file, once
    new: str

    def applied_to(self, root: Path) -> str:
        """The text of the file after this edit."""
        path = root / self.path
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (times := source.count(self.old)) != 1:
            raise Unfit(f"{self.path} has this text {times} times, not once: {self.old!r}")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Caught by the simulation: it finds a broken promise within so many histories of these faults."""

    faults: str
    histories: int = 100
    seed: int = 1
    queue: bool = False  # of histories with nothing but a status queue
    fleet: bool = False  # of histories with workers of Celery

    @property
    def arguments(self) -> tuple[str, ...]:
        alone: tuple[str, ...] = ("--queue", "--schedules", str(QUEUE)) if self.queue else ()
        if self.fleet:
            alone = ("--fleet", "--no-queue")
        runs = ("--seed", str(self.seed), "--runs", str(self.histories))
        return ("--faults", self.faults, *runs, "--until-found", *alone)

    def __str__(self) -> str:
        return f"simulation {' '.join(self.arguments)}"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str  # the promise, G1 to G9
    takes_away: str
    edits: tuple[Edit, ...]
    caught_by: str | Simulated  # a test's node id
    with_it: str = ""  # the second defence that falls with it: either alone survives, because the other one holds

    def apply(self, root: Path) -> None:
        for edit in self.edits:  # one by one: a later edit may be of the same file
            try:
                changed = edit.applied_to(root)
            except Unfit as error:
                raise Unfit(f"mutant {self.name}: {error}") from None
            (root / edit.path).write_text(changed, encoding="utf-8")
