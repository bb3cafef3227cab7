"""For replicas in tests, JOB_MODULES=tests.support.workflow_queues: one more queue than the pipeline has."""

from services.queues.queue import queues
from tests.support.hanging_queue import HANGING

queues.register(HANGING)
