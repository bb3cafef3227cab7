"""Closes our port and our connections in a child process that a handler made with fork().

The child has one thread and inherits every descriptor. While it lives, the port would stay in use, and Postgres would
consider a killed replica still connected. exec() closes the descriptors itself; this covers children that do not exec.
"""

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


_private: WeakSet[HasDescriptor] = WeakSet()


def keep_from_copies(opened: HasDescriptor) -> None:
    """Keep this descriptor, while it is open, out of forked children."""
    _private.add(opened)


def _let_go() -> None:
    """Replaces the descriptors instead of closing them, so that their numbers are not reused by the handler's files."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for opened in list(_private):
        with suppress(Exception):  # already closed; each driver reports that differently
            os.dup2(nothing, opened.fileno(), inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_let_go)
