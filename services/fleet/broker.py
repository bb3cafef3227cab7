"""Where the broker is, and how Celery uses it: only to wake workers, which needs none of its guarantees."""

from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from celery import Celery
from kombu import Queue

from config import Settings, masked
from services.embedded.servers import redis_url
from services.errors import ConfigurationError

TIMEOUT_SECONDS = 1.0
WAKE = "fleet.wake"  # the one task
CHILD_START_SECONDS = 60.0  # Postgres may be busy when it registers


def broker_url(settings: Settings) -> str:
    """CELERY_BROKER_URL; otherwise our Redis, under the next database number, which holds none of our keys."""
    if settings.celery_broker_url:
        return settings.celery_broker_url.get_secret_value()
    ours = redis_url(settings)
    parts = urlsplit(ours)
    query = [item.partition("=") for item in parts.query.split("&") if item]
    numbers = [value for name, _, value in query if name == "db"] or [parts.path.strip("/") or "0"]
    if parts.scheme not in ("redis", "rediss", "unix") or (not numbers[0].isdigit() and parts.scheme != "unix"):
        raise ConfigurationError(f"CELERY_BROKER_URL is not set, and REDIS_URL={masked(ours)!r} cannot be its default")
    if parts.scheme == "unix":
        number = next((value for name, _, value in query if name == "db"), "0")
        return f"redis+socket://{unquote(parts.path)}?virtual_host={int(number) + 1}"
    rest = "&".join(f"{name}={value}" for name, _, value in query if name != "db")
    return urlunsplit(parts._replace(path=f"/{int(numbers[0]) + 1}", query=rest))


def celery_app(settings: Settings, *, is_worker: bool) -> Celery:
    url = broker_url(settings)
    app = Celery("fleet", broker=url, set_as_current=is_worker)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        result_backend=None,
        worker_prefetch_multiplier=1,  # a wake must not wait behind a long job while another worker idles
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_publish_retry=False,
        broker_transport_options=_consuming_options(url),
        task_queues=[Queue(name) for name in sorted(settings.fleet_queues)] or None,
        task_track_started=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,  # anybody with access to the broker could end workers
        worker_proc_alive_timeout=CHILD_START_SECONDS,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        enable_utc=True,
    )
    return app


def _consuming_options(url: str) -> dict[str, Any]:
    """Redis keeps no copy of a message that a worker has been given, to deliver it again after an hour.

    The row is announced again much earlier, and the copies were two thirds of what Celery itself did for a wake.
    """
    return {"ack_emulation": False} if _is_redis(url) else {}


def _is_redis(url: str) -> bool:
    return urlsplit(url).scheme.partition("+")[0] in ("redis", "rediss", "sentinel")


def sending_options(url: str) -> dict[str, Any]:
    """Of a connection that fails within a second instead of waiting: the broker may accept and never answer."""
    limits: dict[str, Any] = {"max_retries": 0}  # the publisher comes again anyway
    if _is_redis(url):
        limits |= {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
    else:
        limits |= {"read_timeout": TIMEOUT_SECONDS, "write_timeout": TIMEOUT_SECONDS, "confirm_publish": True}
    return {"connect_timeout": TIMEOUT_SECONDS, "transport_options": limits}
