"""Which job types there are. No handler lives here.

The contract of a handler is in enhanced_scheduler/: jobs.py (`@job`), context.py (what a handler receives), results.py
(what it returns or raises); its names can be imported from here, too. registry.py knows the job types, project.py those
of a project with an interpreter of its own. The built-in handlers are in services/job_types/; services/engine/pool.py
runs them.
"""

from enhanced_scheduler.context import ExecutionContext, JobCancelled, JobStopped, JobTimedOut
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.results import JobFailed, JobResult, JobSkipped, PermanentFailure
from services.jobs.registry import BUILT_IN_JOB_TYPES, JobRegistry, default_registry, job

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
