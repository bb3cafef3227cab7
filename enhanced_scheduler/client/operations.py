"""Each operation of the API that the client offers: the call that it is. Both clients are made of these.

A test compares the names, methods, paths and parameters with the OpenAPI document.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

from enhanced_scheduler.client.shapes import NewSchedule, ScheduleChanges
from enhanced_scheduler.client.transport import Call

Id = UUID | str
SCHEDULES, EXECUTIONS = "/api/v3/schedules", "/api/v3/executions"


def list_schedules(query: Mapping[str, Any]) -> Call:
    return Call("GET", SCHEDULES, query, may_repeat=True)


def create_schedule(schedule: NewSchedule, idempotency_key: str | None) -> Call:
    return Call("POST", SCHEDULES, body=schedule, headers=_key(idempotency_key), may_repeat=True)


def read_schedule(schedule: Id) -> Call:
    return Call("GET", _schedule(schedule), may_repeat=True)


def change_schedule(schedule: Id, changes: ScheduleChanges, revision: int | None) -> Call:
    return Call("PATCH", _schedule(schedule), body=changes, headers=_match(revision))


def delete_schedule(schedule: Id, revision: int | None) -> Call:
    return Call("DELETE", _schedule(schedule), headers=_match(revision))


def run_schedule(schedule: Id, idempotency_key: str | None) -> Call:
    return Call("POST", f"{_schedule(schedule)}/run", headers=_key(idempotency_key), may_repeat=True)


def preview_schedule(schedule: Id, n: int) -> Call:
    return Call("POST", f"{_schedule(schedule)}/preview", {"n": n}, may_repeat=True)  # changes nothing


def explain_schedule(schedule: Id, at: datetime | str | None) -> Call:
    return Call("GET", f"{_schedule(schedule)}/explain", {"at": at}, may_repeat=True)


def list_executions(query: Mapping[str, Any]) -> Call:
    return Call("GET", EXECUTIONS, query, may_repeat=True)


def read_execution(execution_id: Id) -> Call:
    return Call("GET", f"{EXECUTIONS}/{execution_id}", may_repeat=True)


def cancel_execution(execution_id: Id) -> Call:
    return Call("POST", f"{EXECUTIONS}/{execution_id}/cancel", may_repeat=True)  # twice is once


def retry_execution(execution_id: Id, idempotency_key: str | None) -> Call:
    return Call("POST", f"{EXECUTIONS}/{execution_id}/retry", headers=_key(idempotency_key), may_repeat=True)


def read_replicas() -> Call:
    return Call("GET", "/api/v3/replicas", may_repeat=True)


def _schedule(reference: Id) -> str:
    return f"{SCHEDULES}/{quote(str(reference), safe='')}"


def _key(given: str | None) -> dict[str, str]:
    """A key of its own for each call, so that a repetition by the transport is recognised."""
    return {"Idempotency-Key": given or str(uuid4())}


def _match(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If-Match": f'"{revision}"'}
