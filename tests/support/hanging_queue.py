"""A queue whose items hang; workflow_queues.py registers it in a replica, tests do not."""

import time

from database.workflow_models import Place
from database.workflow_statuses import DeepScanStatus as Status
from services.queues.queue import Queue, always
from services.queues.queue_table import Words
from tests.support.places import working

HANGING = Queue(
    name="hanging",
    job_id="hanging_queue",
    display_name="A queue whose items hang",
    settings="deep_scan_scheduler",
    concurrency=5,
    item_timeout_seconds=600,
    model=Place,
    words=Words(Status.QUEUED, Status.PROCESSING, Status.COMPLETED, Status.ERROR),
    status_field_name="deep_scan_status",
    error_field_name="deep_scan_error",
    steps=always(working(lambda key: time.sleep(3600))),
)
