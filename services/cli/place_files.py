"""Places from a file, line by line: CSV with a header, a JSON array, or one JSON object per line."""

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from enhanced_scheduler.model_errors import reason_of
from services.cli.json_input import json_value
from services.errors import InvalidInput, Problem
from services.workflows.place_staging import NewPlace

ALIASES = {"address": "formatted_address", "lat": "latitude", "lng": "longitude", "lon": "longitude"}
FIELDS = tuple(NewPlace.model_fields)
DELIMITERS = ",;\t|"


class Format(StrEnum):
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"


@dataclass(slots=True)
class PlaceFile:
    """Iterating yields the valid places; afterwards `problems` has the errors of the others."""

    path: Path
    format: Format
    problems: list[tuple[str, str]] = field(default_factory=list)  # where (`line 7`), what
    ignored: tuple[str, ...] = ()  # columns that no place has

    def __iter__(self) -> Iterator[NewPlace]:
        self.problems.clear()
        with _opened(self.path) as stream:
            for where, item in self._items(stream):
                try:
                    yield NewPlace.model_validate(item)
                except ValidationError as error:
                    self.problems += [(where, _problem_line(problem)) for problem in error.errors(include_url=False)]

    def _items(self, stream: IO[str]) -> Iterator[tuple[str, Any]]:
        match self.format:
            case Format.CSV:
                return self._lines_of_csv(stream)
            case Format.JSON:
                return self._items_of_json(stream)
            case Format.JSONL:
                return self._lines_of_json(stream)

    def _lines_of_csv(self, stream: IO[str]) -> Iterator[tuple[str, Any]]:
        head = stream.readline()
        delimiter = max(DELIMITERS, key=head.count)
        names = [_name(name) for name in next(csv.reader([head], delimiter=delimiter), [])]
        if "place_id" not in names:
            raise InvalidInput(Problem(str(self.path), "needs a header with the column place_id"))
        self.ignored = tuple(name for name in names if name and name not in FIELDS)
        reader = csv.reader(stream, delimiter=delimiter)
        while True:
            where = f"line {reader.line_num + 2}"
            try:
                values = next(reader, None)
            except csv.Error as error:
                self.problems.append((where, str(error)))
                continue
            if values is None:
                return
            if len(values) > len(names):
                self.problems.append((where, f"has {len(values)} values, the header {len(names)}"))
            elif any(values):
                given = zip(names, values, strict=False)
                yield where, {name: value for name, value in given if name in FIELDS and value.strip()}

    def _items_of_json(self, stream: IO[str]) -> Iterator[tuple[str, Any]]:
        content = json_value(str(self.path), stream.read())
        listed = content.get("places") if isinstance(content, dict) else content
        if not isinstance(listed, list):
            raise InvalidInput(
                Problem(str(self.path), 'must be a list of places, or an object with one under "places"')
            )
        for number, item in enumerate(listed, 1):
            yield f"item {number}", self._place_fields(item)

    def _lines_of_json(self, stream: IO[str]) -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                yield f"line {number}", self._place_fields(json_value(f"line {number}", line))
            except InvalidInput as error:
                self.problems.append((f"line {number}", error.problems[0].reason))

    def _place_fields(self, item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        named = {_name(name): value for name, value in item.items()}
        self.ignored = tuple(dict.fromkeys([*self.ignored, *(name for name in named if name not in FIELDS)]))
        return {name: value for name, value in named.items() if name in FIELDS}


def place_file(path: Path, given: Format | None) -> PlaceFile:
    """The given format, or the one that the file's extension names."""
    endings = {"csv": Format.CSV, "tsv": Format.CSV, "json": Format.JSON, "jsonl": Format.JSONL, "ndjson": Format.JSONL}
    chosen = given or endings.get(path.suffix.lower().removeprefix("."))
    if chosen is None:
        raise InvalidInput(
            Problem("format", f"cannot be inferred from {str(path)!r}: give --format {'|'.join(Format)}")
        )
    return PlaceFile(path, chosen)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    try:
        if str(path) == "-":
            yield sys.stdin
            return
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError:
        raise InvalidInput(Problem(str(path), "is not UTF-8 text")) from None
    except OSError as error:
        raise InvalidInput(Problem(str(path), f"cannot be read: {(error.strerror or str(error)).lower()}")) from None


def _name(column: str) -> str:
    bare = column.strip().lower().replace(" ", "_")
    return ALIASES.get(bare, bare)


def _problem_line(problem: Any) -> str:
    return f"{'.'.join(map(str, problem['loc'])) or 'place'}: {reason_of(problem['msg'])}"
