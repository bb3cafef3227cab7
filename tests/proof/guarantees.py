"""docs/guarantees.md: each promise with its bound, its tests, its mutants, and the figures of the last full runs.

`python -m tests.proof.guarantees > docs/guarantees.md`; tests/unit/proof/test_promises.py compares.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.proof import results
from tests.proof.mutants.mutant import Mutant
from tests.proof.mutants.sampling import ACCEPTED
from tests.proof.mutants.table import MUTANTS
from tests.proof.page import NOT_SHOWN
from tests.proof.promises import PROMISES, Promise

INTRODUCTION = """# Guarantees

What Enhanced Scheduler promises, how each promise is checked, and what the last full runs found. This page is generated
(`python -m tests.proof.guarantees > docs/guarantees.md`); a test compares it with the code.

Four programs try to break the promises:

- `make simulate` plays the replicas' own code, one step at a time, in virtual time on a real Postgres. Faults strike
  between any two steps; a history repeats exactly from its seed ([simulation.md](simulation.md)).
- `make faults` kills, freezes, cuts off and edits real replica processes under load.
- `make mutants` takes one defence away at a time; a named test must notice.
- `make prove` does the first two for five minutes and writes one page, `proof.html`.

The judge of the first two (`tests/proof/checker.py`) imports nothing of the product. It computes itself which fires
were due, from the log of changes, and compares them with the rows and with a ledger that the handlers keep.
`tests/proof/queue_checker.py` does the same for the items of workflows, in the simulation.
`manage.py audit` does the same on a production database, without the ledger.
"""
FIGURES = (
    ("histories", "histories"),
    ("SQL statements", "statements"),
    ("fires", "fires"),
    ("calls of handlers", "calls"),
    ("faults", "faults"),
    ("called twice", "called_twice"),
    ("unaccounted", "unaccounted"),
    ("broken promises of any kind", "broken"),
    ("worst takeover, with nothing else wrong (s)", "worst_takeover"),
    ("worst takeover, whatever else was wrong (s)", "worst_takeover_any"),
    ("worst lateness while all was well (s)", "worst_lateness"),
)


def page() -> str:
    return "\n".join([INTRODUCTION, *_promises(), *_figures(), *_limits()]) + "\n"


def _promises() -> Iterator[str]:
    yield "## Promises"
    for promise in PROMISES:
        own = [mutant for mutant in MUTANTS if mutant.breaks == promise.number]
        yield ""
        yield f"### {promise.number} {promise.title}"
        yield ""
        yield promise.sentence
        yield ""
        yield f"- **Bound**: {promise.bound}."
        yield f"- **Tests**: {', '.join(_linked(node) for node in promise.tests)}."
        yield f"- **Broken when the checker finds**: {_findings(promise)}."
        yield f"- **Mutants**: {', '.join(f'`{mutant.name}`' for mutant in own)}."


def _linked(node: str) -> str:
    path, _, name = node.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})"


def _findings(promise: Promise) -> str:
    return ", ".join(promise.findings) or "nothing of its own: the other promises hold under these faults"


def _figures() -> Iterator[str]:
    recorded = results.read()
    runs = [recorded.get("simulation", {}), recorded.get("faults", {})]
    yield ""
    yield "## The last full runs"
    yield ""
    yield "| | simulation | real processes |"
    yield "|---|---|---|"
    yield f"| command | {' | '.join(_command(run) for run in runs)} |"
    yield f"| date, commit | {' | '.join(_when(run) for run in runs)} |"
    for title, name in FIGURES:
        yield f"| {title} | {' | '.join(_number(run.get(name)) for run in runs)} |"
    yield ""
    yield from _mutants(recorded.get("mutants", {}), recorded.get("sample", {}))


def _command(run: Mapping[str, Any]) -> str:
    return f"`{run['command']}`" if run else ""


def _when(run: Mapping[str, Any]) -> str:
    return f"{run['date']}, {run['commit']}" if run else "not recorded"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _mutants(named: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[str]:
    if named:
        caught = f"{named['caught']} of {named['mutants']}"
        yield f"Of the named mutants ({_command(named)}, {_when(named)}) {caught} are caught."
    if sample:
        found = f"{sample['caught']} are caught, {sample['SURVIVED']} survive, {sample['accepted']} for a known reason"
        yield f"Of a sample drawn from the engine and the ledger ({_command(sample)}, {_when(sample)}) {found}:"
        yield ""
        yield from (f"- {path}, {operator}, `{line}`: {why}" for (path, line, operator), why in ACCEPTED.items())
    pairs = [mutant for mutant in MUTANTS if mutant.with_it]
    yield ""
    yield "Some defences stand behind each other: either alone could fall unnoticed, so both are taken away together:"
    yield ""
    yield from (_pair(mutant) for mutant in pairs)


def _pair(mutant: Mutant) -> str:
    return f"- `{mutant.name}`: {mutant.takes_away} With it: {mutant.with_it}"


def _limits() -> Iterator[str]:
    yield ""
    yield "## What is not shown"
    yield ""
    yield from (f"- {each}" for each in NOT_SHOWN)


if __name__ == "__main__":
    sys.stdout.write(page())
