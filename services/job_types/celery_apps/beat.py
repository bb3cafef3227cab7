"""Reads the beat schedule of a user's Celery app: each entry becomes a schedule of type `celery_task`, or says why not.

The app is imported and configured as beat would do it; nothing is sent. A task keeps the queue that the app's routes
give it. An option that a schedule cannot express is reported as a problem, never silently dropped.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar
from uuid import UUID, uuid5

from enhanced_scheduler.containment import Raised, contained
from services.checks.celery_apps import BROKER_URL, TASKS, variable
from services.errors import InvalidInput, Problem
from services.job_types.celery_apps.timing import timing_of
from services.schedules.spec import EXTERNAL_IDS

T = TypeVar("T")
TAG = "celery-beat"
CARRIED = ("queue", "expires", "priority")
# How a message travels, not whether, when or where: our own way of sending replaces them.
OF_THE_SENDER = ("retry", "retry_policy", "delivery_mode", "compression", "serializer", "ignore_result", "mandatory")
ROUTED = ("exchange", "routing_key", "exchange_type")


@dataclass(frozen=True, slots=True)
class BeatEntry:
    """One entry; `schedule` is None when it has problems."""

    name: str
    task: str | None = None
    schedule: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BeatSchedule:
    entries: tuple[BeatEntry, ...]
    notes: tuple[str, ...]  # about the app as a whole

    @property
    def tasks(self) -> list[str]:
        return sorted({entry.task for entry in self.entries if entry.task and entry.schedule})


def load_app(target: str) -> Any:
    """`module:app`, found by the search path of `project_first`."""
    from celery import Celery

    module, colon, attribute = target.partition(":")
    if not module or not colon or not attribute:
        raise InvalidInput(Problem("app", f"must be MODULE:app, such as shop.celery:app, got {target!r}"))
    app = _users(lambda: getattr(import_module(module), attribute), f"{target} cannot be loaded")
    if not isinstance(app, Celery):
        raise InvalidInput(Problem("app", f"{target} is a {type(app).__name__}, not a Celery app"))
    _users(lambda: (app.loader.import_default_modules(), app.finalize()), f"{target} cannot be configured")
    return app


def read_beat_schedule(app: Any, name: str, timezone: str | None) -> BeatSchedule:
    """`name` is the app's in CELERY_APPS_<NAME>_…; `timezone` replaces the one of its configuration."""
    zone = timezone or _timezone(app)
    _refuse_what_no_worker_could_read(app, name)
    given: Mapping[str, Any] = app.conf.beat_schedule or {}
    entries = [_read(app, name, zone, str(key), value) for key, value in given.items()]
    return BeatSchedule(tuple(entries), tuple(_notes(app)))


def _users(call: Callable[[], T], failed: str) -> T:
    """Runs code of the user's app; its errors are the user's to fix."""
    match contained(call):
        case Raised(KeyboardInterrupt() as error):
            raise error
        case Raised(error):
            reason = f"{failed}: {type(error).__name__}: {' '.join(str(error).split())}"
            raise InvalidInput(Problem("app", reason)) from error
        case returned:
            return returned.value


def _timezone(app: Any) -> str:
    zone = app.conf.timezone
    if not zone and app.conf.enable_utc:
        return "UTC"
    found = zone if isinstance(zone, str) else getattr(zone, "key", None)
    if not found:
        raise InvalidInput(
            Problem("timezone", "the app has none by name (beat uses that of its machine): name it with --timezone")
        )
    return str(found)


def _refuse_what_no_worker_could_read(app: Any, name: str) -> None:
    conf = app.conf
    if conf.accept_content and "json" not in {str(kind).removeprefix("application/") for kind in conf.accept_content}:
        raise InvalidInput(Problem("accept_content", "the app's workers refuse JSON, which our messages are"))
    if prefix := dict(conf.broker_transport_options or {}).get("global_keyprefix"):
        reason = f"the app's queues have the prefix {prefix!r} in Redis, which {variable(name, BROKER_URL)} cannot name"
        raise InvalidInput(Problem("broker_transport_options", reason))


def _notes(app: Any) -> Iterator[str]:
    scheduler = str(app.conf.beat_scheduler)
    if not scheduler.startswith("celery.beat:"):
        yield f"beat_scheduler {scheduler} may keep further entries elsewhere; only beat_schedule is read"
    has_results = app.conf.result_backend and app.conf.result_expires
    cleans = contained(lambda: bool(has_results) and not app.backend.supports_autoexpire)
    if not isinstance(cleans, Raised) and cleans.value:
        yield "beat also runs celery.backend_cleanup, because the result backend does not expire results by itself"


def _read(app: Any, app_name: str, zone: str, name: str, value: Any) -> BeatEntry:
    from celery.beat import ScheduleEntry

    fields = {**value, "name": name, "app": app} if isinstance(value, Mapping) else None
    read = contained(lambda: ScheduleEntry(**fields) if fields is not None else value)
    if isinstance(read, Raised):
        return BeatEntry(name, problems=(f"beat itself could not read it: {read.error}",))
    entry = read.value
    task = getattr(entry, "task", None)
    if not isinstance(task, str) or not task:
        return BeatEntry(name, problems=("names no task",))
    options = {**_options_of_the_task(app, task), **dict(entry.options)}
    problems: list[str] = []
    timing = _or_problem(lambda: timing_of(entry.schedule), "schedule", problems)
    config: dict[str, Any] = {"app": app_name, "task": task}
    config["args"] = _or_problem(lambda: plain(list(entry.args or ())), "args", problems)
    config["kwargs"] = _or_problem(lambda: plain(dict(entry.kwargs or {})), "kwargs", problems)
    config["queue"] = _or_problem(lambda: _queue(app, task, entry, options), "queue", problems)
    expires = _or_problem(lambda: _expires_seconds(options.get("expires")), "expires", problems)
    config |= {"expires_seconds": expires} if expires is not None else {}
    config |= {"priority": options["priority"]} if options.get("priority") is not None else {}
    unknown = [each for each in entry.options if each not in (*CARRIED, *OF_THE_SENDER, *ROUTED)]
    problems += [f"option {each!r} cannot be carried over" for each in unknown]
    if problems or timing is None:
        return BeatEntry(name, task, problems=tuple(problems))
    notes = tuple(f"option {each!r} is left to our sender" for each in entry.options if each in OF_THE_SENDER)
    return BeatEntry(name, task, _definition(app_name, name, zone, timing, config), notes=notes)


def _definition(
    app_name: str, name: str, zone: str, timing: tuple[str, dict[str, Any]], config: dict[str, Any]
) -> dict[str, Any]:
    frequency, time_config = timing
    return {
        "schedule_id": schedule_id_of(app_name, name),
        "name": name,
        "domain": name,
        "job_type": "celery_task",
        "job_config": config,
        "frequency": frequency,
        "time_config": time_config,
        "timezone": zone,
        "tags": [TAG, tag_of(app_name)],
    }


def schedule_id_of(app_name: str, entry_name: str) -> UUID:
    """The same at every import: an entry that comes again changes its schedule, even if that was renamed here."""
    return uuid5(EXTERNAL_IDS, f"{TAG}/{app_name}/{entry_name}")


def tag_of(app_name: str) -> str:
    return f"{TAG}:{app_name}"


def variables_of(app_name: str, tasks: list[str]) -> list[str]:
    """What the replicas need in their environment, without the address: it may hold a password."""
    return [f"{variable(app_name, BROKER_URL)}=…", f"{variable(app_name, TASKS)}={','.join(tasks)}"]


def _options_of_the_task(app: Any, name: str) -> dict[str, Any]:
    """What `apply_async` adds to a call of a task that says so in its decorator."""
    task = app.tasks.get(name)
    found = {} if task is None else {each: getattr(task, each, None) for each in (*CARRIED, *ROUTED)}
    return {each: value for each, value in found.items() if value is not None}


def _or_problem(read: Callable[[], T], field: str, problems: list[str]) -> T | None:
    match contained(read):
        case Raised(KeyboardInterrupt() as error):
            raise error
        case Raised(error):
            problems.append(f"{field}: {error}")
            return None
        case returned:
            return returned.value


def _queue(app: Any, task: str, entry: Any, options: Mapping[str, Any]) -> str:
    """The name of the queue to which the app's own routes would lead the message."""
    wanted = {each: options[each] for each in ("queue", *ROUTED) if options.get(each) is not None}
    route = app.amqp.router.route(wanted, task, entry.args, entry.kwargs, app.tasks.get(task))
    if by := [each for each in ROUTED if route.get(each)]:
        raise ValueError(f"is reached by {', '.join(by)}; name the queue itself")
    queue = route["queue"]
    if queue.exchange is not None and queue.exchange.type == "fanout":
        raise ValueError(f"{queue.name!r} is broadcast to all workers")
    return str(queue.name)


def _expires_seconds(expires: Any) -> float | None:
    if expires is None:
        return None
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise ValueError(f"must be a number of seconds after the fire, got {expires!r}")
    return expires


def plain(value: Any) -> Any:
    """The same as JSON would give it to the task; ValueError for what JSON would change or refuse."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if value == value and abs(value) != float("inf"):
            return value
        case list() | tuple():
            return [plain(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        case _:
            raise ValueError(f"{type(value).__name__} {value!r} is not JSON")
