"""Dead letters over the API: list, inspect, queue again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database.connection import DatabaseConnection
from tests.support.places import add_places, places, query
from tests.support.web import Web, problem


@pytest.fixture
def keys(db: DatabaseConnection) -> list[int]:
    """Three places that died, the first one for another reason; and a page, long ago."""
    found = add_places(db, 3, deep_scan_status="Error", attempts=3)
    letter = """INSERT INTO dead_letters (queue, item_key, attempts, error, traceback)
                VALUES (:queue, :key, 3, :error, 'line 1')"""
    for key in found:
        query(db, letter, queue="deep_scan", key=str(key), error="No key" if key == found[0] else "TIMED out")
    query(db, letter, queue="page_curation", key="9", error="timed out")
    query(db, "UPDATE dead_letters SET died_at = now() - interval '1 day' WHERE queue = 'page_curation'")
    return found


def items(web: Web, query_string: str = "") -> list[str]:
    return [item["item_key"] for item in web.get(f"/dead-letters{query_string}").json()["items"]]


def requeue(web: Web, **body: Any) -> dict[str, Any]:
    answer = web.post("/dead-letters/requeue", body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_they_are_listed_newest_first_in_pages(web: Web, keys: list[int]) -> None:
    first = web.get("/dead-letters?limit=2").json()
    assert [item["item_key"] for item in first["items"]] == ["9", str(keys[2])]
    assert items(web, f"?before={first['next_before']}") == [str(keys[1]), str(keys[0])]


def test_a_filter_names_queue_error_and_age(web: Web, keys: list[int]) -> None:
    assert items(web, "?queue=process_deep_scan_queue&error=timed") == [str(keys[2]), str(keys[1])]
    an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+", "%2B")
    assert "9" not in items(web, f"?since={an_hour_ago}")
    assert problem(web.get("/dead-letters?queue=nothing"))["errors"][0]["field"] == "queue"


def test_one_is_shown_with_its_traceback(web: Web, keys: list[int]) -> None:
    newest = web.get("/dead-letters").json()["items"][0]
    assert web.get(f"/dead-letters/{newest['id']}").json() == newest
    assert (newest["traceback"], newest["requeued_at"]) == ("line 1", None)
    assert web.get("/dead-letters/4711").status_code == 404
    assert web.get(f"/dead-letters/{2**70}").status_code == 422


def test_what_the_filter_means_is_queued_again_one_after_the_other(
    web: Web, db: DatabaseConnection, keys: list[int]
) -> None:
    asked = {"queue": "deep_scan", "error": "timed out", "per_second": 0.1}
    assert requeue(web, **asked, dry_run=True) == {"found": 2, "requeued": {}, "dry_run": True}
    assert places(db) == ["Error"] * 3
    assert requeue(web, **asked) == {"found": 2, "requeued": {"deep_scan": 2}, "dry_run": False}
    assert places(db, "deep_scan_status, attempts, not_before > now() + interval '5 s'") == [
        ("Error", 3, False), ("Queued", 0, False), ("Queued", 0, True),
    ]  # fmt: skip
    assert items(web, "?closed=true") == [str(keys[2]), str(keys[1])]
    assert query(
        db, "SELECT DISTINCT left(requeued_by, 6) FROM dead_letters WHERE requeued_at > now() - '1 h'::interval"
    ) == [("token:",)]


def test_single_ones_are_queued_again_by_their_ids(web: Web, db: DatabaseConnection, keys: list[int]) -> None:
    ((letter,),) = query(db, "SELECT id FROM dead_letters WHERE item_key = :key", key=str(keys[0]))
    assert requeue(web, ids=[letter, 4711]) == {"found": 1, "requeued": {"deep_scan": 1}, "dry_run": False}
    assert places(db) == ["Queued", "Error", "Error"]


def test_of_two_jobs_of_one_domain_one_is_queued_again(web: Web, db: DatabaseConnection) -> None:
    """A domain has one live job; the other one stays a dead letter."""
    query(db, "INSERT INTO domains (domain) VALUES ('x.example')")
    query(
        db,
        """WITH job AS (INSERT INTO jobs (domain_id, status) SELECT id, 'failed' FROM domains, generate_series(1, 2)
                        RETURNING id)
           INSERT INTO dead_letters (queue, item_key, attempts, error) SELECT 'sitemap_jobs', id, 3, 'no' FROM job""",
    )
    assert requeue(web, queue="sitemap_jobs") == {"found": 2, "requeued": {"sitemap_jobs": 1}, "dry_run": False}
    assert query(db, "SELECT status FROM jobs ORDER BY id") == [("failed",), ("pending",)]
    assert requeue(web, queue="sitemap_jobs") == {"found": 1, "requeued": {"sitemap_jobs": 0}, "dry_run": False}


@pytest.mark.parametrize(
    "body",
    [{}, {"error": "x"}, {"ids": []}, {"ids": [0]}, {"queue": "deep_scan", "limit": 0}, {"queue": "x" * 200},
     {"queue": "deep_scan", "per_second": -1}, {"queue": "deep_scan", "per_second": "NaN"},
     {"queue": "deep_scan", "per_second": 1e-300}, {"ids": [1], "all": True}],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_refused(web: Web, body: dict[str, Any]) -> None:
    assert problem(web.post("/dead-letters/requeue", body))["status"] == 422


def test_a_rate_that_makes_no_sense_is_told_with_those_that_do(web: Web, keys: list[int]) -> None:
    told = problem(web.post("/dead-letters/requeue", {"queue": "deep_scan", "per_second": 1e-300}))
    assert told["errors"][0]["field"] == "per_second"
    assert "must be 0 (all at once) or between 0.00001 and 100000 rows per second" in told["errors"][0]["reason"]
