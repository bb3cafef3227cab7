"""Failures of a whole scan. The failure of a page is a finding."""

from services.errors import SchedulerError


class ScanFailed(SchedulerError):
    """No page could be visited, or the scan is not allowed; the message names the cause."""

    def __init__(self, message: str, *, retryable: bool = True, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retryable, self.retry_after_seconds = retryable, retry_after_seconds


class ScanRefused(SchedulerError):
    """The execution lost its claim meanwhile: its findings must not be stored."""
