"""The job types of a project with modules of its own, such as `services` or `config` (JOB_PROJECT).

Its handlers run in its own interpreter with its own search path, each call in a process of its own. There
`enhanced_scheduler` is this installation's, loaded from its file: both ends of the pipe are always of one version,
whatever the project has installed.

One more child of the project stays and answers: once which job types there are, then whether a job_config is valid.
Such a question may be asked while rows are locked, so a child that does not answer at once is ended; the questions
are refused until a new one has started.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

import enhanced_scheduler
from config import HOME, Settings
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.jobs import ISOLATION_KEY, FieldProblem, Isolation, JobDefinition, names_in, without_isolation
from enhanced_scheduler.results import JobFailed, PermanentFailure
from services.errors import ConfigurationError
from services.jobs.child_process import ChildProcess

SDK = Path(enhanced_scheduler.__file__)
ENVIRONMENTS = (".venv", "venv")
START_SECONDS = 60.0  # for the project's imports
ANSWER_SECONDS = 2.0
CHILD = """
import sys
if sys.version_info < (3, 11):
    sys.exit("JOB_PROJECT: %s is older than Python 3.11" % sys.executable)
from importlib.util import module_from_spec, spec_from_file_location
name = "enhanced_scheduler"
spec = spec_from_file_location(name, sys.argv[2])
sys.modules[name] = module_from_spec(spec)
sys.path[0] = sys.argv[3]
spec.loader.exec_module(sys.modules[name])
from enhanced_scheduler.child import main
main(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class JobProject:
    """A directory, the interpreter that runs its code, and its modules that declare jobs."""

    directory: Path
    python: Path
    modules: tuple[str, ...]

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        if settings.job_project is None:
            return None
        directory = (HOME / settings.job_project.expanduser()).resolve()
        if not directory.is_dir():
            raise ConfigurationError(f"JOB_PROJECT={str(directory)!r}: there is no such directory")
        chosen = settings.job_project_python
        python = _its_own(directory) if chosen is None else HOME / chosen.expanduser()
        if not os.access(python, os.X_OK):
            raise ConfigurationError(f"JOB_PROJECT_PYTHON={str(python)!r}: there is no such program")
        return cls(directory, python, tuple(names_in(settings.job_modules)))

    def child(self) -> ChildProcess:
        command = [str(self.python), "-c", CHILD, str(os.getpid()), str(SDK), str(self.directory)]
        return ChildProcess(command, self.directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectJob(JobDefinition):
    """As the project has announced it. It always runs in a process; only the project can check its job_config."""

    project: JobProject
    place: str
    text: str = field(repr=False)
    schema: Mapping[str, Any] | None = field(repr=False)
    ask: "Callable[[str, Mapping[str, Any]], list[FieldProblem]]" = field(repr=False)

    @property
    def module(self) -> str:
        return self.place.rpartition(".")[0]

    @property
    def where(self) -> str:
        return self.place

    @property
    def doc(self) -> str:
        return self.text

    def config_schema(self) -> dict[str, Any] | None:
        return None if self.schema is None else dict(self.schema)

    def isolation_of(self, job_config: Mapping[str, Any]) -> Isolation:
        return "process"

    def problems(self, job_config: Mapping[str, Any]) -> list[FieldProblem]:
        asked = job_config.get(ISOLATION_KEY, "process")
        if asked != "process":
            reason = f"must be 'process', got {asked!r}: the jobs of JOB_PROJECT run in its own interpreter"
            return [("job_config.isolation", reason)]
        return [] if self.schema is None else self.ask(self.name, without_isolation(job_config))


@cache
def jobs_of(project: JobProject) -> list[ProjectJob]:
    """Ask the project which job types it has; raises ConfigurationError with the reason when it cannot say."""
    answers = _answers_of(project)
    return [_job(project, answers, facts) for facts in answers.announced()]


def ask_again(project: JobProject) -> list[ProjectJob]:
    """By a new child, with the code as it is now."""
    _answers_of(project).end()
    jobs_of.cache_clear()
    return jobs_of(project)


@cache
def _answers_of(project: JobProject) -> "Answers":
    return Answers(project)


def _job(project: JobProject, answers: "Answers", facts: Mapping[str, Any]) -> ProjectJob:
    for word, instead in {"labels": "the schedule's `requires`", "offers": "ABILITIES of the replicas"}.items():
        if facts[f"has_{word}"]:
            raise ConfigurationError(
                f"job type {facts['name']!r}: `{word}` has no effect in JOB_PROJECT; use {instead}"
            )
    return ProjectJob(
        facts["name"],
        _elsewhere,
        isolation="process",
        domain_is_host=facts["domain_is_host"],
        project=project,
        place=facts["where"],
        text=facts["doc"],
        schema=facts["schema"],
        ask=answers.check,
    )


def _elsewhere(_context: ExecutionContext, _config: Any) -> None:
    raise PermanentFailure("this job type runs in the interpreter of JOB_PROJECT")


def _its_own(directory: Path) -> Path:
    candidates = (directory / name / "bin" / "python" for name in ENVIRONMENTS)
    return next((python for python in candidates if python.exists()), Path(sys.executable))


class Answers:
    """The child that answers. One thread starts it, waits for its end, and alone reaps it."""

    def __init__(self, project: JobProject) -> None:
        self._project, self._lock = project, Lock()  # whoever holds the lock talks to the child
        self._child: ChildProcess | None = None  # None: it has not started yet, or has ended
        self._said: Iterator[dict[str, Any]] = iter(())
        self._first: dict[str, Any] = {}
        self._thread: Thread | None = None

    def announced(self) -> list[dict[str, Any]]:
        self._launch().wait()
        if "job_types" in self._first:
            return list(self._first["job_types"])
        if "refused" in self._first:
            raise ConfigurationError(f"{self._first['refused']} (JOB_PROJECT={str(self._project.directory)!r})")
        raise ConfigurationError(
            f"JOB_PROJECT: {self._project.python} has not named the job types of "
            f"{', '.join(self._project.modules)}; its output says why"
        )

    def end(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.signal_end()
                self._child = None

    def check(self, job_type: str, job_config: Mapping[str, Any]) -> list[FieldProblem]:
        if self._lock.acquire(timeout=ANSWER_SECONDS):
            try:
                if (problems := self._ask(job_type, job_config)) is not None:
                    return problems
            finally:
                self._lock.release()
        return [("job_config", "cannot be checked: JOB_PROJECT does not answer at the moment; try again")]

    def _ask(self, job_type: str, job_config: Mapping[str, Any]) -> list[FieldProblem] | None:
        if self._child is None:
            if self._thread is None or not self._thread.is_alive():
                self._launch()
            return None
        self._child.say({"check": [job_type, dict(job_config)]})
        answer = _next(self._said, ANSWER_SECONDS)
        if "problems" in answer:
            return [(where, reason) for where, reason in answer["problems"]]
        self._child.signal_end()  # a late answer would be taken for that to the next question
        self._child = None
        return None

    def _launch(self) -> Event:
        has_begun = Event()
        self._thread = Thread(target=self._tend, args=(has_begun,), name="job-project", daemon=True)
        self._thread.start()
        return has_begun

    def _tend(self, has_begun: Event) -> None:
        try:
            child = self._project.child()
        except OSError as error:
            self._first = {"refused": f"{self._project.python}: {error.strerror or error}"}
            has_begun.set()
            return
        child.say({"modules": list(self._project.modules)})
        said = child.messages()
        self._first = _next(said, START_SECONDS)
        if "job_types" in self._first:
            with self._lock:
                self._child, self._said = child, said
            has_begun.set()
            child.wait_to_end()
            with self._lock:
                self._child = None if self._child is child else self._child
        child.kill()
        has_begun.set()


def _next(said: Iterator[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The next message; empty if none comes in time, or the child has ended or talks nonsense."""
    until = time.monotonic() + seconds
    with suppress(JobFailed, ValueError):
        for message in said:
            if message or time.monotonic() >= until:
                return message
    return {}
