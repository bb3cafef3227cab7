"""The program of a child process that runs a handler of this installation: as our registry finds it."""

from enhanced_scheduler import child
from enhanced_scheduler.jobs import JobDefinition
from services.jobs.registry import default_registry


def main(parent: int) -> None:
    child.main(parent, _load, _find)


def _load(modules: list[str]) -> None:
    default_registry.load_modules(",".join(modules))


def _find(job_type: str) -> JobDefinition:
    return default_registry.get_or_refusal(job_type)
