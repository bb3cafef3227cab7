"""A typed client of the HTTP API (`enhanced-scheduler web`), for threads and for asyncio. Standard library only.

    client = Client("http://127.0.0.1:8000", token)
    client.create_schedule({"name": "report", "domain": "report", "frequency": "hourly", "time_config": {"minute": 5}})
    for execution in client.list_executions(schedule="report", status="failed"):
        print(execution["scheduled_for"], execution["error_message"])

Methods are named as the operations of the OpenAPI document (`/api/openapi.json`), and take and return its schemas
(shapes.py, generated). Lists are iterators that read page after page. transport.py says what is repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from enhanced_scheduler.client import operations
from enhanced_scheduler.client.operations import Id
from enhanced_scheduler.client.shapes import (
    CancelRequested,
    ExecutionDetail,
    ExecutionOut,
    ExplanationOut,
    NewSchedule,
    PreviewOut,
    ReplicaList,
    RunRequested,
    ScheduleChanges,
    ScheduleOut,
)
from enhanced_scheduler.client.transport import ApiError, Call, Changed, ClientError, NotFound, Transport, Unreachable

__all__ = ["ApiError", "AsyncClient", "Changed", "Client", "ClientError", "NotFound", "Unreachable"]

TIMEOUT_SECONDS = 30.0
RETRIES = 3


class Client:
    """May be shared by threads."""

    def __init__(
        self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS, retries: int = RETRIES
    ) -> None:
        self._transport = Transport(url, token, timeout_seconds=timeout_seconds, retries=retries)

    def list_schedules(
        self,
        *,
        search: str | None = None,
        enabled: bool | None = None,
        domain: str | None = None,
        job_type: str | None = None,
        source: str | None = None,
        tag: str | None = None,
        last_status: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> Iterator[ScheduleOut]:
        """All that match; `limit` is the size of a page."""
        query = {name: value for name, value in locals().items() if name != "self"}
        return self._items(operations.list_schedules, query)

    def list_executions(
        self,
        *,
        schedule: Id | None = None,
        domain: str | None = None,
        status: str | None = None,
        cause: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
    ) -> Iterator[ExecutionOut]:
        """All that match, the newest first; `limit` is the size of a page."""
        query = {name: value for name, value in locals().items() if name != "self"}
        return self._items(operations.list_executions, query)

    def create_schedule(self, schedule: NewSchedule, *, idempotency_key: str | None = None) -> ScheduleOut:
        """Raises ApiError, whose `fields` name what is wrong."""
        result: ScheduleOut = self._send(operations.create_schedule(schedule, idempotency_key))
        return result

    def read_schedule(self, schedule: Id) -> ScheduleOut:
        """By its id, name or unambiguous domain."""
        result: ScheduleOut = self._send(operations.read_schedule(schedule))
        return result

    def change_schedule(self, schedule: Id, changes: ScheduleChanges, *, revision: int | None = None) -> ScheduleOut:
        """With a revision, raises Changed if the schedule has another one by now."""
        result: ScheduleOut = self._send(operations.change_schedule(schedule, changes, revision))
        return result

    def delete_schedule(self, schedule: Id, *, revision: int | None = None) -> None:
        """Its history stays."""
        self._send(operations.delete_schedule(schedule, revision))

    def run_schedule(self, schedule: Id, *, idempotency_key: str | None = None) -> RunRequested:
        """Run it once, in addition to its fires."""
        result: RunRequested = self._send(operations.run_schedule(schedule, idempotency_key))
        return result

    def preview_schedule(self, schedule: Id, *, n: int = 5) -> PreviewOut:
        """Its next fires."""
        result: PreviewOut = self._send(operations.preview_schedule(schedule, n))
        return result

    def explain_schedule(self, schedule: Id, *, at: datetime | str | None = None) -> ExplanationOut:
        """Why a fire ran, did not run, or ran late."""
        result: ExplanationOut = self._send(operations.explain_schedule(schedule, at))
        return result

    def read_execution(self, execution_id: Id) -> ExecutionDetail:
        """With its log, progress and result."""
        result: ExecutionDetail = self._send(operations.read_execution(execution_id))
        return result

    def cancel_execution(self, execution_id: Id) -> CancelRequested:
        """A waiting one at once, a running one by asking its replica to stop it."""
        result: CancelRequested = self._send(operations.cancel_execution(execution_id))
        return result

    def retry_execution(self, execution_id: Id, *, idempotency_key: str | None = None) -> RunRequested:
        """Let any replica run the next attempt at its fire."""
        result: RunRequested = self._send(operations.retry_execution(execution_id, idempotency_key))
        return result

    def read_replicas(self) -> ReplicaList:
        """The processes that run the jobs."""
        result: ReplicaList = self._send(operations.read_replicas())
        return result

    def _send(self, call: Call) -> Any:
        return self._transport.send(call)

    def _items(self, operation: Callable[[Mapping[str, Any]], Call], query: Mapping[str, Any]) -> Iterator[Any]:
        cursor = None
        while True:
            page = self._send(operation({**query, "cursor": cursor}))
            yield from page["items"]
            if (cursor := page["next_cursor"]) is None:
                return


class AsyncClient:
    """The same for asyncio: each call waits in a thread, so the event loop does not."""

    def __init__(
        self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS, retries: int = RETRIES
    ) -> None:
        self._transport = Transport(url, token, timeout_seconds=timeout_seconds, retries=retries)

    def list_schedules(
        self,
        *,
        search: str | None = None,
        enabled: bool | None = None,
        domain: str | None = None,
        job_type: str | None = None,
        source: str | None = None,
        tag: str | None = None,
        last_status: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[ScheduleOut]:
        """All that match; `limit` is the size of a page."""
        query = {name: value for name, value in locals().items() if name != "self"}
        return self._items(operations.list_schedules, query)

    def list_executions(
        self,
        *,
        schedule: Id | None = None,
        domain: str | None = None,
        status: str | None = None,
        cause: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[ExecutionOut]:
        """All that match, the newest first; `limit` is the size of a page."""
        query = {name: value for name, value in locals().items() if name != "self"}
        return self._items(operations.list_executions, query)

    async def create_schedule(self, schedule: NewSchedule, *, idempotency_key: str | None = None) -> ScheduleOut:
        """Raises ApiError, whose `fields` name what is wrong."""
        result: ScheduleOut = await self._send(operations.create_schedule(schedule, idempotency_key))
        return result

    async def read_schedule(self, schedule: Id) -> ScheduleOut:
        """By its id, name or unambiguous domain."""
        result: ScheduleOut = await self._send(operations.read_schedule(schedule))
        return result

    async def change_schedule(
        self, schedule: Id, changes: ScheduleChanges, *, revision: int | None = None
    ) -> ScheduleOut:
        """With a revision, raises Changed if the schedule has another one by now."""
        result: ScheduleOut = await self._send(operations.change_schedule(schedule, changes, revision))
        return result

    async def delete_schedule(self, schedule: Id, *, revision: int | None = None) -> None:
        """Its history stays."""
        await self._send(operations.delete_schedule(schedule, revision))

    async def run_schedule(self, schedule: Id, *, idempotency_key: str | None = None) -> RunRequested:
        """Run it once, in addition to its fires."""
        result: RunRequested = await self._send(operations.run_schedule(schedule, idempotency_key))
        return result

    async def preview_schedule(self, schedule: Id, *, n: int = 5) -> PreviewOut:
        """Its next fires."""
        result: PreviewOut = await self._send(operations.preview_schedule(schedule, n))
        return result

    async def explain_schedule(self, schedule: Id, *, at: datetime | str | None = None) -> ExplanationOut:
        """Why a fire ran, did not run, or ran late."""
        result: ExplanationOut = await self._send(operations.explain_schedule(schedule, at))
        return result

    async def read_execution(self, execution_id: Id) -> ExecutionDetail:
        """With its log, progress and result."""
        result: ExecutionDetail = await self._send(operations.read_execution(execution_id))
        return result

    async def cancel_execution(self, execution_id: Id) -> CancelRequested:
        """A waiting one at once, a running one by asking its replica to stop it."""
        result: CancelRequested = await self._send(operations.cancel_execution(execution_id))
        return result

    async def retry_execution(self, execution_id: Id, *, idempotency_key: str | None = None) -> RunRequested:
        """Let any replica run the next attempt at its fire."""
        result: RunRequested = await self._send(operations.retry_execution(execution_id, idempotency_key))
        return result

    async def read_replicas(self) -> ReplicaList:
        """The processes that run the jobs."""
        result: ReplicaList = await self._send(operations.read_replicas())
        return result

    async def _send(self, call: Call) -> Any:
        return await asyncio.to_thread(self._transport.send, call)

    async def _items(
        self, operation: Callable[[Mapping[str, Any]], Call], query: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        cursor = None
        while True:
            page = await self._send(operation({**query, "cursor": cursor}))
            for item in page["items"]:
                yield item
            if (cursor := page["next_cursor"]) is None:
                return
