"""The promises as data: a sentence, a bound, the findings of the checker that break it, and the tests that hold it.

`python -m tests.proof.guarantees` makes docs/guarantees.md from it, the page of `make prove` groups by it, and
tests/unit/proof/test_promises.py keeps it true: every test exists, every finding belongs to a promise, every promise
has a mutant.
"""

from dataclasses import dataclass

ENGINE = "tests/acceptance/engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    number: str
    title: str
    sentence: str
    bound: str
    tests: tuple[str, ...]  # node ids with real processes, the plainest first
    findings: tuple[str, ...] = ()  # kinds of violations in checker.py and queue_checker.py


PROMISES = (
    Promise(
        number="G1",
        title="One execution per fire",
        sentence="A handler is called at most once for each attempt of a fire, whatever happens to Redis, clocks, "
        "connections or processes.",
        bound="0 duplicates",
        tests=(
            f"{ENGINE}/test_each_fire_once.py::test_the_outside_world_sees_each_fire_once",
            f"{ENGINE}/test_partial_faults.py::test_a_claim_whose_answer_comes_late_is_run_once",
            f"{ENGINE}/test_partial_faults.py::test_late_answers_under_load_call_no_attempt_twice",
            f"{ENGINE}/test_async_handlers.py::test_what_waits_for_the_event_loop_of_a_frozen_replica_is_never_called_there",
            f"{ENGINE}/test_async_handlers.py::"
            "test_each_fire_runs_once_and_alone_while_redis_and_postgres_vanish_and_a_replica_is_killed",
        ),
        findings=(
            "two rows",
            "called twice",
            "an attempt too many",
            "a token that did not rise",
            "a claim of two processes",
            "an item worked on twice under one claim",
            "an item saved twice under one claim",
            "an item saved without its claim",
            "an item's attempt too many",
        ),
    ),
    Promise(
        number="G2",
        title="No row, no run",
        sentence="A handler is called only after the row of its execution is committed.",
        bound="0 calls without a row",
        tests=(f"{ENGINE}/test_each_fire_once.py::test_no_handler_is_called_before_its_row_is_committed",),
        findings=("called without a row", "called with a token that was taken back"),
    ),
    Promise(
        number="G3",
        title="Nothing unaccounted",
        sentence="Every fire that was due ends as one row per attempt with a status and, if it did not run, a reason. "
        "No row is made for an instant that was not a fire.",
        bound="a row within 38 s: verification after 3 s, gap scan every 30 s, and 5 s to settle",
        tests=(
            f"{ENGINE}/test_redis_faults.py::test_fires_whose_redis_replies_get_lost_are_still_run",
            f"{ENGINE}/test_downtime.py::test_fires_missed_while_nobody_ran_follow_the_catch_up_rule",
            f"{ENGINE}/test_recorded_fates.py::test_nothing_is_invented_for_the_time_in_which_a_schedule_was_off",
        ),
        findings=(
            "unaccounted",
            "invented",
            "a row too late",
            "an attempt too few",
            "both in a summary and with a row",
            "covered by a summary that does not count it",
            "called though recorded as not run",
            "not run without a reason",
            "left open",
            "waits for a limit that has room",
            "early",
            "an item left in processing",
            "an item without an end",
            "an item's attempts miscounted",
            "a step that no queue makes",
            "a dead letter that is wrong",
            "totals of a queue that disagree",
        ),
    ),
    Promise(
        number="G4",
        title="No overlap",
        sentence="No more than `max_instances` executions of a schedule run at once, over all replicas, and no more "
        "of a limit's key than it allows; a changed limit counts from the next start on. Exceptions: the handler of an "
        "abandoned execution, and a thread that ignores its timeout, may still run. Neither can write.",
        bound="`max_instances`, `limits`",
        tests=(
            f"{ENGINE}/test_each_fire_once.py::test_a_schedule_never_overlaps_itself_across_replicas",
            f"{ENGINE}/test_redis_faults.py::test_a_redis_that_forgot_everything_causes_no_duplicate_and_no_overlap",
            f"{ENGINE}/test_limits.py::test_a_hundred_keys_share_the_replicas_two_at_a_time_although_one_is_killed",
        ),
        findings=("overlap", "a limit exceeded"),
    ),
    Promise(
        number="G5",
        title="Changes take effect at once",
        sentence="A committed change, also one by plain SQL, reaches every replica that holds the schedule. "
        "A disabled or deleted schedule never fires again.",
        bound="1 s after the commit",
        tests=(
            f"{ENGINE}/test_each_fire_once.py::test_a_change_by_plain_sql_is_obeyed_at_once_by_every_replica",
            f"{ENGINE}/test_each_fire_once.py::test_a_disabled_or_deleted_schedule_never_fires_again",
        ),
        findings=("started after its timing ended",),
    ),
    Promise(
        number="G6",
        title="A dead or frozen replica costs seconds",
        sentence="Other replicas give up its executions, retry them and take its fires. No living replica is given up. "
        "A replica that wakes up can overwrite nothing.",
        bound="takeover within 8 s of a killed process, 22 s of a frozen or cut-off one; fires of a schedule whose "
        "`TIMER_COPIES` holders all died within one heartbeat timeout are late by at most 22 s",
        tests=(
            f"{ENGINE}/test_replica_faults.py::test_a_killed_replica_s_running_execution_is_abandoned_and_retried_elsewhere",
            f"{ENGINE}/test_replica_faults.py::test_a_frozen_replica_that_wakes_up_can_overwrite_nothing",
            f"{ENGINE}/test_partial_faults.py::test_nobody_who_lives_is_given_up_when_postgres_stood_still",
            f"{ENGINE}/test_shares.py::test_both_holders_of_a_bucket_die_together_and_its_fires_are_late_by_a_takeover",
            f"{ENGINE}/test_async_handlers.py::test_a_killed_replica_s_async_execution_is_abandoned_and_retried_elsewhere",
            f"{ENGINE}/test_async_handlers.py::test_a_handler_that_blocks_the_loop_is_named_and_stops_nothing_else",
        ),
        findings=(
            "a living one was given up",
            "a takeover too late",
            "called after it was given up",
            "an end that changed",
            "held after the end",
            "an item taken over too early",
            "an item's rescue too late",
        ),
    ),
    Promise(
        number="G7",
        title="Redis may vanish",
        sentence="Without Redis the replicas go on with Postgres alone, report it, and recover by themselves.",
        bound="G1 to G4 hold meanwhile",
        tests=(
            f"{ENGINE}/test_redis_faults.py::test_redis_may_vanish_and_come_back",
            f"{ENGINE}/test_redis_faults.py::test_without_redis_a_replica_can_choose_to_pause",
        ),
    ),
    Promise(
        number="G8",
        title="Postgres may vanish",
        sentence="Nothing starts without a row. Running handlers finish, and their results are written unchanged when "
        "Postgres is back.",
        bound="0 results lost while the process lives",
        tests=(f"{ENGINE}/test_postgres_faults.py::test_postgres_may_vanish_and_nothing_is_lost",),
        findings=(
            "an end that the handler did not make",
            "an end that nobody asked for",
            "an item's end that its work did not make",
        ),
    ),
    Promise(
        number="G9",
        title="Bad input is refused, not executed",
        sentence="A bad schedule is refused with every wrong field. A bad row written by SQL is parked with its reason "
        "and stops no other schedule.",
        bound="bad rows are parked in parts; a good change waits for one part, not for the last",
        tests=(f"{ENGINE}/test_each_fire_once.py::test_a_row_that_makes_no_sense_is_parked_and_stops_nobody",),
    ),
)


def promise_of(finding: str) -> Promise | None:
    """The promise that a finding of this kind breaks."""
    return next((promise for promise in PROMISES if finding in promise.findings), None)
