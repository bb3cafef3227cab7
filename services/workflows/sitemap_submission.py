"""WF4, first half: a domain is handed over to the search for its sitemaps, as a job in the same transaction."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from database.workflow_models import Domain, Job
from database.workflow_statuses import SitemapAnalysisStatus as Status
from services.workflows.queue import Queue, always, queues
from services.workflows.queue_table import Words
from services.workflows.steps import Steps

JOB_TYPE = "sitemap"
LIVE = text("job_type = 'sitemap' AND status IN ('pending', 'running')")  # of the unique index


def submit(domain_id: UUID, session: Session) -> None:
    """A job that waits or runs already is the job."""
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
