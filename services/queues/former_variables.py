"""Queue settings of version 0.1 that are now fields of their schedules' job_config.

For one version such a variable still applies where the schedule has no value. Replicas copy the values into the
schedules, so that none is lost. Remove this file and `Settings.former_queue_numbers` in version 0.3.
"""

import json
from collections.abc import Iterator
from typing import Any

from config import Settings
from database.connection import DatabaseConnection
from services.checks.queue_numbers import QueueNumbers
from services.queues.queue import Queue, queues
from services.queues.scheduled_numbers import scheduled_numbers
from services.queues.system_schedules import ACTOR
from services.wording.commands import as_called_here

UPGRADE = "system:upgrade"  # not ACTOR: a schedule that an operator has edited must still count as edited
FIRST_THAT_KNOWS = "0018"  # older programs refuse these fields of a job_config


def carry_over_former_variables(db: DatabaseConnection, settings: Settings) -> bool:
    """Copy the variables' values into the schedules. False: not yet, because a live replica could not read them.

    A schedule that an operator has edited gets only the fields that it does not have.
    """
    said = {queue.name: numbers for queue in queues.all() if (numbers := _former(queue, settings).given())}
    if not said:
        return True
    rows = {"numbers": json.dumps(said), "actor": ACTOR}
    with db.transaction() as connection:
        if connection.exec_driver_sql(OLDER, {"timeout": settings.heartbeat_timeout_seconds}).scalar_one():
            return False
        connection.exec_driver_sql(LOCK)
        for actor, statement in ((ACTOR, INTO_UNTOUCHED), (UPGRADE, INTO_EDITED)):
            connection.exec_driver_sql("SELECT set_config('scheduler.actor', %s, true)", (actor,))
            connection.exec_driver_sql(statement, rows)
    return True


def former_variable_warnings(db: DatabaseConnection, settings: Settings) -> list[str]:
    """One for each variable that is set: where the value lives now, which value applies, what to do."""
    if not any(_former(queue, settings).given() for queue in queues.all()):
        return []
    with db.transaction() as connection:
        scheduled = scheduled_numbers(connection)
    found = []
    for queue in queues.all():
        own = scheduled.get(queue.name, {}).get(queue.schedule_id, QueueNumbers())
        found += list(_warnings(queue, _former(queue, settings).given(), own.given()))
    return found


def _warnings(queue: Queue[Any], said: dict[str, Any], scheduled: dict[str, Any]) -> Iterator[str]:
    for field, value in said.items():
        variable = f"{queue.settings}_{field}".upper()
        place = f"job_config.{field} of the schedule {queue.job_id}"
        edit = as_called_here(f"manage.py schedule edit {queue.job_id} --set job_config.{field}=")
        if field not in scheduled:
            yield (
                f"{variable}={value} is no longer a setting; it moved to {place}; the value is used, and "
                f"replicas write it there once no older replica is live (to do it now: {edit}{value})"
            )
        elif scheduled[field] == value:
            yield (
                f"{variable}={value} is no longer a setting: {place} has the value now and takes precedence; "
                f"remove the variable (to change the value: {edit}…)"
            )
        else:
            yield (
                f"{variable}={value} has no effect: {place} is {scheduled[field]} and takes precedence; "
                f"remove the variable (to change the value: {edit}…)"
            )


def _former(queue: Queue[Any], settings: Settings) -> QueueNumbers:
    return settings.former_queue_numbers(queue.settings)


OLDER = f"""
SELECT EXISTS (
    SELECT FROM scheduler_instances
    WHERE kind = 'replica' AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
      AND coalesce(facts ->> 'schema', '') < '{FIRST_THAT_KNOWS}'
)
"""  # noqa: S608

LOCK = "SELECT FROM schedules WHERE job_type = 'workflow' ORDER BY schedule_id FOR NO KEY UPDATE"

_SAID = "json_each(%(numbers)s::json) AS said"
_LAST_CHANGED_BY = """(SELECT changed_by FROM schedule_changes AS c WHERE c.schedule_id = s.schedule_id
                        ORDER BY change_id DESC LIMIT 1)"""

INTO_UNTOUCHED = f"""
UPDATE schedules AS s SET job_config = s.job_config || said.value::jsonb FROM {_SAID}
WHERE s.job_type = 'workflow' AND s.job_config ->> 'queue' = said.key
  AND NOT s.job_config @> said.value::jsonb AND {_LAST_CHANGED_BY} = %(actor)s
"""  # noqa: S608

INTO_EDITED = f"""
UPDATE schedules AS s SET job_config = said.value::jsonb || s.job_config FROM {_SAID}
WHERE s.job_type = 'workflow' AND s.job_config ->> 'queue' = said.key
  AND s.job_config <> said.value::jsonb || s.job_config AND {_LAST_CHANGED_BY} IS DISTINCT FROM %(actor)s
"""  # noqa: S608
