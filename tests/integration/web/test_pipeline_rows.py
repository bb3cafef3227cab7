"""/api/v3/places and the lists of the pipeline's rows: what comes in, and the ids that curators need."""

from collections.abc import Iterator
from typing import Any

import pytest

from database.connection import DatabaseConnection
from tests.integration.web.conftest import StartWeb
from tests.support.pipeline_stand_ins import PipelineWorld, denied, google_says
from tests.support.places import query
from tests.support.web import Web, problem


@pytest.fixture
def world() -> Iterator[PipelineWorld]:
    with PipelineWorld() as world:
        yield world


def all_pages(web: Web, path: str, field: str, **params: Any) -> list[Any]:
    found, cursor = [], None
    while True:
        page = web.get(path, params={**params, "limit": 2, **({"cursor": cursor} if cursor else {})})
        assert page.status_code == 200, page.text
        found += [item[field] for item in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            return found


# --- in ---


def test_a_program_stages_places_and_a_curator_selects_them_by_the_ids_of_the_answer(
    web: Web, db: DatabaseConnection
) -> None:
    given = {"places": [{"place_id": "p1", "name": "Elmwood Bakery", "rating": 4.6}, {"place_id": "p2"}]}
    answer = web.post("/places", given).json()
    assert (answer["created_count"], answer["known_count"]) == (2, 0)
    ids = [item["id"] for item in answer["items"]]
    curated = web.ask("PUT", "/places/staging/status", "operator", json={"ids": ids, "status": "Selected"}).json()
    assert curated == {"updated_count": 2, "queued_count": 2}
    again = web.post("/places", given).json()
    assert (again["created_count"], again["known_count"], [item["id"] for item in again["items"]]) == (0, 2, ids)
    rows = query(db, "SELECT place_id, name, rating, status, deep_scan_status FROM places_staging ORDER BY id")
    assert rows == [("p1", "Elmwood Bakery", 4.6, "Selected", "Queued"), ("p2", None, None, "Selected", "Queued")]


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ({}, "place_id"),
        ({"place_id": " "}, "place_id"),
        ({"place_id": "two words"}, "place_id"),
        ({"place_id": "a\0"}, "place_id"),
        ({"place_id": "p", "latitude": 91}, "latitude"),
        ({"place_id": "p", "longitude": "far"}, "longitude"),
        ({"place_id": "p", "rating": -1}, "rating"),
        ({"place_id": "p", "user_ratings_total": 2**31}, "user_ratings_total"),
        ({"place_id": "p", "name": "a\0"}, "name"),
        ({"place_id": "p", "status": "Selected"}, "status"),
    ],
)
def test_a_bad_place_is_refused_with_its_number_and_field_and_none_is_staged(
    web: Web, db: DatabaseConnection, place: dict[str, Any], field: str
) -> None:
    answer = problem(web.post("/places", {"places": [{"place_id": "good"}, place]}))
    assert answer["status"] == 422
    assert [error["field"] for error in answer["errors"]] == [f"places.1.{field}"]
    assert query(db, "SELECT * FROM places_staging") == []


def test_a_search_stages_what_it_finds(start_web: StartWeb, world: PipelineWorld) -> None:
    web = start_web(**world.environment)
    world.search("dentists in Berlin", "p1", "p2")
    tried = web.post("/places/search", {"query": "dentists in Berlin", "dry_run": True}).json()
    assert (tried["created_count"], tried["items"][0]["id"]) == (2, None)
    answer = web.post("/places/search", {"query": " dentists  in Berlin"}).json()
    assert (answer["query"], answer["created_count"], answer["requests"]) == ("dentists in Berlin", 2, 1)
    assert all_pages(web, "/places", "place_id", status="New") == ["p2", "p1"]
    again = web.post("/places/search", {"query": "dentists in Berlin", "limit": 1}).json()
    assert (again["created_count"], again["known_count"], again["incomplete"]) == (0, 1, None)


def test_a_search_that_cannot_be_made_says_why(start_web: StartWeb, world: PipelineWorld) -> None:
    web = start_web(**world.environment)
    world.google = google_says("OVER_QUERY_LIMIT")
    refused = problem(web.post("/places/search", {"query": "dentists in Berlin"}))
    assert (refused["status"], "OVER_QUERY_LIMIT" in refused["detail"]) == (502, True)
    world.google = denied
    unset = problem(web.post("/places/search", {"query": "dentists in Berlin"}))
    assert (unset["status"], "GOOGLE_MAPS_API_KEY does not work" in unset["detail"]) == (409, True)
    assert problem(web.post("/places/search", {"query": "x"}))["status"] == 422


# --- lists ---


@pytest.fixture
def rows(db: DatabaseConnection) -> None:
    """Five of each, the third one of another kind."""
    query(
        db,
        """INSERT INTO places_staging (place_id, name, status, deep_scan_status, created_at)
           SELECT 'p' || n, 'Bakery ' || n, CASE n WHEN 3 THEN 'Maybe' ELSE 'New' END,
                  CASE n WHEN 3 THEN 'Error' END, now() + n * interval '1 second' FROM generate_series(1, 5) AS n""",
    )
    query(
        db,
        """INSERT INTO local_businesses (place_id, business_name, status, domain_extraction_status, created_at)
           SELECT 'p' || n, 'Bakery ' || n, CASE n WHEN 3 THEN 'Maybe' ELSE 'New' END,
                  CASE n WHEN 3 THEN 'Error' END, now() + n * interval '1 second' FROM generate_series(1, 5) AS n""",
    )
    query(
        db,
        """INSERT INTO domains (domain, status, sitemap_analysis_status, sitemap_curation_status, created_at)
           SELECT 'd' || n || '.example', CASE n WHEN 3 THEN 'error' ELSE 'completed' END,
                  CASE n WHEN 3 THEN 'failed' END, CASE n WHEN 3 THEN 'Maybe' ELSE 'New' END,
                  now() + n * interval '1 second' FROM generate_series(1, 5) AS n""",
    )
    for table, status, word in (
        ("sitemap_files", "sitemap_import_status", "sitemap_import_curation_status"),
        ("pages", "page_processing_status", "page_curation_status"),
    ):
        query(
            db,
            f"""INSERT INTO {table} (domain_id, url, {status}, {word}, created_at)
                SELECT id, 'https://' || domain || '/x', CASE WHEN domain LIKE 'd3%' THEN 'Error' END,
                       CASE WHEN domain LIKE 'd3%' THEN 'Maybe' ELSE 'New' END, created_at FROM domains""",
        )
    query(db, "UPDATE pages SET contact_scrape_status = 'ContactFound' WHERE url LIKE '%d3.example%'")


LISTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "/places": ("place_id", "p{}", {"search": "BAKERY 3", "status": "Maybe", "deep_scan_status": "Error"}),
    "/local-businesses": (
        "place_id", "p{}", {"search": "bakery 3", "status": "Maybe", "domain_extraction_status": "Error"},
    ),
    "/domains": (
        "domain",
        "d{}.example",
        {"search": "D3.", "status": "error", "sitemap_analysis_status": "failed", "sitemap_curation_status": "Maybe"},
    ),
    "/sitemap-files": (
        "url",
        "https://d{}.example/x",
        {
            "search": "d3.example", "domain": "D3.example", "sitemap_import_status": "Error",
            "sitemap_import_curation_status": "Maybe",
        },
    ),
    "/pages": (
        "url",
        "https://d{}.example/x",
        {
            "search": "d3.example", "domain": "d3.example", "page_processing_status": "Error",
            "page_curation_status": "Maybe", "contact_scrape_status": "ContactFound",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", LISTS)
def test_a_list_has_pages_newest_first_and_filters(web: Web, rows: None, path: str) -> None:
    field, form, filters = LISTS[path]
    assert all_pages(web, path, field) == [form.format(number) for number in (5, 4, 3, 2, 1)]
    for name, value in filters.items():
        assert all_pages(web, path, field, **{name: value}) == [form.format(3)], name
    assert all_pages(web, path, field, search="100%") == []
    assert problem(web.get(path, params={"cursor": "x"}))["errors"][0]["field"] == "cursor"


def test_a_curator_finds_the_ids_of_every_list(web: Web, rows: None) -> None:
    for path, target in (
        ("/local-businesses", "/local-businesses/status"),
        ("/domains", "/domains/sitemap-curation/status"),
        ("/sitemap-files", "/sitemap-files/sitemap_import_curation/status"),
        ("/pages", "/pages/status"),
    ):
        ids = all_pages(web, path, "id")
        answer = web.ask("PUT", target, "operator", json={"ids": ids, "status": "Archived"})
        assert answer.json()["updated_count"] == 5, path
