"""WF1: places enter the pipeline: by a search of the directory, from a file, from a program; each one once."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from config import Settings
from database.connection import DatabaseConnection
from services.errors import ConfigurationError, InvalidInput
from services.workflows.place_search import PlaceSearch, PlaceSearchFailed, SearchResult
from services.workflows.place_staging import NewPlace, PlaceStaging
from services.workflows.places.usage import used_today, write_usage
from services.workflows.replica import ReplicaWorkflows
from tests.support.pipeline_stand_ins import (
    KEY,
    NEWER_SEARCH_PATH,
    SEARCH_PATH,
    PipelineWorld,
    as_json,
    denied,
    google_says,
)
from tests.support.places import add_places, query, run_places
from tests.support.scan_site import Answer, Request

BOTH = pytest.mark.parametrize("api", ["details", "places"])
TOWN = "bakeries in Buffalo"
TENANT = UUID(int=5)


@pytest.fixture(autouse=True)
def nothing_is_counted_yet(db: DatabaseConnection) -> Iterator[None]:
    write_usage(db)  # of other tests in this process
    query(db, "DELETE FROM place_requests")
    yield
    write_usage(db)


def search(world: PipelineWorld, db: DatabaseConnection, text: str = TOWN, **more: Any) -> SearchResult:
    settings = {name: more.pop(name) for name in list(more) if name in Settings.model_fields}
    chosen = world.settings(default_tenant_id=TENANT, **settings)
    return PlaceSearch(db, chosen, "cli:tester", pause=more.pop("pause", lambda seconds: None)).run(text, **more)


def staged(db: DatabaseConnection, columns: str = "place_id") -> list[Any]:
    return query(db, f"SELECT {columns} FROM places_staging ORDER BY place_id")


# --- a search ---


@BOTH
def test_a_search_stages_what_it_finds_as_new(world: PipelineWorld, db: DatabaseConnection, api: str) -> None:
    world.search(TOWN, "p1", "p2")
    result = search(world, db, google_maps_api=api)
    assert [(place.place_id, place.name, place.created) for place in result.places] == [
        ("p1", "Bakery p1", True), ("p2", "Bakery p2", True),
    ]  # fmt: skip
    assert (result.created, result.known, result.requests, result.incomplete) == (2, 0, 1, None)
    columns = """place_id, name, formatted_address, latitude, longitude, rating, user_ratings_total, status,
                 deep_scan_status, tenant_id"""
    address = "123 Elmwood Ave, Buffalo, NY 14201, USA"
    assert staged(db, columns)[0] == ("p1", "Bakery p1", address, 42.9, -78.9, 4.6, 128, "New", None, TENANT)


@BOTH
def test_a_place_is_never_staged_twice_and_a_curator_s_word_stays(
    world: PipelineWorld, db: DatabaseConnection, api: str
) -> None:
    world.search(TOWN, "p1", "p2", "p1")
    search(world, db, google_maps_api=api)
    query(db, "UPDATE places_staging SET status = 'Not a Fit', name = 'mine' WHERE place_id = 'p1'")
    again = search(world, db, google_maps_api=api)
    assert (again.created, again.known) == (0, 3)
    assert staged(db, "place_id, status, name") == [("p1", "Not a Fit", "mine"), ("p2", "New", "Bakery p2")]


@BOTH
def test_all_pages_of_a_search_are_asked_for(world: PipelineWorld, db: DatabaseConnection, api: str) -> None:
    world.page_size = 2
    world.search(TOWN, *(f"p{number}" for number in range(5)))
    pages: list[int] = []
    result = search(world, db, google_maps_api=api, on_page=pages.append)
    assert (len(result.places), result.requests, pages) == (5, 3, [2, 4, 5])
    path = SEARCH_PATH if api == "details" else NEWER_SEARCH_PATH
    assert len(world.requests(path)) == 3


def test_the_classic_token_gets_its_time_to_become_valid(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page_size, world.unripe = 1, 2
    world.search(TOWN, "p1", "p2")
    waits: list[float] = []
    result = search(world, db, pause=waits.append)
    assert (result.created, waits, result.requests) == (2, [2.0, 1.0, 1.0], 4)


def test_a_limit_ends_a_search_and_says_so(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page_size = 2
    world.search(TOWN, *(f"p{number}" for number in range(5)))
    result = search(world, db, limit=3)
    assert ([place.place_id for place in result.places], result.requests) == (["p0", "p1", "p2"], 2)
    assert result.incomplete == "the limit of 3 places"


def test_a_dry_run_asks_and_writes_nothing(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.search(TOWN, "p1", "p2")
    PlaceStaging(db, "tester", TENANT).stage([NewPlace(place_id="p1")])
    result = search(world, db, dry_run=True)
    assert [(place.place_id, place.created, place.id is None) for place in result.places] == [
        ("p1", False, False), ("p2", True, True),
    ]  # fmt: skip
    assert staged(db) == [("p1",)]


@BOTH
def test_a_search_that_finds_nothing_is_no_failure(world: PipelineWorld, db: DatabaseConnection, api: str) -> None:
    assert search(world, db, "dentists on the moon", google_maps_api=api).places == []


def test_what_was_found_stays_although_a_later_page_fails(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page_size = 1
    world.search(TOWN, "p1", "p2")

    def fail_later(seconds: float) -> None:
        world.google = google_says("OVER_QUERY_LIMIT")

    result = search(world, db, pause=fail_later)
    assert (result.created, staged(db)) == (1, [("p1",)])
    assert result.incomplete == "Google says OVER_QUERY_LIMIT"


@pytest.mark.parametrize("status", ["OVER_QUERY_LIMIT", "UNKNOWN_ERROR", "INVALID_REQUEST"])
def test_a_search_that_fails_at_once_says_why(world: PipelineWorld, db: DatabaseConnection, status: str) -> None:
    world.google = google_says(status)
    with pytest.raises(PlaceSearchFailed, match=status):
        search(world, db)


def test_a_key_that_does_not_work_is_a_matter_of_configuration_and_stays_secret(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    world.google = denied
    with pytest.raises(ConfigurationError, match="GOOGLE_MAPS_API_KEY does not work") as refused:
        search(world, db)
    assert KEY not in str(refused.value)
    with pytest.raises(ConfigurationError, match="GOOGLE_MAPS_API_KEY is not set"):
        search(world, db, google_maps_api_key=None)


def test_nonsense_of_the_directory_costs_only_itself(world: PipelineWorld, db: DatabaseConnection) -> None:
    def nonsense(request: Request) -> Answer:
        results: list[Any] = [None, {}, {"place_id": 5}, {"place_id": "a b"}, {"place_id": "x" * 600}]
        return as_json({"status": "OK", "results": [*results, {"place_id": "p1", "name": "a\0b", "rating": "much"}]})

    world.google = nonsense
    assert search(world, db).created == 1
    assert staged(db, "place_id, name, rating") == [("p1", "a\ufffdb", None)]


@pytest.mark.parametrize("text", ["", " ", "x", "a\0b", "y" * 201, "\ud800aa"])
def test_what_nobody_can_search_for_is_refused_before_anybody_is_asked(
    world: PipelineWorld, db: DatabaseConnection, text: str
) -> None:
    with pytest.raises(InvalidInput, match="query"):
        search(world, db, text)
    assert world.requests() == []


# --- staging ---


def test_places_may_be_given_in_any_number_and_each_one_is_answered_in_its_place(db: DatabaseConnection) -> None:
    staging = PlaceStaging(db, "tester", TENANT)
    own = uuid4()
    first = staging.stage([NewPlace(place_id="b", tenant_id=own), NewPlace(place_id="a"), NewPlace(place_id="b")])
    assert [(place.place_id, place.created) for place in first] == [("b", True), ("a", True), ("b", False)]
    assert staged(db, "place_id, tenant_id") == [("a", TENANT), ("b", own)]
    many = (NewPlace(place_id=f"m{number}") for number in range(2500))
    assert [len(portion) for portion in staging.add(many)] == [1000, 1000, 500]
    assert staging.stage([]) == []


# --- quota and run time ---


@BOTH
def test_every_request_counts_and_all_processes_share_the_count(
    world: PipelineWorld, db: DatabaseConnection, api: str
) -> None:
    world.page_size = 1
    world.search(TOWN, "p1", "p2")
    search(world, db, google_maps_api=api)
    assert used_today(db) == {(api, "search"): 2}
    world.google = lambda _request: Answer("busy", status=503)
    with pytest.raises(PlaceSearchFailed):
        search(world, db, google_maps_api=api)
    assert used_today(db) == {(api, "search"): 3}


def test_a_replica_shows_what_was_used_today(world: PipelineWorld, db: DatabaseConnection) -> None:
    query(
        db,
        """INSERT INTO place_requests (day, api, operation, requests)
           VALUES (current_date - 1, 'details', 'details', 9), (current_date - 500, 'details', 'details', 9)""",
    )
    world.search(TOWN, "p1")
    search(world, db)
    replica = ReplicaWorkflows(world.settings(workflows_enabled=True), db)
    replica.watch()
    labels = {"api": "details", "operation": "search"}
    assert REGISTRY.get_sample_value("scheduler_places_requests_today", labels) == 1
    yesterdays = {"api": "details", "operation": "details"}
    assert REGISTRY.get_sample_value("scheduler_places_requests_today", yesterdays) is None
    replica.tidy(days=90)
    assert query(db, "SELECT count(*) FROM place_requests") == [(2,)]


def test_a_run_of_a_workflow_is_measured(db: DatabaseConnection) -> None:
    def runs() -> float:
        return REGISTRY.get_sample_value("scheduler_queue_run_seconds_count", {"queue": "deep_scan"}) or 0.0

    before = runs()
    add_places(db, 1)
    run_places(db, lambda key, session: None)
    assert runs() == before + 1
