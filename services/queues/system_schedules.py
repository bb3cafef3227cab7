"""Gives every queue its schedule: an ordinary one, with `source='system'` and an id that is the same everywhere.

A missing schedule is inserted. An unedited one follows the settings; one that an operator has edited or disabled stays
as it is. Several replicas may do this at once.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from config import Settings
from database.connection import LOCK_TIMEOUT_SECONDS, DatabaseConnection
from database.models import Source
from services.checks.queue_numbers import QueueNumbers
from services.queues.queue import Queue, queues
from services.queues.scheduled_numbers import scheduled_numbers

logger = logging.getLogger(__name__)

ACTOR = "system:workflows"
SLACK_SECONDS = 60  # time a run may need beyond its budget and its last item


def install_system_schedules(db: DatabaseConnection, settings: Settings) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")  # the replica's start retries
        scheduled = scheduled_numbers(connection)
        rows = json.dumps([_definition(queue, settings, scheduled.get(queue.name, {})) for queue in queues.all()])
        connection.exec_driver_sql("SELECT set_config('scheduler.actor', %s, true)", (ACTOR,))
        inserted = connection.exec_driver_sql(INSERT, {"rows": rows}).rowcount
        followed = connection.exec_driver_sql(FOLLOW, {"rows": rows, "actor": ACTOR}).rowcount
        taken = [row.name for row in connection.exec_driver_sql(TAKEN, {"rows": rows})]
    if inserted or followed:
        facts = {"event": "system_schedules", "inserted": inserted, "followed": followed}
        logger.info("system schedules: %d inserted, %d follow the settings", inserted, followed, extra=facts)
    for name in taken:
        logger.error(
            "the workflow %s has no schedule: its name is used by another schedule", name, extra={"event": "name_taken"}
        )


def _definition(queue: Queue[Any], settings: Settings, scheduled: Mapping[UUID, QueueNumbers]) -> dict[str, Any]:
    limits = queue.limits(settings, scheduled.get(queue.schedule_id, QueueNumbers()))
    return {
        "schedule_id": str(queue.schedule_id),
        "domain_config_id": str(queue.schedule_id),
        "domain": queue.display_name,
        "name": queue.job_id,
        "job_type": "workflow",
        "job_config": {"queue": queue.name},
        "frequency": "interval",
        "time_config": {"minutes": queue.setting(settings, "interval_minutes")},
        "source": Source.SYSTEM.value,
        "tags": ["workflow"],
        "max_instances": queue.setting(settings, "max_instances"),
        "coalesce": True,
        "misfire_grace_seconds": queue.misfire_grace_seconds,
        "timeout_seconds": round(limits.longest_run_seconds + SLACK_SECONDS),
        "catchup": "none",
    }


_COLUMNS = """schedule_id, domain_config_id, domain, name, job_type, job_config, frequency, time_config, source, tags,
    max_instances, coalesce, misfire_grace_seconds, timeout_seconds, catchup"""
_WANTED = "json_populate_recordset(NULL::schedules, %(rows)s::json) AS w"

INSERT = f"INSERT INTO schedules ({_COLUMNS}) SELECT {_COLUMNS} FROM {_WANTED} ON CONFLICT DO NOTHING"  # noqa: S608

# The audit trail has the author of the last change; cleanup always keeps the newest change of a schedule.
FOLLOW = f"""
UPDATE schedules AS s SET
    time_config = w.time_config, max_instances = w.max_instances, misfire_grace_seconds = w.misfire_grace_seconds,
    timeout_seconds = w.timeout_seconds
FROM {_WANTED}
WHERE s.schedule_id = w.schedule_id
  AND (s.time_config, s.max_instances, s.misfire_grace_seconds, s.timeout_seconds)
      IS DISTINCT FROM (w.time_config, w.max_instances, w.misfire_grace_seconds, w.timeout_seconds)
  AND (SELECT changed_by FROM schedule_changes AS c WHERE c.schedule_id = s.schedule_id
       ORDER BY change_id DESC LIMIT 1) = %(actor)s
"""  # noqa: S608

TAKEN = f"""
SELECT w.name FROM {_WANTED} WHERE NOT EXISTS (SELECT FROM schedules AS s WHERE s.schedule_id = w.schedule_id)
"""  # noqa: S608
