"""Keyset pages: what a cursor says, and which cursors are understood."""

import base64
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Select, create_engine, literal_column, select

from database.models import JobExecution, Schedule
from database.pages import Keyset
from database.workflow_models import DeadLetter, Place
from services.errors import InvalidInput
from services.ledger.listing import BY_CREATION, BY_FIRE
from services.scanning.listing import NEWEST_FIRST as SCANS
from services.schedules.listing import order_of
from services.workflows.row_lists import PLACES

AT, KEY = datetime(2027, 1, 4, 9, 12, 44, 318000, tzinfo=UTC), UUID("3f2a90c1-0000-4000-8000-000000000001")
EVERYTHING: Select[Any] = select(literal_column("*"))


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


def condition(order: Keyset, place: str) -> str:
    dialect = create_engine("postgresql+psycopg2://").dialect
    query = order.apply(EVERYTHING, place).compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    return str(query).partition("WHERE ")[2].partition("ORDER BY")[0].strip()


@pytest.mark.parametrize(
    ("order", "row", "older"),
    [
        (order_of("domain"), {"domain": "a.example", "schedule_id": KEY}, ["domain", "a.example", str(KEY)]),
        (order_of("-priority"), {"priority": 7, "schedule_id": KEY}, ["-priority", 7, str(KEY)]),
        (order_of("next_run"), {"next_run": None, "schedule_id": KEY}, ["next_run", None, str(KEY)]),
        (order_of("next_run"), {"next_run": AT, "schedule_id": KEY}, ["next_run", AT.isoformat(), str(KEY)]),
        (BY_CREATION, {"created_at": AT, "execution_id": KEY}, ["created", str(AT), str(KEY)]),
        (BY_FIRE, {"scheduled_for": AT, "attempt": 2}, ["fire", str(AT), 2]),
        (SCANS, {"finished_at": AT, "scan_id": KEY}, [AT.isoformat(), str(KEY)]),
        (PLACES.order, {"created_at": AT, "id": 41}, [AT.isoformat(), "41"]),
    ],
)
def test_a_cursor_of_an_older_version_leads_to_the_same_place(order: Keyset, row: Any, older: list[Any]) -> None:
    now = condition(order, order.cursor_after(SimpleNamespace(**row)))
    assert now
    assert condition(order, cursor(*older)) == now


def test_rows_without_a_value_have_a_place_and_what_all_rows_share_leads_the_order() -> None:
    shown = condition(order_of("next_run"), cursor("next_run", None, str(KEY)))
    assert shown.startswith("('infinity'::timestamptz, ")
    same = Keyset(columns=(JobExecution.attempt,), same=((JobExecution.domain, "a.example"),))
    assert condition(same, cursor(3)) == "('a.example', 3) > (job_executions.domain, job_executions.attempt)"


def test_a_number_is_compared_with_what_its_column_can_hold() -> None:
    assert "(4294967296)" in condition(Keyset(columns=(DeadLetter.id,)), cursor(2**32))
    for order, value in ((Keyset(columns=(Place.id,)), 2**31), (Keyset(columns=(DeadLetter.id,)), 2**63)):
        with pytest.raises(InvalidInput, match=r"^cursor: must come from an earlier page of this list$"):
            order.apply(EVERYTHING, cursor(value))


def test_a_cursor_of_another_order_says_so() -> None:
    with pytest.raises(InvalidInput, match=r"^cursor: belongs to the sort order 'created', not 'fire'$"):
        BY_FIRE.apply(EVERYTHING, cursor("created", str(AT), str(KEY)))


@pytest.mark.parametrize("values", [(), (3,), ("a.example", str(KEY), 1), (None, str(KEY))])
def test_a_cursor_with_another_number_of_values_is_refused(values: tuple[Any, ...]) -> None:
    order = Keyset(columns=(Schedule.domain, Schedule.schedule_id), descending=False)
    with pytest.raises(InvalidInput, match="must come from an earlier page of this list"):
        order.apply(EVERYTHING, cursor(*values))
