"""For replicas in tests, JOB_MODULES=tests.workflow_queues: one more queue than the pipeline has."""

from services.workflows.queue import queues
from tests.hanging_queue import HANGING

queues.register(HANGING)
