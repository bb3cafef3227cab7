"""What a handler says with plain `logging` is a part of its execution's log."""

import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from database.models import ExecutionStatus
from enhanced_scheduler.calling import call_handler
from enhanced_scheduler.context import MAX_LINE_CHARACTERS
from services.jobs import ExecutionContext, JobDefinition, JobResult
from services.telemetry.logs import JsonLines
from tests.support.contexts import Heard, a_context

logger = logging.getLogger("a.handler")


def called(
    handler: Callable[[ExecutionContext], Any], context: ExecutionContext | None = None
) -> tuple[JobResult, Heard]:
    heard, context = Heard(), context or a_context()
    context.listen(heard)
    return call_handler(JobDefinition("test", lambda context, _config: handler(context)), context), heard


def test_lines_of_the_handler_s_thread_are_heard_with_level_and_logger() -> None:
    result, heard = called(lambda _context: logger.warning("page %d of %d", 3, 12))
    assert result.status is ExecutionStatus.SUCCESS
    assert [(line.level, line.text) for line in heard.lines] == [("WARNING", "a.handler: page 3 of 12")]
    logger.warning("outside of any execution")
    assert len(heard.lines) == 1


def test_they_are_not_kept_with_the_execution_but_counted() -> None:
    def handler(context: ExecutionContext) -> None:
        context.log("kept")
        logger.warning("heard")

    context = a_context()
    _, heard = called(handler, context)
    assert (heard.texts, heard.kept) == (["kept", "a.handler: heard"], ["kept"])
    assert context.trace()["logged"] == 1
    assert len(context.trace()["log"]) == 1


def test_a_logged_exception_brings_the_end_of_its_traceback() -> None:
    def handler(_context: ExecutionContext) -> None:
        try:
            raise ValueError("long " * 1000 + "the reason")
        except ValueError:
            logger.exception("it failed")

    _, heard = called(handler)
    assert heard.texts[0].startswith("a.handler: it failed\n…")
    assert heard.texts[0].endswith("the reason")


class _Broken:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_line_that_cannot_be_formatted_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)  # logging would print why
    result, heard = called(lambda _context: logging.Logger("alone").warning("%s", _Broken()))
    assert result.status is ExecutionStatus.SUCCESS
    assert heard.texts == ["alone: a line that cannot be formatted: RuntimeError"]


@pytest.mark.parametrize("say", ["log", "logging"])
def test_a_poisoned_line_becomes_one_that_can_be_stored(say: str) -> None:
    poison = "a\x00b\ud800c password at https://anna:geheim@x.example/?api_key=s3cr3t " + "x" * 10_000_000

    silent = logging.Logger("silent")  # this line is not for the report of the test
    silent.addHandler(logging.NullHandler())

    def handler(context: ExecutionContext) -> None:
        context.hide("hidden-value")
        for text in (poison, "with hidden-value"):
            context.log(text) if say == "log" else silent.warning(text)

    _, heard = called(handler)
    first, second = heard.texts
    assert "a\ufffdb\ufffdc" in first
    assert "https://anna:***@x.example/?api_key=***" in first
    assert len(first) == MAX_LINE_CHARACTERS
    assert second.endswith("with ***")


def test_another_thread_speaks_for_itself() -> None:
    def handler(_context: ExecutionContext) -> None:
        other = threading.Thread(target=logger.warning, args=("not mine",))
        other.start()
        other.join()

    assert called(handler)[1].texts == []


def test_a_copy_of_the_process_reports_nothing() -> None:
    """Its locks may never be released there."""
    context, heard = a_context(), Heard()
    context.listen(heard)
    read, write = os.pipe()
    with context._live.lock:
        child = os.fork()
        if child == 0:
            context.log("from the copy")
            context.progress(1)
            os.write(write, str(len(heard.lines) + len(heard.progress)).encode())
            os._exit(0)
        os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"


def test_the_replica_s_own_log_lines_carry_the_execution_s_ids() -> None:
    context, lines = a_context(), list[str]()
    handler = logging.StreamHandler()
    handler.emit = lambda record: lines.append(JsonLines().format(record))  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        called(lambda _context: logger.warning("stamped"), context)
        logger.warning("not stamped")
    finally:
        logger.removeHandler(handler)
    inside, outside = map(json.loads, lines)
    stamps = {"execution_id": str(context.execution_id), "schedule_id": str(context.schedule_id), "attempt": 1}
    assert inside.items() >= stamps.items()
    assert not outside.keys() & stamps.keys()
