"""A status queue in a history: the product's `deep_scan` with its table, triggers, loop and handler, and other work.

The steps write down what they do: the work in a ledger of calls, `save` in a table, with the session that ends the
item. A trigger sees every change of a row. What the product takes from the process (threads, the pool of connections,
the settings, tokens) is the replica's own: `install` puts it there once. Start reading at `QueuePlay.begin`.
"""

import json
import queue
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

import config
from enhanced_scheduler.context import JobTimedOut
from enhanced_scheduler.results import PermanentFailure
from services.errors import ConfigurationError
from services.jobs import ExecutionContext, JobFailed
from services.jobs.registry import default_registry
from services.queues import item_threads, queue_sql, queue_state, queue_table
from services.queues import queue as queue_module
from services.queues.deadline import remaining_seconds
from services.queues.outcomes import Claim
from services.queues.queue import Queue, always, queues
from services.queues.queue_table import QueueTable
from services.queues.steps import Steps
from services.workflows.deep_scan import DEEP_SCAN
from tests.proof.checker import Bounds
from tests.proof.queue_checker import Item, ItemCall, ItemClaim, ItemTurn, QueueLimits, QueueStory, Saved
from tests.proof.simulation import postgres
from tests.proof.simulation.handler import noted
from tests.proof.simulation.net import LINE, PROCESS, SERVER, Net
from tests.proof.simulation.postgres import Server, Wait
from tests.proof.simulation.replica import Replica, VirtualDatabase
from tests.proof.simulation.threads import VirtualQueue, VirtualThread, world
from tests.proof.simulation.world import EPOCH, Task, World

SHARE = 0.2  # of the histories
SCHEDULE_ID = f"00000000-0000-0000-0000-{0x2000:012x}"
NAME = DEEP_SCAN.name
STEP_SECONDS = 0.1  # after which polite work looks at its deadline
LEAST_ITEMS, MOST_ITEMS = 4, 14
MAX_ATTEMPTS = 3
KINDS = ("retry", "retry", "permanent", "broken", "polite", "polite", "deaf", "deaf", "unconfigured")

# Of every history: those without a queue do not read them.
SETTINGS: dict[str, dict[str, float]] = {
    "quick": {
        "workflow_retry_backoff_seconds": 0.5, "workflow_stale_slack_seconds": 3, "workflow_circuit_window": 8,
        "workflow_circuit_failures": 6, "workflow_circuit_cool_down_seconds": 2, "deep_scan_scheduler_batch_size": 3,
    },
    "usual": {
        "workflow_retry_backoff_seconds": 2, "workflow_stale_slack_seconds": 8, "workflow_circuit_window": 8,
        "workflow_circuit_failures": 6, "workflow_circuit_cool_down_seconds": 5, "deep_scan_scheduler_batch_size": 3,
    },
}  # fmt: skip
NUMBERS = {
    "quick": {"concurrency": 3, "run_budget_seconds": 4, "item_timeout_seconds": 2, "max_attempts": MAX_ATTEMPTS},
    "usual": {"concurrency": 3, "run_budget_seconds": 10, "item_timeout_seconds": 5, "max_attempts": MAX_ATTEMPTS},
}
INTERVALS = {"quick": (1, 2, 3), "usual": (3, 5)}

# Which statements of a queue may wait for another session's lock, and for how long.
STATEMENT, IMPATIENT = postgres.STATEMENT_SECONDS + 0.1, 0.3
MAY_WAIT = {
    "QUEUE_LOCK": STATEMENT,  # of the row that all runs of a queue share; a frozen run may hold it
    "QUEUE_ROW": STATEMENT,
    "ITEM_WAIT_FOR_HELD": IMPATIENT,
    "ITEM_RETRY": IMPATIENT,
    "ITEM_FAIL": IMPATIENT,
    "ITEM_HAND_BACK": IMPATIENT,
}

WITNESS = """
CREATE UNLOGGED TABLE sim.item_turns (
    turn bigserial, at timestamptz DEFAULT sim.clock_timestamp(), transaction bigint DEFAULT txid_current(), item int,
    before text, after text, token_before uuid, token_after uuid, attempts_before int, attempts_after int,
    due_before timestamptz, due_after timestamptz
);
CREATE UNLOGGED TABLE sim.item_results (
    result bigserial, at timestamptz DEFAULT sim.clock_timestamp(), transaction bigint DEFAULT txid_current(), item int,
    token uuid, attempt int, pid int
);
CREATE FUNCTION sim.item_witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.item_turns (item, before, after, token_before, token_after, attempts_before, attempts_after,
                                due_before, due_after)
    VALUES (NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.deep_scan_status END, NEW.deep_scan_status,
            CASE WHEN TG_OP = 'UPDATE' THEN OLD.claim_token END, NEW.claim_token,
            CASE WHEN TG_OP = 'UPDATE' THEN OLD.attempts ELSE 0 END, NEW.attempts,
            CASE WHEN TG_OP = 'UPDATE' THEN OLD.not_before ELSE NEW.not_before END, NEW.not_before);
    RETURN NULL;
END $$;
CREATE TRIGGER item_witness AFTER INSERT OR UPDATE OF deep_scan_status, claim_token, attempts ON places_staging
    FOR EACH ROW EXECUTE FUNCTION sim.item_witness();
"""
EMPTY = "TRUNCATE places_staging, workflow_queues, dead_letters, sim.item_turns, sim.item_results RESTART IDENTITY"
INSERT_SCHEDULE = """
INSERT INTO schedules (schedule_id, name, domain, domain_config_id, frequency, time_config, job_type, job_config,
                       max_instances, coalesce, max_retries, retry_backoff_seconds)
VALUES (%s, 'a queue', 'sim.test', %s, 'interval', %s, 'workflow', %s, %s, true, %s, 1)
"""
INSERT_ITEM = """
INSERT INTO places_staging (place_id, deep_scan_status, priority, not_before)
VALUES (%s, 'Queued', %s, clock_timestamp())
"""
# As somebody does it in psql; never waiting, because nobody could let it go on.
REQUEUE = """
UPDATE places_staging SET deep_scan_status = 'Queued', deep_scan_error = NULL
WHERE id IN (SELECT id FROM places_staging WHERE deep_scan_status = 'Error' ORDER BY id FOR UPDATE SKIP LOCKED)
"""
RESUME = """
UPDATE workflow_queues SET paused_at = NULL, paused_by = NULL, paused_reason = NULL
WHERE queue IN (SELECT queue FROM workflow_queues WHERE paused_at IS NOT NULL FOR UPDATE SKIP LOCKED)
"""
WAITING = """
SELECT count(*) FROM places_staging
WHERE deep_scan_status = 'Processing'
   OR (deep_scan_status = 'Queued' AND not_before < sim.clock_timestamp() + interval '60 s')
"""
SAVE = text("INSERT INTO sim.item_results (item, token, attempt, pid) VALUES (:item, :token, :attempt, :pid)")
LOAD = text("SELECT place_id FROM places_staging WHERE id = :item")

ITEMS = """
SELECT id, deep_scan_status, deep_scan_error, attempts, extract(epoch FROM not_before)::float8
FROM places_staging ORDER BY id
"""
TURNS = """
SELECT item, extract(epoch FROM at)::float8, transaction, before, after, token_before::text, token_after::text,
       attempts_before, attempts_after, extract(epoch FROM due_before)::float8, extract(epoch FROM due_after)::float8
FROM sim.item_turns ORDER BY turn
"""
RESULTS = """
SELECT item, token::text, attempt, pid, transaction, extract(epoch FROM at)::float8
FROM sim.item_results ORDER BY result
"""
LETTERS = "SELECT item_key::int, attempts FROM dead_letters WHERE queue = 'deep_scan' AND requeued_at IS NULL"
TOTALS = "SELECT claimed, succeeded, stale FROM workflow_queues WHERE queue = 'deep_scan'"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the work gets: the item, and the claim under which it was loaded."""

    item: int
    token: str
    attempt: int


class QueuePlay:
    """The queue of one history; `now` is that of the history that is being played."""

    now: ClassVar["QueuePlay | None"] = None

    def __init__(self, here: World, server: Server, net: Net, pace: str, heal_at: float) -> None:
        QueuePlay.now = self
        self._world, self._server, self._net, self._pace, self._heal_at = here, server, net, pace, heal_at
        dice = here.dice
        self.max_instances: int = dice.one_of("queue instances", (1, 1, 2, 3))
        self._seconds = dice.one_of("queue interval", INTERVALS[pace])
        self._mean_seconds = dice.one_of("queue work", (0.1, 0.5, 1.2))
        self._trouble = dice.one_of("queue trouble", (0.0, 0.2, 0.5))
        self._tokens = 0
        self._calls_of: Counter[int] = Counter()
        self._held: dict[tuple[Task, int], Claim[int]] = {}
        self._databases: dict[str, Replica] = {}
        self.threads: dict[Task, ItemThread] = {}
        self.abandoned: dict[object, item_threads.Abandoned] = {}
        self.claims: list[ItemClaim] = []
        self.calls: list[ItemCall] = []

    # --- for the history ---

    def begin(self) -> None:
        control, dice, here = self._server.control, self._world.dice, self._world
        here.counts["histories with a queue"] += 1
        control.run(EMPTY)
        config_of_job = json.dumps({"queue": NAME, **NUMBERS[self._pace]})
        values = (SCHEDULE_ID, SCHEDULE_ID, json.dumps({"seconds": self._seconds}), config_of_job, self.max_instances)
        control.run(INSERT_SCHEDULE, (*values, dice.one_of("queue retries", (0, 1))))
        active = self._heal_at - EPOCH
        for number in range(LEAST_ITEMS + int(dice.roll("items") * (MOST_ITEMS - LEAST_ITEMS + 1))):
            early = dice.roll(f"item {number} early") < 0.5
            at = 0.0 if early else dice.between(f"item {number} at", 0.0, active - 2.0)
            priority = dice.one_of(f"item {number} priority", (0, 0, 0, 1, -1))
            here.call_at(EPOCH + at, lambda n=number, p=priority: self._write(INSERT_ITEM, (f"p{n}", p)))  # type: ignore[misc]
        for number in range(int(dice.roll("requeues") * 3)):
            at = dice.between(f"requeue {number} at", 3.0, active)
            here.call_at(EPOCH + at, lambda: self._write(REQUEUE, None))
        here.call_at(EPOCH + dice.between("resume at", 3.0, active), lambda: self._write(RESUME, None))

    def _write(self, sql: str, values: Any) -> None:
        self._server.carry_forward(self._world)
        self._server.control.run(sql, values)

    def is_at_rest(self) -> bool:
        self._write(RESUME, None)
        return bool(self._server.control.run(WAITING)[0][0] == 0)

    def story(self, bounds: Bounds, scarce: bool) -> QueueStory:
        run, counts = self._server.control.run, self._world.counts
        numbers, slack = NUMBERS[self._pace], SETTINGS[self._pace]["workflow_stale_slack_seconds"]
        longest = self._seconds + numbers["run_budget_seconds"] + numbers["item_timeout_seconds"]
        limits = QueueLimits(
            max_attempts=MAX_ATTEMPTS,
            stale_seconds=numbers["item_timeout_seconds"] + slack,
            rescue_seconds=float("inf") if scarce else longest + bounds.takeover,
        )
        struck = {fault.kind for fault in self._net.faults}
        totals = run(TOTALS)
        story = QueueStory(
            limits=limits,
            items=[Item(**_named(Item, row)) for row in run(ITEMS)],
            turns=[ItemTurn(**_named(ItemTurn, row)) for row in run(TURNS)],
            claims=self.claims,
            calls=self.calls,
            saved=[Saved(**_named(Saved, row)) for row in run(RESULTS)],
            letters=dict(cast("list[tuple[int, int]]", run(LETTERS))),
            totals=dict(zip(("claimed", "succeeded", "stale"), totals[0], strict=True)) if totals else {},
            undisturbed=not struck & {*LINE, *SERVER, *PROCESS},
        )
        counts["items"] += len(story.items)
        counts["item calls"] += len(story.calls)
        counts["item claims"] += sum(turn.is_claim for turn in story.turns)
        counts["item takeovers"] += sum(turn.is_takeover for turn in story.turns)
        counts["item saves"] += len(story.saved)
        counts["dead letters"] += len(story.letters)
        counts["queues undisturbed"] += story.undisturbed
        return story

    # --- for the product ---

    def token(self) -> UUID:
        self._tokens += 1
        return UUID(int=(0xC1A1 << 112) + self._tokens)

    def database(self, replica: Replica) -> VirtualDatabase:
        """The pool of a process, besides the engine's own."""
        name = f"{replica.name} queue"
        if self._databases.get(name) is not replica:
            self._databases[name] = replica
            named = replica.settings.model_copy(update={"instance_id": name})
            VirtualDatabase.of(
                self._server, replica, named, pool_size=named.database_pool_size, application_name=replica.name
            )
        return VirtualDatabase.kept[name, replica.settings.database_pool_size]

    def claimed(self, claims: list[Claim[int]]) -> None:
        task = self._world.me
        pid = getattr(task.owner, "pid", 0)
        for claim in claims:
            self._held[task, claim.key] = claim
            self.claims.append(ItemClaim(item=claim.key, token=claim.token, attempt=claim.attempt, pid=pid))
            self._world.note(f"CLAIM {task.name} item {claim.key} attempt {claim.attempt} token {claim.token[-4:]}")

    def load(self, session: Session, item: int) -> Snapshot:
        session.execute(LOAD, {"item": item})
        claim = self._held[self._world.me, item]
        return Snapshot(item, claim.token, claim.attempt)

    def work(self, snapshot: Snapshot) -> Snapshot:
        here, item = self._world, snapshot.item
        pid = getattr(here.me.owner, "pid", 0)
        self._calls_of[item] += 1
        drawn = f"item {item} call {self._calls_of[item]}"
        facts: dict[str, Any] = {
            "item": item, "token": snapshot.token, "attempt": snapshot.attempt, "pid": pid, "began": here.now,
        }  # fmt: skip
        place = len(self.calls)
        self.calls.append(ItemCall(**facts))
        here.note(f"WORK {here.me.name} item {item} attempt {snapshot.attempt} token {snapshot.token[-4:]}")
        kind = self._kind(item, drawn)
        try:
            self._take_time(drawn, kind)
        except JobTimedOut:
            self.calls[place] = ItemCall(**facts, ended=here.now, outcome="stopped")
            raise
        outcome = kind if kind in TROUBLE else "ok"
        self.calls[place] = ItemCall(**facts, ended=here.now, outcome=outcome)
        here.note(f"DONE {here.me.name} item {item} token {snapshot.token[-4:]}: {outcome}")
        if outcome != "ok":
            raise TROUBLE[outcome]()
        return snapshot

    def _kind(self, item: int, drawn: str) -> str:
        """After the end of all faults everything works, so that the history comes to rest."""
        dice = self._world.dice
        if self._world.now >= self._heal_at:
            return "ok"
        if dice.roll(f"item {item} is hopeless") < self._trouble / 2:
            return "retry"
        return dice.one_of(f"{drawn} kind", KINDS) if dice.roll(f"{drawn} trouble") < self._trouble else "ok"

    def _take_time(self, drawn: str, kind: str) -> None:
        here, timeout = self._world, NUMBERS[self._pace]["item_timeout_seconds"]
        seconds = min(timeout * 0.9, here.dice.about(f"{drawn} seconds", self._mean_seconds))
        if kind == "deaf":  # to its deadline
            seconds = here.dice.between(f"{drawn} hangs", timeout, 3 * timeout)
        if kind != "polite":
            here.sleep(seconds)
            return
        until = here.now + here.dice.between(f"{drawn} lasts", 0.0, 2 * timeout)
        while here.now < until:
            here.sleep(min(STEP_SECONDS, remaining_seconds()))

    def save(self, session: Session, item: int, result: Snapshot) -> None:
        here = self._world
        values = {
            "item": item,
            "token": result.token,
            "attempt": result.attempt,
            "pid": getattr(here.me.owner, "pid", 0),
        }
        session.execute(SAVE, values)
        drawn = f"save {item} {result.token}"
        if here.now < self._heal_at and here.dice.roll(drawn) < self._trouble / 8:
            raise ValueError("the seed does not let it be saved")


def _named(kind: type, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip((each.name for each in fields(kind)), row, strict=True))


TROUBLE: Mapping[str, Callable[[], BaseException]] = {
    "retry": lambda: JobFailed("as the seed says"),
    "permanent": lambda: PermanentFailure("as the seed says"),
    "broken": lambda: ZeroDivisionError("as the seed says"),
    "unconfigured": lambda: ConfigurationError("as the seed says"),
}


# --- what stands for the process ---


def play() -> QueuePlay:
    if QueuePlay.now is None:
        raise RuntimeError("no history with a queue is being played")
    return QueuePlay.now


class ItemThread(VirtualThread):
    def start(self) -> None:
        super().start()
        if self._task is not None:
            play().threads[self._task] = self


class AbandonedHere:
    """Each replica is a process of its own."""

    def _mine(self) -> item_threads.Abandoned:
        return play().abandoned.setdefault(world().me.owner, item_threads.Abandoned())

    def add(self, queue_name: str, thread: Any) -> None:
        self._mine().add(queue_name, thread)

    def count(self, queue_name: str) -> int:
        return self._mine().count(queue_name)


class WitnessedTable(QueueTable[int]):
    """The real one; who claims is overheard."""

    def claim(self, connection: Connection, count: int) -> list[Claim[int]]:
        claims = super().claim(connection, count)
        play().claimed(claims)
        return claims

    def take_stale(self, connection: Connection, stale_seconds: float, count: int) -> list[Claim[int]]:
        claims = super().take_stale(connection, stale_seconds, count)
        play().claimed(claims)
        return claims


class WitnessedQueue(Queue[int]):
    @property
    def table(self) -> QueueTable[int]:
        return WitnessedTable(
            self.model, self.words, status_field_name=self.status_field_name, error_field_name=self.error_field_name
        )


def _replica() -> Replica:
    owner = world().me.owner
    if not isinstance(owner, Replica):
        raise RuntimeError("a queue runs in a replica")
    return owner


def _settings() -> config.Settings:
    return _replica().settings


def _database() -> VirtualDatabase:
    return play().database(_replica())


def _put(module: Any, **names: Any) -> None:
    for name, value in names.items():
        getattr(module, name)  # the product must still have it
        setattr(module, name, value)


def install(server: Server) -> None:
    """Once in a process: the queue with other steps, and what its code takes from the process."""
    server.control.run(WITNESS)
    if isinstance(queues.get(NAME), WitnessedQueue):
        return
    steps = Steps[int](
        load=lambda session, item: play().load(session, item), work=lambda snapshot: play().work(snapshot),
        save=lambda session, item, result: play().save(session, item, result),
    )  # fmt: skip
    plain = {each.name: getattr(DEEP_SCAN, each.name) for each in fields(DEEP_SCAN)}
    queues._queues[NAME] = WitnessedQueue(**{**plain, "steps": always(steps)})
    _put(item_threads, Thread=ItemThread, current_thread=lambda: play().threads[world().me], abandoned=AbandonedHere())
    _put(item_threads, queue=SimpleNamespace(SimpleQueue=VirtualQueue, Empty=queue.Empty))
    _put(queue_table, uuid4=lambda: play().token())
    _put(queue_module, get_settings=_settings, get_db_connection=_database)
    definition = default_registry.get("workflow")
    default_registry._definitions["workflow"] = replace(definition, handler=_noted(definition.handler))
    _learn_names()


def _noted(handler: Callable[[ExecutionContext, Any], Any]) -> Callable[[ExecutionContext, Any], Any]:
    def workflow(context: ExecutionContext, given: Any) -> Any:
        with noted(context):
            return handler(context, given)

    return workflow


def _learn_names() -> None:
    names = DEEP_SCAN.table._names
    for function in ("claim", "lock_held", "wait_for_held", "complete", "retry", "fail", "hand_back", "take_stale"):
        postgres.NAMES[getattr(queue_sql, function)(names)] = f"ITEM_{function.upper()}"
    postgres.NAMES[queue_state.LOCK] = "QUEUE_LOCK"
    row = "INSERT INTO workflow_queues (queue) VALUES (%(queue)s) ON CONFLICT DO NOTHING"
    postgres.NAMES[row] = "QUEUE_ROW"


def finding_about(wait: Wait) -> str | None:
    """None where the wait is one that a queue may have."""
    longest = MAY_WAIT[wait.kind]
    return f"waits too long for a lock: {wait}" if wait.seconds > longest else None
