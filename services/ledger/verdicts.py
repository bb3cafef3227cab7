"""What becomes of a fire, decided in one place: the table of verdicts, and every tolerance that it is judged by.

RULES is the table: at each stage the first rule that holds for this kind of row decides its status and its reason.
Python asks `decide`; the claim statements contain the same rules as a CASE (`as_case`). How a situation is recognised
stands beside the data that shows it: claims.py, claims_sql.py, waiting_sql.py, gap_scan/plan.py. docs/verdicts.md is
made from this table, and tests/integration/ledger/test_verdicts.py walks every cell of it against the real statements.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import product

from config import Settings
from database.models import Catchup, Cause, ExecutionStatus
from services.ledger.fires import Decision


class Reason(StrEnum):
    """The word in `job_executions.reason`. A handler that skips its own run (JobSkipped) may write others."""

    OVERLAP = "overlap"
    COALESCED = "coalesced"
    DISABLED = "disabled"
    CHANGED = "changed"
    DELETED = "deleted"
    MISFIRE = "misfire"
    NOBODY_ABLE = "nobody_able"
    LIMIT = "limit"
    LIMITED = "limit:<key>"  # of what waits, with its key
    NO_HANDLER = "no_handler"  # written by earlier builds
    DOWNTIME = "downtime"
    CATCHUP_CAP = "catchup_cap"  # one row for many fires
    BACKOFF = "backoff"
    CANCELLED = "cancelled"  # the request came while a replica held it, which then handed it back
    CANCEL_REQUESTED = "cancel_requested"  # the request ended it at once
    REPLICA_DEAD = "replica_dead"
    # Of the built-in handler of workflow queues:
    PAUSED = "paused"
    CIRCUIT_OPEN = "circuit_open"
    BACKPRESSURE = "backpressure"
    HUNG_THREADS = "hung_threads"


class Kind(StrEnum):
    """What is judged: the cause of an execution, and whether it is a retry."""

    SCHEDULE = "schedule"
    CATCHUP = "catchup"
    RETRY = "retry"  # of a scheduled fire or of catch-up
    MANUAL = "manual"
    MANUAL_RETRY = "manual_retry"  # also the retry of anything that a person asked for
    BACKFILL = "backfill"

    @classmethod
    def of(cls, cause: Cause, attempt: int) -> "Kind":
        match cause:
            case Cause.BACKFILL:
                return cls.BACKFILL
            case Cause.MANUAL:
                return cls.MANUAL if attempt == 1 else cls.MANUAL_RETRY
            case _:
                return cls(cause.value) if attempt == 1 else cls.RETRY


class Stage(StrEnum):
    """When a fire is judged."""

    DUE = "due"  # a replica claims it: by the row of its schedule
    CLAIM = "claim"  # the same claim, of what may run: by the executions beside it
    WAITING = "waiting"  # its row is `pending` and due
    START = "start"  # it is claimed, and its schedule changed before it started
    GAP_SCAN = "gap_scan"  # it has no row


class Situation(StrEnum):
    CANCEL_REQUESTED = "cancel_requested"
    DELETED = "deleted"
    OFF = "off"
    ENDED = "ended"  # the timing under which it came due has ended; a claim asks the log of changes for proof
    NOT_A_FIRE = "not_a_fire"  # the present timing has no such fire
    TOO_OLD = "too_old"  # beyond the horizon, in which history proves that it did not run
    EARLY = "early"
    BACKING_OFF = "backing_off"  # its schedule failed several times in a row and does not try again yet
    OVERDUE = "overdue"  # its PATIENCE is over
    COALESCES = "coalesces"  # a later fire of its schedule is due as well
    STOOD_FOR = "stood_for"  # a first attempt of its schedule waits as a row, and fires coalesce
    NO_ROOM = "no_room"  # max_instances are running; for a waiting row: or go before it
    OTHERS_FIRST = "others_first"  # earlier fires of its schedule take the room
    BEHIND = "behind"  # a first attempt of its schedule waits as a row, and fires do not coalesce
    UNABLE = "unable"  # this replica lacks something that it needs; or only settles
    LIMITED = "limited"  # as many executions of one of its limit keys are running as the limit allows
    FOR_LIMIT = "for_limit"  # its row waits for a limit
    OTHER_KEYS = "other_keys"  # its limit keys are not those that it is counted by
    NOBODY_ABLE = "nobody_able"  # no living replica has what it needs
    CAUGHT_UP = "caught_up"  # the catch-up rule lets it run late
    TRIED_AGAIN = "tried_again"  # replicas were there: the dispatcher gets it once more
    BEYOND_CAP = "beyond_cap"  # more fires of its schedule were missed than get a row each


@dataclass(frozen=True, slots=True)
class Verdict:
    status: ExecutionStatus | None  # None: no row is written
    reason: Reason | None = None

    @property
    def word(self) -> str:
        """What a claim statement calls it: the reason, else `claimed` or `pending`."""
        said = self.reason or self.status
        return said.value if said else ""

    def as_values(self) -> dict[str, str | None]:
        return {"status": self.status and self.status.value, "reason": self.reason and self.reason.value}


CLAIMED, PENDING, NO_ROW = Verdict(ExecutionStatus.CLAIMED), Verdict(ExecutionStatus.PENDING), Verdict(None)
LIMITED = Verdict(ExecutionStatus.PENDING, Reason.LIMITED)

ALL = frozenset(Kind)
PLANNED = frozenset({Kind.SCHEDULE, Kind.CATCHUP, Kind.RETRY})  # the schedule wants them; a person wants the others
FIRST_PLANNED = PLANNED - {Kind.RETRY}
FIRE = frozenset({Kind.SCHEDULE})


@dataclass(frozen=True, slots=True)
class Rule:
    when: tuple[Situation, ...]  # all of them hold
    verdict: Verdict
    kinds: frozenset[Kind] = ALL
    decision: Decision = Decision.EXISTS  # of a claim: what the dispatcher is told


def _skipped(reason: Reason) -> Verdict:
    return Verdict(ExecutionStatus.SKIPPED, reason)


def _missed(reason: Reason) -> Verdict:
    return Verdict(ExecutionStatus.MISSED, reason)


S = Situation
RULES: Mapping[Stage, tuple[Rule, ...]] = {
    Stage.DUE: (
        Rule((S.TOO_OLD,), NO_ROW, FIRE, Decision.TOO_OLD),
        Rule((S.EARLY,), NO_ROW, FIRE, Decision.EARLY),
        Rule((S.OFF, S.ENDED), _skipped(Reason.DISABLED), FIRE, Decision.DISABLED),
        Rule((S.OFF,), NO_ROW, FIRE, Decision.DISABLED),
        Rule((S.ENDED,), _skipped(Reason.CHANGED), FIRE, Decision.GONE),
        Rule((S.NOT_A_FIRE,), NO_ROW, FIRE, Decision.GONE),
        Rule((S.BACKING_OFF,), _skipped(Reason.BACKOFF), FIRE, Decision.BACKOFF),
        Rule((S.OVERDUE,), _missed(Reason.MISFIRE), FIRE, Decision.MISFIRE),
        Rule((), CLAIMED, FIRE, Decision.EXISTS),  # unless the next stage finds no row and writes one
    ),
    Stage.CLAIM: (
        Rule((S.COALESCES,), _skipped(Reason.COALESCED), FIRE, Decision.COALESCED),
        Rule((S.STOOD_FOR,), _skipped(Reason.COALESCED), FIRE, Decision.COALESCED),
        Rule((S.NO_ROOM,), _skipped(Reason.OVERLAP), FIRE, Decision.OVERLAP),
        Rule((S.OTHERS_FIRST,), PENDING, FIRE, Decision.LATER),
        Rule((S.BEHIND,), PENDING, FIRE, Decision.LATER),
        Rule((S.UNABLE,), PENDING, FIRE, Decision.LATER),
        Rule((S.LIMITED,), LIMITED, FIRE, Decision.LATER),
        Rule((), CLAIMED, FIRE, Decision.CLAIMED),
    ),
    Stage.WAITING: (
        Rule((S.CANCEL_REQUESTED,), Verdict(ExecutionStatus.CANCELLED, Reason.CANCELLED)),
        Rule((S.DELETED,), _skipped(Reason.DELETED)),
        Rule((S.OFF,), _skipped(Reason.DISABLED), PLANNED),
        Rule((S.ENDED,), _skipped(Reason.CHANGED), FIRST_PLANNED),
        Rule((S.NOBODY_ABLE, S.OVERDUE), _missed(Reason.NOBODY_ABLE)),
        Rule((S.FOR_LIMIT, S.OVERDUE), _missed(Reason.LIMIT)),
        Rule((S.OVERDUE,), _missed(Reason.MISFIRE), FIRE),
        Rule((S.NO_ROOM, S.OVERDUE), _skipped(Reason.OVERLAP)),
        Rule((S.UNABLE,), PENDING),
        Rule((S.NO_ROOM,), PENDING),
        Rule((S.LIMITED,), LIMITED),
        Rule((), CLAIMED),
    ),
    Stage.START: (
        Rule((S.DELETED,), _skipped(Reason.DELETED)),
        Rule((S.OFF,), _skipped(Reason.DISABLED), PLANNED),
        Rule((S.ENDED,), _skipped(Reason.CHANGED), PLANNED),
        Rule((S.NOT_A_FIRE,), _skipped(Reason.CHANGED), PLANNED),
        Rule((S.UNABLE,), PENDING),
        Rule((S.OTHER_KEYS,), PENDING),
        Rule((), CLAIMED),
    ),
    Stage.GAP_SCAN: (
        Rule((S.CAUGHT_UP,), PENDING, FIRE),
        Rule((S.TRIED_AGAIN,), NO_ROW, FIRE),
        Rule((S.BEYOND_CAP,), _missed(Reason.CATCHUP_CAP), FIRE),
        Rule((S.ENDED,), _missed(Reason.CHANGED), FIRE),
        Rule((), _missed(Reason.DOWNTIME), FIRE),
    ),
}


def decide(stage: Stage, kind: Kind, situations: Collection[Situation]) -> Rule:
    """The first rule of this stage all of whose situations hold."""
    return next(rule for rule in RULES[stage] if kind in rule.kinds and all(each in situations for each in rule.when))


def answers(stage: Stage, kind: Kind, situations: tuple[Situation, ...]) -> dict[tuple[bool, ...], Rule]:
    """Every decision worked out: by whether each of these situations holds, in this order."""
    cases = product((False, True), repeat=len(situations))
    return {
        case: decide(stage, kind, [each for each, holds in zip(situations, case, strict=True) if holds])
        for case in cases
    }


def decisions() -> dict[tuple[str, str | None], Decision]:
    """By status and reason of the row that a claim wrote."""
    rules = [rule for stage in (Stage.DUE, Stage.CLAIM) for rule in RULES[stage]]
    written = [(rule.verdict.status, rule.verdict.reason, rule.decision) for rule in rules]
    found: dict[tuple[str, str | None], Decision] = {(status, why): told for status, why, told in written if status}
    return found | {(ExecutionStatus.RUNNING, None): Decision.CLAIMED}  # it had a worker already


def cells() -> Iterator[tuple[Stage, Kind, tuple[Situation, ...]]]:
    """Every question that the table answers: each kind of row in each situation of a stage, and in each two of them."""
    for stage, rules in RULES.items():
        kinds = [kind for kind in Kind if kind in frozenset().union(*(rule.kinds for rule in rules))]
        situations = list(dict.fromkeys(each for rule in rules for each in rule.when))
        pairs = [(one, other) for place, one in enumerate(situations) for other in situations[place + 1 :]]
        for kind in kinds:
            for case in ((), *((each,) for each in situations), *pairs):
                yield stage, kind, case


# --- how long each may wait ---


class Wait(StrEnum):
    GRACE = "grace"  # the schedule's misfire_grace_seconds, else JOB_MISFIRE_GRACE_TIME
    HORIZON = "horizon"  # FENCE_HORIZON_SECONDS


# From due_at on. A backfill, which waits for others of its kind, waits as long as it takes. What has waited for a limit
# has the horizon instead of its grace: it is not late, others are before it.
PATIENCE: Mapping[Kind, Wait | None] = {
    Kind.SCHEDULE: Wait.GRACE,
    Kind.CATCHUP: Wait.HORIZON,
    Kind.RETRY: Wait.HORIZON,
    Kind.MANUAL: Wait.GRACE,
    Kind.MANUAL_RETRY: Wait.HORIZON,
    Kind.BACKFILL: None,
}

EARLY = timedelta(milliseconds=20)  # before its due time a fire may be claimed
YOUNGEST = timedelta(seconds=2)  # no summary speaks for a fire that is younger
CHANGE_EDGE = timedelta(seconds=2)  # a change reaches the replicas; a fire just before it may end either way
HANDED_OVER = 500  # fires of one schedule that a later scan leaves to the dispatcher: more than a grace of one a second
MINUTE = timedelta(minutes=1)
RESCUE_SLACK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """How long the ordinary ways of a fire may take, by the settings: for everyone who judges what is late or lost."""

    settle: timedelta  # until a fire has its row: by a claim, or by the verification after a lost mark and a claim then
    vouch: timedelta  # until a gap scan has seen that it has one, or has handed it over once more
    takeover: timedelta  # until a dead replica's executions are given up or handed back
    horizon: timedelta  # nothing older is ever run
    history: timedelta  # nothing older is known
    window: timedelta  # of catch-up
    max_fires: int  # of catch-up; also the number of missed ones that get a row each

    @classmethod
    def from_settings(cls, settings: Settings) -> "Tolerances":
        settle = timedelta(seconds=settings.verify_after_seconds) + YOUNGEST
        silence = timedelta(seconds=settings.heartbeat_timeout_seconds + settings.rescue_interval_seconds)
        horizon = timedelta(seconds=settings.fence_horizon_seconds)
        nearly_all = timedelta(days=settings.history_retention_days - 1)  # the oldest day may be half deleted
        return cls(
            settle=settle,
            # A scan looks at what had time to settle, and vouches for what had it twice.
            vouch=2 * settle + timedelta(seconds=settings.gap_scan_seconds),
            takeover=silence + RESCUE_SLACK,
            horizon=horizon,
            history=max(horizon, nearly_all),
            window=timedelta(seconds=settings.catchup_window_seconds),
            max_fires=settings.catchup_max_fires,
        )

    @property
    def unfinished(self) -> timedelta:
        """After its own time limit an execution that is still open for so long is stuck."""
        return max(MINUTE, self.takeover)

    @property
    def held(self) -> int:
        """The newest fires of a gap that a plan may name one by one, and the one before them."""
        return self.max_fires + max(HANDED_OVER, self.max_fires) + 1

    def caught_up(self, rule: Catchup) -> int:
        """How many of the fires that came due while no replica ran are run late."""
        return {Catchup.NONE: 0, Catchup.ONE: 1, Catchup.ALL: self.max_fires}[rule]


# --- the table in SQL ---


def as_case(stage: Stage, shown_by: Mapping[Situation, str], kind: str | None = None) -> str:
    """The rules of a stage as one expression, whose value is a Verdict's word. `kind` is a column as of `kind_of`."""
    branches = []
    for rule in RULES[stage]:
        conditions = [shown_by[each] for each in rule.when]
        if kind and rule.kinds != ALL:
            conditions.insert(0, f"{kind} IN ({_texts(each for each in Kind if each in rule.kinds)})")
        when = f"WHEN {' AND '.join(conditions)} THEN" if conditions else "ELSE"
        branches.append(f"        {when} '{rule.verdict.word}'")
    return "\n".join(["CASE", *branches, "    END"])


def status_of(word: str) -> str:
    """The status that a Verdict's word stands for in a claim statement."""
    meant: dict[ExecutionStatus, set[str]] = {}
    for rule in (*RULES[Stage.DUE], *RULES[Stage.CLAIM], *RULES[Stage.WAITING]):
        if rule.verdict.status:
            meant.setdefault(rule.verdict.status, set()).add(rule.verdict.word)
    branches = [f"WHEN {word} IN ({_texts(sorted(words))}) THEN '{status}'" for status, words in sorted(meant.items())]
    return f"CASE {' '.join(branches)} END"


def kind_of(row: str) -> str:
    """The Kind of a row of job_executions."""
    return f"""CASE WHEN {row}.cause = '{Cause.BACKFILL}' OR {row}.attempt = 1 THEN {row}.cause
                     WHEN {row}.cause = '{Cause.MANUAL}' THEN '{Kind.MANUAL_RETRY}' ELSE '{Kind.RETRY}' END"""


def patience_seconds(kind: str, grace: str, horizon: str) -> str:
    """How long a row of this kind may wait; NULL: as long as it takes."""
    seconds = {Wait.GRACE: grace, Wait.HORIZON: horizon}
    waits = [f"WHEN '{each}' THEN {seconds[wait]}" for each, wait in PATIENCE.items() if wait is not None]
    return f"CASE {kind} {' '.join(waits)} END"


def _texts(values: Iterable[str]) -> str:
    return ", ".join(f"'{each}'" for each in values)
