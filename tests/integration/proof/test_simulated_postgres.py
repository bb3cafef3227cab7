"""The Postgres of a simulation: each history finds it as the migrations left it, and nothing depends on real time."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import psycopg2
import pytest
from psycopg2 import extensions

from tests.proof.simulation.beginning import Beginning
from tests.proof.simulation.postgres import AFTER_MIGRATIONS, SCHEMA, Control, Server, StepConnection
from tests.proof.simulation.world import EPOCH, Task, World

ROUNDS = 100

TABLES = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'sim') ORDER BY 1"
NUMBERS = "SELECT sequencename::text, last_value FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1"
WHAT_A_HISTORY_DOES = """
UPDATE notifier SET token = token + 1, holder = 'r1', held_until = clock_timestamp() + interval '15 s';
UPDATE fires_watched_by_bucket SET until = clock_timestamp();
DELETE FROM limit_stripes WHERE stripe > 1000;
INSERT INTO limits (name, max_running) VALUES ('key:a', 1);
INSERT INTO schedules (domain_config_id, domain, frequency, time_config)
VALUES (gen_random_uuid(), 'a.example', 'daily', '{"hour": 2, "minute": 0}')
"""


@pytest.fixture
def control(database_url: str) -> Iterator[Control]:
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(SCHEMA)
        cursor.execute(AFTER_MIGRATIONS)
        connection.commit()
    control = Control(database_url)
    yield control
    control.raw.close()


def everything(control: Control) -> dict[str, list[tuple[object, ...]]]:
    tables = [name for (name,) in control.run(TABLES)]
    rows = {name: sorted(control.run(f"SELECT each::text FROM {name} AS each"), key=str) for name in tables}
    return {"numbers": control.run(NUMBERS), **rows}


def test_a_history_finds_every_table_as_the_migrations_left_it(control: Control) -> None:
    beginning = Beginning(control.run)
    beginning.restore()
    before = everything(control)
    assert before["public.notifier"]
    assert before["public.schedules"] == []
    control.run(WHAT_A_HISTORY_DOES)
    beginning.restore()
    assert everything(control) == before


class Calm:
    """A line on which nothing goes wrong."""

    def connect(self, task: Task) -> None: ...

    def request(self, task: Task, session: StepConnection, kind: str) -> None: ...

    def reply(self, task: Task, session: StepConnection, kind: str) -> None: ...


@pytest.fixture
def server(control: Control, database_url: str) -> Iterator[Server]:
    server = Server(database_url)
    server.line = Calm()
    yield server
    World.it = None
    server.close()
    extensions.set_wait_callback(None)


def play(server: Server, *threads: tuple[float, Callable[[StepConnection], None]]) -> World:
    world = World(7)
    world.is_free = server.is_free

    def run(thread: Callable[[StepConnection], None]) -> None:
        with closing(server.open(None, "psql", None)) as session:
            thread(session)

    for number, (at, thread) in enumerate(threads):
        world.spawn(f"thread {number}", None, partial(run, thread), at)
    world.run(EPOCH + 100)
    assert world.escaped == []
    return world


def test_of_three_that_wait_for_a_row_it_is_always_the_first_who_gets_it_first(server: Server) -> None:
    """Each commit makes a new version of the row, for which those who waited for the former one race."""
    order: list[str] = []

    def take(name: str, session: StepConnection) -> None:
        with session.cursor() as cursor:
            cursor.execute("UPDATE limit_stripes SET stripe = stripe WHERE stripe = 1")
        order.append(name)
        World.it.sleep(1.0)  # type: ignore[union-attr]
        session.commit()

    for _ in range(ROUNDS):
        order.clear()
        play(server, *((number / 10, partial(take, name)) for number, name in enumerate("abcd")))
        assert order == ["a", "b", "c", "d"]


def test_a_statement_that_is_cut_while_it_waits_ends_at_once_however_slow_the_server_is(server: Server) -> None:
    ended: list[float] = []

    def holder(session: StepConnection) -> None:
        with session.cursor() as cursor:
            cursor.execute("SELECT FROM limit_stripes WHERE stripe = 1 FOR UPDATE")
        World.it.sleep(10.0)  # type: ignore[union-attr]
        session.commit()

    def waiting(session: StepConnection) -> None:
        with pytest.raises(psycopg2.OperationalError), session.cursor() as cursor:
            cursor.execute("SELECT FROM limit_stripes WHERE stripe = 1 FOR UPDATE")
        ended.append(World.it.now - EPOCH)  # type: ignore[union-attr]

    def killer(_session: StepConnection) -> None:
        session = server.sessions[1]
        os.kill(session.info.backend_pid, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (session.info.backend_pid, signal.SIGCONT)).start()
        server.cut(session)

    play(server, (0.0, holder), (1.0, waiting), (2.0, killer))
    assert ended == [pytest.approx(2.0)]
