"""The registry of job types: which handler runs a job type, and the model of its configuration.

A handler registers itself when its module is imported: `@job("report", config_model=ReportConfig)`. Modules are
imported by name: users' modules by JOB_MODULES, a built-in one when its job type is first requested. The core knows
only the names of the built-in job types and imports none of them.
"""

import importlib
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from enhanced_scheduler import jobs
from enhanced_scheduler.extras import how_to_install, is_installed
from enhanced_scheduler.jobs import H, Isolation, JobDefinition, Labels, NotLoaded, Offers, Spelling
from services.errors import ConfigurationError, Problem, UnknownJobType

# Job type -> the module that registers its handler.
BUILT_IN_MODULES = {
    "celery_task": "services.job_types.celery_task",
    "cookie_scan": "services.job_types.cookie_scan",
    "http_request": "services.job_types.http_request",
    "workflow": "services.job_types.workflow",
}
BUILT_IN_JOB_TYPES = frozenset(BUILT_IN_MODULES)
EXTRAS = {"celery_task": "celery", "cookie_scan": "scan", "workflow": "workflows"}  # optional parts of the distribution


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
    ) -> Callable[[H], H]:
        """Decorator: register a handler under this name."""

        def register(handler: H) -> H:
            self.register(
                JobDefinition(name, handler, config_model, isolation, one_spelling, domain_is_host, labels, offers)
            )
            return handler

        return register

    def register(self, definition: JobDefinition) -> None:
        if refusal := definition.refusal():
            raise ConfigurationError(refusal)
        former = self._registered_by(definition.name)
        if former not in (None, definition.module, definition.where):
            raise ConfigurationError(
                f"job type {definition.name!r} is registered twice: by {former} and by {definition.where}"
            )
        self._definitions[definition.name] = definition

    def forget(self, job_type: str) -> None:
        self._definitions.pop(job_type, None)

    def job_types(self) -> frozenset[str]:
        return self._known | self._definitions.keys()

    def handled(self) -> frozenset[str]:
        """Job types that this process can run."""
        return frozenset(self._definitions.keys() | self._unloaded.keys())

    def is_async(self, job_type: str, job_config: Mapping[str, Any]) -> bool:
        """Does this call run in the event loop?"""
        definition = self._definitions.get(job_type)
        return definition is not None and definition.is_async_with(job_config)

    def async_types(self) -> frozenset[str]:
        """Those whose calls run in the event loop, unless the configuration asks for a process."""
        return frozenset(name for name, each in self._definitions.items() if each.is_async_with({}))

    def labels_of(self, job_type: str) -> Labels | None:
        definition = self._definitions.get(job_type)
        return None if definition is None else definition.labels

    def offers(self) -> frozenset[str]:
        """The labels that this process can serve, whichever job type needs them."""
        return frozenset(label for definition in self._definitions.values() for label in definition.offers())

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
            return jobs.refusing(job_type, f"job type {job_type!r} has no handler in this version")
        extra = missing_extra(job_type)
        raise UnknownJobType(job_type, self.job_types(), None if extra is None else how_to_install(extra))

    def get_or_refusal(self, job_type: str) -> JobDefinition:
        """For running: a row may name a type that this replica does not know; its execution fails permanently."""
        try:
            return self.get(job_type)
        except UnknownJobType as error:
            return jobs.refusing(job_type, str(error))

    def check_config(self, job_type: str, job_config: Mapping[str, Any]) -> list[Problem]:
        """Every problem of a configuration; empty if it is valid."""
        return [Problem(field, reason) for field, reason in self.get(job_type).problems(job_config)]

    def load_modules(self, names: str) -> None:
        """Import users' modules, "a.b,c.d", so that their handlers register themselves."""
        for name in jobs.names_in(names):
            try:
                jobs.load_modules([name])
            except NotLoaded as error:
                raise ConfigurationError(str(error)) from error
            if name not in self._modules:
                self._modules.append(name)

    def _registered_by(self, job_type: str) -> str | None:
        """The handler's place, or the module that will bring it."""
        former = self._definitions.get(job_type)
        return self._unloaded.get(job_type) if former is None else former.where

    def _load(self, job_type: str) -> None:
        if module := self._unloaded.get(job_type):
            importlib.import_module(module)  # in two threads at once: the second one waits for the first
            self._unloaded.pop(job_type, None)


def missing_extra(job_type: str) -> str | None:
    """The optional part of the distribution that brings this built-in job type, if it is not installed."""
    extra = EXTRAS.get(job_type)
    return None if extra is None or is_installed(extra) else extra


default_registry = JobRegistry(
    modules={name: BUILT_IN_MODULES[name] for name in BUILT_IN_MODULES if not missing_extra(name)}
)
job = default_registry.job
jobs.listen(default_registry.register)  # users' modules declare with `from enhanced_scheduler import job`
