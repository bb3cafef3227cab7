"""A TLS proxy in front of the test Redis, whose own binary lacks TLS."""

import asyncio
import ssl
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import unquote, urlsplit


class TlsDoor:
    """Listens on a free port of 127.0.0.1, terminates TLS, and forwards to the unix socket of `target_url`."""

    def __init__(self, target_url: str, tls: ssl.SSLContext) -> None:
        self._target, self._tls = unquote(urlsplit(target_url).path), tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.port = 0
        self.connections = 0  # clients that completed the TLS handshake

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports are closed in the next iteration of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answers, requests = await asyncio.open_unix_connection(self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_forward(reader, requests))
                both.create_task(_forward(answers, writer))
        finally:
            requests.transport.abort()
            writer.transport.abort()


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # one side is gone
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()
