"""What a schedule can run: handlers (one file each), the registry that knows them, the pool that runs them.

Start reading at registry.py (`@job`), context.py (what a handler is given) and pool.py (how it is run).
"""

from services.jobs import http_request as http_request  # registers itself
from services.jobs.context import ExecutionContext, JobCancelled, JobStopped, JobTimedOut
from services.jobs.pool import WorkerPool
from services.jobs.registry import BUILT_IN_JOB_TYPES, JobDefinition, JobRegistry, default_registry, job
from services.jobs.results import JobFailed, JobResult, PermanentFailure

__all__ = [
    "BUILT_IN_JOB_TYPES",
    "ExecutionContext",
    "JobCancelled",
    "JobDefinition",
    "JobFailed",
    "JobRegistry",
    "JobResult",
    "JobStopped",
    "JobTimedOut",
    "PermanentFailure",
    "WorkerPool",
    "default_registry",
    "job",
]
