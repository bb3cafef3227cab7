"""WF2: from a place to a business with its details."""

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from database.connection import DatabaseConnection
from services.errors import ConfigurationError
from services.jobs import JobFailed, PermanentFailure
from services.queues.outcomes import Summary
from services.queues.queue_state import QueueStates
from services.telemetry.logs import configure_logging
from services.workflows.deep_scan import DEEP_SCAN
from services.workflows.places import open_provider
from tests.support.pipeline_stand_ins import KEY, PipelineWorld, as_json, denied, details, google_says
from tests.support.places import query
from tests.support.scan_site import Answer, Request

BOTH = pytest.mark.parametrize("api", ["details", "places"])


def add_place(db: DatabaseConnection, place_id: str) -> None:
    query(db, "INSERT INTO places_staging (place_id, deep_scan_status) VALUES (:id, 'Queued')", id=place_id)


def run(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Summary:
    return world.run(DEEP_SCAN, db, **settings)


def place(db: DatabaseConnection) -> tuple[Any, ...]:
    (found,) = query(db, "SELECT deep_scan_status, deep_scan_error FROM places_staging")
    return found


@BOTH
def test_a_place_becomes_a_business_that_goes_on(world: PipelineWorld, db: DatabaseConnection, api: str) -> None:
    world.place("p1", website="https://www.bakery.example/")
    add_place(db, "p1")
    assert run(world, db, google_maps_api=api).succeeded == 1
    assert place(db) == ("Completed", None)
    (business,) = query(
        db,
        """SELECT place_id, business_name, full_address, street_address, city, state, zip, country, phone, website_url,
                  main_category, extra_categories, rating, reviews_count, price_text, latitude, longitude, monday_hours,
                  tuesday_hours, sunday_hours, status, domain_extraction_status
           FROM local_businesses""",
    )
    assert business == (
        "p1", "Elmwood Bakery", "123 Elmwood Ave, Buffalo, NY 14201, USA", "123 Elmwood Avenue", "Buffalo", "NY",
        "14201", "US", "+1 716-555-0100", "https://www.bakery.example/", "bakery", ["food", "store"], 4.6, 128, "$$",
        42.9, -78.9, "Closed", "7:00 AM - 3:00 PM", None, "New", "Queued",
    )  # fmt: skip


def test_a_scanned_place_without_a_tenant_gets_the_default_one(world: PipelineWorld, db: DatabaseConnection) -> None:
    own, default = uuid4(), uuid4()
    for place_id in ("p1", "p2"):
        world.place(place_id)
        add_place(db, place_id)
    query(db, "UPDATE places_staging SET tenant_id = :own WHERE place_id = 'p1'", own=own)
    assert run(world, db, default_tenant_id=default).succeeded == 2
    assert query(db, "SELECT tenant_id FROM places_staging ORDER BY place_id") == [(own,), (default,)]


@pytest.mark.parametrize(
    ("minutes", "zone"), [(-300, "UTC-05:00"), (330, "UTC+05:30"), (0, "UTC+00:00"), (None, None), ("x", None)]
)
def test_the_offset_from_utc_is_in_minutes(
    world: PipelineWorld, db: DatabaseConnection, minutes: object, zone: str | None
) -> None:
    world.place("p1", utc_offset=minutes)
    add_place(db, "p1")
    run(world, db)
    assert query(db, "SELECT timezone FROM local_businesses") == [(zone,)]


@pytest.mark.parametrize("odd", [10**30, 10**400, -(10**30), float("inf"), float("nan"), True, "5", [5], {"5": 5}])
def test_what_is_no_number_that_a_column_holds_is_unknown(
    world: PipelineWorld, db: DatabaseConnection, odd: object
) -> None:
    """The rest of the place is as good as any."""
    fields = ("rating", "user_ratings_total", "price_level", "utc_offset")
    world.place("p1", geometry={"location": {"lat": odd, "lng": odd}}, **dict.fromkeys(fields, odd))
    add_place(db, "p1")
    assert run(world, db).succeeded == 1
    row = "business_name, rating, reviews_count, price_text, timezone, latitude, longitude"
    assert query(db, f"SELECT {row} FROM local_businesses") == [("Elmwood Bakery", *[None] * 6)]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("ZERO_RESULTS", PermanentFailure),
        ("NOT_FOUND", PermanentFailure),
        ("INVALID_REQUEST", PermanentFailure),
        ("OVER_QUERY_LIMIT", JobFailed),
        ("UNKNOWN_ERROR", JobFailed),
        ("SOMETHING_NEW", JobFailed),
        ("REQUEST_DENIED", ConfigurationError),
    ],
)
def test_what_google_says_with_http_200(world: PipelineWorld, status: str, error: type[Exception]) -> None:
    world.google = google_says(status, "because")
    with open_provider(world.settings()) as provider, pytest.raises(error, match=f"{status}: because") as caught:
        provider.details("p1")
    assert getattr(caught.value, "retryable", None) == {JobFailed: True, PermanentFailure: False}.get(error)


@BOTH
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_may_work_later(world: PipelineWorld, status: int, api: str) -> None:
    world.google = lambda _request: Answer("busy", status=status, headers={"Retry-After": "77"})
    with open_provider(world.settings(google_maps_api=api)) as provider, pytest.raises(JobFailed) as caught:
        provider.details("p1")
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (True, 77)


@BOTH
@pytest.mark.parametrize("body", ["<html>", "[]", "", "null", "[" * 100_000])
def test_an_answer_that_makes_no_sense_may_make_sense_later(world: PipelineWorld, body: str, api: str) -> None:
    world.google = lambda _request: Answer(body)
    with open_provider(world.settings(google_maps_api=api)) as provider, pytest.raises(JobFailed) as caught:
        provider.details("p1")
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, {"error": {"status": "NOT_FOUND", "message": "no such place"}}, PermanentFailure),
        (400, {"error": {"status": "INVALID_ARGUMENT", "message": "not a place id"}}, PermanentFailure),
        (400, {"error": {"details": [{"reason": "API_KEY_INVALID"}], "message": "bad key"}}, ConfigurationError),
        (403, {"error": {"status": "PERMISSION_DENIED", "message": "not enabled"}}, ConfigurationError),
    ],
)
def test_how_the_newer_api_says_no(
    world: PipelineWorld, status: int, body: dict[str, Any], error: type[Exception]
) -> None:
    world.google = lambda _request: as_json(body, status)
    with open_provider(world.settings(google_maps_api="places")) as provider, pytest.raises(error):
        provider.details("p1")


@BOTH
def test_the_key_does_not_follow_a_redirect(world: PipelineWorld, api: str) -> None:
    world.google = lambda _request: Answer(status=302, headers={"Location": f"{world.url}/elsewhere"})
    with open_provider(world.settings(google_maps_api=api)) as provider, pytest.raises(JobFailed, match="302"):
        provider.details("p1")
    assert world.requests("/elsewhere") == []


@pytest.mark.parametrize("key", [None, KEY])
def test_without_a_key_that_works_the_queue_pauses_and_its_places_go_back(
    world: PipelineWorld, db: DatabaseConnection, key: str | None
) -> None:
    world.google = denied
    for number in range(3):
        add_place(db, f"p{number}")
    run(world, db, google_maps_api_key=key)
    rows = query(db, "SELECT deep_scan_status, deep_scan_error, attempts FROM places_staging")
    assert rows == [("Queued", None, 0)] * 3
    state = QueueStates(db).all()["deep_scan"]
    assert state.is_paused
    assert "GOOGLE_MAPS_API_KEY" in str(state.paused_reason)
    assert run(world, db).skipped == "paused"


@pytest.fixture
def debug_log(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """Everything that a replica would log with LOG_LEVEL=DEBUG."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging("DEBUG", "json")
    yield capsys
    root.handlers[:] = handlers
    root.setLevel(level)


def test_the_key_is_in_no_log_and_in_no_table(
    world: PipelineWorld, db: DatabaseConnection, debug_log: pytest.CaptureFixture[str]
) -> None:
    world.google = denied
    add_place(db, "p1")
    run(world, db)
    QueueStates(db).resume("deep_scan")
    world.google = lambda request: google_says("UNKNOWN_ERROR", f"at {request.query}")(request)
    run(world, db, max_attempts=1)
    tables = query(db, "SELECT p::text, (SELECT array_agg(d::text) FROM dead_letters d) FROM places_staging p")
    log = debug_log.readouterr().err
    assert "UNKNOWN_ERROR" in str(tables)
    assert "UNKNOWN_ERROR" in log
    for said in (log, str(tables), str(QueueStates(db).all()["deep_scan"])):
        assert KEY not in said


def test_a_slow_google_holds_no_connection(world: PipelineWorld, database_url: str) -> None:
    """The pool has one connection, and Google answers only after somebody else could use it."""
    db = DatabaseConnection(database_url, pool_size=1)
    used = []

    def google(_request: Request) -> Answer:
        used.append(query(db, "SELECT deep_scan_status FROM places_staging"))
        return as_json({"status": "OK", "result": details()})

    world.google = google
    add_place(db, "p1")
    assert run(world, db).succeeded == 1
    assert used == [[("Processing",)]]
    db.close()


def test_a_rescan_writes_what_is_known_and_resets_nothing(world: PipelineWorld, db: DatabaseConnection) -> None:
    query(
        db,
        """INSERT INTO local_businesses (place_id, business_name, phone, website_url, price_text, status,
               domain_extraction_status, extra_categories)
           VALUES ('p1', 'Old name', '+1 716-555-0199', 'https://kept.example', '$', 'Selected', 'Completed',
               '{kept}')""",
    )
    world.place("p1", name="New name", website=None, price_level=None, types=[], user_ratings_total=7)
    add_place(db, "p1")
    run(world, db)
    (business,) = query(
        db,
        """SELECT business_name, phone, website_url, price_text, reviews_count, status, domain_extraction_status,
                  extra_categories FROM local_businesses""",
    )
    assert business == (
        "New name", "+1 716-555-0100", "https://kept.example", "$", 7, "Selected", "Completed", ["kept"],
    )  # fmt: skip


def test_with_curation_a_new_business_waits(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.place("p1")
    add_place(db, "p1")
    run(world, db, deep_scan_auto_queue_extraction=False)
    assert query(db, "SELECT status, domain_extraction_status FROM local_businesses") == [("New", None)]


def test_a_place_that_google_does_not_know_is_an_error_with_its_reason(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    add_place(db, "nowhere")
    assert run(world, db).failed == 1
    assert place(db) == ("Error", "Google says NOT_FOUND")
