"""The named mutants, by the promise that each one breaks (docs/guarantees.md).

A text that an edit replaces stands in its file exactly once; tests/unit/proof/test_mutants.py holds the table in step
with the code. A defence behind which a second one stands is taken away together with it (`with_it`).
"""

from tests.proof.mutants.mutant import Edit, Mutant, Simulated

CLAIMS = "services/ledger/claims.py"
CLAIMS_SQL = "services/ledger/claims_sql.py"
WAITING = "services/ledger/waiting.py"
WAITING_SQL = "services/ledger/waiting_sql.py"
LIMITS = "services/ledger/limits.py"
LIMITS_SQL = "services/ledger/limits_sql.py"
LIVING_SQL = "services/ledger/living_sql.py"
VERDICTS = "services/ledger/verdicts.py"
DISPATCHER = "services/engine/dispatcher.py"
FINISHER = "services/engine/finisher.py"
POOL = "services/engine/pool.py"
ASYNC_RUNS = "services/engine/async_runs.py"
EVENT_LOOP = "services/engine/event_loop.py"
HEART = "services/engine/heart.py"
HEART_SQL = "services/engine/heart_sql.py"
RESCUER = "services/engine/rescuer.py"
RESCUER_SQL = "services/engine/rescuer_sql.py"
SCANNER = "services/engine/gap_scan/scanner.py"
SCANNER_SQL = "services/engine/gap_scan/scanner_sql.py"
WATCHER = "services/schedule_watcher.py"
SHARES = "services/engine/shares/shares.py"
MEMBERSHIP = "services/engine/shares/membership.py"
LOCK = "services/distributed_lock.py"
CONNECTION = "database/connection.py"
SCHEMA = "migrations/versions/0002_enhanced_scheduler.py"
NEWEST_STAMP = "migrations/versions/0032_streaks.py"
STREAKS = "services/engine/streaks.py"

NOTIFIER = "services/notifications/notifier.py"
NOTIFIER_SQL = "services/notifications/notifier_sql.py"
INCIDENTS = "services/notifications/incidents.py"
POSITION = "services/notifications/position.py"

IN_NOTIFIER = "tests/integration/notifications/test_notifier.py::test_"
IN_NOTIFIER_FAULTS = "tests/integration/notifications/test_notifier_faults.py::test_"
IN_STORMS = "tests/integration/notifications/test_storms.py::test_"
IN_TOLD_TRULY = "tests/integration/notifications/test_told_truly.py::test_"
IN_CLAIMS = "tests/integration/ledger/test_claims.py::test_"
IN_WAITING = "tests/integration/ledger/test_waiting.py::test_"
IN_LIMITS = "tests/integration/ledger/test_limits.py::test_"
IN_NEEDS = "tests/integration/ledger/test_needs.py::test_"
IN_UNHANDLED = "tests/integration/insight/test_unhandled_jobs.py::test_"
IN_DISPATCHER = "tests/integration/engine/test_dispatcher.py::test_"
IN_ASYNC_RUNS = "tests/unit/engine/test_async_runs.py::test_"
IN_FINISHER = "tests/integration/engine/test_finisher.py::test_"
IN_RESCUE = "tests/integration/engine/test_heart_and_rescuer.py::test_"
IN_GAP_SCAN = "tests/integration/engine/test_gap_scan.py::test_"
IN_STREAKS = "tests/integration/engine/test_streaks.py::test_"
IN_SHARES = "tests/unit/engine/shares/test_shares.py::test_"
IN_WATCHER = "tests/integration/schedules/test_schedule_watcher.py::test_"
IN_TRIGGERS = "tests/integration/database/test_schedule_triggers.py::test_"
IN_CONNECTION = "tests/integration/database/test_connection.py::test_"
IN_LOCK = "tests/integration/test_distributed_lock.py::test_"
IN_JOB_LOOP = "tests/integration/queues/test_job_loop.py::test_"
WITH_REPLICAS = "tests/acceptance/engine/test_"
LATE_WORKERS = "freeze,late_wake,late_reply,pg_stall,crash"  # kinds of faults that make them

ONE_EXECUTION_PER_FIRE = (
    Mutant(
        "no_unique_key",
        "G1",
        "The key that allows a fire one row per attempt.",
        (
            Edit(
                SCHEMA,
                "UNIQUE (schedule_id, scheduled_for, attempt),",
                "UNIQUE (schedule_id, scheduled_for, attempt, execution_id),",
            ),
        ),
        f"{IN_TRIGGERS}a_fire_has_one_row_per_attempt",
    ),
    Mutant(
        "claim_forgets_what_ran",
        "G1",
        "The claim's check whether a fire already has its row.",
        (
            Edit(
                CLAIMS_SQL,
                "WHERE e.schedule_id = a.schedule_id AND e.scheduled_for = a.scheduled_for AND e.attempt = 1 OFFSET 0",
                "WHERE false OFFSET 0",
            ),
        ),
        f"{IN_CLAIMS}a_batch_counts_only_the_fires_that_are_new",
    ),
    Mutant(
        "terminal_status_changes",
        "G1",
        "The trigger that keeps the end of an execution.",
        (
            Edit(
                SCHEMA,
                "FOR EACH ROW WHEN (OLD.status IN {TERMINAL} AND NEW.status",
                "FOR EACH ROW WHEN (false AND NEW.status",
            ),
        ),
        f"{IN_TRIGGERS}a_terminal_status_never_changes",
    ),
    Mutant(
        "mark_released_early",
        "G1",
        "The mark in Redis, which outlives the execution of its fire.",
        (
            Edit(
                LOCK,
                "  ours[i] = (set or redis.pcall('GET', key) == ARGV[1]) and 1 or 0\n",
                "  ours[i] = (set or redis.pcall('GET', key) == ARGV[1]) and 1 or 0\n  redis.call('DEL', key)\n",
            ),
        ),
        f"{IN_LOCK}a_fire_is_won_once_and_lost_by_everybody_else",
    ),
    Mutant(
        "mark_for_everybody",
        "G1",
        "That a mark in Redis is set only where there is none.",
        (
            Edit(
                LOCK,
                "redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2])",
                "redis.call('SET', key, ARGV[1], 'PX', ARGV[2])",
            ),
        ),
        f"{IN_LOCK}a_fire_is_won_once_and_lost_by_everybody_else",
    ),
    Mutant(
        "strangers_not_disowned",
        "G1",
        "The note that a row is no longer ours, made before it is handed back.",
        (
            Edit(
                HEART,
                "disowned = self._held.disown(strangers & self._strangers)",
                "disowned = list(strangers & self._strangers)",
            ),
        ),
        f"{IN_RESCUE}rows_under_our_name_that_we_do_not_know_go_back_after_two_beats",
    ),
    Mutant(
        "disowned_after_the_hand_back",
        "G1",
        "The order of disowning and handing back: an answer may arrive in between.",
        (
            Edit(
                HEART,
                "disowned = self._held.disown(strangers & self._strangers)",
                "disowned = list(strangers & self._strangers)",
            ),
            Edit(
                HEART,
                "            self._run(HAND_BACK_STRANGERS, execution_ids=ids, tokens=tokens)\n",
                "            self._run(HAND_BACK_STRANGERS, execution_ids=ids, tokens=tokens)\n"
                "            self._held.disown(disowned)\n",
            ),
        ),
        f"{IN_RESCUE}an_answer_that_comes_while_its_row_is_being_handed_back_is_thrown_away",
    ),
    Mutant(
        "strangers_at_first_sight",
        "G1",
        "The second heartbeat before an unknown row counts as a stranger.",
        (Edit(HEART, "self._held.disown(strangers & self._strangers)", "self._held.disown(strangers)"),),
        f"{IN_RESCUE}rows_under_our_name_that_we_do_not_know_go_back_after_two_beats",
    ),
    Mutant(
        "strangers_by_id_alone",
        "G1",
        "The token in the hand-back of strangers.",
        (
            Edit(
                HEART_SQL,
                "WHERE (execution_id, fencing_token) IN (SELECT * FROM unnest(",
                "WHERE execution_id IN (SELECT u.id FROM unnest(",
            ),
            Edit(
                HEART_SQL,
                "%(execution_ids)s::uuid[], %(tokens)s::bigint[]))\n",
                "%(execution_ids)s::uuid[], %(tokens)s::bigint[]) AS u (id, token))\n",
            ),
        ),
        f"{IN_RESCUE}a_row_that_we_got_again_is_not_handed_back_by_its_former_token",
    ),
    Mutant(
        "disowned_claim_is_run",
        "G1",
        "That a claim is discarded if its answer comes after it was disowned.",
        (Edit("services/engine/held_claims.py", "if claim.proof not in gone]", "if gone is not None]"),),
        f"{IN_DISPATCHER}a_claim_that_was_disowned_while_its_answer_was_on_its_way_is_not_run",
    ),
    Mutant(
        "fork_guard_off",
        "G1",
        "That a copy of the process, made by a handler, ends itself.",
        (Edit("enhanced_scheduler/containment.py", "if os.getpid() != process:", "if os.getpid() == 0:"),),
        "tests/unit/engine/test_isolation.py::test_a_copy_of_the_child_that_comes_back_from_the_handler_reports_nothing",
    ),
    Mutant(
        "rescue_to_pending",
        "G1",
        "That what a dead replica was running is given up, not simply run again.",
        (Edit(RESCUER_SQL, "THEN 'pending' ELSE 'abandoned' END,", "THEN 'pending' ELSE 'pending' END,"),),
        f"{IN_RESCUE}a_dead_replica_s_executions_are_rescued_and_their_retries_counted",
    ),
    Mutant(
        "early_fires_run",
        "G1",
        "The check of Postgres' clock, without which a replica with a fast clock claims early.",
        (Edit(CLAIMS, "due_at > now + EARLY,", "due_at > now + 100_000 * EARLY,"),),
        f"{IN_CLAIMS}postgres_clock_says_what_is_early_and_what_is_too_old",
    ),
    Mutant(
        "too_old_fires_run",
        "G1",
        "The horizon beyond which history cannot prove that a fire did not run.",
        (Edit(CLAIMS, "fire.scheduled_for < now - self._horizon,", "fire.scheduled_for < now - 100 * self._horizon,"),),
        f"{IN_CLAIMS}postgres_clock_says_what_is_early_and_what_is_too_old",
    ),
    Mutant(
        "skew_ignored",
        "G1",
        "That a replica whose clock is far off claims nothing.",
        (
            Edit(
                "services/engine/condition.py",
                "if not self._clock.is_trustworthy:",
                "if self._clock.skew_seconds is None:",
            ),
        ),
        f"{WITH_REPLICAS}postgres_faults.py::test_a_replica_whose_clock_is_far_off_claims_nothing_and_says_so",
    ),
    Mutant(
        "clock_of_the_machine",
        "G1",
        "The correction of the local clock by Postgres' clock.",
        (Edit("database/clock.py", "return self._local() - self._skew", "return self._local()"),),
        "tests/unit/engine/test_small_parts.py::test_the_skew_is_measured_against_the_middle_of_the_round_trip",
    ),
    Mutant(
        "queue_claims_without_token",
        "G1",
        "The claim's token in every write that ends an item of a queue.",
        (
            Edit(
                "services/queues/queue_sql.py",
                "t.{n.key} = c.key AND t.{n.prefix}claim_token = c.token AND",
                "t.{n.key} = c.key AND",
            ),
        ),
        f"{IN_JOB_LOOP}a_late_worker_cannot_end_what_another_has_in_work",
    ),
    Mutant(
        "queue_saves_without_token",
        "G1",
        "The same, as the simulation sees it: a late worker saves under the claim of another one.",
        (
            Edit(
                "services/queues/queue_sql.py",
                "t.{n.key} = c.key AND t.{n.prefix}claim_token = c.token AND",
                "t.{n.key} = c.key AND",
            ),
        ),
        Simulated(LATE_WORKERS, histories=100, queue=True),
    ),
    Mutant(
        "queue_saves_what_it_lost",
        "G1",
        "The check before `save` whether the item is still ours.",
        (
            Edit(
                "services/queues/item_writer.py",
                "if ending.claim in held and isinstance(ending.outcome, Returned):",
                "if isinstance(ending.outcome, Returned):",
            ),
        ),
        Simulated(LATE_WORKERS, histories=40, queue=True),
    ),
    Mutant(
        "queue_rescue_keeps_token",
        "G1",
        "The new token of a stale item, which shuts its former worker out.",
        (
            Edit(
                "services/queues/queue_sql.py",
                "UPDATE {n.table} SET {n.prefix}claim_token = %(token)s, {n.prefix}claimed_at = clock_timestamp()",
                "UPDATE {n.table} SET {n.prefix}claimed_at = clock_timestamp()",
            ),
        ),
        f"{IN_JOB_LOOP}a_row_whose_worker_vanished_is_worked_on_again",
    ),
)

NO_ROW_NO_RUN = (
    Mutant(
        "commit_not_on_disk",
        "G2",
        "That a claim is on disk before its handler is called.",
        (Edit(CONNECTION, "SET LOCAL synchronous_commit = on;", "SET LOCAL synchronous_commit = off;"),),
        f"{IN_CLAIMS}a_claim_is_on_disk_before_it_counts_although_the_database_does_not_wait_for_its_disk",
    ),
    Mutant(
        "runs_before_its_row",
        "G2",
        "That a start which Postgres refused calls no handler.",
        (
            Edit(
                DISPATCHER,
                "places.claimed.extendleft(reversed(batch))  # nothing was started; ",
                "self._run([claim for _, claim in batch])  # ",
            ),
        ),
        f"{IN_DISPATCHER}a_claim_whose_start_is_refused_waits_and_runs_only_after_it_is_written",
    ),
    Mutant(
        "start_believes_itself",
        "G2",
        "That only executions that the start has written as running are run.",
        (
            Edit(
                CLAIMS,
                "StartReport([claim for claim in free if claim.proof in started], held)",
                "StartReport([claim for claim in free if started is not None], held)",
            ),
        ),
        f"{IN_CLAIMS}what_was_withdrawn_between_claim_and_start_is_skipped",
    ),
    Mutant(
        "gate_opens_without_postgres",
        "G2",
        "That an execution waits at the gate while Postgres cannot confirm it.",
        (
            Edit(
                "services/engine/ownership.py",
                "that is no fault of the execution\n            return None",
                "\n            return True",
            ),
        ),
        f"{IN_RESCUE}an_execution_waits_at_the_gate_while_postgres_cannot_say_whose_it_is",
    ),
)

NOTHING_UNACCOUNTED = (
    Mutant(
        "no_verification",
        "G3",
        "The check for the row of a fire that another replica has marked.",
        (Edit(DISPATCHER, "        try:\n            self._verify_lost()\n", "        try:\n"),),
        f"{IN_DISPATCHER}a_fire_that_was_marked_and_got_no_row_is_claimed_after_all",
    ),
    Mutant(
        "no_gap_scan",
        "G3",
        "The loop that looks for fires without a row.",
        (Edit("services/enhanced_scheduler.py", "self.watcher.loop, gap_scanner.loop, ", "self.watcher.loop, "),),
        f"{WITH_REPLICAS}downtime.py::test_fires_missed_while_nobody_ran_follow_the_catch_up_rule",
    ),
    Mutant(
        "gap_scan_hands_nothing_over",
        "G3",
        "That a fire which the scan found without a row is tried again.",
        (Edit(SCANNER, "        self._hand_over(late)\n", ""),),
        f"{IN_GAP_SCAN}a_fire_without_a_row_is_handed_over_until_it_has_one",
    ),
    Mutant(
        "gap_scan_vouches_too_early",
        "G3",
        "That a scan vouches only for fires that have a row.",
        (
            Edit(
                SCANNER,
                "accounted = [min([settled, *scan.behind.get(bucket, {}).values()]) for bucket in buckets]",
                "accounted = [settled for bucket in buckets]",
            ),
        ),
        f"{IN_GAP_SCAN}what_has_no_row_yet_is_not_vouched_for",
    ),
    Mutant(
        "summary_forgets_a_claim_under_way",
        "G2",
        "That a summary covers only fires that had no row when the scan looked.",
        (
            Edit(
                SCANNER_SQL,
                "AND NOT pg_visible_in_snapshot({_WRITTEN_BY}, %(snapshot)s::pg_snapshot)",
                "AND NOT pg_visible_in_snapshot({_WRITTEN_BY}, coalesce(pg_current_snapshot(), %(snapshot)s))",
            ),
        ),
        f"{IN_GAP_SCAN}a_claim_that_is_under_way_while_the_scan_looks_is_not_recorded_as_missed",
    ),
    Mutant(
        "summary_waits_for_young_rows",
        "G3",
        "That a row which the scan saw does not delay a summary around it, however recent the row is.",
        (
            Edit(
                SCANNER_SQL,
                "AND NOT pg_visible_in_snapshot({_WRITTEN_BY}, %(snapshot)s::pg_snapshot)",
                "AND %(snapshot)s IS NOT NULL",
            ),
        ),
        f"{IN_GAP_SCAN}a_row_that_was_there_before_the_look_delays_no_summary",
    ),
    Mutant(
        "gap_scan_waits",
        "G3",
        "That a scan does not wait for a frozen replica that holds the row which all scans write.",
        (
            Edit(
                SCANNER_SQL,
                "WHERE w.until < least.until\n    FOR NO KEY UPDATE OF w SKIP LOCKED",
                "WHERE w.until < least.until\n    FOR NO KEY UPDATE OF w",
            ),
        ),
        f"{IN_GAP_SCAN}a_scan_does_not_wait_for_somebody_who_holds_what_all_scans_write",
    ),
    Mutant(
        "gap_scan_vouches_for_all_buckets",
        "G3",
        "That the one row of all buckets keeps the least progress, not the furthest.",
        (
            Edit(
                SCANNER_SQL,
                "min(until) AS until FROM fires_watched_by_bucket",
                "max(until) AS until FROM fires_watched_by_bucket",
            ),
        ),
        f"{IN_GAP_SCAN}a_hole_in_one_bucket_stays_a_hole_however_far_the_others_are",
    ),
    Mutant(
        "lagging_buckets_are_nobody_s",
        "G3",
        "That any replica scans a bucket which its holders do not scan.",
        (Edit(SCANNER_SQL, "< clock_timestamp() - make_interval(secs => %(lag)s)", "< '-infinity'"),),
        f"{IN_GAP_SCAN}a_bucket_that_nobody_tries_is_scanned_from_the_table_by_anybody",
    ),
    Mutant(
        "a_bucket_is_dropped_at_once",
        "G6",
        "That a bucket is kept until the replicas with the duty have shown it for a heartbeat timeout.",
        (Edit(SHARES, "if read_at - since >= self._timeout]", "]"),),
        f"{IN_SHARES}a_bucket_is_dropped_after_those_with_the_duty_have_shown_it_for_a_timeout",
    ),
    Mutant(
        "an_empty_duty_drops_everything",
        "G7",
        "That no replica drops a bucket while no replica claims.",
        (Edit(SHARES, "if len(holders) < self._copies:", "if False:"),),
        f"{IN_SHARES}while_nobody_claims_nobody_drops_anything",
    ),
    Mutant(
        "without_duty_after_a_pause",
        "G7",
        "That duty falls to all claiming replicas if none of them has it.",
        (Edit(MEMBERSHIP, "return steady or tuple(each for each in self.members if each.claiming)", "return steady"),),
        f"{IN_SHARES}if_nobody_is_on_duty_all_that_claim_are",
    ),
    Mutant(
        "the_silent_are_dead_at_once",
        "G6",
        "That a replica which was away itself declares no other replica dead.",
        (Edit(SHARES, "if not can_tell:", "if False:"),),
        f"{IN_SHARES}a_replica_that_was_away_itself_takes_nobody_for_dead",
    ),
    Mutant(
        "the_duty_stays_as_it_was",
        "G6",
        "That the duty of a replica which has left falls to others.",
        (Edit(SHARES, "        if places != self._on_duty:\n", "        if not self._on_duty:\n"),),
        f"{IN_SHARES}who_has_unregistered_is_gone_for_everybody",
    ),
    Mutant(
        "a_drain_ends_at_once",
        "G6",
        "That a replica which shuts down stays until others hold its buckets.",
        (
            Edit(
                SHARES,
                "return not others or bool(self._membership.elders) or not self._mask & ~held",
                "return True",
            ),
        ),
        f"{IN_SHARES}a_replica_that_leaves_waits_until_others_hold_its_buckets",
    ),
    Mutant(
        "a_leave_counts_before_it_is_told",
        "G6",
        "That a replica shuts down only after reading heartbeats that show its own leave.",
        (
            Edit(
                SHARES,
                "each.identity == self._identity and each.claiming for each in members):",
                "False for each in members):",
            ),
        ),
        f"{IN_SHARES}only_a_reading_that_shows_the_own_leave_lets_a_replica_go",
    ),
    Mutant(
        "fires_of_a_drain_are_dropped",
        "G6",
        "That fires which become due on a replica that is shutting down are given away.",
        (Edit(DISPATCHER, "        if self._may_give_away():\n", "        if not self._is_leaving:\n"),),
        f"{IN_DISPATCHER}a_replica_that_leaves_gives_away_what_is_due_and_what_it_has_not_begun",
    ),
    Mutant(
        "a_bucket_begins_when_it_is_loaded",
        "G6",
        "That the replica which loads a dead holder's bucket hands over the fires since its last scan.",
        (Edit(WATCHER, "min(latest, max(earliest, found.get(number) or latest))", "latest"),),
        f"{IN_WATCHER}a_bucket_is_loaded_from_where_its_gap_scan_ended_but_not_from_before_any_living_replica",
    ),
    Mutant(
        "half_a_bucket_stays",
        "G5",
        "That a load which breaks half-way leaves nothing in the timer.",
        (Edit(WATCHER, "            self._take_out_all(new.values())  # half a bucket is none\n", ""),),
        f"{IN_WATCHER}a_load_that_breaks_half_way_leaves_nothing_in_the_timer",
    ),
    Mutant(
        "gap_scan_by_the_fast_clock",
        "G3",
        "That a scan judges by the slower one of two clocks.",
        (Edit(SCANNER, "return min(self._clock.now(), looked_at)", "return max(self._clock.now(), looked_at)"),),
        f"{IN_GAP_SCAN}a_clock_that_runs_ahead_records_nothing_that_is_still_to_come",
    ),
    Mutant(
        "catch_up_without_cap",
        "G3",
        "The cap beyond which missed fires share a row.",
        (
            Edit(
                "services/engine/gap_scan/plan.py",
                "if count > limits.max_fires:",
                "if count > 1000 * limits.max_fires:",
            ),
        ),
        "tests/unit/engine/test_gap_scan.py::test_beyond_the_cap_one_row_stands_for_all",
    ),
    Mutant(
        "summary_fences_nothing",
        "G3",
        "That a fire which a summary has recorded as missed is not run.",
        (
            Edit(
                CLAIMS_SQL,
                """    statement.replace("/* if late */", f"AND NOT {recorded_as_missed('a')}")\n""",
                "    statement\n",
            ),
        ),
        f"{IN_CLAIMS}a_summary_fences_every_fire_that_it_speaks_for",
    ),
    Mutant(
        "rows_without_proof",
        "G3",
        "The check of the change log before a row for an ended timing is written.",
        (
            Edit(
                CLAIMS, "        if not ended:\n            return asked", "        if asked:\n            return asked"
            ),
        ),
        f"{IN_CLAIMS}no_row_is_made_for_a_fire_of_a_time_at_which_the_schedule_was_off",
    ),
    Mutant(
        "coalesced_with_itself",
        "G3",
        "That a fire which is handed over twice is claimed once.",
        (Edit(CLAIMS, "once = list({fire.key: fire for fire in fires}.values())", "once = list(fires)"),),
        f"{IN_CLAIMS}a_fire_that_is_handed_over_twice_is_not_coalesced_with_itself",
    ),
    Mutant(
        "double_submit_loses_the_batch",
        "G3",
        "That a claim which the pool refuses goes back and its batch runs.",
        (
            Edit(
                DISPATCHER,
                "            except RuntimeError as error:\n",
                "            except ZeroDivisionError as error:\n",
            ),
        ),
        f"{IN_DISPATCHER}a_claim_that_the_pool_refuses_is_handed_back_and_the_rest_of_its_batch_runs",
    ),
    Mutant(
        "retry_lost",
        "G3",
        "The next attempt, planned in the commit that records a failure.",
        (
            Edit(
                CLAIMS_SQL,
                "FROM ended WHERE delay IS NOT NULL AND cancel_requested_at IS NULL",
                "FROM ended WHERE delay < 0 AND cancel_requested_at IS NULL",
            ),
        ),
        f"{IN_CLAIMS}a_failure_plans_its_next_attempt_in_the_same_commit",
    ),
    Mutant(
        "timeout_ignored",
        "G3",
        "The end of a handler that exceeds its time limit.",
        (
            Edit(
                "services/engine/run.py",
                "deadline = self.begun_at + self.context.timeout_seconds",
                "deadline = self.begun_at + 1e6 * self.context.timeout_seconds",
            ),
        ),
        "tests/unit/engine/test_pool.py::test_a_hung_handler_ends_timed_out_and_its_slot_is_replaced",
    ),
    Mutant(
        "held_schedules_starve_others",
        "G3",
        "The growing pauses for schedules whose row another session holds.",
        (
            Edit(
                DISPATCHER,
                "            places.waiting.hold(some, self._clock.timestamp())",
                "            for fire in some:\n                places.waiting.put(fire, self._clock.timestamp())",
            ),
        ),
        f"{IN_DISPATCHER}held_schedules_take_no_turn_of_the_others",
    ),
    Mutant(
        "lock_order_reversed",
        "G3",
        "That results lock their schedules first, in one order.",
        (
            Edit(
                CLAIMS,
                'self._connection.run(sql.LOCK_OR_TELL, {"ids": uuid_array(wanted)})}',
                "()}",
            ),
        ),
        f"{IN_CLAIMS}a_schedule_that_somebody_holds_does_not_keep_other_results_waiting",
    ),
    Mutant(
        "drain_without_hand_back",
        "G3",
        "That a stopping replica hands back the executions that it has not begun.",
        (Edit("services/engine/workplace.py", "        tolerating_outage(lambda: self._give_back(unfinished))\n", ""),),
        f"{WITH_REPLICAS}replica_faults.py::test_a_replica_that_is_stopped_under_load_abandons_nothing_that_did_not_run",
    ),
)

NO_OVERLAP = (
    Mutant(
        "no_schedule_lock",
        "G4",
        "The lock on a schedule, under which its fires are claimed by one replica at a time.",
        (
            Edit(
                CLAIMS_SQL,
                "WHERE s.schedule_id = ANY(%(ids)s::uuid[]) ORDER BY s.schedule_id FOR NO KEY UPDATE SKIP LOCKED",
                "WHERE s.schedule_id = ANY(%(ids)s::uuid[]) ORDER BY s.schedule_id",
            ),
        ),
        f"{IN_CLAIMS}a_schedule_that_somebody_holds_is_left_for_later",
    ),
    Mutant(
        "overlap_counted_before_the_lock",
        "G4",
        "That running executions are counted in a snapshot younger than the lock.",
        (
            Edit(
                CLAIMS_SQL,
                "), live AS ({LIVE}), standing AS (",
                "), live AS (SELECT * FROM unnest(%(busy)s::uuid[], %(counts)s::int[]) AS l (schedule_id, n)),"
                " standing AS (",
            ),
            Edit(
                CLAIMS,
                '            rows = self._connection.run(sql.LOCK_SCHEDULES, {"ids": uuid_array(wanted)})\n',
                '            self._live = self._connection.run(sql.LIVE, {"schedule_ids": uuid_array(wanted)})\n'
                '            rows = self._connection.run(sql.LOCK_SCHEDULES, {"ids": uuid_array(wanted)})\n',
            ),
            Edit(
                CLAIMS,
                '            "starts": flag_array(place < (start or 0) for place in range(len(asked))),\n',
                '            "starts": flag_array(place < (start or 0) for place in range(len(asked))),\n'
                '            "busy": uuid_array(row.schedule_id for row in self._live),\n'
                '            "counts": number_array(row.n for row in self._live),\n',
            ),
        ),
        f"{IN_CLAIMS}what_another_replica_claimed_before_the_lock_was_ours_is_counted",
    ),
    Mutant(
        "overlap_not_asked",
        "G4",
        "The claim's count of running executions.",
        (
            Edit(
                CLAIMS_SQL, '"coalesce(live.n, 0) >= f.max_instances"', '"coalesce(live.n, 0) >= 100 * f.max_instances"'
            ),
        ),
        f"{IN_CLAIMS}a_fire_meets_the_one_that_still_runs",
    ),
    Mutant(
        "waiting_rows_overlap",
        "G4",
        "The count of running executions when waiting rows are claimed.",
        (
            Edit(WAITING_SQL, '"coalesce(live.n, 0) + w.rank > w.max_instances"', '"w.rank > 100 * w.max_instances"'),
            Edit(
                WAITING_SQL,
                "              < coalesce(s.max_instances, %(max_instances)s)\n",
                "              < 100 * coalesce(s.max_instances, %(max_instances)s)\n",
            ),
        ),
        f"{IN_CLAIMS}pending_rows_wait_while_their_schedule_runs",
        with_it="the search for waiting rows, which passes over those without room",
    ),
    Mutant(
        "take_without_the_schedule_s_lock",
        "G4",
        "The lock on the schedule of a row that waits.",
        (
            Edit(
                WAITING_SQL,
                "        ORDER BY e.due_at LIMIT /* most */ FOR NO KEY UPDATE OF e, s SKIP LOCKED",
                "        ORDER BY e.due_at LIMIT /* most */ FOR NO KEY UPDATE OF e SKIP LOCKED",
            ),
        ),
        f"{IN_CLAIMS}a_row_whose_schedule_somebody_holds_does_not_fill_the_place_of_another",
    ),
)

WAITING_ROWS = (
    Mutant(
        "settle_gives_a_token",
        "G1",
        "That settling a row gives no right to run it.",
        (Edit(WAITING, "        able = [False] * len(theirs)\n", "        able = [True] * len(theirs)\n"),),
        "tests/integration/ledger/test_verdicts.py::test_to_settle_ends_the_same_rows_and_gives_nobody_a_token",
    ),
    Mutant(
        "settle_without_the_schedule_s_lock",
        "G5",
        "The lock on the schedule of a row that is settled.",
        (
            Edit(
                WAITING_SQL,
                "WHERE /* which */ LIMIT %(limit)s FOR NO KEY UPDATE OF e, s SKIP LOCKED",
                "WHERE /* which */ LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED",
            ),
        ),
        f"{IN_WAITING}settling_waits_for_nobody",
    ),
    Mutant(
        "settled_again_and_again",
        "G3",
        "That a row past its deadline is looked at later, not in every poll.",
        (
            Edit(
                WAITING_SQL,
                """THEN CASE WHEN d.ends_at > d.now THEN least(d.ends_at, d.now + {LOOK_AGAIN})
                               WHEN d.is_overdue THEN d.now + make_interval(secs => %(timeout)s)
                               ELSE d.now + {LOOK_AGAIN} END""",
                "THEN least(d.ends_at, d.now + {LOOK_AGAIN})",
            ),
        ),
        f"{IN_WAITING}a_row_that_outlives_its_deadline_does_not_fill_every_look",
    ),
    Mutant(
        "overdue_rows_are_looked_at_in_ten_minutes",
        "G3",
        "That a row which no replica can run ends soon after its grace, even if the first poll could not decide.",
        (
            Edit(
                WAITING_SQL,
                "                               WHEN d.is_overdue THEN d.now + make_interval(secs => %(timeout)s)\n",
                "",
            ),
        ),
        f"{IN_NEEDS}a_row_that_nobody_can_run_ends_soon_after_a_look_that_could_not_tell",
    ),
    Mutant(
        "anyone_runs_anything",
        "G3",
        "That an execution is run only by a replica that has what it needs.",
        (
            Edit(
                "services/ledger/needs.py",
                "queue in served and words.issuperset(each) for each, queue",
                "bool(words | served | {each, queue}) for each, queue",
            ),
        ),
        Simulated("late_wake", histories=30),
    ),
    Mutant(
        "changes_by_number",
        "G5",
        "That a change which commits late is found by its transaction.",
        (
            Edit(
                WAITING_SQL,
                "c.txid >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)",
                "c.txid >= pg_snapshot_xmax(%(snapshot)s::pg_snapshot)",
            ),
        ),
        f"{IN_WAITING}a_change_that_commits_late_is_not_passed_over",
    ),
    Mutant(
        "rows_of_the_deleted_wait_for_ever",
        "G3",
        "The search for rows whose schedule was deleted and cannot be locked.",
        (
            Edit(
                WAITING_SQL,
                "    SELECT execution_id, schedule_id FROM orphaned\n",
                "    SELECT execution_id, schedule_id FROM orphaned WHERE false\n",
            ),
        ),
        f"{IN_WAITING}rows_of_a_deleted_schedule_are_ended",
    ),
    Mutant(
        "waiting_row_counted_as_live",
        "G3",
        "That a waiting row does not count as running: it would wait for itself.",
        (
            Edit(
                CLAIMS_SQL,
                "AND status IN ('claimed', 'running') GROUP BY",
                "AND coalesce(status, '') IN ('running', 'pending') GROUP BY",
            ),
        ),
        f"{IN_WAITING}a_later_fire_is_coalesced_into_the_row_that_waits",
    ),
    Mutant(
        "retries_stand",
        "G3",
        "That only a first attempt stands for its schedule.",
        (
            Edit(
                CLAIMS_SQL, "coalesce(status, 't') = 'pending' AND attempt = 1\n", "coalesce(status, 't') = 'pending'\n"
            ),
        ),
        f"{IN_WAITING}retries_people_s_wishes_and_rows_that_only_have_to_be_settled_stand_for_nothing",
    ),
    Mutant(
        "doomed_rows_stand",
        "G3",
        "That a row of a timing that has ended stands for nothing.",
        (Edit(CLAIMS_SQL, "WHERE (SELECT e.scheduled_for > s.effective_from AND e.due_at", "WHERE (SELECT e.due_at"),),
        f"{IN_WAITING}retries_people_s_wishes_and_rows_that_only_have_to_be_settled_stand_for_nothing",
    ),
    Mutant(
        "profile_not_asked",
        "G3",
        "That the scan profile is read for the needs of an execution whenever its row is looked at.",
        (
            Edit(
                "services/ledger/needs.py",
                '        rows = connection.run(PROFILES, {"ids": uuid_array(wanted)}) if wanted else []\n',
                '        rows = connection.run(PROFILES, {"ids": uuid_array([])}) if wanted else []\n',
            ),
        ),
        f"{IN_NEEDS}a_profile_that_changes_while_the_row_waits_counts_when_it_is_taken",
    ),
    Mutant(
        "held_beside_an_older_replica",
        "G3",
        "That nothing waits for a label while a live replica lists no abilities.",
        (Edit("services/ledger/needs.py", "        if self.elders:\n", "        if self.elders and not words:\n"),),
        f"{IN_NEEDS}while_an_older_replica_lives_nothing_is_held_for_labels",
    ),
    Mutant(
        "nobody_able_by_who_was_away",
        "G6",
        "That only a replica which has been alive for long enough decides `nobody_able`.",
        (Edit(WAITING_SQL, 'f"""w.is_overdue AND {WE_LIVE} AND NOT EXISTS (', 'f"""w.is_overdue AND NOT EXISTS ('),),
        f"{IN_UNHANDLED}a_replica_that_was_away_itself_does_not_say_that_nobody_is_able",
    ),
)

LIMITS_ACROSS_SCHEDULES = (
    Mutant(
        "limit_counted_outside_its_stripe",
        "G4",
        "The lock of a key's stripe, under which running executions are counted.",
        (Edit(LIMITS_SQL, "    ORDER BY stripe FOR UPDATE SKIP LOCKED\n", "    ORDER BY stripe\n"),),
        f"{IN_LIMITS}two_replicas_at_once_never_exceed_a_limit",
    ),
    Mutant(
        "limit_counted_before_its_stripe",
        "G4",
        "That running executions are counted in a statement that is younger than the locks.",
        (
            Edit(
                LIMITS,
                "    return limited.without_room(rows, wanting, seen.running, most, turns), wanting\n",
                "    return limited.without_room(rows, wanting, {}, most, turns), wanting\n",
            ),
        ),
        f"{IN_LIMITS}a_limit_counts_what_ran_before_there_was_one",
    ),
    Mutant(
        "limit_not_asked_when_a_row_is_taken",
        "G4",
        "That the limits of a waiting row are checked when it is taken.",
        (Edit(WAITING, "        if are_limited and not self.abilities.ignored_limits:\n", "        if False:\n"),),
        Simulated("late_reply,crash,manual,retry,backfill,limit", 60),
    ),
    Mutant(
        "a_place_is_given_twice",
        "G4",
        "That fires of one batch are decided one by one.",
        (Edit(LIMITS, "                used.update(own)\n", "                used.update(())\n"),),
        f"{IN_LIMITS}what_a_limit_has_no_room_for_waits_with_its_key",
    ),
    Mutant(
        "keys_changed_before_the_start",
        "G4",
        "That a claim is counted by the keys that its schedule has when it starts.",
        (
            Edit(
                CLAIMS,
                "                Situation.OTHER_KEYS: locked.spec.all_limit_keys != claim.spec.all_limit_keys,\n",
                "                Situation.OTHER_KEYS: False,\n",
            ),
        ),
        f"{IN_LIMITS}a_claim_whose_keys_change_before_its_start_is_judged_anew",
    ),
    Mutant(
        "a_limit_waits_as_long_as_the_grace",
        "G3",
        "That an execution waits for a limit up to the horizon instead of its grace.",
        (
            Edit(
                WAITING_SQL,
                'f"CASE WHEN {HAS_WAITED} THEN %(horizon)s ELSE a.grace_seconds END"',
                '"a.grace_seconds"',
            ),
        ),
        f"{IN_LIMITS}what_waits_for_a_limit_has_a_day_instead_of_its_grace",
    ),
    Mutant(
        "freed_place_not_looked_for",
        "G3",
        "That the replica which frees a place looks at once for executions that wait for it.",
        (Edit(FINISHER, "                self._freed(freed)\n", "                pass\n"),),
        f"{IN_DISPATCHER}a_place_that_is_freed_is_taken_at_once",
    ),
    Mutant(
        "rows_of_full_keys_hide_the_free",
        "G3",
        "That a poll which meets only rows of full limits looks at more rows.",
        (Edit(WAITING, " and most < MOST_PASSED:\n", " and most < 0:\n"),),
        f"{IN_LIMITS}rows_of_a_full_key_keep_none_behind_them_waiting",
    ),
    Mutant(
        "a_poll_forgets_freed_places",
        "G3",
        "That a poll, too, looks at keys whose places were freed just before it.",
        (
            Edit(
                DISPATCHER,
                "wishes, sorted(freed), ",
                "wishes, () if is_poll else freed, ",
            ),
        ),
        f"{IN_DISPATCHER}a_place_that_is_freed_just_before_a_poll_is_taken_in_it",
    ),
    Mutant(
        "full_keys_hide_the_others",
        "G3",
        "That waiting keys are looked at in turn.",
        (
            Edit(
                WAITING,
                '            self._last_reason = rows[0].last if rows[0].seen >= MOST_KEYS else ""\n',
                '            self._last_reason = ""\n',
            ),
        ),
        f"{IN_LIMITS}the_keys_that_wait_are_looked_at_by_turns",
    ),
    Mutant(
        "no_place_is_kept",
        "G3",
        "That places are kept for a row which has waited long for several limits at once.",
        (
            Edit(
                LIMITS,
                "            against = self._kept_against(turns[place]) if self.kept else frozenset()\n",
                "            against = frozenset()\n",
            ),
        ),
        f"{IN_LIMITS}what_waits_for_two_limits_gets_its_places_although_others_keep_each_of_them_full",
    ),
    Mutant(
        "a_place_is_kept_for_ever",
        "G3",
        "That a kept place is not kept again at once.",
        (
            Edit(
                LIMITS,
                "any(key in self.resting or not self.most[key] for key in own)",
                "any(not self.most[key] for key in own)",
            ),
        ),
        f"{IN_LIMITS}a_place_is_kept_for_a_tenth_of_the_wait_and_then_not_for_nine_times_as_long",
    ),
    Mutant(
        "a_place_is_kept_for_the_cancelled",
        "G3",
        "That a place is kept only while its row waits.",
        (Edit(LIMITS_SQL, "(e.status, '') = 'pending'))\"\"\"\n", "(e.status, '') <> ''))\"\"\"\n"),),
        f"{IN_LIMITS}what_was_cancelled_or_ended_keeps_nothing",
    ),
    Mutant(
        "a_kept_place_keeps_the_older_waiting",
        "G3",
        "That a place is kept only against those whose turn comes later: else two rows could wait for each other.",
        (
            Edit(
                LIMITS,
                "return turn.execution_id != self.turn.execution_id and self.turn.is_before(turn)",
                "return turn.execution_id != self.turn.execution_id",
            ),
        ),
        f"{IN_LIMITS}the_more_urgent_and_the_older_are_not_kept_waiting",
    ),
    Mutant(
        "urgent_only_once_sorted",
        "G3",
        "That a new waiting row is as urgent as its schedule before anybody has sorted it.",
        (Edit(CLAIMS_SQL, "           coalesce(priority, 0)\n", "           0\n"),),
        "tests/integration/ledger/test_waiting.py::"
        "test_a_new_row_is_as_urgent_as_its_schedule_before_anybody_has_sorted_it",
    ),
    Mutant(
        "limits_beside_an_older_replica",
        "G3",
        "That nothing waits for a limit while a live replica does not know limits.",
        (
            Edit(
                CLAIMS,
                "are_limited = rows[0].are_limited and not self._abilities.ignored_limits",
                "are_limited = rows[0].are_limited",
            ),
        ),
        f"{IN_LIMITS}while_an_older_replica_lives_nothing_is_held_for_limits",
    ),
    Mutant(
        "waits_for_a_limit_that_is_not_its_own",
        "G5",
        "That a change of its schedule's keys ends the wait for a limit.",
        (
            Edit(
                WAITING_SQL,
                "{WAITS} THEN CASE WHEN {_REASON_IS_OLD} THEN NULL ELSE e.reason END",
                "{WAITS} THEN e.reason",
            ),
        ),
        f"{IN_LIMITS}a_schedule_that_drops_its_key_waits_no_longer",
    ),
)

A_CHANGE_IS_OBEYED = (
    Mutant(
        "revision_not_asked_at_start",
        "G5",
        "That a start requires the revision that was claimed.",
        (
            Edit(
                CLAIMS_SQL,
                "  AND c.revision = (SELECT s.revision FROM schedules AS s WHERE s.schedule_id = c.schedule_id)\n",
                "",
            ),
        ),
        f"{IN_CLAIMS}what_was_withdrawn_between_claim_and_start_is_skipped",
    ),
    Mutant(
        "watermark_instead_of_transactions",
        "G5",
        "That a change which is committed late is found by its transaction.",
        (
            Edit(
                WATCHER,
                "WHERE c.txid >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)",
                "WHERE c.txid >= pg_snapshot_xmax(%(snapshot)s::pg_snapshot)",
            ),
        ),
        f"{IN_WATCHER}a_change_that_is_committed_after_later_ones_were_seen_is_seen_too",
    ),
    Mutant(
        "listen_without_compare",
        "G5",
        "The comparison after a lost connection, during which notifications were missed.",
        (
            Edit(
                WATCHER,
                "            self.reconcile()\n        except BaseException:",
                "            if not self.loaded:\n                self.reconcile()\n        except BaseException:",
            ),
        ),
        f"{IN_WATCHER}what_changed_while_both_connections_were_lost_is_seen_when_they_are_back",
    ),
    Mutant(
        "deleted_stays_in_the_timer",
        "G5",
        "That a deleted schedule leaves the timer.",
        (
            Edit(
                WATCHER,
                "        if known is not None:\n            self._take_out(known)\n        return known is not None",
                "        return known is not None",
            ),
        ),
        f"{IN_WATCHER}a_schedule_that_was_deleted_leaves_the_timer",
    ),
    Mutant(
        "changes_are_silent",
        "G5",
        "The notification of a change.",
        (Edit(SCHEMA, "PERFORM pg_notify('schedules_changed', '');", "NULL;"),),
        f"{IN_TRIGGERS}listeners_wake_up_once_per_transaction",
    ),
    Mutant(
        "new_timing_holds_for_the_past",
        "G5",
        "That a timing has no due fires from before it was set.",
        (
            Edit(
                NEWEST_STAMP,
                "            THEN NEW.updated_at\n            ELSE OLD.effective_from",
                "            THEN OLD.effective_from\n            ELSE OLD.effective_from",
            ),
        ),
        f"{IN_TRIGGERS}new_timing_holds_from_now_on",
    ),
    Mutant(
        "pause_without_a_second_look",
        "G5",
        "That a pause after failures is judged again under the schedule's lock.",
        (
            Edit(
                STREAKS,
                "off = [each for each in streaks if each.pauses]",
                "off = streaks",
            ),
        ),
        f"{IN_STREAKS}a_success_or_an_edit_before_the_pause_prevents_it",
    ),
    Mutant(
        "disabled_schedules_fire",
        "G5",
        "That a claim checks whether the schedule is enabled.",
        (Edit(VERDICTS, "        Rule((S.OFF,), NO_ROW, FIRE, Decision.DISABLED),\n", ""),),
        f"{IN_CLAIMS}a_fire_that_comes_due_after_its_schedule_was_switched_off_does_not_run",
    ),
    Mutant(
        "cancel_not_heard",
        "G5",
        "That a replica looks for requests to cancel its running executions.",
        (
            Edit(
                HEART,
                "if row.cancel_requested and self._held.holds_execution(row.execution_id):",
                "if row.execution_id is None:",
            ),
        ),
        f"{IN_RESCUE}a_replica_hears_with_its_next_heartbeat_that_a_job_of_its_own_is_to_be_cancelled",
    ),
    Mutant(
        "cancelled_is_retried",
        "G5",
        "That a cancelled execution has no next attempt.",
        (
            Edit(
                CLAIMS_SQL,
                "FROM ended WHERE delay IS NOT NULL AND cancel_requested_at IS NULL",
                "FROM ended WHERE delay IS NOT NULL",
            ),
        ),
        f"{IN_CLAIMS}what_was_cancelled_is_neither_retried_nor_run",
    ),
)

A_DEAD_REPLICA_COSTS_SECONDS = (
    Mutant(
        "rows_of_the_first_kind_forgotten",
        "G6",
        "That rows taken for threads are kept although none can be taken for the event loop.",
        (
            Edit(
                "services/ledger/waiting.py",
                "            yield self._take_from([lane for lane in lanes if wish.wants(lane)], wish)\n",
                "            pass\n"
                "        yield from [self._take_from([a for a in lanes if one.wants(a)], one) for one in wishes]\n",
            ),
        ),
        f"{IN_DISPATCHER}rows_taken_for_threads_run_although_none_can_be_taken_for_the_event_loop",
    ),
    Mutant(
        "no_fence_at_start",
        "G6",
        "The token that a start has to show.",
        (
            Edit(
                CLAIMS_SQL,
                "AND e.fencing_token = c.token AND coalesce(e.status, '') = 'claimed'\n  AND c.revision",
                "AND coalesce(e.status, '') = 'claimed'\n  AND c.revision",
            ),
        ),
        f"{IN_CLAIMS}a_start_with_an_old_token_is_refused",
    ),
    Mutant(
        "no_fence_at_finish",
        "G6",
        "The token that a result has to show.",
        (
            Edit(
                CLAIMS_SQL,
                "AND e.fencing_token = c.token AND coalesce(e.status, '') = 'running'\n    RETURNING",
                "AND coalesce(e.status, '') = 'running'\n    RETURNING",
            ),
        ),
        f"{IN_CLAIMS}an_end_is_written_once_and_only_by_its_owner",
    ),
    Mutant(
        "finish_of_anything",
        "G6",
        "That a result is written only to a running execution.",
        (
            Edit(
                CLAIMS_SQL,
                "AND e.fencing_token = c.token AND coalesce(e.status, '') = 'running'\n    RETURNING",
                "AND e.fencing_token = c.token\n    RETURNING",
            ),
            Edit(
                SCHEMA,
                "FOR EACH ROW WHEN (OLD.status IN {TERMINAL} AND NEW.status",
                "FOR EACH ROW WHEN (false AND NEW.status",
            ),
        ),
        f"{IN_CLAIMS}an_end_is_written_once_and_only_by_its_owner",
        with_it="the trigger that keeps the end of an execution",
    ),
    Mutant(
        "no_fence_at_hand_back",
        "G6",
        "The token that a hand-back has to show.",
        (
            Edit(
                CLAIMS_SQL,
                "AND e.fencing_token = c.token AND coalesce(e.status, '') = 'claimed'\n\"\"\"",
                "AND coalesce(e.status, '') = 'claimed'\n\"\"\"",
            ),
        ),
        f"{IN_CLAIMS}what_was_claimed_again_is_not_handed_back_by_its_former_owner",
    ),
    Mutant(
        "no_fence_at_unstart",
        "G6",
        "The token that an undone start has to show.",
        (
            Edit(
                CLAIMS_SQL,
                "AND e.fencing_token = c.token AND coalesce(e.status, '') IN ('claimed', 'running')",
                "AND coalesce(e.status, '') IN ('claimed', 'running')",
            ),
        ),
        f"{IN_CLAIMS}what_was_claimed_again_is_not_handed_back_by_its_former_owner",
    ),
    Mutant(
        "given_up_is_run",
        "G6",
        "That the handler of an execution which was given up is not called.",
        (
            Edit(
                "services/engine/ownership.py",
                "                    self._dropped([claim])\n                    return False\n            self",
                "                    return True\n            self",
            ),
        ),
        f"{IN_RESCUE}an_execution_that_was_given_up_is_turned_away",
    ),
    Mutant(
        "young_trust_counts",
        "G6",
        "That heartbeats prove ownership only without a gap since before the claim.",
        (
            Edit(
                HEART,
                "if self.is_fresh and self._in_time_since is not None and self._in_time_since <= claim.asked_at:",
                "if self.is_fresh and self._in_time_since is not None:",
            ),
        ),
        f"{IN_RESCUE}trust_that_is_younger_than_the_claim_is_none",
    ),
    Mutant(
        "late_heartbeat_counts",
        "G6",
        "That a late heartbeat proves nothing.",
        (
            Edit(
                HEART,
                "return last is not None and awake_or_not() - last < pulse.interval_seconds + FRESH_SECONDS",
                "return last is not None and pulse.interval_seconds > 0",
            ),
        ),
        f"{IN_RESCUE}a_late_heartbeat_is_no_proof_that_nobody_gave_us_up",
    ),
    Mutant(
        "slow_answer_counts",
        "G6",
        "That the question is repeated when Postgres took long to answer.",
        (Edit(HEART, "rows[0].free and took < SLOW_ANSWER_SECONDS and", "rows[0].free and took >= 0 and"),),
        f"{IN_RESCUE}an_answer_that_took_long_is_asked_for_again",
    ),
    Mutant(
        "held_row_is_confirmed",
        "G6",
        "That a row which another session is just giving up is not confirmed.",
        (Edit(HEART, "is_sure = rows[0].free and took", "is_sure = took"),),
        f"{IN_RESCUE}what_somebody_is_just_giving_up_is_not_confirmed",
    ),
    Mutant(
        "rescue_without_grace",
        "G6",
        "That a rescuer first listens for a whole heartbeat timeout.",
        (
            Edit(
                RESCUER,
                "if self._heart.connected_seconds < self._heart.pulse.timeout_seconds:",
                "if self._heart.connected_seconds < 0:",
            ),
            Edit(LIVING_SQL, "          AND we.alive_since <= moment.now - make_interval(secs => %(timeout)s)\n", ""),
        ),
        f"{IN_RESCUE}a_dead_replica_s_executions_are_rescued_and_their_retries_counted",
        with_it="the same check in the statement that gives up",
    ),
    Mutant(
        "rescue_before_looking_at_itself",
        "G6",
        "That a rescuer whose own heartbeat is old declares no replica dead.",
        (Edit(LIVING_SQL, "          AND we.heartbeat_at > moment.now - make_interval(secs => %(gap)s)\n", ""),),
        f"{IN_RESCUE}nobody_is_dead_for_a_replica_whose_own_heartbeat_is_old",
    ),
    Mutant(
        "rescue_does_not_look_again",
        "G6",
        "That the statement which gives up judges again which replicas are dead.",
        (
            Edit(
                RESCUER_SQL,
                "AND before.execution_id = e.execution_id\n      AND {_DEAD} AND {WE_LIVE}\n",
                "AND before.execution_id = e.execution_id\n",
            ),
        ),
        f"{IN_RESCUE}who_gives_a_sign_of_life_while_it_is_being_given_up_lives",
    ),
    Mutant(
        "heartbeat_counts_from_its_answer",
        "G6",
        "That a replica trusts itself no longer than the others do.",
        (Edit(HEART, "            self._last_beat = started\n", "            self._last_beat = answered\n"),),
        f"{IN_RESCUE}a_heartbeat_counts_from_before_it_was_sent",
    ),
    Mutant(
        "own_gap_forgotten",
        "G6",
        "That a rescuer which was away itself listens again first.",
        (
            Edit(
                HEART_SQL, "THEN clock_timestamp() ELSE i.alive_since END", "THEN i.alive_since ELSE i.alive_since END"
            ),
        ),
        f"{IN_RESCUE}a_gap_of_its_own_makes_a_replica_listen_anew",
    ),
    Mutant(
        "rescue_waits_for_rows",
        "G6",
        "That a rescue passes over executions which another session holds.",
        (Edit(RESCUER_SQL, "FOR NO KEY UPDATE OF s, e SKIP LOCKED", "FOR NO KEY UPDATE OF s SKIP LOCKED"),),
        f"{IN_RESCUE}a_rescue_waits_for_no_execution_that_another_session_holds",
    ),
    Mutant(
        "rescue_without_retry",
        "G6",
        "The next attempt of an execution that a dead replica was running.",
        (
            Edit(
                RESCUER_SQL,
                "WHERE r.status = 'abandoned' AND r.attempt <=",
                "WHERE r.status = 'claimed' AND r.attempt <=",
            ),
        ),
        f"{IN_RESCUE}a_dead_replica_s_executions_are_rescued_and_their_retries_counted",
    ),
    Mutant(
        "former_self_hidden",
        "G6",
        "That an owner is a process, not a name.",
        (
            Edit(
                RESCUER_SQL,
                "WHERE i.instance_id = e.instance_id AND i.incarnation = e.incarnation\n",
                "WHERE i.instance_id = e.instance_id\n",
            ),
        ),
        f"{IN_RESCUE}what_a_former_process_of_the_same_name_ran_is_rescued",
    ),
    Mutant(
        "young_session_of_the_rescuer_counts",
        "G6",
        "That vanished sessions prove nothing to a rescuer which has just connected.",
        (Edit(RESCUER, "if is_late or any(row.own_seconds < self._timeout for row in rows):", "if is_late:"),),
        f"{IN_RESCUE}vanished_sessions_prove_nothing_for_a_rescuer_that_has_just_connected_itself",
    ),
    Mutant(
        "first_look_believed",
        "G6",
        "That a replica counts as absent only for a rescuer that once saw its sessions.",
        (Edit(RESCUER, "for incarnation in self._seen - present", "for incarnation in listed - present"),),
        f"{IN_RESCUE}a_replica_that_was_never_seen_with_a_session_is_not_missed",
    ),
    Mutant(
        "late_look_believed",
        "G6",
        "That a rescuer which was away itself looks for sessions again.",
        (Edit(RESCUER, "if is_late or any(", "if any("),),
        f"{IN_RESCUE}sessions_that_vanished_while_the_rescuer_was_away_are_looked_for_anew",
    ),
    Mutant(
        "absent_without_missed_heartbeat",
        "G6",
        "That a replica without sessions is dead only after a missed heartbeat.",
        (
            Edit(
                RESCUER_SQL,
                "AND i.heartbeat_at < moment.now - make_interval(secs => i.heartbeat_interval_seconds +",
                "AND i.heartbeat_at < moment.now + make_interval(secs => i.heartbeat_interval_seconds +",
            ),
        ),
        f"{IN_RESCUE}a_process_whose_sessions_are_gone_and_that_missed_a_heartbeat_is_dead",
    ),
    Mutant(
        "no_idle_bound",
        "G6",
        "The timeout of a session that is idle in a transaction, which frees its locks.",
        (
            Edit(
                CONNECTION,
                '            "idle_in_transaction_session_timeout": str(idle_in_transaction_seconds * 1000),\n',
                '            "idle_in_transaction_session_timeout": str(idle_in_transaction_seconds * 0),\n',
            ),
        ),
        f"{IN_CONNECTION}a_session_that_sleeps_inside_a_transaction_loses_its_locks",
    ),
)

REDIS_MAY_VANISH = (
    Mutant(
        "no_answer_means_lost",
        "G7",
        "That a missing answer of Redis is distinguished from a lost mark.",
        (Edit(LOCK, "return [Answer.UNKNOWN] * len(fires)", "return [Answer.LOST] * len(fires)"),),
        f"{IN_LOCK}an_error_instead_of_an_answer_is_unknown",
    ),
    Mutant(
        "no_answer_no_claim",
        "G7",
        "That a fire is claimed although Redis gave no answer.",
        (Edit(DISPATCHER, "if answer is not Answer.LOST]", "if answer is Answer.WON]"),),
        f"{IN_DISPATCHER}without_an_answer_of_redis_postgres_decides",
    ),
    Mutant(
        "pause_not_obeyed",
        "G7",
        "LOCK_FAILURE_POLICY=pause.",
        (
            Edit(
                "services/engine/condition.py",
                "if self._coordinator.degraded and self._pauses_without_redis:",
                "if self._coordinator.degraded is None:",
            ),
        ),
        f"{WITH_REPLICAS}redis_faults.py::test_without_redis_a_replica_can_choose_to_pause",
    ),
)

POSTGRES_MAY_VANISH = (
    Mutant(
        "results_dropped",
        "G8",
        "That a result is kept until it is written.",
        (
            Edit(
                FINISHER,
                "            report = self._write(self._unwritten)\n",
                "            endings, self._unwritten = self._unwritten, []\n"
                "            report = self._write(endings)\n",
            ),
            Edit(
                FINISHER,
                "written = [ending for ending in self._unwritten if",
                "written = [ending for ending in endings if",
            ),
        ),
        f"{IN_FINISHER}a_result_stays_what_it_is_when_a_lock_keeps_it_longer_than_a_statement_may_take",
    ),
    Mutant(
        "fires_dropped",
        "G8",
        "That fires wait when their claim fails.",
        (
            Edit(
                DISPATCHER, "                self._put_back(fires)\n                raise\n", "                raise\n"
            ),
        ),
        f"{IN_DISPATCHER}an_error_that_is_about_the_moment_loses_no_fire_and_is_not_asked_again_for_each",
    ),
    Mutant(
        "misfires_run",
        "G8",
        "The misfire rule for fires that came due while nothing could be claimed.",
        (Edit(VERDICTS, "        Rule((S.OVERDUE,), _missed(Reason.MISFIRE), FIRE, Decision.MISFIRE),\n", ""),),
        f"{IN_CLAIMS}a_fire_that_is_too_late_is_recorded_as_missed",
    ),
    Mutant(
        "trouble_untold",
        "G8",
        "That a loop which fails repeatedly reports it.",
        (
            Edit(
                "services/engine/loops.py",
                "if self._failures >= FAILURES_IN_A_ROW and",
                "if self._failures >= 10**6 and",
            ),
        ),
        "tests/unit/engine/test_loops.py::test_ticks_that_fail_in_a_row_are_trouble_until_one_works",
    ),
    Mutant(
        "ready_although_loops_fail",
        "G8",
        "That a replica whose claims all fail is not ready.",
        (
            Edit(
                "services/engine/condition.py",
                "return [*reasons, *self._obstacles(), *self._failing_loops()]",
                "return [*reasons, *self._obstacles()]",
            ),
        ),
        f"{WITH_REPLICAS}postgres_faults.py::test_a_replica_whose_claims_all_fail_says_so_and_comes_back_by_itself",
    ),
    Mutant(
        "schema_not_asked",
        "G8",
        "That a program refuses a schema that is too old for it.",
        (
            Edit(
                "services/enhanced_scheduler.py",
                "            patiently(lambda: require_schema(self.db))  # else every claim would fail, one by one\n",
                "",
            ),
        ),
        "tests/integration/engine/test_replica_start.py::test_a_start_waits_neither_for_a_schema_nor_for_a_newer_one",
    ),
)

BAD_INPUT_IS_AN_ANSWER = (
    Mutant(
        "bad_row_stops_the_notifier",
        "G9",
        "That an ended execution which makes no sense does not keep the others from being judged.",
        (
            Edit(
                NOTIFIER,
                "        for row in rows:\n            if (error",
                "        for row in rows[:0]:\n            if (error",
            ),
        ),
        f"{IN_NOTIFIER_FAULTS}a_row_that_makes_no_sense_is_said_and_all_others_are_told",
    ),
    Mutant(
        "bad_rule_stops_the_notifier",
        "G9",
        "That a rule which makes no sense is left out.",
        (Edit(NOTIFIER, "known = rule, rule.problem is None", "known = rule, True"),),
        f"{IN_NOTIFIER_FAULTS}a_rule_that_makes_no_sense_tells_nothing_says_so_and_stops_no_other",
    ),
    Mutant(
        "failing_look_silences_all",
        "G9",
        "That a check which fails keeps nothing else from being reported.",
        (Edit(NOTIFIER, "            failed = failed or error\n", "            raise\n"),),
        f"{IN_NOTIFIER_FAULTS}a_look_that_fails_keeps_nothing_else_from_being_told",
    ),
    Mutant(
        "storm_swallows_the_next",
        "G3",
        "That a storm absorbs only problems that follow it closely.",
        (Edit(INCIDENTS, "JOINED_WITHIN = timedelta(minutes=30)", "JOINED_WITHIN = timedelta(days=3650)"),),
        f"{IN_STORMS}after_a_storm_of_which_one_still_fails_the_next_one_is_told",
    ),
    Mutant(
        "pause_silences_its_failure",
        "G3",
        "That a collected problem is reported although its schedule is disabled meanwhile.",
        (Edit(NOTIFIER_SQL, "WHERE phase IN ('counting', 'told') AND event", "WHERE phase <> 'over' AND event"),),
        f"{IN_TOLD_TRULY}a_failure_that_pauses_its_schedule_at_once_is_told",
    ),
    Mutant(
        "late_commit_of_an_end_missed",
        "G3",
        "That the notifier finds executions whose end was committed late.",
        (Edit(POSITION, "first = min([seen.xmax, *finished])", "first = seen.xmax"),),
        f"{IN_NOTIFIER}a_transaction_that_ends_an_execution_and_commits_late_is_not_missed",
    ),
    Mutant(
        "bad_row_stops_the_watcher",
        "G9",
        "That a row which makes no sense is parked and the others are loaded.",
        (
            Edit(
                WATCHER,
                "            except InvalidSchedule as error:\n",
                "            except ZeroDivisionError as error:\n",
            ),
        ),
        f"{IN_WATCHER}a_senseless_row_that_somebody_holds_keeps_nobody_waiting_and_is_parked_afterwards",
    ),
    Mutant(
        "parking_in_one_statement",
        "G9",
        "The bounded number of rows that one statement parks.",
        (Edit("services/schedules/upkeep.py", "PARK_ROWS = 500", "PARK_ROWS = 10**9"),),
        f"{IN_WATCHER}thousands_of_senseless_rows_are_parked_in_parts_and_a_good_change_does_not_wait_for_the_last",
    ),
    Mutant(
        "poison_accepted",
        "G9",
        "The CHECK constraints of the table.",
        (Edit(SCHEMA, "CHECK (max_instances >= 1)", "CHECK (max_instances >= -1000)"),),
        f"{IN_TRIGGERS}poison_is_refused_by_the_table",
    ),
    Mutant(
        "bad_result_takes_others_along",
        "G9",
        "That a result which cannot be stored fails alone.",
        (
            Edit(
                FINISHER,
                "            if not is_about_values(error):\n                raise  # the results are good\n",
                "            if endings:\n                raise\n",
            ),
        ),
        f"{IN_FINISHER}a_result_that_cannot_be_stored_fails_alone",
    ),
)

IN_FLEET = "tests/integration/fleet/test_"
WORKER = "services/fleet/worker.py"
A_FLEET = (
    Mutant(
        "worker_is_a_member",
        "G6",
        "That a Celery worker is not counted in the order of the replicas.",
        (Edit("services/engine/heart_sql.py", "WHERE kind = 'replica'\n  AND (", "WHERE ("),),
        "tests/integration/engine/test_heart_and_rescuer.py::test_a_worker_of_the_fleet_is_no_member_of_ours",
    ),
    Mutant(
        "unsent_stays_announced",
        "G3",
        "That rows whose messages did not reach the broker are announced as soon as it is back.",
        (
            Edit(
                "services/fleet/publisher.py",
                "            self._outbox.put_back(batch.ids)\n            self._note_failure",
                "            self._note_failure",
            ),
        ),
        f"{IN_FLEET}publisher.py::test_what_the_broker_did_not_get_is_due_again_and_the_circuit_opens",
    ),
    Mutant(
        "more_messages_than_rows",
        "G3",
        "That the messages already in the broker are counted before more are sent.",
        (Edit("services/fleet/publisher.py", "max(0, waiting - lying)", "marked"),),
        f"{IN_FLEET}publisher.py::test_messages_that_lie_in_the_broker_already_count",
    ),
    Mutant(
        "rows_without_a_message",
        "G3",
        "That messages are counted after the rows, which workers go on taking: otherwise some rows get none.",
        (
            Edit(
                "services/fleet/publisher.py",
                "                lying = min(lying, self._messages.depth(queue))  # others may have sent theirs\n",
                "",
            ),
        ),
        f"{IN_FLEET}publisher.py::test_each_row_has_its_message_although_workers_take_others_while_they_are_counted",
    ),
    Mutant(
        "a_lost_message_is_lost",
        "G3",
        "That a row whose message was lost is announced again.",
        (Edit("services/ledger/outbox_sql.py", "FIRST_PAUSE_SECONDS = 30", "FIRST_PAUSE_SECONDS = 86_400"),),
        Simulated("message_lost", histories=40, fleet=True),
    ),
    Mutant(
        "worker_believes_the_message",
        "G1",
        "The lock under which a row is taken: two workers that were woken for it would both judge it.",
        (
            Edit(
                WAITING_SQL,
                "ORDER BY e.due_at LIMIT /* most */ FOR NO KEY UPDATE OF e, s SKIP LOCKED",
                "ORDER BY e.due_at LIMIT /* most */",
            ),
            Edit(
                WAITING_SQL,
                "WHERE d.execution_id = e.execution_id AND {_BY_ITS_KEY} AND (",
                "WHERE d.execution_id = e.execution_id AND (",
            ),
        ),
        Simulated("message_twice,late_reply", histories=40, fleet=True),
        with_it="that only a row that still waits is taken",
    ),
    Mutant(
        "worker_takes_without_a_token",
        "G1",
        "The new token of each claim, which fences the previous claim.",
        (
            Edit(
                WAITING_SQL,
                "fencing_token = CASE WHEN {CLAIMED} THEN nextval('fencing_token_seq') END",
                "fencing_token = CASE WHEN {CLAIMED} THEN coalesce(e.fencing_token, 1) END",
            ),
        ),
        Simulated("cut_off,freeze,late_reply,crash", histories=60, fleet=True),
    ),
    Mutant(
        "worker_runs_what_it_does_not_hold",
        "G1",
        "That a worker runs only what it holds: a claim that was disowned while its answer was late runs elsewhere.",
        (
            Edit(
                WORKER,
                "started, _ = place.held.accept(report.started, ())",
                "started = list(report.started)",
            ),
        ),
        Simulated("", histories=5, fleet=True),
    ),
    Mutant(
        "worker_claims_twice_at_once",
        "G1",
        "That only one call of a worker claims at a time.",
        (Edit(WORKER, "with self._taking:\n            report", "if True:\n            report"),),
        Simulated("message_twice,late_reply", histories=40, fleet=True),
    ),
    Mutant(
        "worker_ignores_the_loss_of_its_session",
        "G1",
        "That a worker which may have been given up asks Postgres before it calls a handler, or hands the row back.",
        (Edit("services/engine/ownership.py", "return self._heart.confirms(claim)", "return True"),),
        Simulated("cut_off,freeze,late_reply,late_wake", histories=60, fleet=True),
    ),
    Mutant(
        "worker_claims_although_it_may_not",
        "G1",
        "That a worker without a recent heartbeat takes nothing.",
        (Edit(WORKER, "return place.heart.is_trusted and place.clock", "return place.clock"),),
        f"{IN_FLEET}worker.py::test_a_worker_that_may_not_claim_gives_the_wake_up",
    ),
    Mutant(
        "worker_acknowledges_at_once",
        "G6",
        "That a message is acknowledged when its execution's end is written, so that a warm shutdown waits for it.",
        (Edit(WORKER, "        over.wait()\n", ""),),
        f"{IN_FLEET}worker.py::test_a_worker_takes_the_most_urgent_row_of_its_queues_and_returns_when_its_end_is_written",
    ),
    Mutant(
        "a_wake_waits_for_ever",
        "G6",
        "That a task returns when its execution ends, in whatever way: otherwise its place is lost.",
        (Edit(WORKER, "HeldClaims(self._forgot)", "HeldClaims()"),),
        Simulated("", histories=5, fleet=True),
    ),
    Mutant(
        "worker_serves_any_queue",
        "G2",
        "That a worker takes rows of its own queues only.",
        (
            Edit(
                WORKER,
                "Abilities.of_registry(registry, labels, queues, waits",
                'Abilities.of_registry(registry, labels, ("default", *queues), waits',
            ),
        ),
        Simulated("", histories=20, fleet=True),
    ),
    Mutant(
        "worker_does_not_wait_for_elders",
        "G1",
        "That a worker takes nothing while a live replica does not know fleets.",
        (Edit(WORKER, "queues, waits_for_elders=True", "queues, waits_for_elders=False"),),
        f"{IN_FLEET}worker.py::test_a_worker_takes_nothing_while_a_replica_of_the_version_before_lives",
    ),
    Mutant(
        "worker_counts_as_a_replica",
        "G6",
        "That a worker never reports `claiming`: a gap scan would assume that it attends to fires.",
        (Edit(WORKER, '"claiming": False', '"claiming": True'),),
        f"{IN_FLEET}worker.py::test_nobody_takes_a_worker_for_a_replica",
    ),
)

ASYNC_HANDLERS = (
    Mutant(
        "async_without_a_confirmation",
        "G2",
        "That a coroutine is called only while its row is confirmed as ours.",
        (Edit(ASYNC_RUNS, "if not self._is_confirmed(run):", "if False:"),),
        f"{IN_ASYNC_RUNS}an_execution_that_may_not_run_any_more_is_dropped_unreported",
    ),
    Mutant(
        "async_old_confirmation_counts",
        "G2",
        "That a confirmation which waited for the event loop is requested again.",
        (Edit(ASYNC_RUNS, "awake_or_not() - run.confirmed_at < CONFIRMED_SECONDS", "True"),),
        f"{IN_ASYNC_RUNS}an_answer_that_waited_too_long_for_the_loop_is_asked_again",
    ),
    Mutant(
        "async_leaked_keeps_its_place",
        "G8",
        "That a coroutine which swallows its cancellation frees its place.",
        (Edit(POOL, "            self.in_loop.give_up(run)\n", ""),),
        f"{IN_ASYNC_RUNS}a_handler_that_swallows_its_cancellation_ends_timed_out_and_keeps_nobody_s_place",
    ),
    Mutant(
        "blocked_loop_not_replaced",
        "G6",
        "That a blocked event loop gets no further executions.",
        (Edit(ASYNC_RUNS, "if silent >= REPLACED_SECONDS:", "if False:"),),
        f"{IN_ASYNC_RUNS}a_loop_that_stays_blocked_is_replaced_and_ends_with_what_it_had_begun",
    ),
    Mutant(
        "async_cancellation_is_no_stop",
        "G5",
        "That a coroutine which returns after it was cancelled does not count as a success.",
        (Edit(ASYNC_RUNS, "    if task.cancel():\n        context.notice_stop()", "    task.cancel()"),),
        f"{IN_ASYNC_RUNS}a_cancelled_handler_may_clean_up_and_what_it_returns_is_kept",
    ),
    Mutant(
        "async_tasks_outlive_their_execution",
        "G4",
        "That tasks started by a coroutine end with its execution.",
        (Edit(EVENT_LOOP, "        for task in left:\n            task.cancel()\n", ""),),
        f"{IN_ASYNC_RUNS}tasks_that_a_handler_leaves_behind_are_cancelled_and_named_in_its_log",
    ),
    Mutant(
        "fork_goes_on_with_other_coroutines",
        "G1",
        "That a copy which a coroutine forks runs none of the other executions.",
        (
            Edit(
                EVENT_LOOP,
                '            self._loop.stop()\n            vars(self._loop)["_ready"].clear()\n',
                "            pass\n",
            ),
        ),
        f"{IN_ASYNC_RUNS}a_copy_that_a_handler_forks_runs_nothing_of_the_others",
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *ONE_EXECUTION_PER_FIRE,
    *NO_ROW_NO_RUN,
    *NOTHING_UNACCOUNTED,
    *NO_OVERLAP,
    *WAITING_ROWS,
    *LIMITS_ACROSS_SCHEDULES,
    *A_CHANGE_IS_OBEYED,
    *A_DEAD_REPLICA_COSTS_SECONDS,
    *REDIS_MAY_VANISH,
    *POSTGRES_MAY_VANISH,
    *BAD_INPUT_IS_AN_ANSWER,
    *A_FLEET,
    *ASYNC_HANDLERS,
)
