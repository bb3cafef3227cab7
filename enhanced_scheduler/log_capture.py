"""Lines that a handler logs with plain `logging` belong to its execution.

A context variable names the execution that the current thread works for; each log record of the process is shown to it
when the record is made. A record factory, not a logging handler: a handler at the root logger would silence Python's
handler of last resort, and a later `logging.basicConfig()` of the embedding program would do nothing.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from enhanced_scheduler.containment import Raised, Returned, contained
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.texts import cut_head

MAX_TRACEBACK_CHARACTERS = 3000

T = TypeVar("T")

_current: ContextVar[ExecutionContext | None] = ContextVar("execution", default=None)
_formatter = logging.Formatter()


def speaking_for(context: ExecutionContext, call: Callable[[], T]) -> T:
    """Lines that this thread logs meanwhile carry the execution's ids and are shown in its log."""
    _install()
    former = _current.set(context)
    try:
        return call()
    finally:
        _current.reset(former)


def speak_for(context: ExecutionContext) -> None:
    """For a coroutine: all that its task, the tasks and the threads that it starts log belongs to the execution."""
    _install()
    _current.set(context)


def facts() -> dict[str, Any]:
    """The ids of the execution that this thread works for, for formatters of log lines."""
    context = _current.get()
    if context is None:
        return {}
    return {"execution_id": context.execution_id, "schedule_id": context.schedule_id, "attempt": context.attempt}


class _Factory:
    """Makes records as before, and shows them to the execution of the thread."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self.make = make

    def __call__(self, *args: Any, **options: Any) -> logging.LogRecord:
        record = self.make(*args, **options)
        context = _current.get()
        if context is not None and record.name:  # nameless ones are only samples of a record
            _overhear(context, record)
        return record


def _install() -> None:
    """Again, if another library has replaced the factory in the meantime."""
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, _Factory):
        logging.setLogRecordFactory(_Factory(factory))


def _overhear(context: ExecutionContext, record: logging.LogRecord) -> None:
    match contained(lambda: _text_of(record)):
        case Returned(text):
            context.overhear(record.levelname, text)
        case Raised(error):  # logging itself prints why
            text = f"{record.name}: a line that cannot be formatted: {type(error).__name__}"
            context.overhear(record.levelname, text)


def _text_of(record: logging.LogRecord) -> str:
    said = f"{record.name}: {record.getMessage()}"
    match record.exc_info:
        case (type() as kind, BaseException() as error, TracebackType() | None as trace):
            return f"{said}\n{cut_head(_formatter.formatException((kind, error, trace)), MAX_TRACEBACK_CHARACTERS)}"
        case _:
            return said
