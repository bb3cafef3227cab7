"""Results of a scenario: a table for people and facts for programs. Printed, and written as JSON and Markdown."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 180
GAP = 1  # between two columns


@dataclass(slots=True)
class Sheet:
    name: str
    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, *cells: str) -> None:
        self.rows.append(list(cells))

    def show(self, out: Console | None = None) -> None:
        """One table if the terminal is wide enough, else several that repeat the identifying columns."""
        out = out or Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
        out.print(Text(self.title, "bold"))
        for part in self._parts(out.width) if self.rows else ():
            table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
            for column in part:
                is_number = all(_is_number(row[column]) for row in self.rows)
                table.add_column(self.columns[column], justify="right" if is_number else "left")
            for row in self.rows:
                table.add_row(*(Text(row[column]) for column in part))
            out.print(table, Text())
        for note in self.notes:
            out.print(Padding(Text(note), (0, 0, 0, 2)))

    def _parts(self, width: int) -> list[list[int]]:
        """Column indexes in groups that fit beside the identifying columns."""
        widths = [max(map(len, (name, *(row[at] for row in self.rows)))) + GAP for at, name in enumerate(self.columns)]
        names = list(range(self._naming_columns()))
        parts: list[list[int]] = [names.copy()]
        for column in range(len(names), len(self.columns)):
            if parts[-1] != names and sum(widths[at] for at in (*parts[-1], column)) - GAP > width:
                parts.append(names.copy())
            parts[-1].append(column)
        return parts

    def _naming_columns(self) -> int:
        """The first columns that together identify every row."""
        for count in range(1, len(self.columns)):
            if len({tuple(row[:count]) for row in self.rows}) == len(self.rows):
                return count
        return 1

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "columns": list(self.columns),
            "rows": self.rows,
            "notes": self.notes,
            "facts": self.facts,
        }


def from_table(name: str, table: Table) -> Sheet:
    rows = zip(*(column.cells for column in table.columns), strict=True)
    columns = [str(column.header) for column in table.columns]
    return Sheet(name, str(table.title), columns, [[str(cell) for cell in row] for row in rows])


def write(sheets: Sequence[Sheet], directory: Path, about: dict[str, Any]) -> None:
    """`latest.json` and `latest.md`; sheets of other scenarios that are there already stay."""
    directory.mkdir(exist_ok=True)
    file = directory / "latest.json"
    former = json.loads(file.read_text())["sheets"] if file.exists() else []
    new = {sheet.name: {**sheet.as_dict(), "measured": about} for sheet in sheets}
    kept = {item["name"]: item for item in former} | new
    file.write_text(json.dumps({"sheets": list(kept.values())}, indent=1) + "\n")
    (directory / "latest.md").write_text("\n".join(_as_sheet(item).markdown() for item in kept.values()))


def read(directory: Path) -> dict[str, Sheet]:
    return {item["name"]: _as_sheet(item) for item in json.loads((directory / "latest.json").read_text())["sheets"]}


def _as_sheet(item: dict[str, Any]) -> Sheet:
    return Sheet(**{name: value for name, value in item.items() if name != "measured"})


def _is_number(cell: str) -> bool:
    return re.match(r"[-+]?[\d.,]+( |$)", cell) is not None or not cell


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
