"""The registry of job types: which handler runs a job type, and the model of its configuration.

A handler registers itself when its module is imported: `@job("report", config_model=ReportConfig)`. Modules are
imported by name: users' modules by JOB_MODULES, a built-in one when its job type is first requested. The core knows
only the names of the built-in job types and imports none of them.
"""

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from services.checks.model_errors import reason_of
from services.errors import ConfigurationError, Problem, UnknownJobType
from services.jobs.containment import Raised, contained
from services.jobs.context import ExecutionContext
from services.jobs.results import PermanentFailure

# Job type -> the module that registers its handler.
BUILT_IN_MODULES = {
    "celery_task": "services.job_types.celery_task",
    "cookie_scan": "services.job_types.cookie_scan",
    "http_request": "services.job_types.http_request",
    "workflow": "services.job_types.workflow",
}
BUILT_IN_JOB_TYPES = frozenset(BUILT_IN_MODULES)
ISOLATION_KEY = "isolation"  # reserved in every job_config; never reaches the handler's model

Isolation = Literal["thread", "process"]
Handler = Callable[[ExecutionContext, Any], Mapping[str, Any] | None]
H = TypeVar("H", bound=Handler)
Spelling = Callable[[Mapping[str, Any]], dict[str, Any]]
Labels = Callable[[Mapping[str, Any], Mapping[str, Any] | None], Collection[str]]
Offers = Callable[[], Collection[str]]
Missing = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """One job type: its handler and how to run it."""

    name: str
    handler: Handler
    config_model: type[BaseModel] | None = None
    isolation: Isolation = "thread"
    one_spelling: Spelling = dict  # of a valid configuration: as it is stored
    domain_is_host: bool = False  # the schedule's `domain` has to be a host name
    labels: Labels | None = None  # what a replica needs besides the handler, by job_config and scan profile
    offers: Offers = tuple  # the labels that this process can serve
    missing: Missing = lambda: None  # what has to be installed before this process can run it; None: nothing

    def isolation_of(self, job_config: Mapping[str, Any]) -> Isolation:
        """The configuration may ask for the other kind; a wrong word is refused by `parse_config`."""
        asked = job_config.get(ISOLATION_KEY, self.isolation)
        return asked if asked in get_args(Isolation) else self.isolation

    def problems(self, job_config: Mapping[str, Any]) -> list[Problem]:
        asked = job_config.get(ISOLATION_KEY, self.isolation)
        problems = []
        if asked not in get_args(Isolation):
            problems.append(Problem("job_config.isolation", f"must be 'thread' or 'process', got {asked!r}"))
        if self.config_model is not None:
            try:
                self.config_model.model_validate(_without_isolation(job_config))
            except ValidationError as error:
                problems += _friendly(error)
        return problems

    def parse_config(self, job_config: Mapping[str, Any]) -> Any:
        """The handler's argument: its model, or a plain dict. An invalid configuration is a permanent failure."""
        if problems := self.problems(job_config):
            raise PermanentFailure("; ".join(str(problem) for problem in problems))
        plain = _without_isolation(job_config)
        return plain if self.config_model is None else self.config_model.model_validate(plain)


class JobRegistry:
    """`known` are job types without a handler here; `modules` are loaded when their job type is first requested."""

    def __init__(self, known: Collection[str] = (), modules: Mapping[str, str] = MappingProxyType({})) -> None:
        self._known = frozenset(known) | modules.keys()
        self._unloaded = dict(modules)
        self._definitions: dict[str, JobDefinition] = {}
        self._modules: list[str] = []

    def job(
        self,
        name: str,
        config_model: type[BaseModel] | None = None,
        isolation: Isolation = "thread",
        one_spelling: Spelling = dict,
        domain_is_host: bool = False,
        labels: Labels | None = None,
        offers: Offers = tuple,
        missing: Missing = lambda: None,
    ) -> Callable[[H], H]:
        """Decorator: register a handler under this name."""

        def register(handler: H) -> H:
            policies = (isolation, one_spelling, domain_is_host, labels, offers, missing)
            self.register(JobDefinition(name, handler, config_model, *policies))
            return handler

        return register

    def register(self, definition: JobDefinition) -> None:
        if inspect.iscoroutinefunction(definition.handler):
            raise ConfigurationError(
                f"job type {definition.name!r}: {_where(definition)} is async; use a plain function"
            )
        former = self._registered_by(definition.name)
        if former not in (None, definition.handler.__module__, _where(definition)):
            raise ConfigurationError(
                f"job type {definition.name!r} is registered twice: by {former} and by {_where(definition)}"
            )
        self._definitions[definition.name] = definition

    def job_types(self) -> frozenset[str]:
        return self._known | self._definitions.keys()

    def handled(self) -> frozenset[str]:
        """Job types that this process can run."""
        return frozenset(self._definitions.keys() | self._unloaded.keys()) - self.missing().keys()

    def missing(self) -> dict[str, str]:
        """Job types that this process knows and cannot run: what has to be installed first."""
        reasons = {name: definition.missing() for name, definition in list(self._definitions.items())}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def labels_of(self, job_type: str) -> Labels | None:
        definition = self._definitions.get(job_type)
        return None if definition is None else definition.labels

    def offers(self) -> frozenset[str]:
        """The labels that this process can serve, whichever job type needs them."""
        return frozenset(
            label
            for definition in self._definitions.values()
            if definition.missing() is None
            for label in definition.offers()
        )

    def load_built_in(self) -> None:
        """Import every built-in handler now; a broken one ends a replica at its start, not at the first fire."""
        for job_type in list(self._unloaded):
            self._load(job_type)

    @property
    def modules(self) -> tuple[str, ...]:
        """Users' modules that were loaded: a child process has to load them, too."""
        return tuple(self._modules)

    def get(self, job_type: str) -> JobDefinition:
        self._load(job_type)
        if definition := self._definitions.get(job_type):
            return definition
        if job_type in self._known:
            return _refusing(job_type, f"job type {job_type!r} has no handler in this version")
        raise UnknownJobType(job_type, self.job_types())

    def get_or_refusal(self, job_type: str) -> JobDefinition:
        """For running: a row may name a type that this replica does not know; its execution fails permanently."""
        try:
            return self.get(job_type)
        except UnknownJobType as error:
            return _refusing(job_type, str(error))

    def check_config(self, job_type: str, job_config: Mapping[str, Any]) -> list[Problem]:
        """Every problem of a configuration; empty if it is valid."""
        return self.get(job_type).problems(job_config)

    def load_modules(self, names: str) -> None:
        """Import users' modules, "a.b,c.d", so that their handlers register themselves."""
        for name in filter(None, (part.strip() for part in names.split(","))):
            match contained(lambda name=name: importlib.import_module(name)):  # type: ignore[misc]
                case Raised(KeyboardInterrupt() as error):
                    raise error
                case Raised(error):
                    cause = _why_not_imported(name, error)
                    raise ConfigurationError(f"JOB_MODULES: {name!r} cannot be imported: {cause}") from error
            if name not in self._modules:
                self._modules.append(name)

    def _registered_by(self, job_type: str) -> str | None:
        """The handler's place, or the module that will bring it."""
        former = self._definitions.get(job_type)
        return self._unloaded.get(job_type) if former is None else _where(former)

    def _load(self, job_type: str) -> None:
        if module := self._unloaded.get(job_type):
            importlib.import_module(module)  # in two threads at once: the second one waits for the first
            self._unloaded.pop(job_type, None)


def _why_not_imported(name: str, error: BaseException) -> str:
    """With the way out, where it is the name that is wrong and not the module."""
    path = PurePath(name)
    if len(path.parts) > 1 or path.suffix == ".py":
        return f"name it as `import` does: {path.stem}, and put its directory, {path.parent}, on the PYTHONPATH"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return "there is no such module beside manage.py, on the PYTHONPATH or among the installed packages"
    return f"{type(error).__name__}: {error}"


def _without_isolation(job_config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job_config.items() if name != ISOLATION_KEY}


def _friendly(error: ValidationError) -> list[Problem]:
    return [
        Problem(
            ".".join(("job_config", *map(str, problem["loc"]))), reason_of(problem["msg"], "is not a field of this job")
        )
        for problem in error.errors(include_url=False, include_input=False)
    ]


def _where(definition: JobDefinition) -> str:
    handler = definition.handler
    return f"{handler.__module__}.{getattr(handler, '__qualname__', repr(handler))}"


def _refusing(job_type: str, reason: str) -> JobDefinition:
    def refuse(_context: ExecutionContext, _config: Any) -> None:
        raise PermanentFailure(reason)

    return JobDefinition(job_type, refuse)


default_registry = JobRegistry(modules=BUILT_IN_MODULES)
job = default_registry.job
