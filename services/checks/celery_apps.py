"""CELERY_APPS_<NAME>_…: the users' own Celery apps whose tasks jobs may call, each with its broker and its tasks.

A row names the app, never the broker: an address in `job_config` would be a password in the table, and a way for
everyone who can edit schedules to every host that a replica reaches. The tasks are an allow-list for the same reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import unquote, urlsplit

PREFIX, BROKER_URL, TASKS = "CELERY_APPS_", "_BROKER_URL", "_TASKS"
APP_NAME = r"[a-z][a-z0-9_]{0,39}"
SCHEMES = ("redis://", "rediss://", "redis+socket://", "amqp://", "amqps://")
# For people: variable -> (kind of value, meaning).
CELERY_APP_VARIABLES = {
    f"{PREFIX}<NAME>{BROKER_URL}": (
        "secret",
        f"broker of the Celery app that `celery_task` jobs call `<name>` (lower case): {', '.join(SCHEMES[:-1])} "
        f"or {SCHEMES[-1]}",
    ),
    f"{PREFIX}<NAME>{TASKS}": (
        "text",
        "tasks of this app that jobs may call: names or patterns such as `shop.tasks.*`, comma-separated; `*`: all",
    ),
}


@dataclass(frozen=True, slots=True)
class CeleryApp:
    name: str
    broker_url: str = field(repr=False)  # may hold a password
    tasks: tuple[str, ...]

    @property
    def secrets(self) -> frozenset[str]:
        """The broker's password, as it is written in the URL and as it is meant."""
        password = urlsplit(self.broker_url).password
        return frozenset() if not password else frozenset({password, unquote(password)})

    def refusal(self, task: str) -> str | None:
        """The reason why a job may not call this task; None when it may."""
        if any(fnmatchcase(task, pattern) for pattern in self.tasks):
            return None
        return f"{variable(self.name, TASKS)} allows {', '.join(self.tasks)} only, not {task}"


def variable(name: str, suffix: str) -> str:
    return f"{PREFIX}{name.upper()}{suffix}"


def is_celery_app_variable(name: str) -> bool:
    return name.upper().startswith(PREFIX)


def read_celery_apps(variables: Mapping[str, str]) -> tuple[dict[str, CeleryApp], list[str]]:
    """The apps by name, and every problem as one line without a value that may be secret."""
    found: dict[str, dict[str, str]] = {}
    problems = []
    for given, value in sorted(variables.items()):
        if not is_celery_app_variable(given):
            continue
        suffix = next((suffix for suffix in (BROKER_URL, TASKS) if given.endswith(suffix)), "")
        name = given.removeprefix(PREFIX).removesuffix(suffix).lower()
        if not suffix or not re.fullmatch(APP_NAME, name):
            problems.append(f"{given}: must be named {' or '.join(CELERY_APP_VARIABLES)}")
        else:
            found.setdefault(name, {})[suffix] = value
    apps = {}
    for name, values in found.items():
        problems += (reasons := _problems(name, values))
        if not reasons:
            apps[name] = CeleryApp(name, values[BROKER_URL], _patterns(values[TASKS]))
    return apps, problems


def _problems(name: str, values: Mapping[str, str]) -> list[str]:
    broker, tasks = variable(name, BROKER_URL), variable(name, TASKS)
    if BROKER_URL not in values:
        return [f"{tasks} is set, but {broker} is not: the app needs both"]
    if TASKS not in values:
        return [f"{broker} is set, but {tasks} is not: name the tasks that jobs may call, or `*` for all"]
    reasons = []
    if not values[BROKER_URL].startswith(SCHEMES):
        reasons.append(f"{broker}: must start with {', '.join(SCHEMES)}")
    elif not _is_address(values[BROKER_URL]):
        reasons.append(f"{broker}: is not a valid address; a password with / @ : # must be percent-encoded")
    if not _patterns(values[TASKS]):
        reasons.append(f"{tasks}: names no task")
    return reasons


def _is_address(url: str) -> bool:
    try:
        _ = urlsplit(url).port  # raises for an invalid port, such as a part of a password
        return True
    except ValueError:
        return False


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
