"""The page of `make prove`: what was tried, found and measured, for people who decide whether to trust the scheduler.

One HTML file without scripts and external requests. Pure: `html_page` gets the figures that the runs have written.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from services.scanning.report.markup import Markup, bullets, join, tag
from tests.proof.promises import PROMISES, Promise, promise_of

STYLE = """
:root { color-scheme: light dark; --good: #137333; --bad: #b3261e; --bar: #3367d6; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
.verdict { font-size: 1.3rem; font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
@media (prefers-color-scheme: dark) { :root { --good: #81c995; --bad: #f28b82; --bar: #8ab4f8; } }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
  border-bottom: 1px solid var(--line); } .number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: inline-block; height: .7rem; background: var(--bar); border-radius: 2px; min-width: 1px; }
code { font-size: .9em; } pre { overflow-x: auto; background: #8881; padding: .8rem; }
small { opacity: .8; }
"""
FAULTS_EXPLAINED = (
    "A fault of the simulation strikes between any two steps of the scheduler's own code: its threads are played one "
    "step at a time, in virtual time, on a real Postgres. A fault of the other run hits real processes: they are "
    "killed, frozen and cut off while they work."
)
NOT_SHOWN = (
    "Effects outside the scheduler: a handler that was killed may have done half of its work. Handlers get an "
    "idempotency key and a fencing token for that.",
    "The inside of one SQL statement, which Postgres decides, and faults of its disk.",
    "A process that freezes in the instant between the last check and the call of its handler: it cannot know that it "
    "was given up meanwhile. It can write nothing.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The figures of one proof; each run's own, as it wrote them."""

    when: str
    version: str
    machine: str
    seed: int
    minutes: float
    simulation: Mapping[str, Any]
    faults: Mapping[str, Any]

    @property
    def found(self) -> Counter[str]:
        """Broken promises by kind, of both runs."""
        told = [text for texts in self.simulation["failed"].values() for text in texts]
        by_kind = Counter(text.partition(":")[0] for text in told)
        by_kind.update(self.faults["found"])
        by_kind.update({"the run as a whole": len(self.faults["troubles"])} if self.faults["troubles"] else {})
        if self.simulation["different"]:
            by_kind["a seed gave two histories"] = len(self.simulation["different"])
        return by_kind

    @property
    def is_clean(self) -> bool:
        return not self.found and bool(self.faults["audit"].get("clean"))


def html_page(proof: Proof) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "Proof: Enhanced Scheduler"),
        Markup(f"<style>{STYLE}</style>"),
    )
    sections = (_header, _promises, _figures, _faults, _limits, _again)
    body = tag("body", *(Markup(f"\n{section(proof)}\n") for section in sections))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _header(proof: Proof) -> Markup:
    good = proof.is_clean
    broken = ", ".join(f"{kind} ({count})" for kind, count in proof.found.items()) or "the audit"
    fires = proof.simulation["fires"] + proof.faults["fires"]
    struck = _struck(proof.simulation) + _struck(proof.faults)
    run = f"Enhanced Scheduler {proof.version}, {proof.when}, {proof.minutes:.1f} minutes on {proof.machine}"
    how = (
        f"{fires:,} fires under {struck:,} faults, judged by a checker that shares no code with the scheduler: it "
        "computes itself which fires were due, and compares them with the rows in Postgres and with a ledger that the "
        "handlers keep."
    )
    verdict = "No promise was broken." if good else f"Broken: {broken}."
    return join(
        [
            tag("h1", "Does it keep its promises?"),
            tag("p", run),
            tag("p", verdict, class_=f"verdict {'good' if good else 'bad'}"),
            tag("p", how),
        ]
    )


def _promises(proof: Proof) -> Markup:
    rows = [(promise, sum(proof.found[kind] for kind in promise.findings)) for promise in PROMISES]
    others = {kind: count for kind, count in proof.found.items() if promise_of(kind) is None}
    body = [_promise(promise, broken) for promise, broken in rows]
    body += [tag("tr", tag("td", ""), tag("td", kind), tag("td", ""), _number(count)) for kind, count in others.items()]
    return join([tag("h2", "Promises"), _table(("", "promise", "bound", "times broken"), body)])


def _promise(promise: Promise, broken: int) -> Markup:
    said = join([tag("strong", promise.title), Markup("<br>"), tag("small", _plain(promise.sentence))])
    how = _number(broken) if promise.findings else tag("td", "by tests", class_="number")
    return tag("tr", tag("td", promise.number), tag("td", said), tag("td", _plain(promise.bound)), how)


def _plain(text: str) -> str:
    """Without the marks of Markdown, which docs/guarantees.md shows."""
    return text.replace("`", "")


def _figures(proof: Proof) -> Markup:
    one, two = proof.simulation, proof.faults
    audit = two["audit"]
    rows = (
        ("histories", f"{one['histories']:,}", "1"),
        ("time", f"{one['virtual_seconds'] / 3600:,.1f} virtual hours", f"{two['seconds'] / 60:.1f} minutes"),
        ("fires that were due", f"{one['fires']:,}", f"{two['fires']:,}"),
        ("calls of handlers", f"{sum(one['calls']):,}", f"{two['calls']:,}"),
        ("SQL statements", f"{sum(one['statements']):,}", ""),
        ("faults", f"{_struck(one):,}", f"{_struck(two):,}"),
        (
            "worst takeover, with nothing else wrong",
            _seconds(one["worst_takeover"]),
            _seconds(two["worst_takeover"]),
        ),
        (
            "worst takeover, whatever else was wrong",
            _seconds(one["worst_takeover_any"]),
            _seconds(two["worst_takeover_any"]),
        ),
        ("worst lateness while all was well", _seconds(one["worst_lateness"]), _seconds(two["worst_lateness"])),
        ("seeds played twice, with equal histories", f"{one['twice'] - len(one['different'])} of {one['twice']}", ""),
        ("manage.py audit", "", f"expected {audit.get('expected', 0):,}, accounted {audit.get('accounted', 0):,}"),
    )
    body = [tag("tr", tag("td", name), _number(first), _number(second)) for name, first, second in rows]
    return join([tag("h2", "Figures"), _table(("", "simulation", "real processes"), body)])


def _faults(proof: Proof) -> Markup:
    kinds = Counter(_by_kind(proof.simulation)) + Counter(_by_kind(proof.faults))
    most = max(kinds.values(), default=1)
    body = [
        tag(
            "tr",
            tag("td", kind.replace("_", " ")),
            _number(_by_kind(proof.simulation).get(kind, 0) or ""),
            _number(_by_kind(proof.faults).get(kind, 0) or ""),
            tag("td", tag("span", "", class_="bar", style=f"width: {100 * count / most:.1f}%"), style="width: 40%"),
        )
        for kind, count in kinds.most_common()
    ]
    headings = ("fault", "simulation", "real processes", "")
    return join([tag("h2", "What was done to it"), tag("p", FAULTS_EXPLAINED), _table(headings, body)])


def _limits(proof: Proof) -> Markup:
    return join([tag("h2", "What this does not show"), bullets(NOT_SHOWN)])


def _again(proof: Proof) -> Markup:
    first, runs = proof.seed, proof.simulation["histories"]
    commands = f"make prove SEED={proof.seed}\nmake simulate SEED={first} RUNS={runs}\nmake faults SEED={proof.seed}"
    broken = [
        f"seed {seed}: {'; '.join(texts[:3])}" for seed, texts in sorted(proof.simulation["failed"].items())
    ] + list(proof.faults["violations"])[:20]
    parts = [tag("h2", "Again"), tag("pre", commands)]
    if broken:
        parts += [tag("h2", "What was broken"), bullets(broken)]
    return join(parts)


def _struck(figures: Mapping[str, Any]) -> int:
    return sum(_by_kind(figures).values())


def _by_kind(figures: Mapping[str, Any]) -> dict[str, int]:
    if "faults" in figures:
        return dict(figures["faults"])
    return {name.removeprefix("fault "): n for name, n in figures["counts"].items() if name.startswith("fault ")}


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value else "none happened"


def _table(headings: Iterable[str], body: Iterable[str]) -> Markup:
    head = tag("tr", *(tag("th", each, scope="col", class_=_alignment(each)) for each in headings))
    return tag("table", tag("thead", head), tag("tbody", *body))


def _alignment(heading: str) -> str:
    return "number" if heading in ("times broken", "simulation", "real processes") else "text"


def _number(value: object) -> Markup:
    return tag("td", f"{value:,}" if isinstance(value, int) else str(value), class_="number")
