"""`manage.py job …`: call a handler now, in this process or a child of it. Needs neither a schedule nor a server."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

import typer
from rich.console import Console

from config import get_settings
from enhanced_scheduler.calling import call_handler
from enhanced_scheduler.context import ExecutionContext, LogLine, ProgressMade
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.results import JobResult
from enhanced_scheduler.statuses import Cause, ExecutionStatus
from services.cli.json_input import json_value
from services.cli.output import FAILED, AsJson, console, error_console, json_text, print_json
from services.engine.isolation import run_isolated
from services.errors import InvalidInput, Problem, UnknownJobType
from services.jobs import JobRegistry, default_registry
from services.jobs.users import load_users_jobs

GRACE_SECONDS = 0.5
OWN_COMMANDS = {"cookie_scan": "manage.py scan DOMAIN", "workflow": "manage.py queue --help"}

app = typer.Typer(no_args_is_help=True, help="Call the handlers of job types.")


@app.callback()
def _group() -> None:
    """Without it, a Typer with a single command would have no `run`."""


@app.command("run")
def run(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="Built in, or of your own (JOB_MODULES).")],
    config: Annotated[str, typer.Option("--config", "-c", help="job_config as JSON.")] = "{}",
    domain: Annotated[str, typer.Option(help="The schedule's domain, as the handler sees it.")] = "example.com",
    attempt: Annotated[int, typer.Option(min=1, help="Which attempt the handler sees.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.001, help="Timeout in seconds.")] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Call the handler of a job type now and show its log, its progress and its result. Nothing is stored.

    The exit code is 0 only on success. Effects of the handler are real.

    Examples:

      manage.py job run nightly_report --config '{"customer": "anna"}'

      manage.py job run http_request --config '{"url": "https://example.com"}' --json
    """
    load_users_jobs(get_settings())
    definition = _definition(default_registry, job_type, given := _object(config))
    out = error_console()
    facts = _facts(job_type, given, domain, attempt, timeout)
    context = ExecutionContext.from_wire(facts, _Shown(out))
    context.begin()
    result = _call(definition, context)
    seconds = timeout - context.remaining_seconds
    if as_json:
        print_json({**result.to_wire(), "details": {**result.details, **context.trace()}, "duration_seconds": seconds})
    else:
        _print(result, seconds)
    if result.status is not ExecutionStatus.SUCCESS:
        raise typer.Exit(FAILED)


def _definition(registry: JobRegistry, job_type: str, job_config: dict[str, Any]) -> JobDefinition:
    if job_type in OWN_COMMANDS:
        raise InvalidInput(Problem("type", f"{job_type} needs its tables; use {OWN_COMMANDS[job_type]}"))
    try:
        definition = registry.get(job_type)
    except UnknownJobType as error:
        raise InvalidInput(Problem("type", str(error))) from None
    if problems := registry.check_config(job_type, job_config):
        raise InvalidInput(*problems)
    return definition


def _object(text: str) -> dict[str, Any]:
    value = json_value("--config", text)
    if not isinstance(value, dict):
        raise InvalidInput(Problem("--config", "must be a JSON object"))
    return value


def _facts(job_type: str, config: dict[str, Any], domain: str, attempt: int, timeout: float) -> dict[str, Any]:
    execution_id = str(uuid4())
    return {
        "execution_id": execution_id,
        "schedule_id": None,
        "job_id": job_type,
        "job_type": job_type,
        "domain": domain,
        "domain_config_id": str(UUID(int=0)),
        "job_config": config,
        "scheduled_for": datetime.now(UTC).isoformat(),
        "attempt": attempt,
        "cause": Cause.MANUAL,
        "fencing_token": 0,
        "instance_id": get_settings().instance_id,
        "timeout_seconds": timeout,
        "begun_at": None,
    }


def _call(definition: JobDefinition, context: ExecutionContext) -> JobResult:
    if definition.isolation_of(context.job_config) == "process":
        return run_isolated(definition, context, default_registry.modules, GRACE_SECONDS)
    return call_handler(definition, context)


class _Shown:
    """Prints what the handler says, as it says it; what it logs with `logging` has its level before it."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def hear(self, line: LogLine, *, kept: bool) -> None:
        self._out.print(line.stamped if kept else f"{line.level} {line.text}", style="dim")

    def see(self, progress: ProgressMade) -> None:
        done, total = progress
        self._out.print(f"progress: {done:g}" + ("" if total is None else f" of {total:g}"), style="dim")


def _print(result: JobResult, seconds: float) -> None:
    why = result.error_message or result.reason
    console().print(f"{result.status} after {seconds:.3g} s" + (f": {why}" if why else ""))
    if result.status is ExecutionStatus.FAILED:
        console().print("a replica would retry it" if result.retryable else "a replica would not retry it")
        if trace := (result.error_details or {}).get("traceback"):
            error_console().print(trace)
    if "result" in result.details:
        console().print(json_text(result.details["result"], indent=2))
