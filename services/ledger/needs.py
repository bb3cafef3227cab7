"""What an execution needs, and what a process is able to run.

Both are sets of words: `job:<type>`, and labels such as `browser`, which a job type derives from the configuration and
the scan profile. Only a process that has all words of an execution runs it. Needs are computed under the schedule's
lock: the scan profile may change without the schedule.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from database.arrays import uuid_array
from database.connection import DedicatedConnection
from services.jobs.containment import Raised, contained
from services.jobs.registry import JobRegistry, Labels
from services.ledger.locked import Locked

DEFAULT_QUEUE = "default"
UNSORTED = ""  # the queue of a waiting row that nobody has looked at
JOB = "job:"

Needs = tuple[str, ...]

PROFILES = "SELECT profile_id, config FROM scan_profiles WHERE profile_id = ANY(%(ids)s::uuid[])"


class Abilities:
    """Of this process. `handled`: the job types that it can run; None: all."""

    def __init__(
        self,
        handled: Callable[[], Collection[str]] | None = None,
        labels: Collection[str] = (),
        labels_of: Callable[[str], Labels | None] = lambda job_type: None,
    ) -> None:
        self._handled, self._labels, self._labels_of = handled, frozenset(labels), labels_of
        self.elders = False  # a replica of a version that lists no abilities is alive: it runs whatever it meets

    @classmethod
    def of_registry(cls, registry: JobRegistry, labels: Collection[str]) -> "Abilities":
        return cls(registry.handled, {*labels, *registry.offers()}, registry.labels_of)

    def needs_of(self, schedules: Sequence[Locked], connection: DedicatedConnection) -> list[Needs]:
        """Of each; the scan profiles are read only for job types that derive labels."""
        wanted = {
            locked.spec.profile_id
            for locked in schedules
            if locked.spec.profile_id is not None and self._labels_of(locked.spec.job_type) is not None
        }
        rows = connection.run(PROFILES, {"ids": uuid_array(wanted)}) if wanted else []
        profiles: dict[Any, Mapping[str, Any]] = {row.profile_id: row.config for row in rows}
        return [self._needs(locked, profiles.get(locked.spec.profile_id)) for locked in schedules]

    def _needs(self, locked: Locked, profile: Mapping[str, Any] | None) -> Needs:
        spec = locked.spec
        job, labels_of = f"{JOB}{spec.job_type}", self._labels_of(spec.job_type)
        if labels_of is None:
            return (job,)
        needs = contained(lambda: tuple(sorted({job, *labels_of(spec.job_config, profile)})))
        return (job,) if isinstance(needs, Raised) else needs.value  # its handler says what is wrong with it

    def able(self, needs: Sequence[Needs]) -> list[bool]:
        """Of each. As long as an older replica is alive, only the job type counts: it would run them all the same."""
        if self._handled is None:
            return [True] * len(needs)
        words = frozenset(self.words() or ())
        if self.elders:
            return [all(word in words for word in each if word.startswith(JOB)) for each in needs]
        return [words.issuperset(each) for each in needs]

    def words(self) -> list[str] | None:
        """None: any."""
        return None if self._handled is None else sorted({*(JOB + each for each in self._handled()), *self._labels})

    @property
    def queues(self) -> list[str]:
        return [DEFAULT_QUEUE]

    def for_heartbeat(self) -> dict[str, list[str] | None]:
        return {"abilities": self.words(), "queues": self.queues}


OF_EVERYTHING = Abilities()
