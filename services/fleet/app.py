"""What `celery --app services.fleet.app worker --queues browser` loads: the one task, and a worker's start and stop.

The process that runs handlers is the owner of what it runs: each child of a prefork pool, or the one process of a solo
or threads pool. A prefork parent opens nothing that it still holds when it forks.
"""

import logging
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from typing import Any

from celery import signals
from kombu.transport.virtual import Channel
from sqlalchemy.exc import DBAPIError

from config import get_settings, name_of_process
from database.connection import DatabaseConnection
from database.schema import require_schema
from services.engine.start_patience import StartPatience
from services.errors import SchedulerError, Unavailable
from services.fleet.broker import WAKE, celery_app
from services.fleet.worker import FleetWorker
from services.jobs import default_registry
from services.jobs.users import load_users_jobs
from services.scanning.cookies.categories import CategoryRules
from services.telemetry.logs import configure_logging
from services.wording.refusals import first_line, refusal

logger = logging.getLogger(__name__)

POOLS = {"prefork": "prefork", "processes": "prefork", "solo": "solo", "thread": "threads", "threads": "threads"}
TRY_AGAIN_SECONDS = 2.0  # of a child whose Postgres is away; Celery replaces one that takes too long


@dataclass(slots=True)
class _Process:
    """What the parent was given and its children inherit; and the worker of this process."""

    queues: tuple[str, ...] = ()
    places: int = 1
    pool: str = "prefork"
    worker: FleetWorker | None = None


_process = _Process()

try:
    app = celery_app(get_settings(), is_worker=True)
except SchedulerError as error:
    sys.exit(str(error))


def wake(queue: str) -> None:
    """A row waits, in this queue or another one of ours: run the most urgent one."""
    worker = _process.worker
    if worker is None:
        return
    worker.serve()
    if worker.has_leaked and _process.pool == "prefork":
        raise SystemExit  # its row is written; a new child takes the place, the thread ends with this one


def _log_as_replicas_do(**_: Any) -> None:
    settings = get_settings()
    configure_logging(settings.log_level, settings.log_format)
    for name in ("celery.app.trace", "celery.worker.strategy"):  # a line per message; executions have theirs
        logging.getLogger(name).setLevel(logging.WARNING)


def _check(sender: Any, **_: Any) -> None:
    """Before anything is started: a worker that cannot work ends here, with one line."""
    _process.pool = pool_of(sender.pool_cls)
    _process.places = int(sender.concurrency) if _process.pool != "solo" else 1
    if _process.pool == "prefork":
        _process.places = 1  # of each child
    _process.queues = queues_of(set(app.amqp.queues.consume_from))
    settings = get_settings()
    try:
        with closing(DatabaseConnection.from_settings(settings, pool_size=1)) as db:
            StartPatience(Event().wait)(lambda: require_schema(db))
    except (SchedulerError, DBAPIError) as error:
        sys.exit(_in_one_line(error))


def pool_of(pool: object) -> str:
    """Green threads would stop with the first handler that blocks, and the heart with them."""
    name = pool if isinstance(pool, str) else getattr(pool, "__module__", "")
    kind = POOLS.get(name.partition(":")[0].rpartition(".")[2])
    if kind is None:
        sys.exit(f"--pool {name.rpartition('.')[2]} is not supported: use prefork, threads or solo")
    return kind


def queues_of(consumed: set[str]) -> tuple[str, ...]:
    settings = get_settings()
    if consumed == {app.conf.task_default_queue} and not settings.fleet_queues:
        sys.exit("no queue to serve: name some with --queues, or set CELERY_QUEUES")
    if both := consumed & settings.served_queues:
        sys.exit(f"--queues {','.join(sorted(both))}: replicas serve it (QUEUES); see CELERY_QUEUES")
    return tuple(sorted(consumed))


def _start_in_threads(**_: Any) -> None:
    if _process.pool == "prefork":
        return
    try:
        _start(get_settings().instance_id)
    except (SchedulerError, DBAPIError) as error:
        sys.exit(_in_one_line(error))


def _start_in_child(**_: Any) -> None:
    """Repeated until it works: without a worker the child would take messages and do nothing."""
    while _process.pool == "prefork" and _process.worker is None:
        try:
            _start(name_of_process(get_settings().instance_id))
        except (Unavailable, DBAPIError) as error:
            logger.warning("waiting: %s", first_line(error), extra={"event": "server_unavailable"})
            time.sleep(TRY_AGAIN_SECONDS)


def _start(name: str) -> None:
    settings = get_settings()
    default_registry.load_built_in()
    load_users_jobs(settings)
    CategoryRules.load(settings.scan_cookie_rules_file)
    worker = FleetWorker(settings, default_registry, _process.queues, _process.places, name=name, pool=_process.pool)
    worker.start()
    _process.worker = worker


def _stop(**_: Any) -> None:
    """A prefork parent has no worker."""
    worker, _process.worker = _process.worker, None
    if worker is not None:
        worker.stop()


def _in_one_line(error: SchedulerError | DBAPIError) -> str:
    return refusal(error) or first_line(error) if isinstance(error, DBAPIError) else str(error)


# A lost wake is announced again. With this on, Celery would write a file of them whenever a broker on Redis goes away.
Channel.do_restore = False
app.task(name=WAKE)(wake)
signals.setup_logging.connect(_log_as_replicas_do)
signals.worker_init.connect(_check)
signals.celeryd_after_setup.connect(_start_in_threads)
signals.worker_process_init.connect(_start_in_child)
signals.worker_process_shutdown.connect(_stop)
signals.worker_shutdown.connect(_stop)
