"""What a replica does about the sync: when it asks, what it says in log, metrics and probes."""

import logging
import threading
from typing import Any

import pytest
from prometheus_client import REGISTRY, generate_latest

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.replica import LONGEST_JITTER_SECONDS, LOOK_SECONDS, ReplicaSync
from services.api_sync.report import Outcome
from services.telemetry import metrics
from tests.integration.api_sync.looking import rows, write
from tests.support.api_stand_in import ApiStandIn, item, status


@pytest.fixture
def replica(settings: Settings, db: DatabaseConnection, only_built_in_jobs: None) -> ReplicaSync:
    return ReplicaSync(settings, db, 300, threading.Event())


@pytest.fixture
def another(settings: Settings, db: DatabaseConnection) -> ReplicaSync:
    return ReplicaSync(settings.model_copy(update={"instance_id": "another"}), db, 300, threading.Event())


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(record).get("event")) for record in caplog.records]


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def due_again(db: DatabaseConnection) -> None:
    write(db, "UPDATE api_sync_state SET started_at = started_at - interval '301 seconds'")


def test_the_first_look_syncs_and_the_others_only_see_the_result(
    api: ApiStandIn, replica: ReplicaSync, another: ReplicaSync, db: DatabaseConnection
) -> None:
    for each in (replica, another, replica):
        each.tick()
    assert len(api.requests) == 1
    assert replica.facts() == another.facts()
    assert another.facts()["outcome"] == "done"
    assert rows(db, "SELECT count(*) FROM schedules") == [(10,)]


def test_the_next_look_comes_when_it_is_due_but_not_for_all_at_once(
    replica: ReplicaSync, db: DatabaseConnection
) -> None:
    assert replica.tick() == LOOK_SECONDS, "long before it is due, only to know how things are"
    write(db, "UPDATE api_sync_state SET started_at = clock_timestamp() - interval '295 seconds'")
    looks = {replica.tick() for _ in range(10)}
    assert max(looks) > 5.5, "later than due by another time for each"
    assert all(0 < look <= 5 + LONGEST_JITTER_SECONDS for look in looks)


def test_a_failure_is_logged_and_counted_and_the_schedules_stay(
    api: ApiStandIn, replica: ReplicaSync, db: DatabaseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    replica.tick()
    due_again(db)
    before = value("scheduler_api_syncs_total", result="failed") or 0
    api.script = [status(401)]
    replica.tick()
    (failed,) = [record for record in caplog.records if vars(record).get("event") == "sync_failed"]
    assert failed.levelno == logging.ERROR
    assert failed.getMessage().endswith("it answered 401 Unauthorized; the schedules stay as they are")
    assert value("scheduler_api_syncs_total", result="failed") == before + 1
    assert value("scheduler_api_sync_outcome", scheduler_api_sync_outcome="failed") == 1
    assert replica.facts()["outcome"] == "failed"
    assert rows(db, "SELECT count(*) FROM schedules WHERE enabled") == [(10,)]


def test_a_restart_after_a_failed_sync_tries_again_at_once(
    api: ApiStandIn, replica: ReplicaSync, another: ReplicaSync, db: DatabaseConnection
) -> None:
    """Whoever has mended the address or the token restarts, and must not wait for the rest of the interval."""
    api.script = [status(401)]
    replica.tick()
    replica.tick()
    assert len(api.requests) == 1, "the replica that failed waits for its interval"
    another.tick()
    another.tick()
    assert len(api.requests) == 2
    assert another.facts()["outcome"] == "done"


def test_a_restart_does_not_hurry_an_api_that_asked_to_be_left_alone(
    api: ApiStandIn, replica: ReplicaSync, another: ReplicaSync
) -> None:
    api.script = [status(503, Retry_After="3600")]
    replica.tick()
    another.tick()
    assert len(api.requests) == 1


def test_refused_removals_are_in_log_metric_and_probe_of_every_replica(
    api: ApiStandIn, replica: ReplicaSync, another: ReplicaSync, db: DatabaseConnection,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    replica.tick()
    due_again(db)
    api.items = []
    replica.tick()
    (refused,) = [record for record in caplog.records if vars(record).get("event") == "sync_removals_refused"]
    assert (refused.levelno, vars(refused)["schedules"]) == (logging.WARNING, 10)
    another.tick()
    assert another.facts()["removals_refused"] == 10
    assert value("scheduler_api_sync_removals_refused") == 10
    assert value("scheduler_api_sync_outcome", scheduler_api_sync_outcome="removals_refused") == 1


def test_what_was_done_is_logged_and_counted(
    api: ApiStandIn, replica: ReplicaSync, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.items += [None, item(90, domain="localhost")]
    before = value("scheduler_api_sync_schedules_total", **{"as": "created"}) or 0
    replica.tick()
    assert events(caplog) == ["sync_item_skipped", "sync_item_skipped", "synced"]
    assert vars(caplog.records[-1])["counts"] == {"created": 10, "skipped": 2}
    assert value("scheduler_api_sync_schedules_total", **{"as": "created"}) == before + 10


def test_many_bad_items_do_not_flood_the_log(
    api: ApiStandIn, replica: ReplicaSync, caplog: pytest.LogCaptureFixture
) -> None:
    api.items = [None] * 2000
    replica.tick()
    assert events(caplog) == ["sync_item_skipped"] * 20 + ["sync_items_skipped"]


def test_nothing_new_is_a_success(
    api: ApiStandIn, replica: ReplicaSync, db: DatabaseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    replica.tick()
    due_again(db)
    write(db, "UPDATE api_sync_state SET synced_at = synced_at - interval '301 seconds'")
    caplog.set_level(logging.INFO)
    replica.tick()
    assert "sync_not_modified" in events(caplog)
    facts = replica.facts()
    assert (facts["outcome"], facts["age_seconds"] < 60) == ("not_modified", True)


def test_the_age_of_the_last_good_sync_grows_by_itself(replica: ReplicaSync, db: DatabaseConnection) -> None:
    replica.tick()
    write(db, "UPDATE api_sync_state SET synced_at = synced_at - interval '1 hour'")
    replica.tick()
    first = value("scheduler_api_sync_age_seconds")
    assert first is not None
    assert 3600 <= first < 3700
    assert (value("scheduler_api_sync_age_seconds") or 0) > first


def test_kept_local_edits_are_counted_in_metric_and_probe(replica: ReplicaSync, db: DatabaseConnection) -> None:
    replica.tick()
    write(db, "UPDATE schedules SET domain = 'mine.example' WHERE domain = 'host000001.example'")
    due_again(db)
    replica.tick()
    assert replica.facts()["local_edits_kept"] == 1
    assert value("scheduler_api_sync_local_edits_kept") == 1


def test_a_stopping_replica_ends_a_sync_that_waits(
    api: ApiStandIn, settings: Settings, db: DatabaseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stopping = threading.Event()
    api.script = [api.held_back]
    thread = threading.Thread(target=ReplicaSync(settings, db, 300, stopping).tick)
    thread.start()
    assert api.held.wait(10)
    stopping.set()
    api.go_on.set()
    thread.join(20)
    assert "sync_interrupted" in events(caplog)
    assert rows(db, "SELECT lease_token, started_at FROM api_sync_state") == [(None, None)]


def test_without_an_address_it_says_so_and_goes_on(
    settings: Settings, db: DatabaseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    lost = ReplicaSync(settings.model_copy(update={"api_url": None}), db, 300, threading.Event())
    assert lost.tick() == 300
    assert events(caplog) == ["sync_without_url"]


def test_a_sync_by_hand_ignores_the_interval(api: ApiStandIn, replica: ReplicaSync) -> None:
    replica.tick()
    api.items.append(item(10))
    assert replica.sync_now().documented_counts == {"created": 1, "updated": 0, "skipped": 0}


def test_every_outcome_has_a_state_in_the_metric() -> None:
    assert set(metrics.SYNC_OUTCOMES) == {"none", *Outcome}
    exported: Any = generate_latest()
    for name in ("age_seconds", "outcome", "removals_refused", "local_edits_kept"):
        assert f"scheduler_api_sync_{name}".encode() in exported
