"""The database as each history finds it: as the migrations left it, whatever the history before has done to it."""

from collections.abc import Callable
from typing import Any

Run = Callable[..., list[tuple[Any, ...]]]

TABLES = """
SELECT c.oid::bigint, format('%I.%I', n.nspname, c.relname)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname IN ('public', 'sim') AND c.relkind = 'r' ORDER BY n.nspname, c.relname
"""
SEQUENCES = """
SELECT format('%I.%I', schemaname, sequencename), coalesce(last_value, start_value) FROM pg_sequences
WHERE schemaname IN ('public', 'sim') ORDER BY 1
"""
WRITTEN = (
    "SELECT oid FROM unnest(%s::bigint[]) AS given (oid) WHERE pg_relation_size(oid::oid::regclass) > 0 ORDER BY oid"
)


class Beginning:
    """Looks at a database that nobody has used yet; `restore` brings that back, with the numbers of all sequences.

    TRUNCATE, not DELETE: where nothing else orders rows, their places do, and these must be equal for equal seeds.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        tables: dict[int, str] = dict(run(TABLES))
        self._copies = {
            name: f"sim.first_{oid}" for oid, name in tables.items() if run(f"SELECT 1 FROM {name} LIMIT 1")
        }
        self._empty = {oid: name for oid, name in tables.items() if name not in self._copies}
        for name, copy in self._copies.items():
            run(f"CREATE UNLOGGED TABLE {copy} AS TABLE {name}")
        numbers = ", ".join(f"setval('{name}', {last})" for name, last in run(SEQUENCES))
        self._rest = "; ".join(
            [*(f"INSERT INTO {name} TABLE {copy}" for name, copy in self._copies.items()), f"SELECT {numbers}"]
        )

    def restore(self) -> None:
        written = [self._empty[oid] for (oid,) in self._run(WRITTEN, (list(self._empty),))]
        self._run(
            f"SET session_replication_role = replica; TRUNCATE {', '.join([*written, *self._copies])} CASCADE; "
            f"{self._rest}; SET session_replication_role = DEFAULT"
        )
