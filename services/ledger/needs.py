"""What an execution needs, and what a process is able to run.

Both are sets of words: `job:<type>`, and labels such as `browser`, which a job type derives from the configuration and
the scan profile, and which the schedule requires. Only a process that has all words of an execution and serves the
queue of its schedule runs it. Needs are computed under the schedule's lock: the scan profile may change without the
schedule.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from database.arrays import uuid_array
from database.connection import DedicatedConnection
from enhanced_scheduler.containment import Raised, contained
from enhanced_scheduler.jobs import Labels
from services.jobs.registry import JobRegistry
from services.ledger.locked import Locked
from services.schedules.announced import JOB as JOB
from services.schedules.spec import DEFAULT_QUEUE, ScheduleSpec

UNSORTED = ""  # the queue of a waiting row that nobody has looked at
QUEUE = "queue:"

Needs = tuple[str, ...]

PROFILES = "SELECT profile_id, config FROM scan_profiles WHERE profile_id = ANY(%(ids)s::uuid[])"


class Abilities:
    """Of this process. `handled`: the job types that it can run; None: all.

    `waits_for_elders`: a worker of the fleet, which takes nothing while a replica lives that does not know of fleets.
    What nobody has sorted yet is none of its business.
    """

    def __init__(
        self,
        handled: Callable[[], Collection[str]] | None = None,
        labels: Collection[str] = (),
        labels_of: Callable[[str], Labels | None] = lambda job_type: None,
        queues: Collection[str] = (DEFAULT_QUEUE,),
        *,
        waits_for_elders: bool = False,
    ) -> None:
        self.queues, self.waits_for_elders = sorted(queues), waits_for_elders
        self._handled, self._labels, self._labels_of = handled, frozenset(labels), labels_of
        self.elders = False  # a replica of a version that lists no abilities is alive: it runs whatever it meets
        self.ignored_limits = False  # a replica of a version without limits is alive: nothing is held for them

    @classmethod
    def of_registry(
        cls,
        registry: JobRegistry,
        labels: Collection[str] = (),
        queues: Collection[str] = (DEFAULT_QUEUE,),
        *,
        waits_for_elders: bool = False,
    ) -> "Abilities":
        offered = {*labels, *registry.offers()}
        return cls(registry.handled, offered, registry.labels_of, queues, waits_for_elders=waits_for_elders)

    def needs_of(self, schedules: Sequence[Locked], connection: DedicatedConnection) -> list[Needs]:
        """Of each; the scan profiles are read only for job types that derive labels."""
        wanted = {
            locked.spec.profile_id
            for locked in schedules
            if locked.spec.profile_id is not None and self._labels_of(locked.spec.job_type) is not None
        }
        rows = connection.run(PROFILES, {"ids": uuid_array(wanted)}) if wanted else []
        profiles: dict[Any, Mapping[str, Any]] = {row.profile_id: row.config for row in rows}
        return [self.needs_by(locked.spec, profiles.get(locked.spec.profile_id)) for locked in schedules]

    def needs_by(self, spec: ScheduleSpec, profile: Mapping[str, Any] | None) -> Needs:
        labels_of = self._labels_of(spec.job_type)
        if labels_of is None and not spec.requires:
            return (f"{JOB}{spec.job_type}",)
        plain = {f"{JOB}{spec.job_type}", *spec.requires}
        if labels_of is None:
            return tuple(sorted(plain))
        needs = contained(lambda: tuple(sorted({*plain, *labels_of(spec.job_config, profile)})))
        # One whose configuration makes no sense: its handler says what is wrong with it.
        return tuple(sorted(plain)) if isinstance(needs, Raised) else needs.value

    def able(self, needs: Sequence[Needs], queues: Sequence[str]) -> list[bool]:
        """Of each. As long as an older replica is alive, only the job type counts: it would run them all the same."""
        if self._handled is None:
            return [True] * len(needs)
        words, served = frozenset(self.words() or ()), {UNSORTED, *self.queues}
        if self.elders:
            return [all(word in words for word in each if word.startswith(JOB)) for each in needs]
        return [queue in served and words.issuperset(each) for each, queue in zip(needs, queues, strict=True)]

    def words(self) -> list[str] | None:
        """None: any."""
        return None if self._handled is None else sorted({*(JOB + each for each in self._handled()), *self._labels})

    def for_heartbeat(self) -> dict[str, list[str] | None]:
        return {"abilities": self.words(), "queues": self.queues}


OF_EVERYTHING = Abilities()
