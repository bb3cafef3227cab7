"""Live logs in the tables: written in batches, read by position, followed to the end, deleted when they are old."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.engine import journals as writing
from services.engine.journals import Journals
from services.job_history import JobHistory
from services.jobs import ExecutionContext
from services.ledger import log_following
from services.ledger.logs import LogBatch, LoggedLine, LogPosition, LogStore, ProgressNote
from tests.support.contexts import a_context
from tests.support.logs import a_row, say
from tests.support.waiting import eventually

NOW = datetime.now(UTC)


@pytest.fixture
def store(db: DatabaseConnection) -> Iterator[LogStore]:
    with closing(LogStore(db)) as store:
        yield store


@pytest.fixture
def history(db: DatabaseConnection) -> JobHistory:
    return JobHistory(db)


def lines_of(execution_id: UUID, *numbers: int, token: int = 7, text: str = "line") -> list[LoggedLine]:
    return [LoggedLine(execution_id, LogPosition(token, number), NOW, "INFO", f"{text} {number}") for number in numbers]


def numbers(lines: list[LoggedLine]) -> list[int]:
    return [line.position.line for line in lines]


def test_a_batch_that_is_written_twice_is_there_once(store: LogStore, history: JobHistory) -> None:
    execution_id = uuid4()
    batch = LogBatch(lines_of(execution_id, 1, 2), [ProgressNote(execution_id, 7, (1, 2))])
    store.write(batch)
    store.write(batch)
    assert numbers(history.logs.read(execution_id)) == [1, 2]


def test_progress_is_the_newest_one_and_the_end_forgets_none(store: LogStore, history: JobHistory) -> None:
    execution_id = uuid4()
    for progress, is_complete in (((1, 4), False), ((2, None), False), (None, True)):
        store.write(LogBatch([], [ProgressNote(execution_id, 7, progress, is_complete)]))
    state = history.logs.state(execution_id)
    assert state is not None
    assert (state.done, state.total, state.is_complete) == (2, None, True)


def test_a_reader_continues_after_a_position_also_over_two_calls_of_one_execution(
    store: LogStore, history: JobHistory
) -> None:
    execution_id = uuid4()
    store.write(LogBatch([*lines_of(execution_id, 1, 2, token=8), *lines_of(execution_id, 1, 2, 3, token=7)]))
    read = history.logs.read(execution_id, LogPosition(7, 2))
    assert [str(line.position) for line in read] == ["7-3", "8-1", "8-2"]
    assert [str(line.position) for line in history.logs.last(execution_id, 2)] == ["8-1", "8-2"]
    assert history.logs.ends([execution_id, uuid4()]) == {execution_id: LogPosition(8, 2)}


def test_the_news_of_many_executions_are_read_at_once(store: LogStore, history: JobHistory) -> None:
    first, second = uuid4(), uuid4()
    store.write(LogBatch([*lines_of(first, 1, 2, 3), *lines_of(second, 1, 2)]))
    news = history.logs.news({first: LogPosition(7, 2), second: LogPosition()})
    assert sorted((line.execution_id == first, line.position.line) for line in news) == [
        (False, 1), (False, 2), (True, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "7", "7-", "-1", "7-x", "٣-1", f"1-{2**63}", "1-2-3"])
def test_a_position_that_no_line_has_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="must be the position of a line"):
        LogPosition.parse(text, "after")


def written_by_a_replica(db: DatabaseConnection) -> tuple[Journals, ExecutionContext]:
    journals = Journals(LogStore(db), 1 << 20)
    journals.loop.start()
    return journals, a_context()


def test_what_a_handler_says_can_be_read_while_it_runs_and_its_last_line_soon_after_its_end(
    db: DatabaseConnection, history: JobHistory
) -> None:
    journals, context = written_by_a_replica(db)
    try:
        journal = journals.begin(context)
        context.log("first")
        eventually(lambda: [line.text for line in history.logs.read(context.execution_id)] == ["first"])
        context.log("last")
        journals.end(journal)
        eventually(lambda: [line.text for line in history.logs.last(context.execution_id, 1)] == ["last"])
    finally:
        journals.loop.stop()
        journals.close()


def test_a_locked_table_of_lines_holds_up_the_lines_and_nothing_else(
    db: DatabaseConnection, history: JobHistory
) -> None:
    journals, context = written_by_a_replica(db)
    try:
        with db.transaction() as elsewhere:
            elsewhere.exec_driver_sql("LOCK TABLE execution_logs")
            journal = journals.begin(context)
            context.log("said meanwhile")
            eventually(lambda: journals.loop._failures >= 1)  # after two seconds, not after thirty
            journals.end(journal)
        eventually(lambda: len(history.logs.read(context.execution_id)) == 1)
        assert journals.loop.is_live
    finally:
        journals.loop.stop()
        journals.close()


def test_lines_wait_for_a_lost_connection(db: DatabaseConnection, history: JobHistory) -> None:
    journals, context = written_by_a_replica(db)
    ended = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE pid <> pg_backend_pid() AND datname = current_database()"""
    try:
        journals.begin(context)
        context.log("one")
        eventually(lambda: len(history.logs.read(context.execution_id)) == 1)
        with db.transaction() as connection:
            connection.exec_driver_sql(ended)
        context.log("two")
        eventually(lambda: len(history.logs.read(context.execution_id)) == 2)
    finally:
        journals.loop.stop()
        journals.close()


def test_a_follower_waits_for_the_last_lines_of_an_execution_that_has_ended(
    db: DatabaseConnection, store: LogStore, history: JobHistory
) -> None:
    execution_id = a_row(db, "success", details={"log": ["…"]})
    follower = history.follow_log(execution_id)
    assert not follower.look().is_over
    say(store, execution_id, "late", is_complete=True)
    look = follower.look()
    assert ([line.text for line in look.lines], look.is_over) == (["late"], True)


def test_a_follower_does_not_wait_for_what_says_nothing(db: DatabaseConnection, history: JobHistory) -> None:
    assert history.follow_log(a_row(db, "success", details={"result": {}})).look().is_over
    assert history.follow_log(a_row(db, "skipped")).look().is_over
    assert not history.follow_log(a_row(db, "running")).look().is_over


def test_a_follower_does_not_wait_for_ever_for_a_writer_that_died(
    db: DatabaseConnection, store: LogStore, history: JobHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned, cut_off = a_row(db, "abandoned"), a_row(db, "failed")
    for execution_id in (abandoned, cut_off):
        say(store, execution_id, "the last one that was written")
    assert history.follow_log(abandoned).look().is_over
    monkeypatch.setattr(log_following, "LAST_LINES_SECONDS", 0.2)
    follower = history.follow_log(cut_off)
    assert not follower.look().is_over
    eventually(lambda: follower.look().is_over)


def test_a_follower_does_not_wait_for_the_lines_of_an_execution_that_ended_long_ago(
    db: DatabaseConnection, history: JobHistory
) -> None:
    execution_id = a_row(db, "success", details={"log": ["of a version before"]})
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE job_executions SET completed_at = clock_timestamp() - interval '1 minute'")
    assert history.follow_log(execution_id).look().is_over


def test_old_logs_are_deleted_in_small_batches_and_young_ones_stay(
    db: DatabaseConnection, store: LogStore, history: JobHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young = uuid4(), uuid4()
    for execution_id in (old, young):
        store.write(LogBatch(lines_of(execution_id, *range(1, 31)), [ProgressNote(execution_id, 7, (1, 1))]))
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE execution_progress SET began_at = %(at)s WHERE execution_id = %(old)s",
            {"at": NOW - timedelta(days=31), "old": old},
        )
    monkeypatch.setattr("services.ledger.logs.DELETE_BATCH", 7)
    history.cleanup_old_executions(days=30)
    assert (history.logs.read(old), history.logs.state(old)) == ([], None)
    assert len(history.logs.read(young)) == 30


def test_a_replica_that_says_nothing_opens_no_connection(db: DatabaseConnection) -> None:
    journals, context = written_by_a_replica(db)
    try:
        for _ in range(3):
            journals.end(journals.begin(context))
        journals._written_at = -writing.WRITE_SECONDS
        assert journals.tick() is None
        assert journals._store._connection._connection is None
    finally:
        journals.loop.stop()
