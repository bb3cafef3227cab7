"""What the replicas of a fault run have to do: several hundred interval schedules, and edits of them by plain SQL."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg2
from psycopg2.extensions import connection as PgConnection
from psycopg2.extras import execute_values

# Of all fires, this share comes from schedules of so many seconds.
SHARES = {1: 0.12, 2: 0.20, 3: 0.16, 5: 0.24, 7: 0.08, 10: 0.20}
OVERSHOOT = 1.12  # edits switch some of them off for a while
COLUMNS = ("schedule_id", "domain_config_id", "domain", "name", "job_type", "job_config", "frequency", "time_config",
           "start_at", "max_instances", "coalesce", "max_retries", "retry_backoff_seconds", "catchup")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schedule:
    schedule_id: str
    number: int
    seconds: int
    config: dict[str, Any]
    offset: int = 0  # seconds of its anchor after a full minute
    max_instances: int | None = None
    coalesce: bool | None = None
    max_retries: int | None = None
    catchup: str | None = None

    def as_values(self) -> tuple[Any, ...]:
        return (
            self.schedule_id, self.schedule_id, "proof", f"proof-{self.number}", "proof_call", json.dumps(self.config),
            "interval", json.dumps({"seconds": self.seconds}), f"2020-01-01T00:00:{self.offset:02}+00:00",
            self.max_instances, self.coalesce, self.max_retries, 1 if self.max_retries else None, self.catchup,
        )  # fmt: skip


@dataclass(slots=True)
class Workload:
    schedules: Sequence[Schedule]
    deleted: list[Schedule] = field(default_factory=list)

    @property
    def fires_per_second(self) -> float:
        return sum(1 / each.seconds for each in self.schedules)

    def create(self, connection: PgConnection) -> None:
        insert(connection, self.schedules)


def draw(rng: random.Random, fires_per_second: float, ledger: str) -> Workload:
    """Most are short; some run for seconds, some fail and are tried again, some may run twice at once."""
    schedules: list[Schedule] = []
    for seconds, share in SHARES.items():
        for _ in range(round(fires_per_second * OVERSHOOT * share * seconds)):
            schedules.append(_one(rng, len(schedules), seconds, ledger))
    return Workload(schedules)


def _one(rng: random.Random, number: int, seconds: int, ledger: str) -> Schedule:
    config: dict[str, Any] = {"ledger": ledger, "seconds": rng.choice((0, 0.005, 0.02, 0.05))}
    more: dict[str, Any] = {}
    kind = rng.random()
    if kind < 0.06 and seconds >= 3:
        config["seconds"] = round(rng.uniform(1, 4), 1)
        more["max_instances"] = rng.choice((None, 1, 2))
    elif kind < 0.20:
        config["fails_every"] = rng.choice((2, 3, 5, 10)) * seconds
        more["max_retries"] = rng.choice((1, 2))
    elif kind < 0.30:
        more["max_retries"] = 1
    if rng.random() < 0.15:
        more["coalesce"] = False
    if rng.random() < 0.2:
        more["catchup"] = rng.choice(("none", "all"))
    schedule_id = str(UUID(int=rng.getrandbits(128), version=4))
    return Schedule(schedule_id, number, seconds, config, rng.randrange(60) if rng.random() < 0.5 else 0, **more)


# --- edits, as somebody makes them in psql ---


def insert(connection: PgConnection, schedules: Sequence[Schedule]) -> None:
    rows = [each.as_values() for each in sorted(schedules, key=lambda each: each.schedule_id)]
    with connection.cursor() as cursor:
        execute_values(cursor, f"INSERT INTO schedules ({', '.join(COLUMNS)}) VALUES %s", rows)


def switch(connection: PgConnection, ids: Sequence[str], enabled: bool) -> None:
    _update(connection, "enabled = %s", enabled, ids)


def retime(connection: PgConnection, ids: Sequence[str], seconds: int) -> None:
    _update(connection, "time_config = %s", json.dumps({"seconds": seconds}), ids)


def delete(connection: PgConnection, ids: Sequence[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM schedules WHERE schedule_id = ANY(%s::uuid[])", (list(ids),))


def _update(connection: PgConnection, what: str, value: object, ids: Sequence[str]) -> None:
    """In id order, as everybody who writes several of them has to."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""WITH own AS MATERIALIZED (SELECT schedule_id FROM schedules WHERE schedule_id = ANY(%s::uuid[])
                                         ORDER BY schedule_id FOR UPDATE)
                UPDATE schedules SET {what} WHERE schedule_id IN (SELECT schedule_id FROM own)""",
            (list(ids), value),
        )


def connect(database_url: str, statement_timeout_seconds: float = 60) -> PgConnection:
    connection = psycopg2.connect(
        database_url,
        connect_timeout=10,
        application_name="somebody",
        options=f"-c statement_timeout={int(statement_timeout_seconds * 1000)}",
    )
    connection.autocommit = True
    return connection
