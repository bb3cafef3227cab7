"""Sends wakes to the broker. A message holds the name of its queue and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from celery import Celery
from kombu import Connection
from kombu.exceptions import KombuError

from config import masked
from services.errors import Unavailable
from services.fleet.broker import WAKE, sending_options


class Messages:
    """One connection, opened on demand and closed by every failure. For one thread."""

    def __init__(self, app: Celery) -> None:
        self._app, self._url = app, app.conf.broker_url
        self._connection: Connection | None = None

    @property
    def where(self) -> str:
        return masked(self._url)

    def depth(self, queue: str) -> int:
        """Messages that no worker has been given yet."""
        with self._channel() as channel:
            answer = channel.queue_declare(queue=queue, durable=True, auto_delete=False)
            return int(answer.message_count)

    def send(self, queue: str, count: int) -> None:
        with self._channel() as channel:
            producer = self._app.amqp.Producer(channel)
            for _ in range(count):
                self._app.send_task(WAKE, args=[queue], queue=queue, producer=producer, retry=False, ignore_result=True)

    def purge(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_purge(queue)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # each transport has its own; it is of no use any more
                connection.collect()  # without a word to the broker, where the protocol has one

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        if self._connection is None:
            self._connection = Connection(self._url, **sending_options(self._url))
        lost = (*self._connection.connection_errors, *self._connection.channel_errors)
        try:
            yield self._connection.default_channel  # kombu's other ways try twice, with two seconds in between
        except (KombuError, OSError, *lost) as error:
            self.close()
            raise Unavailable("the Celery broker", self.where, str(error) or type(error).__name__) from error
        except BaseException:
            self.close()
            raise
