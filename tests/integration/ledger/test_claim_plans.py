"""The hot path finds every row by a key, also while the planner knows nothing about the tables or something wrong."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection, DedicatedConnection
from database.models import ExecutionStatus
from services.ledger import claims_sql as sql
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Ending, Fire
from tests.support.executions import Make, fire

FIRES = 60
STATEMENTS = {
    getattr(sql, name): name
    for name in (
        "LOCK_SCHEDULES", "INSERT_CLAIMS", "INSERT_LATE_CLAIMS", "START", "LOCK_OR_TELL", "FINISH", "HAND_BACK",
        "UNSTART", "WITHOUT_ROW", "FORMER_TIMINGS",
    )
}  # fmt: skip
COPY = """
INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, effective_from)
SELECT gen_random_uuid(), domain || n, job_type, frequency, time_config, effective_from
FROM schedules, generate_series(1, 1000) AS n WHERE schedule_id = :schedule_id
"""
# What a busy hour leaves: many rows, and an index of live ones that is full of rows which have ended.
HISTORY = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, status, fencing_token)
SELECT schedule_id, 'job', 'job', schedule_id, now() - interval '1 hour', 'running', 1 FROM schedules
"""

# And what some nights without a replica leave.
SUMMARIES = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, scheduled_for, status, reason, metadata)
SELECT schedule_id, 'job', 'job', schedule_id, now() - n * interval '1 day', 'missed', 'catchup_cap',
       jsonb_build_object('last', now() - n * interval '1 day' + interval '1 hour')
FROM schedules, generate_series(2, 5) AS n
"""

Plans = dict[str, str]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    """How Postgres has done each of our statements, asked right after it did it."""
    plans: Plans = {}
    run = DedicatedConnection.run

    def explained(self: DedicatedConnection, statement: str, values: dict[str, object] | None = None) -> object:
        answer = run(self, statement, values)
        if statement in STATEMENTS:
            assert self._prepared is not None
            rows = run(self, f"EXPLAIN (COSTS OFF) {self._prepared.sent_for(statement)}", values)
            plans[STATEMENTS[statement]] = "\n".join(str(row[0]) for row in rows)
        return answer

    monkeypatch.setattr(DedicatedConnection, "run", explained)
    monkeypatch.setattr("services.ledger.claims.YOUNGEST", timedelta(minutes=1))  # on a busy machine, too
    return plans


@pytest.fixture(params=[False, True])
def due(db: DatabaseConnection, make: Make, request: pytest.FixtureRequest) -> list[Fire]:
    example = make()
    with db.transaction() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.execute(text(COPY), {"schedule_id": example})
        connection.execute(text(HISTORY))
        connection.execute(text("UPDATE job_executions SET status = 'success'"))
        if request.param:
            connection.execute(text(SUMMARIES))
        ids = connection.execute(text("SELECT schedule_id FROM schedules LIMIT :n"), {"n": FIRES}).scalars().all()
    return [fire(schedule_id) for schedule_id in ids]


@pytest.mark.parametrize("analyzed", [False, True])
def test_no_statement_reads_a_whole_table_or_an_index_of_dead_rows(
    db: DatabaseConnection, store: ExecutionStore, due: list[Fire], plans: Plans, analyzed: bool
) -> None:
    if analyzed:
        with db.transaction() as connection:
            connection.execute(text("ANALYZE"))
    assert store.without_row(due) == due
    claimed = store.claim(due[:40]).claims
    store.finish([Ending(claim=claim, status=ExecutionStatus.SUCCESS) for claim in store.start(claimed).started])
    store.hand_back(store.claim(due[40:50]).claims)
    store.unstart(store.claim(due[50:], start=10).started)
    store.claim([replace(each, scheduled_for=each.scheduled_for - timedelta(minutes=5)) for each in due[50:]])
    with db.transaction() as connection:
        connection.execute(text("UPDATE schedules SET enabled = false"))
    store.claim([replace(each, scheduled_for=each.scheduled_for - timedelta(minutes=9)) for each in due[:50]])
    assert plans.keys() == set(STATEMENTS.values())
    for name, plan in plans.items():
        assert "Seq Scan" not in plan, (name, plan)
        scans = re.findall(
            r"Scan (?:Backward )?(?:using|on) (\w+_(?:pkey|idx|key))[^\n]*\n *(?:Index Cond: (.*))?", plan
        )
        assert scans, (name, plan)
        for index, condition in scans:
            if index == "limits_pkey":
                continue  # one step, to see that it is empty
            assert "_id = " in condition, f"{name} reads all of {index}:\n{plan}"
    for name in ("INSERT_LATE_CLAIMS", "WITHOUT_ROW"):
        assert "using job_executions_summary_idx" in plans[name], (name, plans[name])
        assert "catchup_cap" not in plans[name], "the history of a schedule is not filtered for it"
