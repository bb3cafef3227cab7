"""What a program sees of Enhanced Scheduler: the contract of a handler, a scheduler to start, a client, a test kit.

This package needs only Python's standard library, and imports nothing of the application: its modules are called
`services`, `database` and `config`, as they are in many programs. The application runs in processes of its own
(application.py); docs/decisions.md says why.
"""

from enhanced_scheduler.context import ExecutionContext, JobCancelled, JobStopped, JobTimedOut
from enhanced_scheduler.jobs import job
from enhanced_scheduler.results import JobFailed, JobSkipped, PermanentFailure
from enhanced_scheduler.scheduler import Scheduler, SchedulerFailed

__all__ = [
    "ExecutionContext",
    "JobCancelled",
    "JobFailed",
    "JobSkipped",
    "JobStopped",
    "JobTimedOut",
    "PermanentFailure",
    "Scheduler",
    "SchedulerFailed",
    "job",
]
