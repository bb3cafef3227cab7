"""The real Postgres with a virtual clock, and sessions whose every statement and commit is a step of the history.

The schema `sim` stands before `pg_catalog` in the search path. Its clock is a sequence, which is read past all
snapshots and costs no transaction id: every statement carries it forward, also for others that wait for a lock.
`Server` is what the virtual machine with Postgres does by itself: it opens and ends sessions, delivers notifications,
and keeps its timeouts by virtual time. Start reading at `StepCursor.execute`.
"""

import os
import re
import select
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, cast

import psycopg2
from psycopg2 import errors, extensions, extras

from tests.proof.simulation.beginning import Beginning
from tests.proof.simulation.prepared import Prepared, Statements
from tests.proof.simulation.world import EPOCH, Crash, Owner, Task, World

STATEMENT_SECONDS = 30.0
LOOK_SECONDS = 0.004  # a statement that takes longer, by the real clock, may be waiting for a lock
SLOW_SECONDS = 20.0

# Before the migrations: defaults and WHEN clauses are bound to functions when they are made.
SCHEMA = """
CREATE SCHEMA sim;
CREATE UNLOGGED SEQUENCE sim.clock MINVALUE 0;
CREATE UNLOGGED SEQUENCE sim.uuids;
CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT 'epoch'::timestamptz + pg_catalog.pg_sequence_last_value('sim.clock'::regclass) * interval '1 microsecond' $$;
CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT sim.clock_timestamp() $$;
CREATE FUNCTION sim.transaction_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT sim.clock_timestamp() $$;
CREATE FUNCTION sim.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT sim.clock_timestamp() $$;
CREATE FUNCTION sim.gen_random_uuid() RETURNS uuid LANGUAGE sql VOLATILE AS
$$ SELECT md5(nextval('sim.uuids')::text)::uuid $$;
CREATE FUNCTION sim.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN RAISE WARNING 'sim.notify %', channel; END $$;
CREATE UNLOGGED TABLE sim.sessions (pid int PRIMARY KEY, application_name text, backend_start timestamptz);
CREATE VIEW sim.pg_stat_activity AS SELECT pid, application_name, backend_start FROM sim.sessions;
SELECT setval('sim.clock', 1900000000000000);
"""

# After the migrations. The trigger is a witness of its own: what an execution's row went through.
AFTER_MIGRATIONS = """
DO $$ DECLARE f regprocedure; t regclass; BEGIN
    FOR f IN SELECT oid FROM pg_proc
             WHERE pronamespace = 'public'::regnamespace AND proconfig::text LIKE '%search_path%'
    LOOP EXECUTE 'ALTER FUNCTION ' || f || ' SET search_path = public, sim, pg_catalog, pg_temp'; END LOOP;
    FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    LOOP EXECUTE 'ALTER TABLE ' || t || ' SET (autovacuum_enabled = off)'; END LOOP;
END $$;
CREATE UNLOGGED TABLE sim.turns (
    turn bigserial, at timestamptz DEFAULT sim.clock_timestamp(), schedule_id uuid, scheduled_for timestamptz,
    attempt int, before text, after text, token_before bigint, token_after bigint, replica text
);
CREATE FUNCTION sim.witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.turns
        (schedule_id, scheduled_for, attempt, before, after, token_before, token_after, replica) VALUES
        (OLD.schedule_id, OLD.scheduled_for, OLD.attempt, OLD.status,
         CASE WHEN TG_OP = 'UPDATE' THEN NEW.status END, OLD.fencing_token,
         CASE WHEN TG_OP = 'UPDATE' THEN NEW.fencing_token END, OLD.instance_id);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE OF status, fencing_token OR DELETE ON job_executions
    FOR EACH ROW EXECUTE FUNCTION sim.witness();
"""

OPENED = """
SELECT set_config('application_name', %(name)s, false);
INSERT INTO sim.sessions VALUES (pg_backend_pid(), %(name)s, to_timestamp(%(now)s))
"""
BEGIN = "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL enable_seqscan = off; "
LOCK_TIMEOUT = re.compile(r"SET (LOCAL )?lock_timeout = '(\d+)s'")
IMPATIENT = re.compile(r"\s*SET LOCAL lock_timeout = '(\d+)ms'; ")  # before a statement of a queue
QUESTIONS = ("SELECT 1", "SELECT t.oid")  # of SQLAlchemy, about the connection: no steps
NOTIFIED = re.compile(r"sim\.notify (\w+)")


class LockTimeout(errors.LockNotAvailable):
    pgcode = "55P03"


class Deadlock(errors.DeadlockDetected):
    pgcode = "40P01"


def lost() -> psycopg2.OperationalError:
    return psycopg2.OperationalError("server closed the connection unexpectedly")


@dataclass(frozen=True, slots=True)
class Wait:
    """A statement that waited for another session's lock."""

    task: str
    kind: str
    behind: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.task} with {self.kind} for {self.behind}, {self.seconds:.1f} s"


class Line(Protocol):
    """What happens between a client and the server."""

    def connect(self, task: Task) -> None: ...

    def request(self, task: Task, session: "StepConnection", kind: str) -> None: ...

    def reply(self, task: Task, session: "StepConnection", kind: str) -> None: ...


class Control:
    """The simulation's own session: no step, no fault."""

    def __init__(self, url: str) -> None:
        self.raw = psycopg2.connect(url)
        self.raw.autocommit = True
        extras.register_uuid(conn_or_curs=self.raw)  # type: ignore[no-untyped-call]
        self._cursor = self.raw.cursor()
        self.run("SET synchronous_commit = off; SET timezone = 'UTC'")

    def run(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        self._cursor.execute(sql, values)
        return self._cursor.fetchall() if self._cursor.description else []


class StepCursor(extensions.cursor):
    def execute(self, query: Any, vars: Any = None) -> None:
        world, session = World.it, cast(StepConnection, self.connection)
        if world is None or world.current is None:
            return super().execute(query, vars)
        if query.startswith(QUESTIONS):
            if session.broken:
                raise lost()
            return super().execute(query, vars)
        if found := LOCK_TIMEOUT.fullmatch(query):
            if found[1]:
                session.local_lock_seconds = float(found[2])
            else:
                session.lock_seconds = float(found[2])  # kept by the virtual clock
            return None
        kind, impatient = kind_of(query), IMPATIENT.match(query)
        if impatient:
            session.local_lock_seconds = int(impatient[1]) / 1000
            query = query[impatient.end() :]
        return session.step(kind, lambda: self._send(query, vars, world))

    def _send(self, query: str, values: Any, world: World) -> None:
        if self.name is not None:  # it becomes DECLARE ... FOR
            return super().execute(query, values)
        session = cast(StepConnection, self.connection)
        opening = BEGIN if query.startswith(BEGIN) else ""
        body = query.removeprefix(BEGIN)
        if body in LEARNED:
            body = session.as_prepared(body, values or {})
        opening = opening.replace("synchronous_commit = on", "synchronous_commit = off")  # this server is never killed
        return super().execute(f"SELECT setval('sim.clock', {session.server.tick(world)}); {opening}{body}", values)


class StepConnection(extensions.connection):
    """One session. Closed, it goes back to the physical ones, and the server rolls back, as it would."""

    server: "Server"
    owner: Owner | None = None
    application_name = ""
    is_open = False
    broken = False  # the server has ended it, and its client does not know yet
    lock_seconds: float | None = None
    local_lock_seconds: float | None = None  # of this transaction
    idle_seconds: float | None = None  # in a transaction
    statements = 0
    kind = ""
    blocked_since = freed_at = 0.0
    cancelled_for: Exception | None = None
    halted = 0  # the process that is stopped, if it is
    half_open_seconds: float | None = None  # so long after its client has lost it the server still believes in it
    prepared: dict[Prepared, str]  # and their names

    def as_prepared(self, body: str, values: Mapping[str, Any]) -> str:
        statement = self.server.statements.prepared(body, values)
        if statement is None:
            return body
        if (name := self.prepared.get(statement)) is not None:
            return statement.execution(name)
        name = self.prepared[statement] = f"s{len(self.prepared)}"
        return f"{statement.preparation(name)}; {statement.execution(name)}"

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("cursor_factory", StepCursor)
        return super().cursor(*args, **kwargs)

    def commit(self) -> None:
        world = World.it
        if world is None or world.current is None or self.is_idle:
            super().commit()
            return
        self.step("COMMIT", super().commit)

    def rollback(self) -> None:
        self.local_lock_seconds = None
        if not self.closed:
            super().rollback()
        self.server.forget_notices(self)

    def close(self) -> None:
        self.server.end(self)

    def set_isolation_level(self, level: int | None) -> None:
        if not self.closed:  # SQLAlchemy sets it back on what a dead process has left in its pool
            super().set_isolation_level(level)

    def close_for_good(self) -> None:
        super().close()

    @property
    def patience_seconds(self) -> float:
        """How long a statement may wait for a lock."""
        return self.local_lock_seconds or self.lock_seconds or STATEMENT_SECONDS

    @property
    def is_idle(self) -> bool:
        return self.get_transaction_status() == extensions.TRANSACTION_STATUS_IDLE

    def step(self, kind: str, send: Callable[[], None]) -> None:
        world = World.it
        if world is None:
            raise RuntimeError("no history is being played")
        task, self.kind = world.me, kind
        self.server.line.request(task, self, kind)
        if self.broken:
            raise lost()
        self.statements += 1
        world.counts["statements"] += 1
        if world.blocked:  # whoever is let go by this goes on later than whatever was before
            self.server.carry_forward(world)
        try:
            send()
        except psycopg2.Error as error:
            world.note(f"{task.name} {kind}: {type(error).__name__}")
            self.server.forget_notices(self)
            if (reason := self.cancelled_for) is not None:
                self.cancelled_for = None
                raise reason from None
            raise
        world.note(f"{task.name} {kind}")
        self.server.after_statement(self)
        self.server.line.reply(task, self, kind)


class Server:
    """Sessions as the server sees them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.control = Control(url)
        self.statements = Statements(self.control.run)
        self._beginning: Beginning | None = None
        self._postmaster = _postmaster(self.control)
        self.line: Line
        self.sessions: list[StepConnection] = []
        self.listeners: list[Any] = []
        self.waits: list[Wait] = []
        self._free: list[StepConnection] = []
        self._resting: list[StepConnection] = []  # of the dead: their process may still have references to them
        self._pids: dict[int, StepConnection] = {}
        self._notices: dict[int, list[str]] = {}
        self._clock = 0
        extensions.set_wait_callback(self._wait)

    # --- sessions ---

    def open(self, owner: Owner | None, application_name: str, idle_seconds: float | None) -> StepConnection:
        world = World.it
        if world is not None and world.current is not None:
            self.line.connect(world.current)
        session = self._free.pop() if self._free else self._new()
        session.owner, session.application_name, session.idle_seconds = owner, application_name, idle_seconds
        session.is_open, session.broken, session.lock_seconds = True, False, None
        session.cancelled_for = session.half_open_seconds = session.local_lock_seconds = None
        self.sessions.append(session)
        session.autocommit = True
        with extensions.connection.cursor(session, cursor_factory=extensions.cursor) as cursor:
            cursor.execute(OPENED, {"name": application_name, "now": world.now if world else EPOCH})
        session.autocommit = False
        return session

    def _new(self) -> StepConnection:
        session = psycopg2.connect(self.url, connection_factory=StepConnection)
        session.server, session.prepared = self, {}
        session.autocommit = True
        with extensions.connection.cursor(session, cursor_factory=extensions.cursor) as cursor:
            cursor.execute("SET timezone = 'UTC'; SET synchronous_commit = off")
        session.autocommit = False
        self._pids[session.info.backend_pid] = session
        return session

    def end(self, session: StepConnection) -> None:
        """Its client has closed it."""
        world, seconds = World.it, session.half_open_seconds
        if world is not None and seconds is not None and session.is_open and not session.closed and not session.broken:
            session.is_open, session.half_open_seconds = False, None
            world.call_at(world.now + seconds, lambda: self._end_at_last(session))
            return
        self._end(session)
        if session in self.sessions:
            session.is_open = False
            self.sessions.remove(session)
            if not session.closed:
                session.autocommit = False
                self._free.append(session)

    def _end_at_last(self, session: StepConnection) -> None:
        """Nobody was there to say that the client is gone: a timeout tells."""
        if session in self.sessions:
            self._end(session)
            self.sessions.remove(session)
            self._resting.append(session)

    def end_all_of(self, owner: Owner) -> None:
        """Its process is dead."""
        for session in [each for each in self.sessions if each.owner is owner]:
            self._end(session)
            session.is_open = False
            self.sessions.remove(session)
            if not session.closed:
                self._resting.append(session)
        self.listeners = [each for each in self.listeners if each.owner is not owner]

    def cut(self, session: StepConnection) -> None:
        """The server ends it; its client hears of it with the next statement."""
        if not session.is_open or session.broken or session.closed:
            return
        if session in self._blocked():
            session.cancelled_for = lost()
            self._cancel(session)
            return
        self._end(session)
        session.broken = True

    def _end(self, session: StepConnection) -> None:
        self.forget_notices(session)
        self._resume(session)  # also of a client that is gone: who stands still keeps its locks
        if session.closed or session.broken:
            return
        pid = session.info.backend_pid
        self.control.run("DELETE FROM sim.sessions WHERE pid = %s", (pid,))
        if World.it is not None and World.it.blocked:
            self.carry_forward(World.it)
        if session.get_transaction_status() == extensions.TRANSACTION_STATUS_ACTIVE:
            # Its client was killed inside a statement. Its locks must not outlive it by real time.
            self.control.run("SELECT pg_terminate_backend(%s, %s)", (pid, int(SLOW_SECONDS * 1000)))
            session.close_for_good()
        elif not session.is_idle:
            try:
                with extensions.connection.cursor(session, cursor_factory=extensions.cursor) as cursor:
                    cursor.execute("ROLLBACK")
                extensions.connection.rollback(session)
            except psycopg2.Error:
                session.close_for_good()
        if session.closed:
            self._pids.pop(pid, None)
        elif session.lock_seconds is not None:
            session.lock_seconds = None

    def rest(self) -> None:
        """Between two histories nobody refers to a dead process's sessions any more."""
        for session in [*self.sessions, *self._resting]:
            self._end(session)
            if not session.closed:
                session.is_open = session.broken = False
                session.autocommit = False
                self._free.append(session)
        self.sessions.clear()
        self._resting.clear()
        self.listeners.clear()
        self._notices.clear()

    def close(self) -> None:
        for session in [*self.sessions, *self._resting, *self._free]:
            session.close_for_good()
        self.control.raw.close()

    # --- after a statement ---

    def after_statement(self, session: StepConnection) -> None:
        if session.notices:
            found = [match[1] for text in session.notices if (match := NOTIFIED.search(text))]
            session.notices.clear()
            if found:
                self._notices.setdefault(id(session), []).extend(found)
        if session.is_idle:
            session.local_lock_seconds = None
            for channel in dict.fromkeys(self._notices.pop(id(session), ())):
                for listener in self.listeners:
                    listener.hear(channel)
        elif session.idle_seconds is not None:
            self._watch_idle(session, session.statements)

    def forget_notices(self, session: StepConnection) -> None:
        self._notices.pop(id(session), None)

    def _watch_idle(self, session: StepConnection, statements: int) -> None:
        world = World.it
        if world is None or session.idle_seconds is None:
            return

        def look() -> None:
            idles = session.statements == statements and not session.closed and not session.broken
            if session.is_open and idles and not session.is_idle:
                world.note(f"server ends an idle transaction of {session.application_name}")
                world.counts["idle_transactions"] += 1
                self.cut(session)

        world.call_at(world.now + session.idle_seconds, look)

    # --- statements that wait for a lock ---

    def _blocked(self) -> list[Any]:
        return [task.blocked_on for task in World.it.blocked] if World.it else []

    def _wait(self, raw: Any) -> None:
        """For psycopg2: while one task waits inside Postgres, the others go on; slow is not blocked."""
        while (state := raw.poll()) != extensions.POLL_OK:
            if state == extensions.POLL_WRITE:
                select.select([], [raw.fileno()], [])
                continue
            world = World.it
            task = world.current if world is not None and isinstance(raw, StepConnection) else None
            seconds = LOOK_SECONDS if task else SLOW_SECONDS
            while not _ready(raw, seconds):
                seconds = min(2 * seconds, SLOW_SECONDS)  # on a busy machine each look makes the next statement later
                if world is not None and task is not None and (blockers := self._blockers(raw)):
                    self._park(world, task, raw, blockers)

    def _park(self, world: World, task: Task, raw: StepConnection, blockers: list[StepConnection]) -> None:
        world.counts["waits"] += 1
        behind = ", ".join(sorted(f"{each.application_name or 'somebody'} {each.kind}" for each in blockers))
        world.note(f"{task.name} {raw.kind} waits for {behind}")
        place = len(self.waits)
        self.waits.append(Wait(task.name, raw.kind, behind))
        raw.blocked_since, task.blocked_on = world.now, raw
        world.blocked.append(task)
        if self._is_deadlock(raw, blockers):
            world.counts["deadlocks"] += 1
            raw.cancelled_for = Deadlock("deadlock detected")
            self._cancel(raw)
        else:
            self._is_in_turn(raw, blockers)
        world.call_at(world.now + raw.patience_seconds, lambda: self._look(world, task))
        world.hub.switch()
        if task.owner is not None and task.owner.dead:
            raise Crash
        # Not until now: a thread that wakes up late has not waited for the lock meanwhile.
        self.waits[place] = Wait(task.name, raw.kind, behind, raw.freed_at - raw.blocked_since)

    def _look(self, world: World, task: Task) -> None:
        if task in world.blocked and self.is_free(task):
            world.blocked.remove(task)
            task.blocked_on = None
            world.delay(task, world.now)

    def is_free(self, task: Task) -> bool:
        raw, world = cast(StepConnection, task.blocked_on), World.it
        while world is not None:
            raw.freed_at = world.now
            if _ready(raw, SLOW_SECONDS if raw.cancelled_for else 0):
                return True
            if blockers := self._blockers(raw):
                if self._is_in_turn(raw, blockers):
                    continue
                waited = world.now - raw.blocked_since
                if waited < raw.patience_seconds - 1e-6:
                    return False
                if raw.patience_seconds < STATEMENT_SECONDS:
                    raw.cancelled_for = LockTimeout("canceling statement due to lock timeout")
                self._cancel(raw)
                return _ready(raw, SLOW_SECONDS)
            self._resume(raw)
            _ready(raw, 0.001)
        return False

    def _blockers(self, raw: StepConnection) -> list[StepConnection]:
        pids = self.control.run("SELECT pg_blocking_pids(%s)", (raw.info.backend_pid,))[0][0]
        return [self._pids[pid] for pid in pids if pid in self._pids]

    def _cancel(self, raw: StepConnection) -> None:
        self._resume(raw)
        raw.cancel()

    def _is_in_turn(self, raw: StepConnection, blockers: list[StepConnection]) -> bool:
        """Does nobody any more wait behind the same sessions who has come before it? It stands still until then.

        Of those that wait for one row Postgres lets the first one go on; but once the row has a new version, whoever is
        the first to find that, which real time decides.
        """
        earlier = takewhile(lambda each: each is not raw, self._blocked())
        if any(behind in blockers for each in earlier for behind in (each, *self._blockers(each))):
            if not raw.halted and _parent(raw.info.backend_pid) == self._postmaster:
                raw.halted = raw.info.backend_pid
                os.kill(raw.halted, signal.SIGSTOP)
            return False
        was_halted = raw.halted > 0
        self._resume(raw)
        return was_halted

    def _resume(self, raw: StepConnection) -> None:
        if raw.halted:
            os.kill(raw.halted, signal.SIGCONT)
            raw.halted = 0

    def _is_deadlock(self, raw: StepConnection, blockers: list[StepConnection]) -> bool:
        """Postgres would find out after a real second."""
        waiting, seen = self._blocked(), set()
        todo = list(blockers)
        while todo:
            session = todo.pop()
            if session is raw:
                return True
            if id(session) not in seen and session in waiting:
                seen.add(id(session))
                todo += self._blockers(session)
        return False

    # --- the clock ---

    def tick(self, world: World) -> int:
        """Microseconds. No two statements have the same one: on a real machine the first takes a few."""
        self._clock = max(round(world.now * 1e6), self._clock + 1)
        return self._clock

    def carry_forward(self, world: World) -> None:
        self.control.run("SELECT setval('sim.clock', %s)", (self.tick(world),))

    def begin_history(self) -> None:
        self._clock = 0
        self.waits.clear()
        if self._beginning is None:  # with the first one all tables are there
            self._beginning = Beginning(self.control.run)
        self._beginning.restore()


def _postmaster(control: Control) -> int | None:
    """None: this is a server whose processes are out of our reach."""
    try:
        directory = Path(control.run("SHOW data_directory")[0][0])
        return int((directory / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, psycopg2.Error):
        return None


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _ready(raw: Any, seconds: float) -> bool:
    return bool(select.select([raw.fileno()], [], [], seconds)[0])


# --- names of statements ---

NAMES: dict[str, str] = {}
LEARNED: set[str] = set()  # texts of the product


def kind_of(sql: str) -> str:
    """Its name in the product, else its first words."""
    text = sql.removeprefix(BEGIN)
    name = NAMES.get(text)
    if name is None:
        name = NAMES[text] = " ".join(text.split()[:4]) if text.strip() else sql
    return name


def learn_names(*modules: object) -> None:
    for module in modules:
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, str) and not name.startswith("_"):
                NAMES[value] = name
                LEARNED.add(value)


def create(admin_url: str, name: str, migrate: Callable[[str], None]) -> str:
    """A migrated database with the virtual clock; returns its URL."""
    admin = psycopg2.connect(admin_url)
    admin.autocommit = True
    with admin.cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        cursor.execute(f'CREATE DATABASE "{name}"')
        cursor.execute(f'ALTER DATABASE "{name}" SET search_path = public, sim, pg_catalog')
        cursor.execute(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '60s'")
        cursor.execute(f'ALTER DATABASE "{name}" SET jit = off')
        # Plans are made anew after the TRUNCATE of each history, and depend on nothing that was before it.
        cursor.execute(f'ALTER DATABASE "{name}" SET plan_cache_mode = force_generic_plan')
    admin.close()
    url = _named(admin_url, name)
    _run(url, SCHEMA)
    migrate(url)
    _run(url, AFTER_MIGRATIONS)
    return url


def drop(admin_url: str, name: str) -> None:
    admin = psycopg2.connect(admin_url)
    admin.autocommit = True
    with admin.cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    admin.close()


def _run(url: str, sql: str) -> None:
    connection = psycopg2.connect(url)
    with connection, connection.cursor() as cursor:
        cursor.execute(sql)
    connection.close()


def _named(url: str, database: str) -> str:
    head, _, tail = url.partition("?")
    return f"{head.rsplit('/', 1)[0]}/{database}{'?' + tail if tail else ''}"
