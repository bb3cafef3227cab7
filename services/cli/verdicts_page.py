"""docs/verdicts.md, generated: why a fire did not run, what to do about it, and the table that decides it. A test
compares the file.
"""

from collections.abc import Iterator
from typing import NamedTuple

from database.models import ExecutionStatus
from services.ledger.verdicts import PATIENCE, RULES, Kind, Reason, Rule, Situation, Stage, Verdict, Wait

HEAD = """\
# Why was it skipped?

<!-- Generated: python manage.py verdicts --markdown > docs/verdicts.md -->

Every fire that came due has a row in `job_executions`. If it did not run, the row's `status` and `reason` say why; the
command line, the API and the dashboard show both. For one fire, with the names and times of what got in its way:

```bash
python manage.py schedule explain nightly --at 2027-01-31T02:00
```

To run it anyway, `python manage.py retry EXECUTION` starts another attempt. For a whole stretch of time, including
fires that share one row:

```bash
python manage.py schedule backfill nightly --from 2027-01-30T00:00 --to 2027-02-01T00:00 --dry-run
```"""

ABOUT = {
    ExecutionStatus.PENDING: "It waits, and runs when it can. Most waiting rows have no reason.",
    ExecutionStatus.SKIPPED: "The scheduler decided not to run it.",
    ExecutionStatus.MISSED: "It could not be run in time.",
    ExecutionStatus.CANCELLED: "It was cancelled. If it was running, the error message says so and there is no reason.",
    ExecutionStatus.ABANDONED: "It was started, and it is unknown how far it got.",
}


class Explained(NamedTuple):
    status: str
    reason: str
    meaning: str
    advice: str


# (what it means, what to do)
MEANINGS = {
    Verdict(ExecutionStatus.PENDING, Reason.LIMITED): (
        "As many executions with this limit key are running, over all schedules, as the limit allows. It may wait for "
        "`FENCE_HORIZON_SECONDS` (default: a day) instead of its own waiting time; that is not lateness.",
        "Nothing: it starts when one of them ends. Otherwise raise the limit, which applies from the next start on.",
    ),
    Verdict(ExecutionStatus.SKIPPED, Reason.OVERLAP): (
        "As many executions of this schedule as `max_instances` allows were still running. A manual run, a retry or a "
        "catch-up run waits for room first and is skipped when its waiting time is over.",
        "Nothing, if the next fire is enough. Otherwise make the job faster or the schedule less frequent, set a "
        "`timeout_seconds` that ends runs which hang, or raise `max_instances`.",
    ),
    Verdict(ExecutionStatus.SKIPPED, Reason.COALESCED): (
        "Several fires of this schedule were due at the same time. With `coalesce` on, only the latest of them runs; "
        "while an earlier one waits as `pending`, that one runs for all that follow.",
        "Set `coalesce=false` if every fire has work of its own.",
    ),
    Verdict(ExecutionStatus.SKIPPED, Reason.BACKOFF): (
        "The schedule failed as often in a row as `backoff_after_failures` says. Until a run succeeds, it is tried "
        "only from time to time: a minute after the failed fire, then twice as long after each further failure, at "
        "most an hour. The fires in between are skipped.",
        "Fix the cause. `schedule run` tries at once; a success ends the backoff.",
    ),
    Verdict(ExecutionStatus.SKIPPED, Reason.DISABLED): (
        "The schedule was disabled after the fire came due and before it started.",
        "`schedule explain` names who disabled it. After `schedule enable` the next fire runs as planned.",
    ),
    Verdict(ExecutionStatus.SKIPPED, Reason.CHANGED): (
        "The timing was changed after the fire came due and before it started.",
        "Nothing: the new timing has its own fires. `schedule explain` names who changed it.",
    ),
    Verdict(ExecutionStatus.SKIPPED, Reason.DELETED): (
        "The schedule was deleted before the execution started.",
        "Nothing. `schedule explain` names who deleted it.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.MISFIRE): (
        "It could not start within `misfire_grace_seconds` of its due time: all workers were busy, the replica was "
        "frozen, or Postgres did not answer.",
        "If workers were busy, add replicas, raise `MAX_WORKERS` or set `spread_seconds`. If a late run is still "
        "useful, raise `misfire_grace_seconds`.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.NOBODY_ABLE): (
        "At the end of its waiting time no living replica could run it: none had all that it needs. The error message "
        "names its needs.",
        "Load the module that registers the job type on a replica (`JOB_MODULES`). `python manage.py doctor` names "
        "the job types and the replicas.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.LIMIT): (
        "It waited for a limit until `FENCE_HORIZON_SECONDS` (default: a day) were over. Its metadata names the key.",
        "Raise the limit, or let fewer schedules share the key. A limit of 0 stops everything with its key.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.NO_HANDLER): (
        "Written by earlier builds: within its waiting time no free replica knew its job type.",
        "As for `nobody_able`.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.DOWNTIME): (
        "No replica took it when it was due, and the catch-up policy skips it: `catchup` is `none`, a later fire "
        "ran instead, or it is older than `CATCHUP_WINDOW_SECONDS`.",
        "Run more than one replica. Set `catchup` to `one` or `all` if missed fires should run after a downtime.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.CATCHUP_CAP): (
        "Like `downtime` or `changed`, for more fires than `CATCHUP_MAX_FIRES`: this one row stands for all of "
        "them. Its metadata has the `first`, the `last` and the `count`.",
        "As for `downtime`. `schedule backfill` runs them one by one.",
    ),
    Verdict(ExecutionStatus.MISSED, Reason.CHANGED): (
        "No replica took it when it was due, and since then the timing was changed or the schedule was disabled or "
        "deleted. Fires of a former timing are not caught up.",
        "`schedule backfill` runs it if it is also a fire of the present timing.",
    ),
    Verdict(ExecutionStatus.CANCELLED, Reason.CANCEL_REQUESTED): (
        "It was cancelled while it waited for its turn.",
        "Nothing. `retry` runs it after all.",
    ),
    Verdict(ExecutionStatus.CANCELLED, Reason.CANCELLED): (
        "It was cancelled while a replica held it, and that replica gave it back before it started.",
        "Nothing. `retry` runs it after all.",
    ),
    Verdict(ExecutionStatus.ABANDONED, Reason.REPLICA_DEAD): (
        "The replica that ran it died, froze or lost its connection for longer than `HEARTBEAT_TIMEOUT_SECONDS`. "
        "Whatever it still did was not recorded.",
        "Set `max_retries` if another attempt is safe. Look into the log of that replica: out of memory is a "
        "frequent cause.",
    ),
}

QUEUES = {
    Reason.PAUSED: (
        "Its queue is paused.",
        "`python manage.py queue resume QUEUE`, once the cause is fixed.",
    ),
    Reason.CIRCUIT_OPEN: (
        "The circuit breaker of its queue is open: too many of its last items failed.",
        "`python manage.py dead-letters list` has the errors. A probe closes the circuit by itself.",
    ),
    Reason.BACKPRESSURE: (
        "The next queue of the pipeline is too long.",
        "Nothing, if it gets shorter. Otherwise let its workflow run more often.",
    ),
    Reason.HUNG_THREADS: (
        "Items that ignore their timeout hold all threads of this replica.",
        "Restart the replica, and find out what those items wait for.",
    ),
}

KINDS = {
    Kind.SCHEDULE: "scheduled fire",
    Kind.CATCHUP: "catch-up run",
    Kind.RETRY: "retry",
    Kind.MANUAL: "manual run",
    Kind.MANUAL_RETRY: "manual retry",
    Kind.BACKFILL: "backfill",
}

WAITS = {
    Wait.GRACE: "`misfire_grace_seconds`",
    Wait.HORIZON: "`FENCE_HORIZON_SECONDS` (default: a day)",
    None: "as long as it takes",
}

STAGES = {
    Stage.DUE: "A fire is due, and its schedule says",
    Stage.CLAIM: "Allowed to run, but",
    Stage.WAITING: "Waiting (`pending`), and",
    Stage.START: "It is claimed, and its schedule changed before it started",
    Stage.GAP_SCAN: "A gap scan finds a fire without a row, and",
}

SITUATIONS = {
    Situation.CANCEL_REQUESTED: "it was cancelled",
    Situation.DELETED: "the schedule is deleted",
    Situation.OFF: "the schedule is disabled",
    Situation.ENDED: "it came due before the last change of the timing",
    Situation.NOT_A_FIRE: "the present timing has no such fire",
    Situation.TOO_OLD: "it is older than `FENCE_HORIZON_SECONDS`",
    Situation.EARLY: "it is not due yet by the clock of Postgres",
    Situation.BACKING_OFF: "the schedule backs off after failures (`backoff_after_failures`)",
    Situation.OVERDUE: "its waiting time is over",
    Situation.COALESCES: "a later fire of the schedule is due, and `coalesce` is on",
    Situation.STOOD_FOR: "an earlier fire of the schedule waits as `pending`, and `coalesce` is on",
    Situation.NO_ROOM: "`max_instances` leaves no room",
    Situation.OTHERS_FIRST: "earlier fires of the schedule take the room, and `coalesce` is off",
    Situation.BEHIND: "an earlier fire of the schedule waits as `pending`, and `coalesce` is off",
    Situation.UNABLE: "this replica is not able to run it",
    Situation.LIMITED: "the limit of one of its keys leaves no room",
    Situation.FOR_LIMIT: "it waits for a limit",
    Situation.OTHER_KEYS: "its limit keys have changed",
    Situation.NOBODY_ABLE: "no living replica is able to run it",
    Situation.CAUGHT_UP: "the catch-up policy runs it",
    Situation.TRIED_AGAIN: "replicas were running, so it is tried once more",
    Situation.BEYOND_CAP: "more fires were missed than `CATCHUP_MAX_FIRES`",
}


def reasons() -> Iterator[Explained]:
    """Every reason that the scheduler writes by itself, by status."""
    for status in ABOUT:
        for verdict, words in MEANINGS.items():
            if verdict.status == status:
                yield Explained(status, verdict.word, *words)
    for reason, words in QUEUES.items():
        yield Explained(ExecutionStatus.SKIPPED, reason, *words)


def verdicts_page() -> str:
    return "\n".join([HEAD, *_reasons(), *_queues(), *_waiting(), *_table()])


def _reasons() -> Iterator[str]:
    for status, about in ABOUT.items():
        yield from ("", f"## {status}", "", about, "", "| reason | what it means | what to do |", "|---|---|---|")
        for each in reasons():
            if each.status == status and each.reason not in QUEUES:
                yield f"| `{each.reason}` | {each.meaning} | {each.advice} |"


def _queues() -> Iterator[str]:
    yield from ("", "## Skipped by the job itself", "")
    yield "A job that raises `JobSkipped(reason)` writes its own reason. Runs of a workflow queue"
    yield "([pipeline.md](pipeline.md)) write these:"
    yield from ("", "| reason | what it means | what to do |", "|---|---|---|")
    for reason, (meaning, advice) in QUEUES.items():
        yield f"| `{reason}` | {meaning} | {advice} |"


def _waiting() -> Iterator[str]:
    yield from ("", "## Why does it wait?", "")
    yield "A row with the status `pending` waits for its retry pause to end, for room under `max_instances`, for a free"
    yield "worker, for a limit, or for a replica that is able to run it. How long it may wait after its due time:"
    yield from ("", "| what | waits at most |", "|---|---|")
    for kind, wait in PATIENCE.items():
        yield f"| {KINDS[kind]} | {WAITS[wait]} |"
    yield from ("", f"After waiting for a limit, an execution may wait for {WAITS[Wait.HORIZON]} instead of its grace.")


def _table() -> Iterator[str]:
    yield from ("", "## The whole table", "")
    yield "At each stage the first line that applies decides. Enabling or disabling a schedule also changes its timing."
    yield "A manual retry is one that a person asks for, or the retry of a manual run. A waiting row that cannot run"
    yield "yet is looked at again when it can, when its schedule changes, or when its waiting time is over. Any replica"
    yield "does that, also while all workers are busy."
    for stage, rules in RULES.items():
        yield from ("", f"### {STAGES[stage]}", "", "| when | of | status | reason |", "|---|---|---|---|")
        for rule in rules:
            status = f"`{rule.verdict.status}`" if rule.verdict.status else "no row"
            reason = f"`{rule.verdict.reason}`" if rule.verdict.reason else ""
            yield f"| {_when(rule)} | {_of(rule)} | {status} | {reason} |"


def _when(rule: Rule) -> str:
    return " and ".join(SITUATIONS[each] for each in rule.when) or "otherwise"


def _of(rule: Rule) -> str:
    return "all" if rule.kinds == frozenset(Kind) else ", ".join(KINDS[each] for each in Kind if each in rule.kinds)
