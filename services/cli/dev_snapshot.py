"""The data of the live view of `manage.py dev`: one cheap statement for each part."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row

from database.connection import DedicatedConnection

NEWEST_SCANS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    replicas: dict[str, Row[Any]]  # by name
    running: list[Row[Any]]
    ended: list[Row[Any]]
    upcoming: list[Row[Any]]
    scans: list[Row[Any]]
    minute: Row[Any]
    workers: list[Row[Any]] = field(default_factory=list)  # of the fleet, each with all its processes


def take_snapshot(connection: DedicatedConnection, rows: int) -> Snapshot:
    """At most `rows` executions and schedules each."""
    limit = {"limit": rows}
    return Snapshot(
        replicas={row.instance_id: row for row in connection.run(REPLICAS)},
        running=connection.run(RUNNING, limit),
        ended=connection.run(ENDED, limit),
        upcoming=connection.run(UPCOMING, limit),
        scans=connection.run(SCANS, {"limit": NEWEST_SCANS}),
        minute=connection.run(LAST_MINUTE)[0],
        workers=connection.run(WORKERS),
    )


# A restarted replica is a new incarnation under the same name; the newest one counts.
REPLICAS = """
SELECT DISTINCT ON (i.instance_id)
       i.instance_id, i.revision, i.schedules, i.clock_skew_seconds, i.claiming,
       extract(epoch FROM clock_timestamp() - i.heartbeat_at)::float8 AS heartbeat_seconds,
       coalesce((i.facts ->> 'redis_degraded')::boolean, false) AS redis_degraded,
       (i.facts ->> 'pid')::int AS pid,
       (SELECT count(*) FROM job_executions AS e
        WHERE e.status IN ('claimed', 'running') AND e.incarnation = i.incarnation) AS running
FROM scheduler_instances AS i
WHERE i.kind = 'replica' AND i.heartbeat_at > clock_timestamp() - interval '1 minute'
ORDER BY i.instance_id, i.started_at DESC
"""

# A child of a prefork pool has its worker's name and its own process id.
WORKERS = """
SELECT name, min(array_to_string(queues, ', ')) AS queues, sum(places)::int AS places, sum(running)::int AS running,
       min(heartbeat_seconds) AS heartbeat_seconds
FROM (
    SELECT CASE WHEN i.facts ->> 'pool' = 'prefork' THEN regexp_replace(i.instance_id, '-[0-9]+$', '')
                ELSE i.instance_id END AS name, i.queues, (i.facts ->> 'max_workers')::int AS places,
           extract(epoch FROM clock_timestamp() - i.heartbeat_at)::float8 AS heartbeat_seconds,
           (SELECT count(*) FROM job_executions AS e
            WHERE e.status IN ('claimed', 'running') AND e.incarnation = i.incarnation) AS running
    FROM scheduler_instances AS i
    WHERE i.kind = 'worker' AND i.heartbeat_at > clock_timestamp() - interval '15 s'
) AS processes GROUP BY name ORDER BY name
"""

_LABEL = "CASE WHEN job_id = schedule_id::text THEN domain ELSE job_id END AS label"
_LATENESS = "extract(epoch FROM started_at - due_at)::float8"

RUNNING = f"""
SELECT {_LABEL}, instance_id, attempt, extract(epoch FROM clock_timestamp() - started_at)::float8 AS seconds
FROM job_executions WHERE status IN ('claimed', 'running')
ORDER BY started_at NULLS LAST LIMIT %(limit)s
"""  # noqa: S608

# The index is on created_at: an execution that ended recently was created recently, unless it ran for long.
ENDED = f"""
SELECT {_LABEL}, instance_id, attempt, status, duration_seconds, completed_at,
       {_LATENESS} AS lateness_seconds, coalesce(error_message, reason, '') AS words
FROM (SELECT * FROM job_executions ORDER BY created_at DESC LIMIT 200) AS newest
WHERE completed_at IS NOT NULL
ORDER BY completed_at DESC LIMIT %(limit)s
"""  # noqa: S608

UPCOMING = """
SELECT coalesce(name, domain) AS label, job_type, next_run, timezone FROM schedules
WHERE enabled AND next_run IS NOT NULL ORDER BY next_run LIMIT %(limit)s
"""

SCANS = """
SELECT scan_id, domain, engine, finished_at, previous_scan_id, summary FROM scans
ORDER BY finished_at DESC LIMIT %(limit)s
"""

LAST_MINUTE = f"""
SELECT count(*) FILTER (WHERE status = 'success') AS success,
       count(*) FILTER (WHERE status IN ('failed', 'timed_out', 'cancelled')) AS failed,
       count(*) FILTER (WHERE status IN ('skipped', 'missed')) AS skipped,
       count(*) FILTER (WHERE status = 'abandoned') AS abandoned,
       count(*) FILTER (WHERE attempt > 1) AS retries,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY {_LATENESS}) AS lateness_seconds
FROM job_executions WHERE created_at > clock_timestamp() - interval '1 minute'
"""  # noqa: S608
