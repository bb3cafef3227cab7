"""Live logs on their way from the handlers' threads to the writer: what is written, what is left out, and when."""

import threading
from typing import Any
from uuid import UUID

import psycopg2
import pytest
from sqlalchemy.exc import DataError

from services.engine import journals as module
from services.engine.journals import MAX_WAITING_OF_ONE, NOTE, TAIL_LINES, Journal, Journals
from services.errors import Unavailable
from services.jobs import ExecutionContext
from services.ledger.logs import LogBatch, LoggedLine, LogState, LogStore
from tests.support.contexts import a_context

AWAY = Unavailable("Postgres", "localhost", "the connection was refused")


class _Untranslatable(psycopg2.DataError):
    pgcode = "22P05"


class Shelf(LogStore):
    """Keeps what is written, by its keys, as the tables do."""

    def __init__(self) -> None:
        self.lines: dict[tuple[UUID, int, int], LoggedLine] = {}
        self.states: dict[UUID, LogState] = {}
        self.writes = 0
        self.refuses: Exception | None = None
        self.refused_text = ""
        self.loses_answers = 0

    def write(self, batch: LogBatch) -> None:
        self.writes += 1
        if self.refuses is not None:
            raise self.refuses
        if self.refused_text and any(self.refused_text in line.text for line in batch.lines):
            raise DataError("INSERT", {}, _Untranslatable())
        for line in batch.lines:
            self.lines.setdefault((line.execution_id, line.position.fencing_token, line.position.line), line)
        for note in batch.notes:
            done, total = note.progress or (None, None)
            self.states[note.execution_id] = LogState(done, total, note.is_complete)
        if self.loses_answers:
            self.loses_answers -= 1
            raise AWAY

    def close(self) -> None: ...

    def texts(self, context: ExecutionContext) -> list[str]:
        return [line.text for key, line in sorted(self.lines.items()) if key[0] == context.execution_id]


class Bench:
    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.shelf = Shelf()
        self.journals = Journals(self.shelf, max_bytes)

    def begun(self) -> tuple[ExecutionContext, Journal]:
        context = a_context()
        return context, self.journals.begin(context)

    def write(self) -> None:
        """A tick, a second after the last one."""
        self.journals._written_at = -module.WRITE_SECONDS
        self.journals.tick()


def test_what_many_executions_say_in_a_second_is_one_write() -> None:
    bench = Bench()
    contexts = [bench.begun()[0] for _ in range(20)]
    for context in contexts:
        context.log("one")
        context.progress(1, 2)
        context.progress(2, 2)
    bench.journals.tick()
    assert bench.shelf.writes == 1
    assert all(bench.shelf.texts(context) == ["one"] for context in contexts)
    assert set(bench.shelf.states.values()) == {LogState(2, 2, is_complete=False)}


def test_a_second_write_waits_for_the_rest_of_the_second() -> None:
    bench = Bench()
    context, _ = bench.begun()
    context.log("one")
    bench.journals.tick()
    context.log("two")
    wait_seconds = bench.journals.tick()
    assert wait_seconds is not None
    assert 0 < wait_seconds <= module.WRITE_SECONDS
    assert bench.shelf.writes == 1


def test_an_execution_that_says_nothing_costs_no_write() -> None:
    bench = Bench()
    _, journal = bench.begun()
    bench.journals.end(journal)
    bench.write()
    assert bench.shelf.writes == 0
    assert not bench.journals.loop._wake.is_set()


def test_the_end_says_that_the_log_is_complete() -> None:
    bench = Bench()
    context, journal = bench.begun()
    context.log("the last word")
    bench.journals.end(journal)
    bench.write()
    assert bench.shelf.texts(context) == ["the last word"]
    assert bench.shelf.states[context.execution_id].is_complete


def test_a_handler_that_outlives_its_execution_only_adds_to_its_own_log() -> None:
    bench = Bench()
    context, journal = bench.begun()
    context.log("in time")
    bench.journals.end(journal)
    bench.write()
    context.log("too late")
    bench.write()
    assert bench.shelf.texts(context) == ["in time", "too late"]


def test_while_postgres_is_away_lines_wait_and_what_does_not_fit_is_said_where_it_is_missing() -> None:
    bench = Bench()
    context, journal = bench.begun()
    bench.shelf.refuses = AWAY
    context.log("before")
    with pytest.raises(Unavailable):
        bench.write()
    for number in range(1, MAX_WAITING_OF_ONE + 8):
        context.log(f"meanwhile {number}")
    bench.shelf.refuses = None
    bench.write()
    bench.write()
    context.log("after")
    bench.journals.end(journal)
    bench.write()
    texts = bench.shelf.texts(context)
    assert texts[:2] == ["before", "meanwhile 1"]
    assert texts[-3:] == [
        f"meanwhile {MAX_WAITING_OF_ONE}",
        "… 7 lines were dropped: they came faster than they could be written",
        "after",
    ]


def test_a_chatty_handler_leaves_room_for_the_others() -> None:
    bench = Bench()
    chatty, quiet = bench.begun()[0], bench.begun()[0]
    for number in range(MAX_WAITING_OF_ONE + 100):
        chatty.log(str(number))
    quiet.log("heard")
    bench.write()
    assert bench.shelf.texts(quiet) == ["heard"]


def test_a_batch_whose_answer_was_lost_is_written_again_and_nothing_is_there_twice() -> None:
    bench = Bench()
    context, _ = bench.begun()
    bench.shelf.loses_answers = 1
    context.log("one")
    with pytest.raises(Unavailable):
        bench.write()
    context.log("two")
    bench.write()
    bench.write()
    assert bench.shelf.texts(context) == ["one", "two"]


def test_a_log_over_its_limit_keeps_its_beginning_and_its_end_and_says_what_is_left_out() -> None:
    bench = Bench(max_bytes=10 * (module.LINE_BYTES + 1))
    context, journal = bench.begun()
    for number in range(1000):
        context.log(str(number % 10))
        if number % 400 == 0:
            bench.write()
    context.log("the error")
    bench.journals.end(journal)
    bench.write()
    texts = bench.shelf.texts(context)
    assert texts[:10] == [str(number) for number in range(10)]
    assert texts[10].startswith(f"… the log has reached EXECUTION_LOG_MAX_BYTES={10 * (module.LINE_BYTES + 1)}")
    assert texts[11] == f"… {1001 - 11 - TAIL_LINES} lines were left out"
    assert len(texts) == 12 + TAIL_LINES
    assert texts[-1] == "the error"


def test_without_a_live_log_only_the_progress_is_written() -> None:
    bench = Bench(max_bytes=0)
    context, journal = bench.begun()
    context.log("one")
    context.progress(3)
    bench.journals.end(journal)
    bench.write()
    assert bench.shelf.texts(context) == []
    assert bench.shelf.states[context.execution_id] == LogState(3, None, is_complete=True)
    assert context.trace()["log"][0].endswith("one")


def test_every_line_of_many_threads_is_written_once_or_said_to_be_missing() -> None:
    bench, threads = Bench(max_bytes=1 << 30), 20
    context, journal = bench.begun()

    def talk(which: int) -> None:
        for number in range(1000):
            context.log(f"{which} {number}")

    talking = [threading.Thread(target=talk, args=(which,)) for which in range(threads)]
    for thread in talking:
        thread.start()
    while any(thread.is_alive() for thread in talking):
        bench.write()
    bench.journals.end(journal)
    while bench.journals.unwritten:
        bench.write()
    written = [key for key, line in bench.shelf.lines.items() if line.level != NOTE]
    missing = sum(int(line.text.split()[1]) for line in bench.shelf.lines.values() if line.level == NOTE)
    said = {line.text for line in bench.shelf.lines.values() if line.level != NOTE}
    assert len(said) == len(written)
    assert len(written) + missing >= 1000 * threads


def test_a_line_that_this_server_cannot_store_costs_the_lines_of_its_own_execution_only() -> None:
    bench = Bench()
    poisoned, other = bench.begun()[0], bench.begun()[0]
    poisoned.log("☃")
    other.log("plain")
    bench.shelf.refused_text = "☃"
    bench.write()
    assert bench.shelf.texts(other) == ["plain"]
    assert bench.shelf.texts(poisoned) == ["… lines that this server cannot store: 1 (_Untranslatable)"]
    assert not bench.journals.unwritten


def test_what_a_handler_says_never_waits_for_the_writer() -> None:
    """The writer hangs in its statement: lines are taken, and the execution ends."""
    bench = Bench()
    context, journal = bench.begun()
    inside, release = threading.Event(), threading.Event()

    def hang(_batch: Any) -> None:
        inside.set()
        release.wait(60)

    bench.shelf.write = hang  # type: ignore[method-assign, assignment]
    context.log("one")
    writer = threading.Thread(target=bench.write)
    writer.start()
    assert inside.wait(30)
    context.log("two")
    context.progress(1)
    bench.journals.end(journal)
    assert bench.journals.unwritten
    release.set()
    writer.join(30)
