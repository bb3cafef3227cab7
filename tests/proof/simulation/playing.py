"""The API: `play(seed, options) -> Result`. To import it replaces the clocks of the process (world.py)."""

import faulthandler
import gc
import logging
from datetime import timedelta

import psycopg2

from tests.proof.simulation import world

world.install()

# ruff: noqa: E402 - nothing of the product may be imported before

from database.connection import DatabaseConnection
from run_migrations import upgrade
from services import schedule_watcher
from services.engine import heart_sql, rescuer_sql, streaks_sql
from services.engine.gap_scan import scanner_sql
from services.ledger import backfill_sql, claims_sql, history_sql, limits, limits_sql, outbox_sql, waiting_sql
from services.notifications import deliveries_sql, notifier_sql, rules_sql
from tests.proof.simulation import postgres, queues
from tests.proof.simulation.history import History
from tests.proof.simulation.options import Options, Result
from tests.proof.simulation.postgres import Server, learn_names
from tests.proof.simulation.replica import VirtualDatabase

REAL_SECONDS = 120  # nothing in a history waits for real time
KEPT_AFTER = timedelta(seconds=2)  # instead of a quarter of an hour: what waits for two limits gets its places kept
NAMED = (
    claims_sql,
    waiting_sql,
    limits_sql,
    heart_sql,
    rescuer_sql,
    scanner_sql,
    history_sql,
    backfill_sql,
    outbox_sql,
    schedule_watcher,
    notifier_sql,
    deliveries_sql,
    rules_sql,
    streaks_sql,
)


class Remarks(logging.Handler):
    """The product's warnings become lines of the history."""

    def emit(self, record: logging.LogRecord) -> None:
        here = world.World.it
        if here is not None and here.current is not None:
            here.remark(f"  log {here.current.name}: {record.getMessage()[:200]}")


class Stage:
    """A database with the virtual clock, for one process. Histories are played on it one after the other."""

    def __init__(self, admin_url: str, database: str) -> None:
        self._admin_url, self._database = admin_url, database
        learn_names(*NAMED)
        url = postgres.create(admin_url, database, _migrate)
        self._server = Server(url)
        queues.install(self._server)
        self._reader = psycopg2.connect(url)
        logging.root.handlers[:] = [Remarks()]
        logging.root.setLevel(logging.WARNING)
        gc.disable()
        self._freeze = gc.freeze
        limits.PATIENCE = KEPT_AFTER
        setattr(gc, "freeze", lambda: None)  # noqa: B010 - the watcher calls it: what one history leaves behind would stay for ever
        self._is_new = True

    def play(self, seed: int, options: Options = Options()) -> Result:
        faulthandler.dump_traceback_later(REAL_SECONDS, exit=True)
        try:
            return History(seed, options, self._server, self._reader).play()
        finally:
            world.World.it = None
            for db in VirtualDatabase.kept.values():
                db.engine.dispose()
            gc.collect()
            if self._is_new:  # all modules are loaded, and what is kept over histories is made: it is looked at no more
                self._freeze()
                self._is_new = False
            self._server.rest()
            faulthandler.cancel_dump_traceback_later()

    def close(self) -> None:
        self._reader.close()
        self._server.close()
        postgres.drop(self._admin_url, self._database)


def _migrate(url: str) -> None:
    db = DatabaseConnection(url)
    upgrade(db)
    db.close()


def play(seed: int, options: Options, stage: Stage) -> Result:
    return stage.play(seed, options)
