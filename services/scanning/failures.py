"""How a scan can fail as a whole. A page that fails is a finding."""

from services.errors import SchedulerError


class ScanFailed(SchedulerError):
    """No page could be seen, or the scan may not be made; the message names the cause."""

    def __init__(self, message: str, *, retryable: bool = True, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retryable, self.retry_after_seconds = retryable, retry_after_seconds


class ScanRefused(SchedulerError):
    """The execution that made the scan was given up meanwhile: its findings must not be kept."""
