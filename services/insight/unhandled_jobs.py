"""What live replicas cannot run, according to their heartbeats: job types of enabled schedules for which one has no
handler, and needs of waiting executions that none has.
"""

from dataclasses import dataclass
from uuid import UUID

from database.connection import DatabaseConnection
from services.jobs import JobRegistry
from services.ledger.needs import QUEUE, Abilities
from services.schedules.spec import DEFAULT_QUEUE, ScheduleSpec

MOST_TYPES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhandledJobs:
    job_type: str
    schedules: int  # that are enabled and use it
    known_to: tuple[str, ...]
    unknown_to: tuple[str, ...]
    schedule_id: UUID | None  # of the only one

    @property
    def words(self) -> str:
        use = "1 schedule uses it" if self.schedules == 1 else f"{self.schedules:,} schedules use it"
        if not self.known_to:
            return f"{use} and cannot run: no live replica has a handler for it"
        lack = _who(self.unknown_to, "has no handler", "have no handler")
        return f"{use}; {lack} for it, {_who(self.known_to, 'has', 'have')} one"


def unhandled_jobs(db: DatabaseConnection, heartbeat_timeout_seconds: float) -> list[UnhandledJobs]:
    """Those without any handler first. Replicas of an older version do not report their handlers and are ignored.

    Workers of the fleet count, too; they need no handlers for queues that they do not serve.
    """
    with db.transaction() as connection:
        told = connection.exec_driver_sql(LIVE, {"timeout": heartbeat_timeout_seconds}).all()
        if not told:
            return []
        known = {row.instance_id: frozenset(row.job_types) for row in told}
        replicas = [row.instance_id for row in told if row.kind == "replica"] or list(known)
        common = frozenset.intersection(*(known[name] for name in replicas))
        rows = connection.exec_driver_sql(UNHANDLED, {"common": sorted(common), "limit": MOST_TYPES}).all()
    found = [
        UnhandledJobs(
            job_type=row.job_type,
            schedules=row.schedules,
            known_to=tuple(name for name, types in known.items() if row.job_type in types),
            unknown_to=tuple(name for name in replicas if row.job_type not in known[name]),
            schedule_id=row.schedule_id,
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: bool(each.known_to))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetNeeds:
    needs: tuple[str, ...]  # with `queue:<name>` if no live replica serves it, or it is not the default one
    missing: tuple[str, ...]  # those of them that no live replica has; empty if only none has all of them
    executions: int  # that wait
    schedule_id: UUID | None  # of the only one

    @property
    def words(self) -> str:
        wait = "1 execution waits" if self.executions == 1 else f"{self.executions:,} executions wait"
        return f"{wait}: {self.lack}"

    @property
    def lack(self) -> str:
        if self.missing:
            return f"no live replica has {' or '.join(self.missing)}"
        return f"no live replica has all of {', '.join(self.needs)}"


def unmet_needs(
    db: DatabaseConnection, heartbeat_timeout_seconds: float, *, also_handlers: bool = False
) -> list[UnmetNeeds]:
    """Of labels and queues; `unhandled_jobs` lists a job type that no replica knows, before anything waits."""
    values = {
        "timeout": heartbeat_timeout_seconds,
        "limit": MOST_TYPES,
        "default": DEFAULT_QUEUE,
        "handlers": also_handlers,
    }
    with db.transaction() as connection:
        rows = connection.exec_driver_sql(UNMET, values).all()
    return [
        UnmetNeeds(
            needs=(*([f"{QUEUE}{row.queue}"] if row.names_queue else []), *row.needs),
            missing=(*([f"{QUEUE}{row.queue}"] if row.unserved else []), *row.missing),
            executions=row.executions,
            schedule_id=row.schedule_id,
        )
        for row in rows
    ]


def unmet_needs_of(db: DatabaseConnection, execution_id: UUID, heartbeat_timeout_seconds: float) -> UnmetNeeds | None:
    """Of one execution that waits; None: somebody has all of them, or nobody has looked yet at what it needs."""
    values = {
        "timeout": heartbeat_timeout_seconds,
        "default": DEFAULT_QUEUE,
        "prefix": QUEUE,
        "id": execution_id,
    }
    with db.transaction() as connection:
        row = connection.exec_driver_sql(UNMET_OF_ONE, values).one_or_none()
    if row is None:
        return None
    return UnmetNeeds(needs=tuple(row.needs), missing=tuple(row.missing), executions=1, schedule_id=row.schedule_id)


def count_unmet(db: DatabaseConnection, heartbeat_timeout_seconds: float) -> dict[str, int]:
    """The executions that wait for what no live replica has, handlers included, by what they need."""
    found = unmet_needs(db, heartbeat_timeout_seconds, also_handlers=True)
    return {", ".join(each.needs): each.executions for each in found}


def unoffered(
    db: DatabaseConnection, spec: ScheduleSpec, jobs: JobRegistry, heartbeat_timeout_seconds: float
) -> list[str]:
    """A warning if no live replica could run this schedule. Without any replica there is nothing to compare with, and
    one of an older version may be able.
    """
    if spec.job_type in jobs.job_types():
        jobs.get(spec.job_type)  # loads what derives its labels
    with db.transaction() as connection:
        living = connection.exec_driver_sql(LIVING, {"timeout": heartbeat_timeout_seconds}).all()
        if not living or any(each.abilities is None for each in living):
            return []
        profile = connection.exec_driver_sql(PROFILE, {"id": spec.profile_id}).scalar_one_or_none()
    needs = {f"{QUEUE}{spec.queue_name}", *Abilities(labels_of=jobs.labels_of).needs_by(spec, profile)}
    offers = [{*each.abilities, *(f"{QUEUE}{name}" for name in each.queues or ())} for each in living]
    if any(needs <= offered for offered in offers):
        return []
    missing = sorted(needs.difference(*offers))
    lack = f"offers {', '.join(missing)}" if missing else f"has all of {', '.join(sorted(needs))}"
    return [f"no live replica {lack}: until one does, its executions wait and then are missed (nobody_able)"]


def _who(names: tuple[str, ...], one: str, many: str) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} {one if len(names) == 1 else many}"


LIVE = """
SELECT instance_id, kind, ARRAY(SELECT jsonb_array_elements_text(facts->'job_types')) AS job_types
FROM scheduler_instances
WHERE heartbeat_at > now() - make_interval(secs => %(timeout)s) AND jsonb_typeof(facts->'job_types') = 'array'
ORDER BY instance_id, started_at
"""

LIVING = """
SELECT abilities, queues FROM scheduler_instances
WHERE heartbeat_at > now() - make_interval(secs => %(timeout)s)
"""

PROFILE = "SELECT config FROM scan_profiles WHERE profile_id = %(id)s"

UNHANDLED = """
SELECT job_type, count(*) AS schedules, CASE WHEN count(*) = 1 THEN (array_agg(schedule_id))[1] END AS schedule_id
FROM schedules WHERE enabled AND invalid_reason IS NULL AND job_type <> ALL (%(common)s::text[])
GROUP BY job_type ORDER BY count(*) DESC, job_type LIMIT %(limit)s
"""

UNMET_OF_ONE = """
WITH living AS (
    SELECT abilities || ARRAY(SELECT %(prefix)s || name FROM unnest(queues) AS name) AS offers FROM scheduler_instances
    WHERE heartbeat_at > now() - make_interval(secs => %(timeout)s)
), waiting AS (
    SELECT schedule_id, CASE WHEN queue = %(default)s THEN needs ELSE ARRAY[%(prefix)s || queue] || needs END AS needs,
           needs || (%(prefix)s || queue) AS asked
    FROM job_executions WHERE execution_id = %(id)s AND status = 'pending' AND queue <> ''
)
SELECT schedule_id, needs, ARRAY(
    SELECT word FROM unnest(asked) AS word WHERE NOT EXISTS (SELECT FROM living AS i WHERE word = ANY(i.offers))
) AS missing FROM waiting
WHERE EXISTS (SELECT FROM living) AND NOT EXISTS (SELECT FROM living AS i WHERE i.offers IS NULL OR asked <@ i.offers)
"""

# Needs of one word are a job type alone. The empty queue is that of rows which nobody has sorted.
UNMET = """
WITH living AS (
    SELECT abilities, queues FROM scheduler_instances WHERE heartbeat_at > now() - make_interval(secs => %(timeout)s)
), waiting AS (
    SELECT queue, needs, count(*) AS executions,
           CASE WHEN count(DISTINCT schedule_id) = 1 THEN (array_agg(schedule_id))[1] END AS schedule_id,
           EXISTS (SELECT FROM living)
           AND NOT EXISTS (SELECT FROM living AS i WHERE e.queue = ANY(i.queues)) AS unserved
    FROM job_executions AS e
    WHERE coalesce(e.status, 'w') = 'pending' AND e.reason IS NULL AND e.queue <> '' GROUP BY queue, needs
)
SELECT w.*, w.unserved OR w.queue <> %(default)s AS names_queue, ARRAY(
    SELECT word FROM unnest(w.needs) AS word WHERE NOT EXISTS (SELECT FROM living AS i WHERE word = ANY(i.abilities))
) AS missing FROM waiting AS w
WHERE (%(handlers)s OR cardinality(w.needs) > 1 OR w.unserved) AND NOT EXISTS (
    SELECT FROM living AS i WHERE i.abilities IS NULL OR w.needs <@ i.abilities AND w.queue = ANY(i.queues))
ORDER BY w.executions DESC, w.queue, w.needs LIMIT %(limit)s
"""
