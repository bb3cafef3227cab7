"""A test kit for jobs: call a handler without a scheduler, compute fires, run a real scheduler beside a test.

`run_job` calls the handler in the test's own thread, by the code that a replica uses. `fires_between` asks the
application, in a process of its own. The fixture `scheduler` (pytest_plugin.py) is a `RunningScheduler`.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any
from uuid import UUID, uuid4

from enhanced_scheduler import application, jobs
from enhanced_scheduler.calling import call_handler
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.jobs import Handler, JobDefinition
from enhanced_scheduler.statuses import Cause, ExecutionStatus
from enhanced_scheduler.virtual_clock import Beside, Clock
from enhanced_scheduler.virtual_clock import ClockStands as ClockStands

NIGHT = datetime(2027, 3, 1, 2, 0, tzinfo=UTC)
SCHEDULE_ID = UUID("11111111-2222-3333-4444-555555555555")
COMMAND_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """What a replica would record about this call."""

    status: ExecutionStatus
    result: dict[str, Any] | None  # what the handler returned, as JSON; None: nothing
    log: list[str]  # without time stamps
    progress: dict[str, float | None] | None  # `done` and `total`
    error_message: str | None
    error_details: Mapping[str, Any] | None
    would_be_retried: bool  # if the schedule allows another attempt
    retry_after_seconds: float | None
    reason: str | None  # why it was skipped

    @property
    def succeeded(self) -> bool:
        return self.status is ExecutionStatus.SUCCESS


class CommandFailed(RuntimeError):
    """A command of the scheduler failed; the message is the command's."""


def run_job(
    handler: Handler,
    config: Mapping[str, Any] | None = None,
    *,
    scheduled_for: datetime = NIGHT,
    attempt: int = 1,
    cause: Cause = Cause.SCHEDULE,
    domain: str = "example.com",
    timeout_seconds: float = 60.0,
    cancel: str | None = None,
    draining: bool = False,
) -> JobRun:
    """Call a handler with this job_config. A coroutine, such as an async test, may call it, too.

    `cancel`: it has to stop from its first `context.check()` on, a coroutine by a CancelledError at its first wait.
    """
    definition = jobs.definition_of(handler) or JobDefinition(
        getattr(handler, "__name__", type(handler).__name__), handler
    )
    if refusal := definition.refusal():
        raise ValueError(refusal)
    context = ExecutionContext(
        execution_id=uuid4(),
        schedule_id=SCHEDULE_ID,
        job_id=definition.name,
        job_type=definition.name,
        domain=domain,
        domain_config_id=SCHEDULE_ID,
        job_config=dict(config or {}),
        scheduled_for=scheduled_for,
        attempt=attempt,
        cause=cause,
        fencing_token=attempt,
        instance_id="test",
        timeout_seconds=timeout_seconds,
    )
    if cancel is not None:
        context.cancel(cancel)
    if draining:
        context.drain()
    context.begin()
    result = call_handler(definition, context)
    kept = {**result.details, **context.trace()}
    return JobRun(
        status=result.status,
        result=kept.get("result"),
        log=[line.partition(" ")[2] for line in kept.get("log", ())],
        progress=kept.get("progress"),
        error_message=result.error_message,
        error_details=result.error_details,
        would_be_retried=result.retryable,
        retry_after_seconds=result.retry_after_seconds,
        reason=result.reason,
    )


def fires_between(schedule: str | Mapping[str, Any], start: datetime, end: datetime) -> list[datetime]:
    """Every fire t with start <= t < end. A schedule is its timing in words, or its fields as they are saved."""
    fields: dict[str, Any] = {"when": schedule} if isinstance(schedule, str) else dict(schedule)
    _require_known(fields)
    words = ["schedule", "fires", "--from", start.isoformat(), "--to", end.isoformat()]
    for name in ("when", "frequency", "timezone", "start_at", "end_at"):
        if (value := fields.get(name)) is not None:
            words += [f"--{name.replace('_', '-')}", value.isoformat() if isinstance(value, datetime) else str(value)]
    if "time_config" in fields:
        words += ["--time-config", json.dumps(dict(fields["time_config"]))]
    return [datetime.fromisoformat(fire) for fire in command(*words, "--json")["fires"]]


def _require_known(fields: Iterable[str]) -> None:
    """A misspelt `timezone` would give the fires of another one."""
    from enhanced_scheduler.client import shapes  # every run of pytest imports this module, few need a client

    known = {"when", *shapes.NewSchedule.__annotations__, *shapes.ScheduleOut.__annotations__}
    for name in fields:
        if name not in known:
            meant = "".join(f", did you mean {near!r}?" for near in get_close_matches(name, known, 1))
            raise CommandFailed(f"{name}: is not a field of a schedule{meant}")


def command(*words: str) -> Any:
    """Run `enhanced-scheduler …` and read the JSON that it prints. A failed execution is an answer, too."""
    done = subprocess.run(  # noqa: S603 - our own program
        application.command("manage.py", *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if not done.stdout.strip():
        raise CommandFailed(done.stderr.strip())
    return json.loads(done.stdout)


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """A replica on servers of its own, its clock, and what a test does with them."""

    clock: Clock
    _beside: Beside
    _made: list[str] = field(default_factory=list)

    def run(self, job_type: str, config: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Run a job type once, now; returns its last execution, retries included. `fields` are the schedule's."""
        name = f"{job_type}-{uuid4()}"
        self.add(name, "once 2199-01-01T00:00", job_type, config, **fields)
        return dict(self.command("schedule", "run", name, "--wait", "--json"))

    def add(
        self, name: str, when: str, job_type: str, config: Mapping[str, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Create a schedule, `when="every 1s"`; returns it."""
        words = ["schedule", "add", name, "--name", name, "--when", when, "--job-type", job_type]
        words += ["--job-config", json.dumps(dict(config or {}))]
        for name_of, value in fields.items():
            words += ["--set", f"{name_of}={value if isinstance(value, str) else json.dumps(value)}"]
        added = dict(self.command(*words, "--json"))
        self._made.append(name)
        return added

    @contextmanager
    def only_for_now(self) -> Iterator[None]:
        """Schedules added meanwhile are removed at the end: later moves of the clock must not run them."""
        before = len(self._made)
        yield
        if made := self._made[before:]:
            del self._made[before:]
            self._beside.ask(remove=made)

    def executions(self, name: str) -> list[dict[str, Any]]:
        """The newest first."""
        return list(self.command("executions", "--schedule", name, "--json")["items"])

    def command(self, *words: str) -> Any:
        """What `enhanced-scheduler WORDS` prints as JSON, without the start of a process."""
        done = self._beside.ask(command=words)
        if not done["out"].strip():
            raise CommandFailed(done["err"].strip())
        return json.loads(done["out"])
