"""Arrays as text reach Postgres as the values that they were."""

import math
import pickle
from collections.abc import Callable, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from database.arrays import flag_array, instant_array, number_array, text_array, uuid_array
from database.connection import DatabaseConnection


@pytest.mark.parametrize(
    ("as_text", "sql_type", "values"),
    [
        (uuid_array, "uuid", [uuid4(), None, UUID(int=0)]),
        (
            instant_array,
            "timestamptz",
            [
                datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
                None,
                datetime(1, 1, 2, tzinfo=UTC),
                datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
            ],
        ),
        (number_array, "float8", [0.1, None, -1e-7, 1e300, math.inf]),
        (number_array, "bigint", [2**63 - 1, None, -5]),
        (flag_array, "boolean", [True, False]),
        (uuid_array, "uuid", []),
        (text_array, "text", ["", None, "NULL", "a,b", '{"c"}', "d\\e", 'f"g\\', "h'i", "%s", " j\n", "ü"]),
    ],
)
def test_the_values_survive(
    db: DatabaseConnection, as_text: Callable[[Sequence[Any]], str], sql_type: str, values: list[Any]
) -> None:
    sql = f"SELECT each FROM unnest(%(values)s::{sql_type}[]) WITH ORDINALITY AS a (each, place) ORDER BY place"
    with db.transaction() as connection:
        read = connection.exec_driver_sql(sql, {"values": as_text(values)}).scalars().all()
    assert read == values


def test_a_uuid_is_read_as_any_other_one(db: DatabaseConnection) -> None:
    made = uuid4()
    with db.transaction() as connection:
        row = connection.exec_driver_sql(
            "SELECT %(made)s::uuid, ARRAY[%(made)s::uuid, NULL], NULL::uuid", {"made": made}
        ).one()
    assert tuple(row) == (made, [made, None], None)
    read = row[0]
    assert (type(read), hash(read), str(read), read.is_safe) == (UUID, hash(made), str(made), made.is_safe)
    assert pickle.loads(pickle.dumps(read)) == copy(read) == made
