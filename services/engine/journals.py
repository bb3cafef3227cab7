"""Live logs of running executions: handlers leave lines here, one thread writes them, at most once a second.

A handler never waits: a line costs it one append. The numbers of an execution's lines are drawn when they are said, so
a gap in what arrives at the writer is exactly what was dropped, and the writer puts a sentence there.
"""

import itertools
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from enhanced_scheduler.context import ExecutionContext, LogLine, ProgressMade
from enhanced_scheduler.texts import storable
from services.engine.loops import Loop
from services.ledger.claims import is_about_values
from services.ledger.logs import LogBatch, LoggedLine, LogPosition, LogStore, ProgressNote

logger = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
PATIENCE_SECONDS = 120.0  # a slow table of log lines is no reason to restart a replica
MAX_WAITING = 20_000  # lines, while Postgres is away or slower than the handlers
MAX_WAITING_OF_ONE = 5_000  # so that one chatty handler leaves room for the others
MAX_BATCH_LINES, MAX_BATCH_BYTES = 10_000, 2 * 1024 * 1024
LINE_BYTES = 64  # what a line takes besides its text
TAIL_LINES = 100
EPOCH = datetime.fromtimestamp(0, UTC)
NOTE = "NOTE"  # the level of our own sentences in a log


class Journal:
    """What one execution says. `hear` and `see` are called by the handler's threads, everything else by the writer.

    No lock: a finalizer that logs may run in the middle of any of our lines.
    """

    __slots__ = (
        "_journals", "_numbers", "execution_id", "fencing_token", "has_news", "heard_at", "is_full", "progress", "size",
        "tail", "taken", "waiting",
    )  # fmt: skip

    def __init__(self, journals: "Journals", context: ExecutionContext) -> None:
        self.execution_id, self.fencing_token = context.execution_id, context.fencing_token
        self._journals, self._numbers = journals, itertools.count(1)
        self.waiting, self.taken, self.size = 0, 0, 0
        self.heard_at = EPOCH
        self.is_full, self.has_news = False, False
        self.tail: deque[tuple[int, LogLine]] | None = None
        self.progress: ProgressMade | None = None

    def hear(self, line: LogLine, *, kept: bool) -> None:
        number, self.heard_at = next(self._numbers), line.at
        if self.is_full:
            self.keep_in_tail(number, line)
        elif self.waiting < MAX_WAITING_OF_ONE:
            self.waiting += 1  # threads may count a little too few; the writer sets it right
            self._journals.take(self, number, line)

    def see(self, progress: ProgressMade) -> None:
        self.progress = progress
        if not self.has_news:
            self.has_news = True
            self._journals.take_news(self)

    def end(self) -> bool:
        """Its handler has ended. False if there was nothing to write."""
        number = next(self._numbers)
        if number == 1 and self.progress is None:
            return False
        self._journals.take_end(self, number, self.heard_at)
        return True

    def keep_in_tail(self, number: int, line: LogLine) -> None:
        if self.tail is None:
            self.tail = deque(maxlen=TAIL_LINES)
        self.tail.append((number, line))


@dataclass(frozen=True, slots=True)
class _Said:
    journal: Journal
    number: int
    line: LogLine


@dataclass(frozen=True, slots=True)
class _Progressed:
    journal: Journal


@dataclass(frozen=True, slots=True)
class _Ended:
    journal: Journal
    number: int
    at: datetime


_News: TypeAlias = _Said | _Progressed | _Ended


@dataclass(slots=True)
class _Collected:
    """The news of one journal in one batch."""

    said: list[_Said] = field(default_factory=list)
    ended: _Ended | None = None


class Journals:
    """Owns the loop that writes. `max_bytes` limits the lines of one execution; 0: only progress is written."""

    def __init__(self, store: LogStore, max_bytes: int) -> None:
        self._store, self._max_bytes = store, max_bytes
        self._news: deque[_News] = deque()
        self._batch = LogBatch()
        self._written_at = -WRITE_SECONDS
        self.loop = Loop("log-writer", self.tick, WRITE_SECONDS, PATIENCE_SECONDS)

    # --- for the pool ---

    def begin(self, context: ExecutionContext) -> Journal:
        journal = Journal(self, context)
        context.listen(journal)
        return journal

    def end(self, journal: Journal) -> None:
        """Its last lines are written at once, if nothing was written in the last second."""
        if journal.end():
            self.loop.wake()

    # --- for the journals: any thread, without waiting ---

    def take(self, journal: Journal, number: int, line: LogLine) -> None:
        if self._max_bytes and len(self._news) < MAX_WAITING:
            self._news.append(_Said(journal, number, line))

    def take_news(self, journal: Journal) -> None:
        self._news.append(_Progressed(journal))

    def take_end(self, journal: Journal, number: int, at: datetime) -> None:
        self._news.append(_Ended(journal, number, at))

    # --- the writer ---

    @property
    def unwritten(self) -> bool:
        return bool(self._news) or not self._batch.is_empty

    def tick(self) -> float | None:
        if not self.unwritten:
            return None
        if (early := self._written_at + WRITE_SECONDS - time.monotonic()) > 0:
            return early
        if self._batch.is_empty:  # else the former one again: nobody knows whether it was written
            self._batch = self._collect()
        self._written_at = time.monotonic()
        self._write(self._batch)
        self._batch = LogBatch()
        return None

    def write_what_is_left(self, within_seconds: float) -> None:
        """At the end of the process, while the loop still runs."""
        deadline = time.monotonic() + within_seconds
        while self.unwritten and time.monotonic() < deadline:
            self._written_at = -WRITE_SECONDS
            self.loop.wake()
            time.sleep(0.02)

    def close(self) -> None:
        self._store.close()

    def _write(self, batch: LogBatch) -> None:
        """A line that this server cannot store costs the lines of its own execution only."""
        try:
            self._store.write(batch)
        except DBAPIError as error:
            if not is_about_values(error):
                raise
            executions = {line.execution_id for line in batch.lines} | {note.execution_id for note in batch.notes}
            if len(executions) > 1:
                for execution_id in executions:
                    self._write(_part_of(batch, execution_id))
            else:
                self._give_up(batch, error)

    def _give_up(self, batch: LogBatch, error: DBAPIError) -> None:
        reason = type(error.orig).__name__
        logger.warning("%d log lines cannot be stored: %s", len(batch.lines), reason, extra={"event": "log_unstorable"})
        first = batch.lines[:1]
        note = [_note_in(line, f"lines that this server cannot store: {len(batch.lines)} ({reason})") for line in first]
        self._store.write(LogBatch(note, batch.notes))

    def _collect(self) -> LogBatch:
        collected: dict[Journal, _Collected] = {}
        lines = size = 0
        while self._news and lines < MAX_BATCH_LINES and size < MAX_BATCH_BYTES:
            news = self._news.popleft()
            mine = collected.setdefault(news.journal, _Collected())
            match news:
                case _Said(journal, _, line):
                    journal.waiting = 0
                    mine.said.append(news)
                    lines, size = lines + 1, size + len(line.text) + LINE_BYTES
                case _Ended():
                    mine.ended = news
                case _Progressed(journal):
                    journal.has_news = False  # before it is read: what comes now is told again
        return LogBatch(
            [line for journal, each in collected.items() for line in self._lines_of(journal, each)],
            [_progress_of(journal, each) for journal, each in collected.items()],
        )

    def _lines_of(self, journal: Journal, collected: _Collected) -> Iterator[LoggedLine]:
        for said in sorted(collected.said, key=lambda said: said.number):  # threads overtake each other
            if journal.is_full:
                journal.keep_in_tail(said.number, said.line)
                continue
            yield from self._gap_before(journal, said.number, said.line.at)
            journal.taken = max(journal.taken, said.number)
            journal.size += len(said.line.text.encode()) + LINE_BYTES
            journal.is_full = journal.size > self._max_bytes
            if journal.is_full:
                limit = f"the log has reached EXECUTION_LOG_MAX_BYTES={self._max_bytes}: of what follows"
                text = f"{limit} only the last {TAIL_LINES} lines are kept, and shown at the end"
                yield _our_line(journal, said.number, said.line.at, text)
            else:
                yield _line(journal, said.number, said.line)
        if collected.ended is not None:
            yield from self._last_lines(journal, collected.ended)

    def _last_lines(self, journal: Journal, end: _Ended) -> Iterator[LoggedLine]:
        for number, line in sorted(journal.tail or (), key=lambda kept: kept[0]):
            yield from self._gap_before(journal, number, line.at)
            journal.taken = number
            yield _line(journal, number, line)
        yield from self._gap_before(journal, end.number, end.at)
        journal.taken = end.number

    def _gap_before(self, journal: Journal, number: int, at: datetime) -> Iterable[LoggedLine]:
        missing = number - journal.taken - 1
        if missing <= 0 or not self._max_bytes:
            return ()
        lines = "1 line was" if missing == 1 else f"{missing} lines were"
        why = "left out" if journal.is_full else "dropped: they came faster than they could be written"
        return (_our_line(journal, number - 1, at, f"{lines} {why}"),)


def _progress_of(journal: Journal, collected: _Collected) -> ProgressNote:
    is_complete = collected.ended is not None
    return ProgressNote(journal.execution_id, journal.fencing_token, journal.progress, is_complete)


def _line(journal: Journal, number: int, line: LogLine) -> LoggedLine:
    position = LogPosition(journal.fencing_token, number)
    return LoggedLine(journal.execution_id, position, line.at, line.level, line.text)


def _our_line(journal: Journal, number: int, at: datetime, text: str) -> LoggedLine:
    return _line(journal, number, LogLine(at, NOTE, f"… {text}"))


def _note_in(line: LoggedLine, text: str) -> LoggedLine:
    return LoggedLine(line.execution_id, line.position, line.at, NOTE, storable(f"… {text}"))


def _part_of(batch: LogBatch, execution_id: UUID) -> LogBatch:
    return LogBatch(
        [line for line in batch.lines if line.execution_id == execution_id],
        [note for note in batch.notes if note.execution_id == execution_id],
    )
