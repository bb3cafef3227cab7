"""Definition of a queue: its rows, its status words, its steps; and the registry of all queues.

A workflow is one file that defines a `Queue` and registers it (services/workflows/domain_extraction.py is the
smallest). Claims, retries, rescue, dead letters, circuit breaker, backpressure, batches, metrics and the schedule
follow from the definition.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic
from uuid import NAMESPACE_URL, UUID, uuid5

from config import Settings, get_settings
from database.connection import DatabaseConnection, get_db_connection
from database.models import Base
from services.checks.queue_numbers import QueueNumbers
from services.errors import ConfigurationError, InvalidInput, Problem
from services.queues.circuit import Breaker
from services.queues.job_loop import Downstream, JobLoop
from services.queues.loop_limits import LoopLimits
from services.queues.outcomes import K, RunContext, Summary, Unwatched
from services.queues.queue_table import QueueTable, Words
from services.queues.scheduled_numbers import scheduled_numbers
from services.queues.steps import Steps

OpenSteps = Callable[[Settings], AbstractContextManager[Steps[K]]]


@dataclass(frozen=True, kw_only=True)  # without slots: Python 3.11 could not make a Queue[UUID](…)
class Queue(Generic[K]):
    """`settings` names the group of settings: `deep_scan_scheduler` -> DEEP_SCAN_SCHEDULER_BATCH_SIZE, …

    `concurrency`, `run_budget_seconds`, `item_timeout_seconds` and `max_attempts` are defaults; a schedule's job_config
    overrides them. `steps` opens what a run needs (a fetcher, an API client) and closes it at the run's end.
    `downstream` is the queue that this one fills: while that queue is too deep, this one does not run.
    `item_timeout_setting` names a setting that may lower `item_timeout_seconds`. `one_live_per` names the columns of a
    unique index over the rows that are queued or in processing: a requeue respects it.
    """

    name: str
    job_id: str
    display_name: str
    settings: str
    model: type[Base]
    words: Words
    status_field_name: str
    error_field_name: str
    steps: OpenSteps[K]
    column_prefix: str = ""
    downstream: str | None = None
    concurrency: int = 1
    run_budget_seconds: float = 50
    item_timeout_seconds: float = 60
    max_attempts: int = 3
    misfire_grace_seconds: int = 60
    item_timeout_setting: str | None = None
    one_live_per: tuple[str, ...] = ()

    @property
    def schedule_id(self) -> UUID:
        """The same in every installation."""
        return uuid5(NAMESPACE_URL, f"enhanced-scheduler/system/{self.job_id}")

    @property
    def table(self) -> QueueTable[K]:
        return QueueTable(
            self.model,
            self.words,
            status_field_name=self.status_field_name,
            error_field_name=self.error_field_name,
            prefix=self.column_prefix,
            one_live_per=self.one_live_per,
        )

    def setting(self, settings: Settings, name: str) -> Any:
        return getattr(settings, f"{self.settings}_{name}")

    def limits(
        self, settings: Settings, numbers: QueueNumbers = QueueNumbers(), others: Iterable[QueueNumbers] = ()
    ) -> LoopLimits:
        """Limits of a run. `numbers` come from its schedule, `others` from further schedules of the same queue.

        A claim is stale when no run of the queue could still work on it, whichever schedule started that run.
        """
        chosen = self._numbers(settings, numbers)
        longest = max(self._item_timeout(settings, each) for each in (numbers, *others))
        return LoopLimits(
            batch_size=self.setting(settings, "batch_size"),
            concurrency=chosen["concurrency"],
            run_budget_seconds=chosen["run_budget_seconds"],
            item_timeout_seconds=self._item_timeout(settings, numbers),
            max_attempts=chosen["max_attempts"],
            retry_backoff_seconds=settings.workflow_retry_backoff_seconds,
            stale_seconds=longest + settings.workflow_stale_slack_seconds,
            breaker=Breaker(
                settings.workflow_circuit_window,
                settings.workflow_circuit_failures,
                settings.workflow_circuit_cool_down_seconds,
            ),
        )

    def _numbers(self, settings: Settings, numbers: QueueNumbers) -> dict[str, Any]:
        """The schedule overrides a variable of version 0.1, and that overrides the default."""
        defaults = {name: getattr(self, name) for name in QueueNumbers.model_fields}
        return defaults | settings.former_queue_numbers(self.settings).given() | numbers.given()

    def _item_timeout(self, settings: Settings, numbers: QueueNumbers) -> float:
        timeout: float = self._numbers(settings, numbers)["item_timeout_seconds"]
        if self.item_timeout_setting is not None:
            timeout = min(timeout, getattr(settings, self.item_timeout_setting))
        return timeout

    def scheduled_limits(
        self, settings: Settings, scheduled: Mapping[UUID, QueueNumbers], numbers: QueueNumbers | None = None
    ) -> LoopLimits:
        """`scheduled`: the numbers of all schedules of this queue. `numbers` defaults to those of its own schedule."""
        own = scheduled.get(self.schedule_id, QueueNumbers())
        return self.limits(settings, own if numbers is None else numbers, scheduled.values())

    def run(
        self,
        context: RunContext = Unwatched(),
        settings: Settings | None = None,
        db: DatabaseConnection | None = None,
        at_most: int | None = None,
        numbers: QueueNumbers | None = None,
    ) -> Summary:
        """`numbers` come from the schedule of this run; None: from the queue's own schedule.

        With `at_most` the run works on that many items at once, for one round, and leaves the shared batch size alone.
        """
        settings, db = settings or get_settings(), db or get_db_connection()
        with db.transaction() as connection:
            scheduled = scheduled_numbers(connection).get(self.name, {})
        limits, downstream = self.scheduled_limits(settings, scheduled, numbers), self._downstream(settings)
        if at_most is not None:
            limits = replace(limits, batch_size=at_most, adapts=False, concurrency=at_most, run_budget_seconds=0)
        if context.remaining_seconds < limits.longest_run_seconds:
            context.log(
                f"the schedule's timeout_seconds is too short: the run times out in {context.remaining_seconds:.0f} s, "
                f"but run_budget_seconds + item_timeout_seconds is {limits.longest_run_seconds:g} s"
            )
        with self.steps(settings) as steps:
            actor = f"system:{settings.scheduler_system_user_id or self.name}"
            return JobLoop(db, self.name, self.table, steps, limits, context, downstream, actor).run()

    def _downstream(self, settings: Settings) -> Downstream | None:
        after = queues.get(self.downstream) if self.downstream else None
        return None if after is None else Downstream(after.table, settings.workflow_backpressure_depth)


def always(steps: Steps[K]) -> OpenSteps[K]:
    """For steps that open nothing."""
    return lambda settings: nullcontext(steps)


class Queues:
    """Every queue of this process, in the order of the pipeline."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue[Any]] = {}

    def register(self, queue: Queue[K]) -> Queue[K]:
        if self._queues.get(queue.name, queue) is not queue:
            raise ConfigurationError(f"queue {queue.name!r} is registered twice")
        self._queues[queue.name] = queue
        return queue

    def get(self, name: str) -> Queue[Any] | None:
        return self._queues.get(name)

    def find(self, name: str) -> Queue[Any]:
        """By name or job id; raises InvalidInput with the known names."""
        for queue in self._queues.values():
            if name in (queue.name, queue.job_id):
                return queue
        known = ", ".join(self._queues)
        raise InvalidInput(Problem("queue", f"unknown queue {name!r} (known: {known})"))

    def all(self) -> list[Queue[Any]]:
        return list(self._queues.values())


queues = Queues()
