"""What a scenario found: a table for people and facts for programs. Printed, and written as JSON and Markdown."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


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

    def show(self) -> None:
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        Console().print(table)
        for note in self.notes:
            Console().print(f"  {note}")

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


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
