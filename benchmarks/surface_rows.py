"""Rows of the surface benchmark, as after a month of use: schedules, executions, and the other tables of the pages."""

import hashlib
from uuid import UUID

from database.connection import DatabaseConnection

DAYS = 30
SLICE = 50_000


def schedule_id(number: int) -> UUID:
    return UUID(hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest())


BUSY, BUSIEST = 56, 57  # indexes of the schedules that fire often, and constantly

# The triggers log a change for each schedule; a tenth is disabled, some fail, one is the subject of the schedule page.
FILL_SCHEDULES = """
INSERT INTO schedules (schedule_id, domain_config_id, domain, name, frequency, time_config, job_type, enabled, tags,
                       next_run, last_run, last_status)
SELECT md5(n::text)::uuid, md5(n::text)::uuid, 'host' || n || '.example', CASE WHEN n %% 3 = 0 THEN 'job ' || n END,
       'daily', jsonb_build_object('hour', n %% 24, 'minute', n %% 60), 'noop', n %% 10 <> 0,
       CASE WHEN n %% 100 = 0 THEN ARRAY['rare'] ELSE ARRAY['common'] END,
       CASE WHEN n %% 10 <> 0 THEN now() + make_interval(secs => n * 86400.0 / %(schedules)s) END,
       now() - make_interval(secs => n * 86400.0 / %(schedules)s),
       CASE WHEN n %% 50 = 7 THEN 'failed' ELSE 'success' END
FROM generate_series(1, %(schedules)s) AS n
"""
# Oldest first, as in production. One schedule in a thousand fires a hundred times as often as the others; one that
# never fails has a twelfth of all executions.
FILL_EXECUTIONS = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, started_at, completed_at,
                            duration_seconds, created_at, scheduled_for, due_at, claimed_at, instance_id, incarnation,
                            fencing_token, error_message, reason)
SELECT md5(s::text)::uuid, md5(s::text)::uuid::text, 'host' || s || '.example', md5(s::text)::uuid, status,
       CASE WHEN ran THEN at + late END, at + late + took, CASE WHEN ran THEN extract(epoch FROM took) END,
       at, at, at, at, 'replica-' || n %% 3, md5('replica' || n %% 3)::uuid, n,
       CASE WHEN status = 'failed' THEN 'the server answered 503' END,
       CASE WHEN status = 'skipped' THEN 'overlap' WHEN status = 'missed' THEN 'misfire' END
FROM (
    SELECT n, CASE WHEN n %% 12 = 5 THEN %(busiest)s WHEN n %% 11 = 0 THEN n %% 100 + 1
                   ELSE n * 7919::bigint %% %(schedules)s + 1 END AS s,
           now() - make_interval(secs => (%(executions)s - n) * 86400.0 * %(days)s / %(executions)s) AS at,
           make_interval(secs => random() * random() * 0.3) AS late,
           make_interval(secs => 0.01 - ln(1 - random()) * 2) AS took,
           CASE WHEN n %% 40 = 0 THEN 'failed' WHEN n %% 300 = 0 THEN 'timed_out' WHEN n %% 60 = 1 THEN 'skipped'
                WHEN n %% 500 = 3 THEN 'missed' WHEN n %% 5000 = 7 THEN 'cancelled' ELSE 'success' END AS status,
           n %% 60 <> 1 AND n %% 500 <> 3 AS ran
    FROM generate_series(%(first)s, %(last)s) AS n
) AS planned
"""
# Deleted schedules, scans, contacts, a deep queue with its samples, and dead letters of which few are still open.
FILL_OTHERS = (
    """
    INSERT INTO schedules (domain_config_id, domain, name, frequency, time_config, job_type)
    SELECT md5(n::text)::uuid, 'gone' || n || '.example', 'gone ' || n, 'daily', '{"hour": 2}', 'noop'
    FROM generate_series(1, %(schedules)s / 2) AS n
    """,
    "DELETE FROM schedules WHERE name LIKE 'gone %%'",
    """
    INSERT INTO scans (execution_id, schedule_id, domain, engine, started_at, finished_at, summary)
    SELECT md5('run' || n)::uuid, md5(n::text)::uuid, 'host' || n || '.example', 'http', at, at,
           '{"pages": 50, "cookies": 17, "complete": true}'
    FROM (SELECT n, now() - make_interval(mins => n) AS at FROM generate_series(1, %(schedules)s) AS n) AS ended
    """,
    """
    INSERT INTO domains (id, domain, status) SELECT md5('site' || n)::uuid, 'site' || n || '.example', 'pending'
    FROM generate_series(1, %(schedules)s) AS n
    """,
    """
    INSERT INTO contacts (domain_id, email, email_type, created_at)
    SELECT md5('site' || n)::uuid, 'info' || n || '@site.example', 'SERVICE', now() - make_interval(secs => n)
    FROM generate_series(1, %(schedules)s) AS n
    """,
    """
    INSERT INTO workflow_samples (queue, sampled_at, depth, processing, failed, dead, oldest_seconds, succeeded,
                                  retried, unsuccessful)
    SELECT 'domain_metadata', date_trunc('minute', now()) - make_interval(mins => n), n, 5, 2, 1, 60, n, n, n
    FROM generate_series(0, 14 * 1440) AS n
    """,
    """
    INSERT INTO dead_letters (queue, item_key, attempts, error, died_at, requeued_at)
    SELECT 'domain_metadata', n::text, 3, 'timed out', now() - make_interval(mins => n),
           CASE WHEN n %% 1000 > 0 THEN now() END
    FROM generate_series(1, %(schedules)s) AS n
    """,
)


def fill(db: DatabaseConnection, schedules: int, executions: int) -> None:
    size = {"schedules": schedules, "executions": executions, "days": DAYS, "busiest": BUSIEST}
    with db.transaction() as connection:
        connection.exec_driver_sql(FILL_SCHEDULES, size)
    for first in range(1, executions + 1, SLICE):
        with db.transaction() as connection:
            last = min(first + SLICE - 1, executions)
            connection.exec_driver_sql(FILL_EXECUTIONS, {**size, "first": first, "last": last})
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM (ANALYZE) schedules, job_executions, schedule_changes")


def fill_others(db: DatabaseConnection, schedules: int) -> None:
    with db.transaction() as connection:
        for statement in FILL_OTHERS:
            connection.exec_driver_sql(statement, {"schedules": schedules})
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM (ANALYZE)")
