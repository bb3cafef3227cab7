"""The job of every schedule of a history: writes its call into the ledger, takes its time, ends as the seed says.

Registered through JOB_MODULES. How long it takes and whether it fails depends on the seed, the schedule, the fire and
the attempt, and on nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from enhanced_scheduler.results import JobSkipped
from services.jobs import ExecutionContext, JobFailed, job
from tests.proof.records import Call
from tests.proof.simulation.threads import world
from tests.proof.simulation.world import Crash

JOB_TYPE = "simulated"


@dataclass(slots=True)
class Work:
    """What the handlers of one history do, and what they have done."""

    mean_seconds: float
    failing: float
    longest_seconds: float = 20.0
    calls: list[Call] = field(default_factory=list)

    now: ClassVar["Work | None"] = None


@job(JOB_TYPE)
def simulated(context: ExecutionContext, _config: object) -> None:
    """Listens to nobody, as most handlers do."""
    here = world()
    with noted(context) as work:
        drawn = f"{context.schedule_id} {context.scheduled_for.timestamp()} {context.attempt}"
        here.sleep(min(work.longest_seconds, here.dice.about(f"work {drawn}", work.mean_seconds)))
        if here.dice.roll(f"failing {drawn}") < work.failing:
            raise JobFailed("as the seed says")


@contextmanager
def noted(context: ExecutionContext) -> Iterator[Work]:
    """The call is in the ledger from its beginning on; how it ends, when it does."""
    here, work = world(), Work.now
    if work is None:
        raise RuntimeError("no history is being played")
    owner = here.me.owner
    schedule, fire = str(context.schedule_id), context.scheduled_for.timestamp()
    told = f"{schedule[-4:]} {fire - 1_900_000_000:g} attempt {context.attempt} token {context.fencing_token}"
    facts: dict[str, Any] = {
        "schedule": schedule, "fire": fire, "attempt": context.attempt, "token": context.fencing_token,
        "pid": getattr(owner, "pid", 0), "began": here.now,
    }  # fmt: skip
    place = len(work.calls)
    work.calls.append(Call(**facts))
    here.note(f"CALL {context.instance_id} {told}")
    outcome = "ok"
    try:
        yield work
    except Crash:
        raise  # its process has died: nothing comes after it
    except BaseException as error:
        outcome = "skipped" if isinstance(error, JobSkipped) else "failed"
        raise
    finally:
        if not getattr(owner, "dead", False):
            work.calls[place] = Call(**facts, ended=here.now, outcome=outcome)
            here.note(f"END {context.instance_id} {told}: {outcome}")
