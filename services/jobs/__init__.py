"""What a schedule can run."""

BUILT_IN_JOB_TYPES = frozenset({"cookie_scan", "http_request", "workflow"})
