"""What a process sends to Postgres: by its pool and by the connections of single threads. Each is a round trip."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from database.connection import DatabaseConnection, DedicatedConnection

Told = Callable[[Any, str, Any], None]  # the connection of the driver, the text, the values


def _ignored(*_: object) -> None:
    pass


@contextmanager
def each_statement(
    db: DatabaseConnection, told: Told = _ignored, *, answered: Told = _ignored, refused: Told = _ignored
) -> Iterator[None]:
    """`told` comes before each statement, `answered` after each that succeeded, `refused` after each other one."""
    send = DedicatedConnection._send

    def dedicated(self: DedicatedConnection, connection: Any, statement: str, values: Mapping[str, Any]) -> Any:
        if self._db is not db:
            return send(self, connection, statement, dict(values))
        asked = connection.connection.driver_connection, statement, values
        told(*asked)
        try:
            rows = send(self, connection, statement, dict(values))
        except Exception:
            refused(*asked)
            raise
        answered(*asked)
        return rows

    def pooled(tell: Told) -> Callable[..., None]:
        return lambda connection, _cursor, statement, values, *_: tell(
            connection.connection.driver_connection, statement, values
        )

    listening: dict[str, Callable[..., None]] = {
        "before_cursor_execute": pooled(told),
        "after_cursor_execute": pooled(answered),
        "handle_error": lambda error: refused(None, error.statement, error.parameters),
    }
    for name, listener in listening.items():
        event.listen(db.engine, name, listener)
    DedicatedConnection._send = dedicated  # type: ignore[method-assign]
    try:
        yield
    finally:
        DedicatedConnection._send = send  # type: ignore[method-assign]
        for name, listener in listening.items():
            event.remove(db.engine, name, listener)
