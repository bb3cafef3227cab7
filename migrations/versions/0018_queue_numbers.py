"""run limits of the queues move from the environment into the job_config of the workflows' schedules

What an operator has set in the environment of this command is written into the schedules, unless a replica is live: it
is of an older version and would refuse the fields. In that case a replica of the new version does the same with its own
environment once no older one is live. A value outside the limits is left out; programs refuse it.
"""

import json

from alembic import op

from config import given_values

revision = "0018"
down_revision = "0017"

# The names of this moment: later versions may have others.
QUEUES = {
    "DEEP_SCAN_SCHEDULER": "deep_scan",
    "DOMAIN_EXTRACTION_SCHEDULER": "domain_extraction",
    "DOMAIN_SCHEDULER": "domain_metadata",
    "DOMAIN_SITEMAP_SCHEDULER": "sitemap_submission",
    "SITEMAP_JOB_SCHEDULER": "sitemap_jobs",
    "SITEMAP_IMPORT_SCHEDULER": "sitemap_import",
    "PAGE_CURATION_SCHEDULER": "page_curation",
}
LONGEST_SECONDS = 30 * 86_400
FIELDS = {
    "concurrency": (int, 500),
    "run_budget_seconds": (float, LONGEST_SECONDS),
    "item_timeout_seconds": (float, LONGEST_SECONDS),
    "max_attempts": (int, 100),
}
INSTALLED_BY, UPGRADE = "system:workflows", "system:upgrade"

# Who has edited a schedule is known by its newest change: the program's own rows stay its own, edited ones edited.
LAST_CHANGED_BY = """(SELECT changed_by FROM schedule_changes AS c WHERE c.schedule_id = schedules.schedule_id
                      ORDER BY change_id DESC LIMIT 1)"""
NOBODY_LIVE = """NOT EXISTS (SELECT FROM scheduler_instances
                 WHERE heartbeat_at > clock_timestamp() - interval '1 minute')"""


def upgrade() -> None:
    op.execute("CREATE INDEX schedules_workflow_idx ON schedules (schedule_id) WHERE job_type = 'workflow'")
    given = given_values()
    for prefix, queue in QUEUES.items():
        numbers = {
            field: number for field in FIELDS if (number := _number(field, given.get(f"{prefix}_{field.upper()}")))
        }
        if numbers:
            said = f"'{json.dumps(numbers)}'::jsonb"
            _write(f"{said} || job_config", f"job_config ->> 'queue' = '{queue}' AND {NOBODY_LIVE}")


def downgrade() -> None:
    fields = f"'{{{','.join(FIELDS)}}}'::text[]"
    _write(f"job_config - {fields}", f"job_config ?| {fields}")
    op.execute("DROP INDEX schedules_workflow_idx")


def _number(field: str, text: str | None) -> int | float | None:
    kind, most = FIELDS[field]
    try:
        number = kind(text or "")
    except ValueError:
        return None
    if not 0 < number <= most:
        return None
    return int(number) if number == int(number) else number


def _write(job_config: str, where: str) -> None:
    for actor, whose in ((INSTALLED_BY, "="), (UPGRADE, "IS DISTINCT FROM")):
        op.execute(f"SELECT set_config('scheduler.actor', '{actor}', true)")
        op.execute(
            f"""UPDATE schedules SET job_config = {job_config}
                WHERE job_type = 'workflow' AND {where} AND job_config <> {job_config}
                  AND {LAST_CHANGED_BY} {whose} '{INSTALLED_BY}'"""
        )
    op.execute("SELECT set_config('scheduler.actor', '', true)")
