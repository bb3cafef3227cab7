"""The fleet: Celery workers that run the executions of CELERY_QUEUES. The door to Celery; docs/fleet.md.

A message starts nothing. It wakes a worker, which takes the most urgent waiting row of its queues as a replica would.
In replicas publisher.py announces waiting rows. In workers app.py is what `celery --app` loads, worker.py the process.
"""

from typing import TYPE_CHECKING

from config import Settings
from database.connection import DatabaseConnection
from enhanced_scheduler.extras import how_to_install, is_installed
from services.errors import ConfigurationError
from services.ledger.outbox import Outbox

if TYPE_CHECKING:
    from services.fleet.messages import Messages
    from services.fleet.publisher import Publisher


def publisher_for(settings: Settings, db: DatabaseConnection) -> "Publisher | None":
    """None without CELERY_QUEUES: such a replica needs no Celery."""
    if not settings.fleet_queues:
        return None
    messages = messages_for(settings)
    from services.fleet.publisher import Publisher

    return Publisher(Outbox(db, settings.fleet_queues, settings.heartbeat_timeout_seconds), messages)


def require_celery() -> None:
    if not is_installed("celery"):
        raise ConfigurationError(f"CELERY_QUEUES needs {how_to_install('celery')}")


def messages_for(settings: Settings) -> "Messages":
    require_celery()
    from services.fleet.broker import celery_app
    from services.fleet.messages import Messages

    return Messages(celery_app(settings, is_worker=False))
