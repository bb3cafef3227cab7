"""The Postgres of a simulation: each history finds it as the migrations left it."""

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from tests.proof.simulation.beginning import Beginning
from tests.proof.simulation.postgres import AFTER_MIGRATIONS, SCHEMA, Control

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
    assert before["public.notifier"] and before["public.schedules"] == []
    control.run(WHAT_A_HISTORY_DOES)
    beginning.restore()
    assert everything(control) == before
