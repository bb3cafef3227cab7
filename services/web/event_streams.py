"""Server-Sent Events about one execution. Bounded: the number of streams, their duration, the time of a stuck reader.

A stream looks at the database twice a second, in a thread; between two looks it costs nothing. It ends with the event
`end`. A browser connects again by itself and gets 204, which tells it to stop.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.errors import Unavailable
from services.ledger.listing import ExecutionRecord
from services.ledger.log_following import LogFollower, Look
from services.ledger.logs import PAGE
from services.web.problems import UNAVAILABLE, HttpProblem, not_found
from services.web.schemas.executions import ExecutionOut, LogLineOut

LOOK_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
STREAM_SECONDS = 900.0  # then the reader connects again, and is authenticated again
STUCK_SECONDS = 30.0  # a reader that has taken nothing for so long has left
RETRY_SECONDS = 5
THREADS = 4  # while Postgres stalls, the streams hold no more of the threads and connections than these
RECONNECT = "retry: 2000\n\n"
KEEP_ALIVE = ": keep-alive\n\n"
OUTAGE = ": Postgres does not answer\n\n"

EXAMPLE = """retry: 2000

event: log
id: 4711-25
data: {"position": "4711-25", "at": "2027-01-31T01:30:04.120Z", "level": "INFO", "text": "page 3 of 12: 48 rows"}

event: progress
data: {"done": 3.0, "total": 12.0}

event: end
id: 4711-25
data: {"status": "success"}

"""

Chunks = AsyncIterator[str]


class EventStream(Response):
    """`chunks` are produced only as fast as the reader takes them; `closed` is called once, however it ends."""

    media_type = "text/event-stream"

    def __init__(self, chunks: Chunks, closed: Callable[[], None], status_code: int = 200) -> None:
        super().__init__(
            status_code=status_code, headers={"X-Accel-Buffering": "no"}
        )  # a proxy must not collect the events
        del self.headers["content-length"]
        self._chunks, self._closed = chunks, closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._closed()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks:
                async with asyncio.timeout(STUCK_SECONDS):
                    await send({"type": "http.response.body", "body": chunk.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return  # the server closes the connection of an answer without an end


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStreams:
    """All streams of this process. Only the event loop touches it."""

    def __init__(self, most: int) -> None:
        self._most, self._open = most, 0
        self._threads = CapacityLimiter(THREADS)
        self._is_over: Callable[[], bool] = lambda: False

    def end_when(self, is_over: Callable[[], bool]) -> None:
        """A server that stops does not wait for the streams."""
        self._is_over = is_over

    @property
    def open_streams(self) -> int:
        return self._open

    async def open(self, follower: LogFollower, *, resumed: bool) -> Response:
        if self._open >= self._most:
            detail = f"{self._most} event streams are open (WEB_MAX_EVENT_STREAMS); read /log instead, or retry later"
            raise HttpProblem(UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_SECONDS)})
        self._open += 1
        try:
            first = await self._look(follower)
            if first.record is None:
                raise not_found("this execution")
            if resumed and first.is_over and not first.lines:
                response = Response(status_code=204)
            else:
                return EventStream(self._events(follower, first), self._close)
        except BaseException:
            self._close()
            raise
        self._close()
        return response

    async def _look(self, follower: LogFollower) -> Look:
        return await to_thread.run_sync(follower.look, limiter=self._threads)

    def _close(self) -> None:
        self._open -= 1

    async def _events(self, follower: LogFollower, first: Look) -> Chunks:
        yield RECONNECT
        shown, look, until = _Shown(), first, time.monotonic() + STREAM_SECONDS
        spoke_at = time.monotonic()
        while True:
            for event in shown.news(look):
                yield event
                spoke_at = time.monotonic()
            if look.is_over:
                status = None if look.record is None else look.record.status
                yield _event("end", {"status": status}, str(follower.position))
                return
            if time.monotonic() >= until or self._is_over():
                return
            if time.monotonic() >= spoke_at + KEEP_ALIVE_SECONDS:
                yield KEEP_ALIVE
                spoke_at = time.monotonic()
            if len(look.lines) < PAGE:
                await asyncio.sleep(LOOK_SECONDS)
            try:
                look = await self._look(follower)
            except Unavailable:
                yield OUTAGE
                look = Look(look.record, [], look.state, is_over=False)


class _Shown:
    """What this reader has been told."""

    def __init__(self) -> None:
        self._record: ExecutionRecord | None = None
        self._progress: tuple[float | None, float | None] = (None, None)

    def news(self, look: Look) -> list[str]:
        events = []
        if look.record is not None and look.record != self._record:
            self._record = look.record
            events.append(_event("status", ExecutionOut.model_validate(look.record).model_dump(mode="json")))
        for line in look.lines:
            events.append(_event("log", LogLineOut.of(line).model_dump(mode="json"), str(line.position)))
        if look.state is not None and (made := (look.state.done, look.state.total)) != self._progress:
            self._progress = made
            events.append(_event("progress", {"done": made[0], "total": made[1]}))
        return events


def _event(kind: str, data: dict[str, Any], event_id: str | None = None) -> str:
    """JSON has no line breaks, so the data is one line."""
    named = "" if event_id is None else f"id: {event_id}\n"
    return f"event: {kind}\n{named}data: {json.dumps(data, ensure_ascii=False)}\n\n"
