"""WF4, second half: the job that discovers a domain's sitemaps, within SITEMAP_JOB_TIMEOUT_SECONDS."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import func, update
from sqlalchemy.orm import Session

from config import Settings
from database.workflow_models import Domain, Job
from database.workflow_statuses import JobStatus as Status
from database.workflow_statuses import SitemapAnalysisStatus
from services.jobs import PermanentFailure
from services.queues.queue import Queue, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps
from services.workflows.sitemap_discovery import HOME_LIMITS, Discovery, discover_sitemaps
from services.workflows.sitemap_files import save_found
from services.workflows.sitemap_submission import JOB_TYPE
from services.workflows.web_pages import polite_fetcher


def load(session: Session, key: int) -> str:
    job = session.get_one(Job, key)
    if job.job_type != JOB_TYPE:
        raise PermanentFailure(f"unknown job type {job.job_type!r}")
    return session.get_one(Domain, job.domain_id).domain


def save(session: Session, key: int, found: Discovery, goes_on: bool) -> None:
    job = session.get_one(Job, key)
    domain = session.get_one(Domain, job.domain_id)
    save_found(session, domain.id, found.sitemaps, goes_on=goes_on)
    domain.total_sitemaps, domain.sitemap_urls = len(found.sitemaps), [each.url for each in found.sitemaps]
    domain.last_scan = func.now()
    if domain.sitemap_analysis_status == SitemapAnalysisStatus.FAILED:  # by an earlier attempt that was requeued
        domain.sitemap_analysis_status, domain.sitemap_analysis_error = SitemapAnalysisStatus.SUBMITTED, None
    methods = Counter(each.method.value for each in found.sitemaps)
    job.progress, job.result_data = 1.0, {"sitemaps": methods, "fetches": found.fetches, "note": found.note}


def on_failed(session: Session, key: int, error: str) -> None:
    """Marks the domain, too, unless it was submitted again meanwhile."""
    job = session.get_one(Job, key)
    handed_over = (Domain.id == job.domain_id) & (Domain.sitemap_analysis_status == SitemapAnalysisStatus.SUBMITTED)
    failed = {"sitemap_analysis_status": SitemapAnalysisStatus.FAILED, "sitemap_analysis_error": error}
    session.execute(update(Domain).where(handed_over).values(failed))


@contextmanager
def open_steps(settings: Settings) -> Iterator[Steps[int]]:
    with polite_fetcher(settings, HOME_LIMITS) as fetcher:
        yield Steps(
            load=load,
            work=lambda domain: discover_sitemaps(fetcher, domain),
            save=lambda session, key, found: save(session, key, found, settings.sitemap_auto_queue_import),
            on_failed=on_failed,
            own_sites=True,
        )


SITEMAP_JOBS = queues.register(
    Queue(
        name="sitemap_jobs",
        job_id="process_sitemap_jobs",
        display_name="Process Sitemap Analysis Jobs",
        settings="sitemap_job_scheduler",
        concurrency=5,
        model=Job,
        words=Words(Status.PENDING, Status.RUNNING, Status.COMPLETE, Status.FAILED),
        status_field_name="status",
        error_field_name="error",
        steps=open_steps,
        downstream="sitemap_import",
        item_timeout_setting="sitemap_job_timeout_seconds",
        one_live_per=("domain_id", "job_type"),
    )
)
