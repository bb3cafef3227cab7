"""What a copy of this process, made by a fork() in a handler, must not keep: our port and our connections.

A copy has one thread, and every descriptor of ours. As long as it lives the port would be taken, and Postgres would
take a replica that was killed for connected. exec() closes them already; this is for copies that go on.
"""

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


_private: WeakSet[HasDescriptor] = WeakSet()


def keep_from_copies(opened: HasDescriptor) -> None:
    """For as long as it is open."""
    _private.add(opened)


def _let_go() -> None:
    """Replaced, not closed: the number must not become that of a file which the handler opens next."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for opened in list(_private):
        with suppress(Exception):  # it is closed, and each driver says so in its own way
            os.dup2(nothing, opened.fileno(), inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_let_go)
