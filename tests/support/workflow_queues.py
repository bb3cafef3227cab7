"""JOB_MODULES=tests.support.workflow_queues, for replicas in tests: adds one more queue."""

from services.queues.queue import queues
from tests.support.hanging_queue import HANGING

queues.register(HANGING)
