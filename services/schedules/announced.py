"""Job types that live replicas announce in their heartbeats, for processes that do not know them themselves."""

from sqlalchemy import Connection

JOB = "job:"  # before a job type, in the abilities of a heartbeat
LIVE_SECONDS = 60  # longer than any heartbeat timeout in use: saving a schedule must not depend on a late heartbeat
ABILITIES = """
SELECT DISTINCT unnest(abilities) AS word FROM scheduler_instances
WHERE heartbeat_at > clock_timestamp() - make_interval(secs => %(seconds)s)
"""


def announced_types(connection: Connection) -> frozenset[str]:
    words = connection.exec_driver_sql(ABILITIES, {"seconds": LIVE_SECONDS}).scalars()
    return frozenset(word.removeprefix(JOB) for word in words if word.startswith(JOB))
