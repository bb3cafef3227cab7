"""The job type cookie_scan: a schedule's domain is scanned, the findings are stored, the execution tells the rest."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Row, text

from config import get_settings
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from enhanced_scheduler.calling import call_handler
from services.engine.pool import WorkerPool
from services.enhanced_scheduler import EnhancedScheduler
from services.errors import ConfigurationError, InvalidSchedule
from services.jobs import ExecutionContext, JobResult, default_registry
from services.ledger.fires import Claim, Ending
from services.scanning.findings import Scan
from services.scanning.store import ScanStore
from services.schedule_repository import ScheduleRepository
from tests.support.contexts import a_context
from tests.support.executions import age, fire, store_of, this_is_now
from tests.support.scan_site import Answer, Request, ScanSite
from tests.support.waiting import eventually

SUCCESS, FAILED = ExecutionStatus.SUCCESS, ExecutionStatus.FAILED


@pytest.fixture
def site() -> Iterator[ScanSite]:
    with ScanSite() as site:
        yield site


@pytest.fixture(autouse=True)
def _may_call_this_machine(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FETCH_ALLOWED_NETWORKS", "127.0.0.0/8")
    get_settings.cache_clear()


@pytest.fixture
def run(db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite) -> Callable[..., JobResult]:
    """Runs a schedule's fire as a replica does, up to the result."""

    def run(profile_id: UUID | None = None, schedule: dict[str, Any] | None = None, **config: Any) -> JobResult:
        job_config = {"base_url": site.url, "delay_seconds": 0, "max_retries": 0, **config}
        claim = running(db, repository, job_config, profile_id=profile_id, **(schedule or {}))
        return handled(context_of(claim))

    return run


def running(db: DatabaseConnection, repository: ScheduleRepository, job_config: dict[str, Any], **more: Any) -> Claim:
    this_is_now()
    fields = {"domain": "shop.example", "frequency": "interval", "time_config": {"seconds": 1}, **more}
    schedule_id = repository.create_schedule(job_config=job_config, **fields)
    age(db, schedule_id, 3600)
    store = store_of(db)
    (claim,) = store.claim([fire(schedule_id)]).claims
    assert store.start([claim]).started == [claim]
    return claim


def context_of(claim: Claim, **changes: Any) -> ExecutionContext:
    facts = {
        "execution_id": claim.execution_id,
        "schedule_id": claim.schedule_id,
        "domain": claim.spec.domain,
        "job_config": claim.spec.job_config,
        "fencing_token": claim.fencing_token,
    }
    return a_context("cookie_scan", **(facts | changes))


def handled(context: ExecutionContext) -> JobResult:
    context.begin()
    return call_handler(default_registry.get("cookie_scan"), context)


def stored(db: DatabaseConnection, result: JobResult) -> Scan:
    assert result.scan_id is not None, result
    scan = ScanStore(db).get(result.scan_id)
    assert scan is not None
    return scan


def test_a_schedules_domain_is_scanned_and_the_execution_knows_its_scan(
    db: DatabaseConnection, run: Callable[..., JobResult]
) -> None:
    result = run()
    scan = stored(db, result)
    told = result.details["result"]
    assert result.status is SUCCESS
    assert {cookie.name for cookie in scan.cookies} >= {"session_id", "_ga", "track_id"}
    assert (scan.domain, told["scan_id"], told["summary"]) == ("shop.example", str(scan.scan_id), scan.summary)
    assert told["changes"] == []


def test_the_execution_tells_how_far_the_scan_is(
    db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite
) -> None:
    context = context_of(running(db, repository, {"base_url": site.url, "delay_seconds": 0}))
    handled(context)
    trace = context.trace()
    assert trace["progress"] == {"done": 9, "total": 9}
    assert "scanning shop.example with the http engine" in trace["log"][0]
    assert f"{site.url}/missing: answered 404, 6 cookies so far" in "\n".join(trace["log"])


def test_a_second_scan_tells_what_a_new_release_changed(
    db: DatabaseConnection, run: Callable[..., JobResult], site: ScanSite
) -> None:
    first = run()
    site.new_release()
    second = run()
    assert stored(db, second).previous_scan_id == first.scan_id
    assert second.details["result"]["summary"]["changes"] == {"new": 1, "gone": 1, "changed": 1}
    changes = {change["name"]: (change["kind"], change["fields"]) for change in second.details["result"]["changes"]}
    assert changes == {
        "promo": ("new", {}),
        "_ga": ("gone", {}),
        "session_id": ("changed", {"http_only": [True, False]}),
    }


def test_the_values_of_cookies_are_nowhere_in_the_database(
    db: DatabaseConnection, run: Callable[..., JobResult], site: ScanSite
) -> None:
    site.answer("/", Answer("<p>hi</p>", cookies=("id=s3cr3t-value; Path=/",)))
    result = run()
    with db.transaction() as connection:
        rows = connection.execute(
            text("SELECT to_jsonb(s) FROM scans s UNION ALL SELECT to_jsonb(c) FROM scan_cookies c")
        ).scalars()
        assert "s3cr3t" not in json.dumps([*rows, dict(result.details)], default=str)


# --- configuration ---


def make_profile(db: DatabaseConnection, config: dict[str, Any], name: str = "thorough") -> UUID:
    with db.transaction() as connection:
        found = connection.execute(
            text(
                "INSERT INTO scan_profiles (name, config) VALUES (:name, CAST(:config AS jsonb)) RETURNING profile_id"
            ),
            {"name": name, "config": json.dumps(config)},
        )
        return UUID(str(found.scalar_one()))


def test_the_schedules_words_win_over_its_profile(db: DatabaseConnection, run: Callable[..., JobResult]) -> None:
    profile_id = make_profile(db, {"maxPages": 2, "scan_depth": 0, "customPages": ["/unlinked"]})
    scan = stored(db, run(profile_id, scan_depth=1))
    assert [page.url.rpartition("/")[2] for page in scan.pages] == ["unlinked", ""]
    assert (scan.config["max_pages"], scan.config["scan_depth"]) == (2, 1)


def test_a_profile_that_makes_no_sense_fails_for_good_and_is_named(
    db: DatabaseConnection, run: Callable[..., JobResult], site: ScanSite
) -> None:
    result = run(make_profile(db, {"maxPages": "many", "colour": 1}))
    assert (result.status, result.retryable) == (FAILED, False)
    assert result.error_message == (
        "scan profile thorough: max_pages: input should be a valid integer; colour: is not a field of a cookie scan"
    )
    assert site.requests() == []


def test_the_other_systems_spelling_is_stored_in_ours(repository: ScheduleRepository) -> None:
    fields: dict[str, Any] = {"domain": "example.com", "frequency": "daily", "time_config": {"hour": 2}}
    job_config = {"maxPages": 50, "scanDepth": 5, "maxRetries": 3, "customPages": ["/a"], "isolation": "process"}
    schedule_id = repository.create_schedule(job_config=job_config, **fields)
    stored = repository.get_schedule(schedule_id)
    assert stored is not None
    ours = {"max_pages": 50, "scan_depth": 5, "max_retries": 3, "custom_pages": ["/a"], "isolation": "process"}
    assert stored.job_config == ours
    repository.update_schedule(schedule_id, job_config=job_config)
    same = repository.get_schedule(schedule_id)
    assert same is not None
    assert same.revision == stored.revision  # the same thing in another spelling is no change


def test_a_bad_configuration_is_refused_at_the_door(repository: ScheduleRepository) -> None:
    fields: dict[str, Any] = {"domain": "example.com", "frequency": "daily", "time_config": {"hour": 2}}
    with pytest.raises(InvalidSchedule) as caught:
        repository.create_schedule(job_config={"maxPages": 0}, **fields)
    assert str(caught.value) == "job_config.max_pages: input should be greater than or equal to 1"


# --- failures ---


def test_a_site_that_is_down_is_tried_again_later(run: Callable[..., JobResult], site: ScanSite) -> None:
    site.answer("/robots.txt", Answer("no", status=503, headers={"Retry-After": "77"}))
    result = run()
    assert (result.status, result.retryable, result.retry_after_seconds) == (FAILED, True, 77)
    assert "robots.txt answered 503" in str(result.error_message)


def test_an_address_that_may_not_be_called_fails_for_good(
    run: Callable[..., JobResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FETCH_ALLOWED_NETWORKS", "")
    get_settings.cache_clear()
    result = run()
    assert (result.status, result.retryable) == (FAILED, False)
    assert "FETCH_ALLOWED_NETWORKS" in str(result.error_message)


def test_a_missing_browser_fails_for_good_and_says_what_to_install(
    run: Callable[..., JobResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAN_BROWSER", "/no/such/browser")
    get_settings.cache_clear()
    result = run(engine="browser")
    assert (result.status, result.retryable) == (FAILED, False)
    assert "install" in str(result.error_message)


def test_an_execution_that_was_given_up_leaves_no_scan(
    db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite
) -> None:
    claim = running(db, repository, {"base_url": site.url, "scan_depth": 0})
    store_of(db).finish([Ending(claim=claim, status=ExecutionStatus.ABANDONED, duration_seconds=1.0)])
    result = handled(context_of(claim))
    assert (result.status, result.retryable) == (FAILED, False)
    assert "was abandoned in the meantime" in str(result.error_message)
    assert ScanStore(db).list_scans().items == []


def test_cancelling_ends_a_scan_between_two_pages(
    db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite
) -> None:
    claim = running(db, repository, {"base_url": site.url, "delay_seconds": 60})
    context = context_of(claim)

    def cancels(_request: Request) -> Answer:
        context.cancel("enough")
        return Answer()

    site.answer("/style.css", cancels)
    result = handled(context)
    assert (result.status, result.error_message) == (ExecutionStatus.CANCELLED, "cancelled: enough")
    assert ScanStore(db).list_scans().items == []


def test_what_was_seen_is_kept_when_the_time_is_nearly_over(
    db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite
) -> None:
    context = context_of(running(db, repository, {"base_url": site.url}), timeout_seconds=120.0)

    def takes_two_minutes(_request: Request) -> Answer:
        context._live.begun_at = time.monotonic() - 110  # ten seconds are left, twelve are needed for saving
        return Answer()

    site.answer("/style.css", takes_two_minutes)
    result = handled(context)
    assert result.status is SUCCESS
    scan = stored(db, result)
    assert (len(scan.pages), scan.summary["complete"]) == (1, False)


def test_a_scan_without_a_schedule_needs_no_profile(site: ScanSite, db: DatabaseConnection) -> None:
    config = {"base_url": site.url, "scan_depth": 0}
    context = a_context("cookie_scan", schedule_id=None, execution_id=uuid4(), domain="shop.example", job_config=config)
    result = handled(context)
    assert "was abandoned in the meantime" in str(result.error_message)  # there is no such execution


def test_a_scan_runs_in_a_process_of_its_own_as_well(
    db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite
) -> None:
    claim = running(db, repository, {"base_url": site.url, "scan_depth": 0, "isolation": "process"})
    results: list[JobResult] = []
    pool = WorkerPool(1, default_registry, lambda _context, result, _seconds: results.append(result))
    pool.submit(context_of(claim, timeout_seconds=120.0))
    eventually(lambda: results, 120)
    pool.shutdown(5)
    assert results[0].status is SUCCESS, results[0]
    assert stored(db, results[0]).execution_id == claim.execution_id


# --- the replica around it ---


def test_a_replica_with_a_broken_table_of_rules_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.yaml").write_text("rules: [{name: _ga, category: fun}]")
    monkeypatch.setenv("SCAN_COOKIE_RULES_FILE", str(tmp_path / "rules.yaml"))
    get_settings.cache_clear()
    with pytest.raises(ConfigurationError, match=r"rule 1\.category"):
        EnhancedScheduler().start()


def test_a_fire_ends_with_a_scan_in_the_history(
    db: DatabaseConnection, repository: ScheduleRepository, site: ScanSite
) -> None:
    scheduler = EnhancedScheduler(max_workers=2)
    scheduler.start()
    try:
        repository.create_schedule(
            domain="shop.example",
            frequency="interval",
            time_config={"seconds": 1},
            job_config={"base_url": site.url, "scan_depth": 0},
        )
        [row, *_] = eventually(lambda: _executions_with_scans(db), 60)
    finally:
        scheduler.stop()
    scan = ScanStore(db).get(row.scan_id)
    assert scan is not None
    assert (row.status, scan.execution_id, scan.schedule_id) == ("success", row.execution_id, row.schedule_id)


def _executions_with_scans(db: DatabaseConnection) -> list[Row[Any]]:
    with db.transaction() as connection:
        found = connection.execute(text("SELECT * FROM job_executions WHERE scan_id IS NOT NULL ORDER BY created_at"))
        return list(found)


def test_a_replica_tidies_old_scans_away(db: DatabaseConnection, run: Callable[..., JobResult]) -> None:
    old, new = run(scan_depth=0).scan_id, run(scan_depth=0).scan_id
    with db.transaction() as connection:
        connection.execute(
            text("UPDATE scans SET finished_at = now() - interval '91 days' WHERE scan_id = :id"), {"id": old}
        )
    scheduler = EnhancedScheduler()
    scheduler.start()
    eventually(lambda: [record.scan_id for record in ScanStore(db).list_scans().items] == [new], 20)
    scheduler.stop()
