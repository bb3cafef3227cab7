"""The tables of `make bench` in terminals of several widths."""

import pytest
from rich.console import Console

from benchmarks.sheet import Sheet, read
from config import PROJECT_ROOT

SHEETS = read(PROJECT_ROOT / "benchmarks" / "results")


def shown(sheet: Sheet, width: int) -> list[str]:
    screen = Console(width=width, color_system=None)
    with screen.capture() as captured:
        sheet.show(screen)
    return captured.get().splitlines()


@pytest.mark.parametrize("name", SHEETS)
def test_every_table_reads_well_in_a_narrow_terminal(name: str) -> None:
    """No line is too long, no cell is broken, and every part of a table says which rows it is about."""
    sheet, lines = SHEETS[name], shown(SHEETS[name], 80)
    assert max(map(len, lines)) <= 80
    broken = [cell for row in sheet.rows for cell in row if not any(cell in line for line in lines)]
    assert broken == []


def test_a_table_that_is_too_wide_continues_below_with_what_names_its_rows() -> None:
    lines = shown(SHEETS["burst"], 80)
    headings = [line.split() for line in lines if line.lstrip().startswith("fires")]
    assert len(headings) == 2
    assert headings[1][:2] == ["fires", "design"]


def test_a_row_is_one_line_of_each_part() -> None:
    lines, rows = shown(SHEETS["burst"], 80), len(SHEETS["burst"].rows)
    first, second = (at for at, line in enumerate(lines) if line.lstrip().startswith("fires"))
    assert second - first == rows + 2
    assert lines.index("", second) - second == rows + 1


def test_in_a_wide_terminal_it_is_one_table() -> None:
    assert len([line for line in shown(SHEETS["burst"], 200) if line.lstrip().startswith("fires")]) == 1
