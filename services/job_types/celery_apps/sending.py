"""Sends one task message to the broker of a user's app: within seconds it is sent, refused, or reported as unknown.

A connection of its own for each message: a message that fails before it is handed over was surely not sent. A kept
connection would break that: its first sign of a dead broker is a lost message, and sending again might send it twice.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from config import masked
from services.checks.celery_apps import CeleryApp

CONNECT_SECONDS = ANSWER_SECONDS = 1.0
PERSISTENT = 2  # delivery mode: a message survives a restart of RabbitMQ
_REDIS_OPTIONS = {
    "socket_connect_timeout": CONNECT_SECONDS,
    "socket_timeout": ANSWER_SECONDS,
    "retry_on_timeout": False,
}
# Without confirmation RabbitMQ answers nothing, and a message to a frozen broker would count as sent.
_AMQP_OPTIONS = {"read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS, "confirm_publish": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    task_id: str
    task: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str
    headers: Mapping[str, str | int]
    origin: str
    expires_seconds: float | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """`may_be_sent`: the connection failed after the message was handed over."""

    reason: str
    may_be_sent: bool = False


def send(app: CeleryApp, call: TaskCall) -> NotSent | None:
    """None: the broker has the message."""
    from kombu import Connection
    from kombu.exceptions import KombuError

    is_amqp = app.broker_url.startswith("amqp")
    connection = Connection(
        app.broker_url,
        connect_timeout=CONNECT_SECONDS,
        heartbeat=0,
        transport_options=dict(_AMQP_OPTIONS if is_amqp else _REDIS_OPTIONS),
    )
    transport = connection.transport  # knows nobody yet
    errors = (KombuError, OSError, *connection.connection_errors, *connection.channel_errors)
    try:
        try:
            connection.ensure_connection(max_retries=0, timeout=CONNECT_SECONDS)
            channel = connection.channel()
            if is_amqp:  # through the default exchange, a message to a queue that does not exist vanishes
                channel.queue_declare(call.queue, passive=True)
        except errors as error:
            return NotSent(_reason(app, error))
        try:
            _publish(channel, call)
        except errors as error:
            return NotSent(_reason(app, error), may_be_sent=True)
        return None
    finally:
        with suppress(*errors):  # what became of the message is known by now
            connection.release()
        _close_poller(transport)


def _close_poller(transport: Any) -> None:
    """Of the Redis transport: after a failure kombu leaves it to the garbage collector, which runs rarely here."""
    if cycle := getattr(transport, "cycle", None):
        cycle.poller.close()


def _publish(channel: Any, call: TaskCall) -> None:
    """To the queue itself: the app's exchanges and bindings belong to its workers."""
    from kombu import Producer

    expires_at = None if call.expires_seconds is None else datetime.now(UTC) + timedelta(seconds=call.expires_seconds)
    message = _protocol().as_task_v2(
        call.task_id,
        call.task,
        list(call.args),
        dict(call.kwargs),
        expires=expires_at,
        origin=call.origin,
    )
    Producer(channel, auto_declare=False).publish(
        message.body,
        exchange="",
        routing_key=call.queue,
        serializer="json",
        delivery_mode=PERSISTENT,
        priority=call.priority,
        headers={**call.headers, **message.headers},
        retry=False,
        timeout=ANSWER_SECONDS,
        confirm_timeout=ANSWER_SECONDS,
        **message.properties,
    )


@cache
def _protocol() -> Any:
    """Celery's own writer of task messages; the app behind it has no broker and is nobody's current one."""
    from celery import Celery

    return Celery("enhanced_scheduler", set_as_current=False).amqp


def _reason(app: CeleryApp, error: BaseException) -> str:
    said = str(error).strip() or type(error).__name__
    return f"the broker of Celery app {app.name!r} ({masked(app.broker_url)}): {said.rstrip('.')}"
