"""What passes between a claim and the pool: into it the handler's context, out of it the ending that is written."""

import math

from database.backoff import Backoff
from services.jobs import ExecutionContext, JobResult
from services.ledger.fires import Claim, Ending

LONGEST_RETRY_SECONDS = 86_400.0


def context_of(claim: Claim, instance_id: str) -> ExecutionContext:
    spec = claim.spec
    return ExecutionContext(
        execution_id=claim.execution_id,
        schedule_id=claim.schedule_id,
        job_id=claim.job_id,
        job_type=spec.job_type,
        domain=spec.domain,
        domain_config_id=spec.domain_config_id or claim.schedule_id,
        job_config=spec.job_config,
        scheduled_for=claim.scheduled_for,
        attempt=claim.attempt,
        cause=claim.cause,
        fencing_token=claim.fencing_token,
        instance_id=instance_id,
        timeout_seconds=claim.policy.timeout_seconds,
    )


def ending_of(claim: Claim, result: JobResult, duration_seconds: float) -> Ending:
    policy = claim.policy
    retry_in: float | None = None
    if result.retryable and claim.attempt <= policy.max_retries:
        backoff = Backoff(first_seconds=policy.retry_backoff_seconds, longest_seconds=LONGEST_RETRY_SECONDS, jitter=0.1)
        wanted = max(backoff.after(claim.attempt), _seconds(result.retry_after_seconds))
        retry_in = min(wanted, LONGEST_RETRY_SECONDS)
    return Ending(
        claim=claim,
        status=result.status,
        duration_seconds=duration_seconds,
        details=result.details,
        error_message=result.error_message,
        error_details=result.error_details,
        scan_id=result.scan_id,
        retry_in_seconds=retry_in,
        reason=result.reason,
    )


def _seconds(given: object) -> float:
    """A handler's wish, if it is a number of seconds at all."""
    return float(given) if isinstance(given, int | float) and math.isfinite(given) else 0.0
