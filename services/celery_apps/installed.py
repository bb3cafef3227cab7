"""Whether this process has Celery, and what to install when it does not."""

import sys
from functools import cache
from importlib.util import find_spec

REMEDY = "Celery is not installed here: pip install -r requirements-celery.txt"


@cache
def missing_celery() -> str | None:
    """None when Celery can be imported. Asked at every heartbeat, so the answer is kept for the life of the process."""
    return None if "celery" in sys.modules or find_spec("celery") else REMEDY
