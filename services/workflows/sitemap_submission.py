"""WF4, first half: submits a domain to the sitemap search, as a job in the same transaction."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from database.workflow_models import Domain, Job
from database.workflow_statuses import SitemapAnalysisStatus as Status
from services.queues.queue import Queue, always, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps

JOB_TYPE = "sitemap"
LIVE = text("job_type = 'sitemap' AND status IN ('pending', 'running')")  # the condition of the unique index

# Otherwise requeueing the old one would make two live jobs, which the unique index refuses.
SUPERSEDE = text("""
WITH old AS (
    UPDATE jobs SET status = 'cancelled' WHERE domain_id = :domain_id AND job_type = 'sitemap' AND status = 'failed'
    RETURNING id
)
UPDATE dead_letters SET requeued_at = clock_timestamp(), requeued_by = schedules_actor()
WHERE queue = 'sitemap_jobs' AND requeued_at IS NULL AND item_key IN (SELECT id::text FROM old)
""")


def submit(domain_id: UUID, session: Session) -> None:
    """A job that waits or runs is reused; a failed one is replaced."""
    session.execute(SUPERSEDE, {"domain_id": domain_id})
    job = insert(Job).values(job_type=JOB_TYPE, domain_id=domain_id)
    session.execute(job.on_conflict_do_nothing(index_elements=["domain_id"], index_where=LIVE))


SITEMAP_SUBMISSION = queues.register(
    Queue(
        name="sitemap_submission",
        job_id="process_pending_domain_sitemap_submissions",
        display_name="Domain Sitemap Submission Scheduler",
        settings="domain_sitemap_scheduler",
        model=Domain,
        words=Words(Status.QUEUED, Status.PROCESSING, Status.SUBMITTED, Status.FAILED),
        status_field_name="sitemap_analysis_status",
        error_field_name="sitemap_analysis_error",
        column_prefix="sitemap_",
        steps=always(Steps.plain(submit)),
        downstream="sitemap_jobs",
    )
)
