"""Draws mutants from the engine and the ledger: small changes of Python and of the SQL in its strings.

Half of what these rooms do is SQL in strings, which no mutation tool for Python touches; see docs/decisions.md.
"""

import ast
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from config import PROJECT_ROOT
from tests.proof.mutants.workshop import Outcome, Workshop, is_stumble, patience

ROOMS = ("services/engine", "services/ledger")
TESTS = ("tests/integration/engine", "tests/integration/ledger", "tests/unit/engine")
GOAL = 0.85

COMPARISONS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in",
    "is": "is not", "is not": "is",
}  # fmt: skip
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "&": "|", "|": "&"}
SQL = {
    " AND ": " OR ", " < ": " <= ", " > ": " >= ", " <= ": " < ", " >= ": " > ", " <> ": " = ",
    " IS NULL": " IS NOT NULL", " IS NOT NULL": " IS NULL", "NOT EXISTS": "EXISTS", " SKIP LOCKED": "",
    "greatest(": "least(", "least(": "greatest(", "max(": "min(", "min(": "max(", " - ": " + ", " + ": " - ",
    " DESC": "",
}  # fmt: skip
SQL_WORD = re.compile("|".join(re.escape(word) for word in sorted(SQL, key=len, reverse=True)))
OBSERVATION = ("logger", "log", "metrics", "_warn", "_logged", "_log_start")  # says what happened, and decides nothing
DANGEROUS = ("os.kill", "os.killpg")  # os.killpg(1, ...) would end every process of the machine


# Survivors that were looked at, by file, line and kind: nothing that a promise speaks of differs.
ACCEPTED = {
    (
        "services/ledger/claims_sql.py",
        "WHERE s.enabled AND s.effective_from < c.ended_at AND c.ended_at >= %(since)s",
        "SQL",
    ): "a stretch without length has no fire, which `had_fire` sees too",
    (
        "services/engine/timer.py",
        "return self.due_at < other.due_at",
        "comparison",
    ): "what is due at the same instant has no order",
    (
        "services/engine/heart.py",
        "return last is not None and awake_or_not() - last < pulse.interval_seconds + FRESH_SECONDS",
        "comparison",
    ): "one float at the very edge of a tolerance",
    ("services/engine/finisher.py", "time.sleep(0.02)", "constant"): "the pace of a wait",
    ("services/engine/finisher.py", "time.sleep(0.02)", "statement removed"): "the pace of a wait",
    (
        "services/engine/timer.py",
        "if len(self._heap) > 2 * self._live + SPARE_ITEMS:  # most are removed ones: many edits, few fires",
        "condition negated",
    ): "the same heap, tidied too often; `make bench` would show it",
    ("services/engine/rescuer.py", "self._next_at = 0.0", "constant"): "any instant of the past",
    ("services/ledger/summary_sql.py", "LOOKED_AT = 8", "constant"): "one bound for who writes and who reads",
    (
        "services/ledger/tallies_sql.py",
        "SELECT h.* FROM execution_hours AS h, since WHERE h.hour >= since.at AND h.hour > '-infinity'",
        "SQL",
    ): "a full hour that begins in the very microsecond of the question is then counted by its rows",
}


@dataclass(frozen=True, slots=True)
class Sample:
    path: str
    line: int
    kind: str
    start: int  # in bytes
    end: int
    new: str
    first: int  # lines of the statement
    last: int
    name: str  # of the statement outside of functions that it is in; else empty

    def apply(self, root: Path) -> None:
        source = (root / self.path).read_bytes()
        (root / self.path).write_bytes(source[: self.start] + self.new.encode() + source[self.end :])

    @property
    def key(self) -> tuple[str, str, str]:
        line = (PROJECT_ROOT / self.path).read_text(encoding="utf-8").splitlines()[self.line - 1]
        return self.path, line.strip(), self.kind

    def __str__(self) -> str:
        old = (PROJECT_ROOT / self.path).read_bytes()[self.start : self.end].decode()
        shown = " ".join(f"{old.strip()!r} -> {self.new.strip()!r}".split())
        return f"{self.path}:{self.line} {self.kind}: {shown[:100]}"


def draw(count: int, seed: int) -> list[Sample]:
    """The same for the same seed and source."""
    sites = _all_sites()
    return random.Random(seed).sample(sites, min(count, len(sites)))


@cache
def _all_sites() -> list[Sample]:
    return [site for path in _sources(*ROOMS) for site in _Sites(path).found()]


def _sources(*directories: str) -> list[str]:
    paths = [path for each in directories for path in (PROJECT_ROOT / each).rglob("*.py") if path.name != "__init__.py"]
    return sorted(str(path.relative_to(PROJECT_ROOT)) for path in paths)


class _Sites:
    """Every place of a file where a mutant can be made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._source = (PROJECT_ROOT / path).read_bytes()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._sites: list[Sample] = []
        self._statement: ast.stmt | None = None
        self._name = ""

    def found(self) -> list[Sample]:
        for statement in ast.parse(self._source).body:
            self._name = _named(statement)
            self._visit_statement(statement)
        return self._sites

    def _visit_statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom) or _is_docstring(statement) or _is_observation(statement):
            return
        outer, self._statement = self._statement, statement
        if isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise) and not _is_yield(statement):
            self._add("statement removed", statement, "pass")
        for node in _parts(statement):
            if isinstance(node, ast.stmt):
                self._inside(statement, node)
            elif isinstance(node, ast.ExceptHandler | ast.match_case):
                for each in node.body:
                    self._visit_statement(each)
            else:
                self._visit(node)
        if isinstance(statement, ast.If | ast.While):
            self._negate(statement.test)
        self._statement = outer

    def _inside(self, statement: ast.stmt, node: ast.stmt) -> None:
        outer = self._name
        if isinstance(statement, ast.FunctionDef):
            self._name = ""
        self._visit_statement(node)
        self._name = outer

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            self._sql(node)
            return  # what is inside of an f-string has no position before Python 3.12
        if isinstance(node, ast.Call) and (_root(node.func) in OBSERVATION or ast.unparse(node.func) in DANGEROUS):
            return
        if isinstance(node, ast.Constant):
            self._value(node)
        elif isinstance(node, ast.expr):
            self._operator(node)
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _operator(self, node: ast.expr) -> None:
        match node:
            case ast.Compare(left=left, comparators=comparators):
                for before, after in pairwise([left, *comparators]):
                    self._between("comparison", before, after, COMPARISONS)
            case ast.BoolOp(values=values):
                for before, after in pairwise(values):
                    self._between("and/or", before, after, {"and": "or", "or": "and"})
            case ast.UnaryOp(op=ast.Not()):
                self._replace("not removed", self._start(node), self._start(node) + len("not"), "")
            case ast.BinOp(left=left, right=right) if not _is_text(left) and not _is_text(right):
                self._between("arithmetic", left, right, ARITHMETIC)
            case ast.IfExp(test=test):
                self._negate(test)

    def _value(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add("constant", node, repr(node.value + 1))

    def _negate(self, test: ast.expr) -> None:
        old = self._source[self._start(test) : self._end(test)].decode()
        self._add("condition negated", test, f"(not ({old}))")

    def _sql(self, node: ast.AST) -> None:
        if not self._path.endswith("_sql.py") or not isinstance(node, ast.expr):
            return
        start = self._start(node)
        text = self._source[start : self._end(node)].decode()
        for found in SQL_WORD.finditer(re.sub(r"\{.*?\}", lambda code: " " * len(code[0]), text, flags=re.DOTALL)):
            begin = start + len(text[: found.start()].encode())
            self._replace("SQL", begin, begin + len(found[0].encode()), SQL[found[0]])

    def _between(self, kind: str, before: ast.expr, after: ast.expr, words: dict[str, str]) -> None:
        start = self._end(before)
        gap = self._source[start : self._start(after)].decode()
        if (found := re.search(r"not\s+in|is\s+not|[a-z]+|[^\s()\w]+", gap)) and (
            word := " ".join(found[0].split())
        ) in words:
            begin = start + len(gap[: found.start()].encode())
            self._replace(kind, begin, begin + len(found[0].encode()), words[word])

    def _add(self, kind: str, node: ast.stmt | ast.expr, new: str) -> None:
        self._replace(kind, self._start(node), self._end(node), new)

    def _replace(self, kind: str, start: int, end: int, new: str) -> None:
        if self._statement is None:
            return
        body = getattr(self._statement, "body", None)
        last = body[0].lineno - 1 if body else self._statement.end_lineno or self._statement.lineno
        line = next(number for number, begin in enumerate(self._starts) if begin > start)
        first = self._statement.lineno
        self._sites.append(Sample(self._path, line, kind, start, end, new, first, max(first, last), self._name))

    def _start(self, node: ast.AST) -> int:
        return self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined,no-any-return]

    def _end(self, node: ast.AST) -> int:
        return self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined,no-any-return]


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What is executed when the statement is, or in it."""
    for field, value in ast.iter_fields(statement):
        if field not in ("decorator_list", "annotation", "returns", "args", "bases", "keywords"):
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, ast.AST):
                    yield node


def _named(statement: ast.stmt) -> str:
    """What the code elsewhere calls it."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return "?"


def _is_observation(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and _root(statement.value.func) in OBSERVATION
    )


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_yield(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield | ast.YieldFrom)


def _root(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _is_text(node: ast.expr) -> bool:
    texts = ast.JoinedStr | ast.List | ast.Tuple
    return isinstance(node, texts) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


# --- which tests can notice it ---


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tests reach a line, and how long each takes."""

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    @classmethod
    def measured(cls, shop: Workshop, tests: Sequence[str] = TESTS) -> "Reach":
        """By one run of the rooms' tests, which must be green."""
        file = shop.clean / "reach.json"
        report = shop.run_tests(shop.clean, tests, "-p", "tests.proof.mutants.reach", f"--reach={file}")
        if report.outcome is not Outcome.GREEN:
            raise SystemExit(f"the tests of the rooms are not green on the tree as it is: {report.why} {report.red}")
        found = json.loads(file.read_text())
        lines = {path: {int(line): tests for line, tests in some.items()} for path, some in found.items()}
        return cls(lines, report.seconds)

    @classmethod
    def of_all(cls, parts: Sequence["Reach"]) -> "Reach":
        """Of runs of different tests."""
        lines: dict[str, dict[int, list[str]]] = {}
        for part in parts:
            for path, some in part.lines.items():
                for line, tests in some.items():
                    lines.setdefault(path, {}).setdefault(line, []).extend(tests)
        return cls(lines, {test: seconds for part in parts for test, seconds in part.seconds.items()})

    def tests_of(self, sample: Sample) -> list[str]:
        """The quickest first."""
        found = self._of_name(sample.name, set()) if sample.name else self._of_lines(sample)
        if not found and sample.path not in self.lines:  # it runs in a process of its own
            found = set(_files_that_name(Path(sample.path).stem))
        return sorted(found, key=lambda test: (self.seconds.get(test.partition("[")[0], 0.0), test))

    def _of_lines(self, sample: Sample) -> set[str]:
        reached = self.lines.get(sample.path, {})
        return {test for line in range(sample.first, sample.last + 1) for test in reached.get(line, ())}

    def _of_name(self, name: str, seen: set[str]) -> set[str]:
        """Those that reach a function that names it, or names what is made of it."""
        if name in seen:
            return set()
        seen.add(name)
        tests: set[str] = set()
        word = re.compile(rf"\b{re.escape(name)}\b")
        for path in _sources("services"):
            lines, made = _read(path)
            reached = self.lines.get(path, {})
            for number in (number for number, line in enumerate(lines, start=1) if word.search(line)):
                tests.update(reached.get(number, ()))
            for other, text in made:
                if other != name and word.search(text):
                    tests |= self._of_name(other, seen)
        return tests


@cache
def _read(path: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The lines of a file, and the names that it gives outside of functions, each with its text."""
    source = (PROJECT_ROOT / path).read_text(encoding="utf-8")
    made = [each for each in ast.parse(source).body if isinstance(each, ast.Assign | ast.AnnAssign)]
    return source.splitlines(), [(_named(each), ast.get_source_segment(source, each) or "") for each in made]


def _files_that_name(module: str) -> Iterator[str]:
    for directory in TESTS:
        for path in sorted((PROJECT_ROOT / directory).glob("test_*.py")):
            if re.search(rf"\b{module}\b", path.read_text(encoding="utf-8")):
                yield str(path.relative_to(PROJECT_ROOT))


@dataclass(frozen=True, slots=True)
class Drawn:
    sample: Sample
    fate: str  # caught, SURVIVED, accepted (a survivor with a reason), or invalid: it does not even run
    why: str
    tests: int

    def __str__(self) -> str:
        return f"{self.fate:8}  {self.sample}  ({self.tests} tests)  {self.why}"


def judge(shop: Workshop, sample: Sample, reach: Reach) -> Drawn:
    tests = reach.tests_of(sample)
    if not tests:
        return _survivor(sample, "no test of the rooms reaches it", 0)
    tree = shop.fresh()
    sample.apply(tree)
    normal = sum(reach.seconds.get(test.partition("[")[0], 1.0) for test in tests)
    report = shop.run_tests(tree, tests, "-x", limit_seconds=patience(min(normal, 60.0)))
    if report.outcome is Outcome.GREEN:
        return _survivor(sample, "", len(tests))
    if report.outcome is Outcome.HUNG:
        return Drawn(sample, "caught", report.why, len(tests))
    return Drawn(sample, "invalid" if is_stumble(report.why) else "caught", report.why, len(tests))


def _survivor(sample: Sample, why: str, tests: int) -> Drawn:
    reason = ACCEPTED.get(sample.key)
    return Drawn(sample, "accepted" if reason else "SURVIVED", reason or why, tests)


def score(drawn: Sequence[Drawn]) -> float:
    valid = [each for each in drawn if each.fate in ("caught", "SURVIVED")]
    return sum(each.fate == "caught" for each in valid) / len(valid) if valid else 1.0
