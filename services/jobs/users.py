"""The users' own job types: modules of this interpreter (JOB_MODULES), or of a project with its own (JOB_PROJECT)."""

import logging

from config import Settings
from services.jobs.own_names import mistaken
from services.jobs.project import JobProject, ask_again, jobs_of
from services.jobs.registry import JobRegistry, default_registry

logger = logging.getLogger(__name__)


def load_users_jobs(settings: Settings, registry: JobRegistry = default_registry) -> None:
    """Register them; raises ConfigurationError with the reason when a module cannot be imported."""
    project = JobProject.from_settings(settings)
    if project is None:
        registry.load_modules(settings.job_modules)
        for mistake in mistaken(registry.modules):
            logger.warning("%s", mistake, extra={"event": "job_module_uses_ours"})
        return
    for definition in jobs_of(project):
        registry.register(definition)


def ask_project_again(settings: Settings, registry: JobRegistry = default_registry) -> None:
    """The project's code has changed. If it cannot be imported: raises ConfigurationError and keeps what it knows."""
    project = JobProject.from_settings(settings)
    if project is None:
        return
    former, present = jobs_of(project), ask_again(project)
    for definition in former:
        registry.forget(definition.name)
    for definition in present:
        registry.register(definition)
