"""Log lines of executions on a terminal, as they are written."""

import json
import time
from collections.abc import Iterable, Sequence
from uuid import UUID

import typer
from rich.console import Console

from services.cli.output import console, plain
from services.job_history import get_job_history
from services.ledger.listing import ExecutionRecord
from services.ledger.logs import BEGINNING, ExecutionLogs, LoggedLine, LogPosition
from services.wording.short_ids import ID_PREFIX

LOOK_SECONDS = 0.5
STYLES = {"ERROR": "red", "CRITICAL": "red", "WARNING": "yellow", "NOTE": "yellow"}


class AttemptLogs:
    """What several executions have logged since the last look. One that has ended is looked at a few times more."""

    def __init__(self, logs: ExecutionLogs) -> None:
        self._logs = logs
        self._seen: dict[UUID, LogPosition] = {}
        self._looks_left: dict[UUID, int] = {}

    def skip(self, records: Iterable[ExecutionRecord]) -> None:
        """Of these only what follows."""
        ends = self._logs.ends([record.execution_id for record in records])
        self._seen |= ends

    def news(self, *groups: Iterable[ExecutionRecord], looks_after_end: int = 4) -> list[LoggedLine]:
        for record in (record for group in groups for record in group):
            if record.started_at is not None:
                self._seen.setdefault(record.execution_id, BEGINNING)
                self._looks_left[record.execution_id] = looks_after_end
        lines = self._logs.news({key: self._seen[key] for key in self._looks_left})
        self._seen |= {line.execution_id: line.position for line in sorted(lines, key=lambda line: line.position)}
        for key, left in list(self._looks_left.items()):
            if left <= 1:  # it has not been among the given ones for a while
                del self._looks_left[key], self._seen[key]
            else:
                self._looks_left[key] = left - 1
        return lines

    def position_in(self, record: ExecutionRecord) -> LogPosition:
        return self._seen.get(record.execution_id, BEGINNING)


def print_lines(out: Console, lines: Sequence[LoggedLine], with_execution: bool = False) -> None:
    for line in lines:
        which = f"{str(line.execution_id)[:ID_PREFIX]}  " if with_execution else ""
        level = "" if line.level == "INFO" else f"{line.level} "
        out.print(f"{which}  {line.at:%H:%M:%S}  {level}{line.text}", style=STYLES.get(line.level))


def _why_empty(record: ExecutionRecord) -> str:
    """Of an execution that has not started."""
    said = f"{str(record.execution_id)[:ID_PREFIX]} is {record.status}{f' ({record.why})' if record.why else ''}"
    if record.is_terminal:
        return f"{said}: it never started, so it has no log"
    return f"{said}: its log begins when it starts; Ctrl-C ends this command, not the execution"


def follow_log(record: ExecutionRecord, as_json: bool) -> None:
    """Until the log is complete, or Ctrl-C. An execution of a version before has its lines in its own row."""
    follower, any_line = get_job_history().follow_log(record.execution_id), False
    if record.started_at is None:
        typer.echo(_why_empty(record), err=True)
    try:
        while True:
            look = follower.look()
            any_line = any_line or bool(look.lines)
            if as_json:
                for line in look.lines:
                    typer.echo(json.dumps(line, default=plain, ensure_ascii=False))
            else:
                print_lines(console(), look.lines)
            if look.is_over:
                break
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return
    if not any_line and not as_json:
        for text in (record.details or {}).get("log", []):
            console().print(str(text))
