"""What a schedule can run: handlers (one file each), the registry that knows them, the pool that runs them.

Start reading at registry.py (`@job`), context.py (what a handler is given) and pool.py (how it is run).
"""

from services.engine.pool import WorkerPool
from services.job_types import cookie_scan as cookie_scan  # registers itself
from services.job_types import http_request as http_request
from services.job_types import workflow as workflow
from services.jobs.context import ExecutionContext, JobCancelled, JobStopped, JobTimedOut
from services.jobs.registry import BUILT_IN_JOB_TYPES, JobDefinition, JobRegistry, default_registry, job
from services.jobs.results import JobFailed, JobResult, JobSkipped, PermanentFailure

__all__ = [
    "BUILT_IN_JOB_TYPES",
    "ExecutionContext",
    "JobCancelled",
    "JobDefinition",
    "JobFailed",
    "JobRegistry",
    "JobResult",
    "JobSkipped",
    "JobStopped",
    "JobTimedOut",
    "PermanentFailure",
    "WorkerPool",
    "default_registry",
    "job",
]
