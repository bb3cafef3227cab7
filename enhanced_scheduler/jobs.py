"""Job types: `@job("report", config_model=ReportConfig)` declares a handler when its module is imported.

In a replica the registry (services/jobs/registry.py) listens to the declarations and may refuse one. In any other
program, such as the child process of a project or a test, they are only kept here.
"""

import importlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from enhanced_scheduler.containment import Raised, contained
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.imports import why_not_imported
from enhanced_scheduler.model_errors import reason_of
from enhanced_scheduler.results import PermanentFailure

if TYPE_CHECKING:  # a job type without a model needs no pydantic
    from pydantic import BaseModel

ISOLATION_KEY = "isolation"  # reserved in every job_config; never reaches the handler's model

Isolation = Literal["thread", "process"]
ISOLATIONS = get_args(Isolation)  # asked for each call
Returned = Mapping[str, Any] | None
Handler = Callable[[ExecutionContext, Any], Returned | Awaitable[Returned]]
H = TypeVar("H", bound=Handler)
Spelling = Callable[[Mapping[str, Any]], dict[str, Any]]
Labels = Callable[[Mapping[str, Any], Mapping[str, Any] | None], Collection[str]]
Offers = Callable[[], Collection[str]]
FieldProblem = tuple[str, str]  # field and reason


class NotLoaded(Exception):
    """A module of JOB_MODULES cannot be imported; the message says which and why."""


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """One job type: its handler and how to run it."""

    name: str
    handler: Handler
    config_model: "type[BaseModel] | None" = None
    isolation: Isolation = "thread"
    one_spelling: Spelling = dict  # of a valid configuration: as it is stored
    domain_is_host: bool = False  # the schedule's `domain` has to be a host name
    labels: Labels | None = None  # what a replica needs besides the handler, by job_config and scan profile
    offers: Offers = tuple  # the labels that this process can serve
    is_async: bool = field(init=False, default=False)  # replicas call it in their event loop

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", any(map(inspect.iscoroutinefunction, _callables(self.handler))))

    @property
    def module(self) -> str:
        return self.handler.__module__

    @property
    def where(self) -> str:
        return f"{self.module}.{getattr(self.handler, '__qualname__', repr(self.handler))}"

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.handler) or ""

    def config_schema(self) -> dict[str, Any] | None:
        """The JSON schema of its model; None: any configuration is accepted."""
        return None if self.config_model is None else self.config_model.model_json_schema()

    def isolation_of(self, job_config: Mapping[str, Any]) -> Isolation:
        """The configuration may ask for the other kind; a wrong word is refused by `parse_config`."""
        asked = job_config.get(ISOLATION_KEY, self.isolation)
        return asked if asked in ISOLATIONS else self.isolation

    def problems(self, job_config: Mapping[str, Any]) -> list[FieldProblem]:
        asked = job_config.get(ISOLATION_KEY, self.isolation)
        problems = []
        if asked not in ISOLATIONS:
            problems.append(("job_config.isolation", f"must be 'thread' or 'process', got {asked!r}"))
        if self.config_model is not None:
            problems += _problems_of(self.config_model, without_isolation(job_config))
        return problems

    def parse_config(self, job_config: Mapping[str, Any]) -> Any:
        """The handler's argument: its model, or a plain dict. An invalid configuration is a permanent failure."""
        if problems := self.problems(job_config):
            raise PermanentFailure("; ".join(f"{field}: {reason}" for field, reason in problems))
        plain = without_isolation(job_config)
        return plain if self.config_model is None else self.config_model.model_validate(plain)

    def is_async_with(self, job_config: Mapping[str, Any]) -> bool:
        """Does this call run in the replica's event loop?"""
        return self.is_async and self.isolation_of(job_config) == "thread"

    def refusal(self) -> str | None:
        """Why no program can run this; None if it can."""
        for candidate in _callables(self.handler):
            if inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate):
                return f"job type {self.name!r}: {self.where} is a generator function; write it without `yield`"
        return None


Listener = Callable[[JobDefinition], None]

_declared: dict[str, JobDefinition] = {}
_listeners: list[Listener] = []


def job(
    name: str,
    config_model: "type[BaseModel] | None" = None,
    isolation: Isolation = "thread",
    one_spelling: Spelling = dict,
    domain_is_host: bool = False,
    labels: Labels | None = None,
    offers: Offers = tuple,
) -> Callable[[H], H]:
    """Decorator: this function runs the job type `name`."""

    def declare(handler: H) -> H:
        definition = JobDefinition(name, handler, config_model, isolation, one_spelling, domain_is_host, labels, offers)
        for listener in _listeners:
            listener(definition)
        if not _listeners and (refusal := definition.refusal() or _refused_beside(definition)):
            raise ValueError(refusal)
        _declared[name] = definition
        return handler

    return declare


def listen(listener: Listener) -> None:
    """Hand every declaration over, the earlier ones included."""
    for definition in list(_declared.values()):
        listener(definition)
    _listeners.append(listener)


def declared() -> Mapping[str, JobDefinition]:
    return _declared


def definition_of(handler: Handler) -> JobDefinition | None:
    """The declaration of this function, if it has one."""
    return next((definition for definition in _declared.values() if definition.handler is handler), None)


def find_declared(job_type: str) -> JobDefinition:
    """The declaration, or one whose handler fails and says that there is none."""
    if found := _declared.get(job_type):
        return found
    known = ", ".join(sorted(_declared)) or "none"
    return refusing(job_type, f"no job type {job_type!r} is registered (known: {known})")


def refusing(job_type: str, reason: str) -> JobDefinition:
    def refuse(_context: ExecutionContext, _config: Any) -> None:
        raise PermanentFailure(reason)

    return JobDefinition(job_type, refuse)


def load_modules(names: Iterable[str]) -> None:
    """Import modules by name, so that their handlers declare themselves."""
    for name in names:
        match contained(lambda name=name: importlib.import_module(name)):  # type: ignore[misc]
            case Raised(KeyboardInterrupt() as error):
                raise error
            case Raised(error):
                cause = why_not_imported(name, error)
                raise NotLoaded(f"JOB_MODULES: {name!r} cannot be imported: {cause}") from error


def names_in(text: str) -> list[str]:
    """The names of "a.b, c.d"."""
    return [name for part in text.split(",") if (name := part.strip())]


def without_isolation(job_config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job_config.items() if name != ISOLATION_KEY}


def _callables(handler: Handler) -> tuple[Any, Any]:
    return handler, getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function


def _problems_of(model: "type[BaseModel]", job_config: Mapping[str, Any]) -> list[FieldProblem]:
    from pydantic import ValidationError

    try:
        model.model_validate(job_config)
    except ValidationError as error:
        return [
            (
                ".".join(("job_config", *map(str, problem["loc"]))),
                reason_of(problem["msg"], "is not a field of this job"),
            )
            for problem in error.errors(include_url=False, include_input=False)
        ]
    return []


def _refused_beside(definition: JobDefinition) -> str | None:
    former = _declared.get(definition.name)
    if former is None or former.where == definition.where:
        return None
    return f"job type {definition.name!r} is registered twice: by {former.where} and by {definition.where}"
