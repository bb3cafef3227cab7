"""Schedules as YAML: one document per schedule, so that files of any size are streamed."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Annotated, Any

import typer
import yaml
from yaml.constructor import ConstructorError

from services.cli.file_writing import replacing
from services.cli.import_report import ImportReport, counts, progress, save_items
from services.cli.output import (
    INTERRUPTED,
    INVALID_INPUT,
    AsJson,
    console,
    error_console,
    json_text,
    print_json,
)
from services.errors import InvalidInput, Problem
from services.schedule_repository import get_schedule_repository
from services.schedules.batch import ScheduleRecord
from services.schedules.defaults import DEFAULTS, whole_definition
from services.schedules.listing import ScheduleFilter
from services.schedules.spec import DEFINITION_FIELDS


def export_file(
    file: Annotated[Path | None, typer.Argument(help="The file to write; default, or -: standard output.")] = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only if the domain or the name contains this.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Filter by tag.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export schedules as YAML (or one JSON array), without fields at their default.

    Examples:

      manage.py schedule export schedules.yaml

      manage.py schedule export --tag nightly
    """
    where = ScheduleFilter(search=search, tag=tag)
    write = write_json_array if as_json else write_documents
    with closing(get_schedule_repository().iter_schedules(where)) as records:
        if file is None or str(file) == "-":
            write(records, sys.stdout)
            return
        total = get_schedule_repository().count_schedules(where)
        with replacing(file) as stream, progress("exporting", total) as advance:
            written = write((advance(record) for record in records), stream)
    console().print(f"{written} schedules written to {file}")


def import_file(
    file: Annotated[Path, typer.Argument(help="A file from `export`, or your own; - reads standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Import the valid items even if others are invalid.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create or update schedules from YAML; an item matches an existing schedule by schedule_id, otherwise by name.

    All items are validated first: one invalid item and nothing is written, unless --skip-invalid is given.

    Examples:

      manage.py schedule import schedules.yaml --dry-run

      manage.py schedule import schedules.yaml
    """
    documents = _documents(file)

    def wholes() -> Iterator[dict[str, Any]]:
        return map(whole_definition, documents())

    report = ImportReport()
    try:
        checked = save_items(map(report.note_credentials, wholes()), dry_run=True, on_saved=report.note)
        refused = bool(checked.refused) and not skip_invalid
        summary = checked
        if not dry_run and not refused and checked.created + checked.updated:
            summary = save_items(wholes(), dry_run=False, on_saved=report.note_written)
    except KeyboardInterrupt:
        error_console().print(f"interrupted; written so far: {report.written}")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(
            {"dry_run": dry_run, "written": not dry_run and not refused, **counts(summary), "changes": report.shown}
        )
    else:
        report.print(summary, dry_run=dry_run, refused=refused, way_out="fix the file or use --skip-invalid")
    if checked.refused or summary.refused:
        raise typer.Exit(INVALID_INPUT)


def _documents(file: Path) -> Callable[[], Iterator[dict[str, Any]]]:
    """A function that reads the schedules anew at each call; the content of a pipe is kept in memory."""
    if file.is_file():
        return lambda: read_documents(_open(file), str(file))
    if str(file) == "-":
        kept = [*read_documents(sys.stdin, "standard input")]
    else:
        kept = [*read_documents(_open(file), str(file))]
    return lambda: iter(kept)


def as_document(record: ScheduleRecord) -> dict[str, Any]:
    """The definition without fields at their default, in the order of the fields."""
    document: dict[str, Any] = {"schedule_id": str(record.schedule_id)}
    for name in DEFINITION_FIELDS:
        value = getattr(record, name)
        if name == "domain_config_id":
            value = record.external_id or (None if value == record.schedule_id else str(value))
        if name != "external_id" and value != getattr(DEFAULTS, name):
            document[name] = str(value) if name == "profile_id" else value
    return document


def write_json_array(records: Iterable[ScheduleRecord], stream: IO[str]) -> int:
    """One line per schedule, so that memory does not grow with their number."""
    count = 0
    for count, record in enumerate(records, 1):
        stream.write("[\n" if count == 1 else ",\n")
        stream.write(json_text(as_document(record)))
    stream.write("\n]\n" if count else "[]\n")
    return count


def write_documents(records: Iterable[ScheduleRecord], stream: IO[str]) -> int:
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007 - the last number is the result
        stream.write(yaml_text(as_document(record)))
    return count


def yaml_text(document: dict[str, Any]) -> str:
    """One `field: value` line per field. Values are JSON, which is valid YAML and ten times as fast to write."""
    lines = [f"{name}: {json.dumps(value, default=str, ensure_ascii=False)}" for name, value in document.items()]
    if all(line.isprintable() for line in lines):
        return "\n".join(["---", *lines, ""])
    return yaml.safe_dump(document, explicit_start=True, sort_keys=False)  # escapes the rest


def read_documents(stream: IO[str], name: str) -> Iterator[dict[str, Any]]:
    """Each schedule of a YAML stream: documents, lists of schedules, or a list under `schedules`."""
    try:
        for document in yaml.load_all(stream, Loader=_Loader):
            content = document.get("schedules", document) if isinstance(document, dict) else document
            for item in content if isinstance(content, list) else [] if content is None else [content]:
                if not isinstance(item, dict):
                    raise InvalidInput(Problem(name, f"a schedule must be a mapping of fields, got {item!r}"))
                yield item
    except yaml.YAMLError as error:
        raise InvalidInput(Problem(name, f"is not YAML: {' '.join(str(error).split())}")) from None
    except UnicodeDecodeError:
        raise InvalidInput(Problem(name, "is not UTF-8 text")) from None
    except RecursionError:
        raise InvalidInput(Problem(name, "is nested too deeply")) from None
    except ValueError as error:  # a date such as 30 February, a number of 5,000 digits
        raise InvalidInput(Problem(name, f"has an impossible value: {error}")) from None
    finally:
        if stream is not sys.stdin:
            stream.close()


class _Loader(yaml.CSafeLoader):
    """Safe YAML without aliases (a few lines could expand to billions of nodes) and without duplicate keys."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node in self.constructed_objects or node in self.recursive_objects:
            raise ConstructorError(problem="aliases (*name) are not allowed", problem_mark=node.start_mark)
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            keys = [str(key.value) for key, _ in node.value]
            duplicate = next((key for key in keys if keys.count(key) > 1), "a key")
            raise ConstructorError(problem=f"duplicate key: {duplicate}", problem_mark=node.start_mark)
        return mapping


def _open(file: Path) -> IO[str]:
    try:
        return file.open(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(Problem(str(file), f"cannot be read: {(error.strerror or str(error)).lower()}")) from None
