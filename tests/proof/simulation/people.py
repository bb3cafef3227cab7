"""What people do meanwhile: edits by SQL, deletions, manual runs, retries, backfills, cancellations.

Each deed is drawn before the history begins, and can be left out like a fault.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import psycopg2
from sqlalchemy.exc import DBAPIError

import config
from services.errors import SchedulerError
from services.job_history import JobHistory
from services.ledger.backfill import Backfills
from tests.proof.records import LimitChange
from tests.proof.simulation.broker import broker
from tests.proof.simulation.net import PEOPLE, Net
from tests.proof.simulation.postgres import Server, StepConnection
from tests.proof.simulation.replica import VirtualDatabase
from tests.proof.simulation.world import World

MOST_DEEDS = 3  # of a kind
ONCE = ("delete", "recreate", "backfill")
LONGEST_HOLD_SECONDS = 4.0
NEWS = "SELECT change_id FROM schedule_changes WHERE change_id <> ALL(%s) ORDER BY change_id"
INSERT = """
INSERT INTO schedules (schedule_id, name, domain, domain_config_id, frequency, time_config, job_type, max_instances,
                       coalesce, max_retries, retry_backoff_seconds, misfire_grace_seconds, catchup, end_at, queue,
                       requires, limit_keys)
VALUES (%s, %s, 'sim.test', %s, 'interval', %s, 'simulated', %s, %s, %s, 1, %s, %s, %s, %s, %s, %s)
"""
LIMIT = """
INSERT INTO limits (name, max_running) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running
"""
NO_LIMIT = "DELETE FROM limits WHERE name = %s"


Way = tuple[str | None, tuple[str, ...]]  # the queue of a schedule, and the labels that it requires
FLEET_WAY: Way = ("fleet", ())


@dataclass(frozen=True, slots=True)
class Schedule:
    schedule_id: str
    name: str
    seconds: int
    max_instances: int
    coalesce: bool
    max_retries: int
    grace_seconds: int | None
    catchup: str | None
    end: float
    route: Way = (None, ())
    is_hopeless: bool = False  # no replica of the history is able to run it, until people mend that at the end
    limit_keys: tuple[str, ...] = ()

    def as_values(self) -> tuple[object, ...]:
        return (
            self.schedule_id, self.name, self.schedule_id, json.dumps({"seconds": self.seconds}), self.max_instances,
            self.coalesce, self.max_retries, self.grace_seconds, self.catchup, datetime.fromtimestamp(self.end, UTC),
            self.route[0], list(self.route[1]),
            list(self.limit_keys),
        )  # fmt: skip


@dataclass(slots=True)
class People:
    world: World
    server: Server
    net: Net
    settings: config.Settings
    schedules: Sequence[Schedule]
    intervals: Sequence[int]
    until: float
    routes: Sequence[Way] = ()  # that some replica serves
    limits: Mapping[str, int] = field(default_factory=dict)  # with which the history begins
    limited: list[LimitChange] = field(default_factory=list)  # every change of a limit, by its commit
    _busy: set[str] = field(default_factory=set)
    committed: dict[int, float] = field(default_factory=dict)  # when each change was: from then on everybody can know

    def begin(self) -> None:
        for name, most in self.limits.items():
            self.server.control.run(LIMIT, (name, most))
            self.limited.append(LimitChange(at=self.world.now, name=name, most=most))
        self.note_commits()
        for kind in PEOPLE:
            if (kind == "limit" and not self.limits) or (kind == "purge" and FLEET_WAY not in self.routes):
                continue
            most = 1 if kind in ONCE else MOST_DEEDS
            for number in range(1 + int(self.world.dice.roll(f"deeds {kind}") * most)):
                key = f"{kind}@people#{number}"
                if self.schedules and self.net.wants(kind, key):
                    at = self.world.dice.between(f"{key} at", 1.0, self.until - self.world.now - 1.0)
                    self.world.spawn(f"people/{kind}", None, partial(self._do, kind, key), at)

    def note_commits(self) -> None:
        """By all that are new: what is committed late has a lower number than what was noted before it."""
        for (change_id,) in self.server.control.run(NEWS, (list(self.committed),)):
            self.committed[change_id] = self.world.now

    def _do(self, kind: str, key: str) -> None:
        schedule = self.world.dice.one_of(f"{key} schedule", self.schedules)
        deeds: dict[str, Callable[[str, Schedule], None]] = {
            "flap": self._flap, "retime": self._retime, "reconfigure": self._reconfigure, "late_commit": self._hold,
            "delete": self._delete, "recreate": self._recreate, "manual": self._run, "retry": self._retry,
            "backfill": self._backfill, "cancel": self._cancel, "reroute": self._reroute, "limit": self._limit,
            "purge": self._purge,
        }  # fmt: skip
        while (
            schedule.schedule_id in self._busy
        ):  # of two who wait for one row it would be Postgres' choice who is first
            self.world.sleep(0.05)
        self._busy.add(schedule.schedule_id)
        try:
            deeds[kind](key, schedule)
        except (psycopg2.Error, DBAPIError, SchedulerError) as error:
            self.world.note(f"people: {kind} of {schedule.name} is refused: {type(error).__name__}")
            self.world.remark(f"  {str(error).splitlines()[0][:200]}")
        finally:
            self._busy.discard(schedule.schedule_id)

    def mend(self, after_seconds: float) -> None:
        """What no replica was able to run goes where one is: retries and catch-up would wait longer than we look."""
        for schedule in self.schedules:
            if schedule.is_hopeless:
                sql = "UPDATE schedules SET queue = NULL, requires = '{}' WHERE schedule_id = %s"
                deed = partial(self._edit, f"mend@people#{schedule.name}", schedule, sql)
                self.world.spawn("people/mend", None, deed, after_seconds)

    # --- edits, as somebody makes them in psql ---

    def _flap(self, key: str, schedule: Schedule) -> None:
        self._edit(key, schedule, "UPDATE schedules SET enabled = NOT enabled WHERE schedule_id = %s")
        self.world.sleep(self.world.dice.about(f"{key} off", 0.8))
        self._edit(key, schedule, "UPDATE schedules SET enabled = true WHERE schedule_id = %s")

    def _retime(self, key: str, schedule: Schedule) -> None:
        timing = json.dumps({"seconds": self.world.dice.one_of(f"{key} to", self.intervals)})
        self._edit(key, schedule, "UPDATE schedules SET time_config = %s WHERE schedule_id = %s", timing)

    def _reconfigure(self, key: str, schedule: Schedule) -> None:
        more = json.dumps({"edited": key})
        self._edit(key, schedule, "UPDATE schedules SET job_config = %s WHERE schedule_id = %s", more)

    def _hold(self, key: str, schedule: Schedule) -> None:
        seconds = self.world.dice.between(f"{key} seconds", 0.2, LONGEST_HOLD_SECONDS)
        self._edit(key, schedule, "UPDATE schedules SET enabled = NOT enabled WHERE schedule_id = %s", hold=seconds)

    def _reroute(self, key: str, schedule: Schedule) -> None:
        queue, requires = self.world.dice.one_of(f"{key} to", self.routes)
        sql = "UPDATE schedules SET queue = %s, requires = %s WHERE schedule_id = %s"
        with closing(self._session()) as session:
            values = queue, list(requires), schedule.schedule_id
            self._commit(key, f"{schedule.name} goes to {queue}, {requires}", session, sql, values)

    def _delete(self, key: str, schedule: Schedule) -> None:
        self._edit(key, schedule, "DELETE FROM schedules WHERE schedule_id = %s")

    def _recreate(self, key: str, schedule: Schedule) -> None:
        self._delete(key, schedule)
        self.world.sleep(self.world.dice.about(f"{key} gone", 1.0))
        with closing(self._session()) as session:
            self._commit(key, f"{schedule.name} is made again", session, INSERT, schedule.as_values())

    def _edit(self, key: str, schedule: Schedule, sql: str, value: str | None = None, hold: float = 0.0) -> None:
        values = (schedule.schedule_id,) if value is None else (value, schedule.schedule_id)
        with closing(self._session()) as session:
            self._commit(key, f"{schedule.name}: {' '.join(sql.split()[:6])}", session, sql, values, hold)

    def _commit(
        self, key: str, text: str, session: StepConnection, sql: str, values: tuple[object, ...], hold: float = 0.0
    ) -> None:
        with session.cursor() as cursor:
            cursor.execute(sql, values)
        self.net.note(key, text + (f", committed {hold:.1f} s later" if hold else ""))
        held = (str(values[-1]),) if hold else ()
        scope = "schedules" if hold else "nothing"
        self.net.disturb(key.partition("@")[0], self.world.now + hold + 0.5, scope, schedules=held)
        if hold:
            self.world.sleep(hold)
        session.commit()
        self.note_commits()

    def _limit(self, key: str, schedule: Schedule) -> None:
        """Another number for a while, or none at all; sometimes whoever edits it forgets to commit."""
        dice, name = self.world.dice, self.world.dice.one_of(f"{key} name", sorted(self.limits))
        hold = dice.between(f"{key} hold", 0.2, LONGEST_HOLD_SECONDS) if dice.roll(f"{key} is held") < 0.4 else 0.0
        self._set_limit(key, name, dice.one_of(f"{key} to", (0, 1, 3, None)), hold)
        self.world.sleep(dice.about(f"{key} for", 2.0))
        self._restore_limit(key, name)

    def _restore_limit(self, key: str, name: str) -> None:
        """Whoever stopped a key with 0 comes again when the server is back: else its rows wait for a day."""
        while True:
            try:
                return self._set_limit(key, name, self.limits[name])
            except psycopg2.OperationalError as error:
                self.world.note(f"people: limit {name} stays for now: {type(error).__name__}")
                self.world.sleep(1.0)

    def _set_limit(self, key: str, name: str, most: int | None, hold: float = 0.0) -> None:
        sql, values = (NO_LIMIT, (name,)) if most is None else (LIMIT, (name, most))
        while name in self._busy:  # as above
            self.world.sleep(0.05)
        self._busy.add(name)
        try:
            with closing(self._session()) as session:
                with session.cursor() as cursor:
                    cursor.execute(sql, values)
                self.net.note(key, f"limit {name}: {most}" + (f", committed {hold:.1f} s later" if hold else ""))
                self.world.sleep(hold)
                session.commit()
                self.limited.append(LimitChange(at=self.world.now, name=name, most=most))
        finally:
            self._busy.discard(name)

    def _purge(self, key: str, schedule: Schedule) -> None:
        """`celery purge`: what it takes away is announced again."""
        for queue in {queue for queue, _ in self.routes if queue is not None}:
            self.net.note(key, f"{broker().purge(queue)} messages of {queue}")

    def _session(self) -> StepConnection:
        return self.server.open(None, "psql", None)

    # --- wishes, by the product's own doors ---

    def _run(self, key: str, schedule: Schedule) -> None:
        JobHistory(self._db()).request_run(schedule.schedule_id, "people")
        self.net.note(key, f"{schedule.name} runs now")

    def _retry(self, key: str, schedule: Schedule) -> None:
        if (execution := self._execution(key, "status NOT IN ('pending', 'claimed', 'running')")) is not None:
            retry = JobHistory(self._db()).request_retry(execution, "people")
            self.net.note(key, f"{execution}: {retry.outcome}")

    def _cancel(self, key: str, schedule: Schedule) -> None:
        if (execution := self._execution(key, "status IN ('pending', 'claimed', 'running')")) is not None:
            asked = JobHistory(self._db()).request_cancel(execution)
            self.net.note(key, f"{execution}: {'asked' if asked else 'too late'}")

    def _execution(self, key: str, condition: str) -> str | None:
        rows = self.server.control.run(
            f"""SELECT execution_id::text FROM job_executions WHERE {condition}
                ORDER BY scheduled_for, schedule_id, attempt"""
        )
        return self.world.dice.one_of(f"{key} execution", rows)[0] if rows else None

    def _backfill(self, key: str, schedule: Schedule) -> None:
        until = datetime.fromtimestamp(self.world.now, UTC) - timedelta(hours=1)
        done = Backfills(self._db(), timedelta(days=30)).request(
            UUID(schedule.schedule_id), until - timedelta(seconds=3 * schedule.seconds), until, "people"
        )
        self.net.note(key, f"{schedule.name}: {done}"[:120])

    def _db(self) -> VirtualDatabase:
        return VirtualDatabase.of(self.server, None, self.settings)
