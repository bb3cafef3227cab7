"""What curators do: a word for some rows, and with `Selected` their place in the next queue."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from database.workflow_statuses import PlaceStatus
from services.workflows.curation import Curation
from tests.support.places import query
from tests.support.waiting import eventually
from tests.support.web import Web, problem

DOMAIN = """INSERT INTO domains (domain, status, sitemap_analysis_status)
            VALUES (gen_random_uuid(), 'completed', :s) RETURNING id"""
# path, how a row with a status is made, where that status is, its words for queued and processing, and for done
UUID_ROWS = {
    "/local-businesses/status": (
        "INSERT INTO local_businesses (place_id, domain_extraction_status) VALUES (gen_random_uuid(), :s) RETURNING id",
        "SELECT domain_extraction_status FROM local_businesses WHERE id = :id",
        ("Queued", "Processing", "Completed"),
    ),
    "/domains/sitemap-curation/status": (
        DOMAIN,
        "SELECT sitemap_analysis_status FROM domains WHERE id = :id",
        ("queued", "processing", "submitted"),
    ),
    "/sitemap-files/sitemap_import_curation/status": (
        f"""WITH d AS ({DOMAIN.replace(":s", "NULL")}) INSERT INTO sitemap_files (domain_id, url, sitemap_import_status)
            SELECT id, gen_random_uuid(), :s FROM d RETURNING id""",
        "SELECT sitemap_import_status FROM sitemap_files WHERE id = :id",
        ("Queued", "Processing", "Complete"),
    ),
    "/pages/status": (
        f"""WITH d AS ({DOMAIN.replace(":s", "NULL")}) INSERT INTO pages (domain_id, url, page_processing_status)
            SELECT id, gen_random_uuid(), :s FROM d RETURNING id""",
        "SELECT page_processing_status FROM pages WHERE id = :id",
        ("Queued", "Processing", "Complete"),
    ),
}


def put(web: Web, path: str, **body: Any) -> tuple[int, int]:
    answer = web.ask("PUT", path, "operator", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["updated_count"], answer.json()["queued_count"]


def add_place(db: DatabaseConnection, deep_scan_status: str | None = None) -> tuple[int, str]:
    sql = (
        "INSERT INTO places_staging (place_id, deep_scan_status) VALUES (gen_random_uuid(), :s) RETURNING id, place_id"
    )
    ((number, name),) = query(db, sql, s=deep_scan_status)
    return number, name


def places(db: DatabaseConnection) -> list[tuple[Any, ...]]:
    return query(db, "SELECT status, deep_scan_status FROM places_staging ORDER BY id")


def test_selected_places_are_queued_unless_they_are_already(web: Web, db: DatabaseConnection) -> None:
    made = [add_place(db, status) for status in (None, "Error", "Completed", "Queued", "Processing")]
    query(db, "UPDATE places_staging SET attempts = 3")
    ids = [number for number, _ in made[:3]] + [name for _, name in made[3:]]
    assert put(web, "/places/staging/status", ids=ids, status="Selected") == (5, 3)
    assert places(db) == [("Selected", "Queued")] * 4 + [("Selected", "Processing")]
    assert query(db, "SELECT attempts FROM places_staging ORDER BY id") == [(0,)] * 3 + [(3,)] * 2


@pytest.mark.parametrize("status", ["New", "Maybe", "Not a Fit", "Archived"])
def test_any_other_word_for_a_place_queues_nothing(web: Web, db: DatabaseConnection, status: str) -> None:
    number, _ = add_place(db)
    assert put(web, "/places/staging/status", ids=[number, 999_999], status=status) == (1, 0)
    assert places(db) == [(status, None)]


def test_a_deep_scan_can_be_queued_without_a_word(web: Web, db: DatabaseConnection) -> None:
    number, name = add_place(db)
    assert put(web, "/places/staging/queue-deep-scan", ids=[number, name, "nowhere"]) == (1, 1)
    assert places(db) == [("New", "Queued")]
    assert put(web, "/places/staging/queue-deep-scan", ids=[number]) == (0, 0)


@pytest.mark.parametrize("path", UUID_ROWS)
def test_selected_rows_are_queued_unless_they_are_already(web: Web, db: DatabaseConnection, path: str) -> None:
    make, look, (queued, processing, done) = UUID_ROWS[path]
    ids = [query(db, make, s=status)[0][0] for status in (None, done, queued, processing)]
    updated, new = put(web, path, ids=[str(each) for each in [*ids, uuid4()]], status="Selected")
    assert (updated, new) == (4, 2)
    assert [query(db, look, id=each)[0][0] for each in ids] == [queued, queued, queued, processing]


@pytest.mark.parametrize(
    ("path", "word", "queue"),
    [
        ("/local-businesses/status", "local_businesses.status", "domain_extraction_status"),
        ("/domains/sitemap-curation/status", "domains.sitemap_curation_status", "sitemap_analysis_status"),
        (
            "/sitemap-files/sitemap_import_curation/status",
            "sitemap_files.sitemap_import_curation_status",
            "sitemap_import_status",
        ),
        ("/pages/status", "pages.page_curation_status", "page_processing_status"),
    ],
)
@pytest.mark.parametrize("status", ["New", "Maybe", "Archived"])
def test_any_other_word_is_kept_and_queues_nothing(
    web: Web, db: DatabaseConnection, path: str, word: str, queue: str, status: str
) -> None:
    ((row,),) = query(db, UUID_ROWS[path][0], s=None)
    assert put(web, path, ids=[str(row)], status=status) == (1, 0)
    assert query(db, f"SELECT {word}, {queue} FROM {word.partition('.')[0]}") == [(status, None)]


def test_a_page_that_does_not_fit_is_taken_out_unless_somebody_works_on_it(web: Web, db: DatabaseConnection) -> None:
    make, _, _ = UUID_ROWS["/pages/status"]
    ids = [str(query(db, make, s=status)[0][0]) for status in (None, "Processing")]
    assert put(web, "/pages/status", ids=ids, status="Not a Fit") == (2, 0)
    kept = "SELECT page_processing_status, contact_scrape_status, page_curation_status FROM pages ORDER BY 1"
    assert query(db, kept) == [("Filtered", "NotAFit", "Not a Fit"), ("Processing", "New", "Not a Fit")]


@pytest.mark.parametrize(
    "body",
    [
        {"ids": [], "status": "Selected"},
        {"ids": [1], "status": "Chosen"},
        {"ids": [0], "status": "Selected"},
        {"ids": [True], "status": "Selected"},
        {"ids": [2**40], "status": "Selected"},
        {"ids": [""], "status": "Selected"},
        {"ids": [1] * 1001, "status": "Selected"},
        {"ids": ["a\0b"], "status": "Selected"},
        {"ids": [1], "status": "Selected", "more": 1},
    ],
)
def test_a_body_that_makes_no_sense_is_refused(web: Web, body: dict[str, Any]) -> None:
    assert problem(web.ask("PUT", "/places/staging/status", "operator", json=body))["status"] == 422


def test_a_row_that_comes_back_closes_its_dead_letter_under_the_curator_s_name(
    web: Web, db: DatabaseConnection
) -> None:
    number, _ = add_place(db, "Error")
    query(
        db,
        "INSERT INTO dead_letters (queue, item_key, attempts, error) VALUES ('deep_scan', :k, 3, 'x')",
        k=str(number),
    )
    put(web, "/places/staging/status", ids=[number], status="Selected")
    assert query(db, "SELECT requeued_by FROM dead_letters") == [("token:test-operator",)]


# --- domains by hand ---


def test_domains_are_submitted_as_people_write_them(web: Web, db: DatabaseConnection) -> None:
    query(db, "INSERT INTO domains (domain, status) VALUES ('known.example', 'completed')")
    names = ["https://www.One.example/x", "one.example", "Known.example", "bücher.example"]
    answer = web.post("/domains/direct-submit", {"domains": names}).json()
    assert (answer["updated_count"], answer["queued_count"]) == (2, 2)
    assert [(item["domain"], item["created"]) for item in answer["items"]] == [
        ("one.example", True), ("known.example", False), ("xn--bcher-kva.example", True),
    ]  # fmt: skip
    assert {UUID(item["id"]) for item in answer["items"]} == {row[0] for row in query(db, "SELECT id FROM domains")}
    assert query(db, "SELECT status FROM domains ORDER BY domain") == [("completed",), ("pending",), ("pending",)]
    assert query(db, "SELECT DISTINCT left(created_by, 6) FROM domains WHERE status = 'pending'") == [("token:",)]


def test_every_domain_that_is_none_is_named(web: Web, db: DatabaseConnection) -> None:
    answer = web.post("/domains/direct-submit", {"domains": ["one.example", "localhost", "10.0.0.1"]})
    assert [error["field"] for error in problem(answer)["errors"]] == ["domains[1]", "domains[2]"]
    assert query(db, "SELECT domain FROM domains") == []


@pytest.mark.parametrize("number", [0, 101])
def test_one_to_a_hundred_domains_at_once(web: Web, number: int) -> None:
    body = {"domains": [f"d{each}.example" for each in range(number)]}
    assert problem(web.post("/domains/direct-submit", body))["status"] == 422


def test_a_curator_and_somebody_s_plain_update_cannot_deadlock(db: DatabaseConnection, database_url: str) -> None:
    first, second = (add_place(db)[0] for _ in range(2))
    own = DatabaseConnection(database_url)
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as somebody:
            somebody.exec_driver_sql("UPDATE places_staging SET name = 'mine' WHERE id = %s", (second,))
            curated = pool.submit(Curation(own, "anna").places, [first, second], PlaceStatus.SELECTED)
            eventually(lambda: query(db, "SELECT FROM pg_locks WHERE NOT granted"))
            somebody.exec_driver_sql("UPDATE places_staging SET name = 'mine' WHERE id = %s", (first,))
        assert curated.result(30).queued_count == 2
        backends = query(own, "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
    own.close()  # what its backend has counted is told when it ends
    living = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    eventually(lambda: query(db, living)[0][0] < len(backends))
    assert query(db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


# --- for development ---


def test_the_queues_are_shown_in_the_order_of_the_pipeline(start_web: Any, db: DatabaseConnection) -> None:
    add_place(db, "Queued")
    gone, _ = add_place(db, "Processing")
    query(db, "UPDATE places_staging SET claimed_at = now() - interval '1 hour' WHERE id = :id", id=gone)
    queues = start_web(ENVIRONMENT="development").get("/dev-tools/queues").json()["items"]
    assert [queue["name"] for queue in queues] == [
        "deep_scan", "domain_extraction", "domain_metadata", "sitemap_submission", "sitemap_jobs", "sitemap_import",
        "page_curation",
    ]  # fmt: skip
    assert (queues[0]["depth"], queues[0]["circuit"], queues[0]["oldest_seconds"] >= 0) == (1, "closed", True)
    assert (queues[0]["processing"], queues[0]["stale"], queues[1]["stale"]) == (1, 1, 0)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pending_domains_can_be_processed_at_once(start_web: Any, db: DatabaseConnection, method: str) -> None:
    """Their names lead nowhere that may be called, so each one ends as an error."""
    web = start_web(ENVIRONMENT="dev", FETCH_CONNECT_TO="*.example=127.0.0.1:1")
    query(db, "INSERT INTO domains (domain) SELECT n || '.example' FROM generate_series(1, 5) AS n")
    answer = web.ask(method, "/dev-tools/process-pending-domains?limit=2", "operator").json()
    assert answer["message"] == "2 domains processed"
    assert (answer["summary"]["claimed"], answer["summary"]["failed"]) == (2, 2)
    assert query(db, "SELECT count(*) FROM domains WHERE status = 'pending'") == [(3,)]


@pytest.mark.parametrize("remembered", [None, 1, 200])
def test_processing_some_domains_at_once_neither_reads_nor_changes_the_batch_of_the_queue(
    start_web: Any, db: DatabaseConnection, remembered: int | None
) -> None:
    """Its limit is nobody's experience: a try with 2 would make every run of the replicas begin with 2."""
    web = start_web(ENVIRONMENT="dev", FETCH_CONNECT_TO="*.example=127.0.0.1:1")
    query(db, "INSERT INTO workflow_queues (queue, batch_size) VALUES ('domain_metadata', :size)", size=remembered)
    query(db, "INSERT INTO domains (domain) SELECT n || '.example' FROM generate_series(1, 9) AS n")
    answer = web.post("/dev-tools/process-pending-domains?limit=5").json()
    assert answer["summary"]["claimed"] == 5
    assert query(db, "SELECT batch_size FROM workflow_queues") == [(remembered,)]


def test_a_job_can_be_triggered_by_its_name(start_web: Any, db: DatabaseConnection) -> None:
    web = start_web(ENVIRONMENT="development")
    schedule = {
        "domain": "WF2", "name": "process_deep_scan_queue", "frequency": "interval", "time_config": {"minutes": 5},
        "job_type": "workflow", "job_config": {"queue": "deep_scan"},
    }  # fmt: skip
    assert web.post("/schedules", schedule).status_code == 201
    answer = web.post("/dev-tools/trigger/process_deep_scan_queue")
    assert answer.status_code == 202
    assert query(
        db, "SELECT status, cause FROM job_executions WHERE execution_id = :id", id=answer.json()["execution_id"]
    )
    assert web.post("/dev-tools/trigger/process_pending_jobs").status_code == 404


def test_elsewhere_these_tools_do_not_exist(web: Web) -> None:
    assert web.get("/dev-tools/queues").status_code == 404
    assert web.post("/dev-tools/process-pending-domains").status_code == 404
    assert web.post("/dev-tools/trigger/process_deep_scan_queue").status_code == 404
