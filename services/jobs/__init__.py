"""The contract between the scheduler and a handler: the registry, the context, the results. No handler lives here.

Start reading at registry.py (`@job`), context.py (what a handler receives) and results.py (what it returns or raises).
The built-in handlers are in services/job_types/; services/engine/pool.py runs them.
"""

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
    "default_registry",
    "job",
]
