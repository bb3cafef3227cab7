"""Sends wakes to the broker. A message holds the name of its queue and nothing else.

Many are one round trip where the transport can do that (Redis), and all but a message's id is written once: through
Celery's own `send_task` a wake cost its sender as much as the worker's work on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import KombuError

from config import masked
from services.errors import Unavailable
from services.fleet.broker import WAKE, sending_options


class Messages:
    """One connection, opened on demand and closed by every failure. For one thread."""

    def __init__(self, app: Celery) -> None:
        self._app, self._url = app, app.conf.broker_url
        self._connection: Connection | None = None
        self._declared: set[str] = set()  # queues, since the connection was opened

    @property
    def where(self) -> str:
        return masked(self._url)

    def depth(self, queue: str) -> int:
        """Messages that no worker has been given yet."""
        with self._channel() as channel:
            return self._declare(channel, queue)

    def send(self, queue: str, count: int) -> None:
        wake = self._app.amqp.as_task_v2("", WAKE, [queue], {}, ignore_result=True)
        with self._channel() as channel:
            if queue not in self._declared:
                self._declare(channel, queue)
            producer = Producer(channel, auto_declare=False)
            with producer.batch():
                for _ in range(count):
                    own = str(uuid4())
                    producer.publish(
                        wake.body,
                        exchange="",
                        routing_key=queue,
                        serializer="json",
                        headers={**wake.headers, "id": own, "root_id": own},
                        **{**wake.properties, "correlation_id": own},
                    )

    def _declare(self, channel: Any, queue: str) -> int:
        """How many messages lie in it. RabbitMQ has no queue before somebody declares it, and drops what is sent."""
        answer = channel.queue_declare(queue=queue, durable=True, auto_delete=False)
        self._declared.add(queue)
        return int(answer.message_count)

    def purge(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_purge(queue)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._declared.clear()
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
