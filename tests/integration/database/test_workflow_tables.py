"""What the database itself keeps about the workflows' rows, whoever writes them."""

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from database.connection import DatabaseConnection
from tests.support.places import QUEUE, add_places, places, query


def row(db: DatabaseConnection, what: str) -> tuple[Any, ...]:
    return query(db, f"SELECT {what} FROM places_staging")[0]


def test_updated_at_follows_every_change_and_created_at_none(db: DatabaseConnection) -> None:
    add_places(db, 1)
    before = row(db, "created_at, updated_at")
    query(db, "UPDATE places_staging SET name = 'x', created_at = '2000-01-01', updated_at = '2000-01-01'")
    after = row(db, "created_at, updated_at")
    assert after[0] == before[0]
    assert after[1] > before[1]


def test_entering_the_queue_by_plain_sql_begins_anew(db: DatabaseConnection) -> None:
    add_places(db, 1, deep_scan_status="Error", attempts=3, not_before="2020-01-01")
    query(db, "UPDATE places_staging SET deep_scan_status = 'Queued'")
    assert row(db, "attempts, claim_token, now() - not_before < interval '1 minute'") == (0, None, True)


def test_an_own_time_of_entering_is_respected(db: DatabaseConnection) -> None:
    add_places(db, 1, deep_scan_status=None)
    query(db, "UPDATE places_staging SET deep_scan_status = 'Queued', not_before = '2030-01-01'")
    assert row(db, "not_before = '2030-01-01'") == (True,)


def test_coming_back_from_processing_keeps_the_attempts(db: DatabaseConnection) -> None:
    add_places(db, 1, deep_scan_status="Processing", attempts=2)
    query(db, "UPDATE places_staging SET deep_scan_status = 'Queued'")
    assert row(db, "attempts") == (2,)


def test_entering_the_queue_closes_the_dead_letter(db: DatabaseConnection) -> None:
    one, other = add_places(db, 2, deep_scan_status="Error")
    for key in (one, other):
        query(db, f"INSERT INTO dead_letters (queue, item_key, attempts, error) VALUES ('{QUEUE}', '{key}', 3, 'no')")
    query(db, f"UPDATE places_staging SET deep_scan_status = 'Queued' WHERE id = {one}")
    letters = query(db, "SELECT item_key, requeued_at IS NOT NULL, requeued_by FROM dead_letters ORDER BY id")
    assert letters == [(str(one), True, "sql:postgres"), (str(other), False, None)]


def test_the_queues_of_a_domain_enter_apart(db: DatabaseConnection) -> None:
    query(db, "INSERT INTO domains (domain, status, attempts, sitemap_attempts) VALUES ('x.example', 'error', 3, 2)")
    query(db, "UPDATE domains SET sitemap_analysis_status = 'queued'")
    assert query(db, "SELECT attempts, sitemap_attempts FROM domains") == [(3, 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        "INSERT INTO domains (domain) VALUES ('Upper.example')",
        "INSERT INTO domains (domain, status) VALUES ('x.example', 'Pending')",
        "INSERT INTO places_staging (place_id, deep_scan_status) VALUES ('x', 'queued')",
        "INSERT INTO places_staging (place_id, priority) VALUES ('x', 1001)",
        "INSERT INTO jobs (domain_id) SELECT id FROM domains",
        "INSERT INTO pages (domain_id, url) SELECT id, 'https://x.example/' || repeat('x', 2048) FROM domains",
        "INSERT INTO contacts (domain_id, email) SELECT id, 'Anna@x.example' FROM domains",
    ],
)
def test_what_no_workflow_writes_is_refused(db: DatabaseConnection, wrong: str) -> None:
    query(db, "INSERT INTO domains (domain) VALUES ('there.example')")
    query(db, "INSERT INTO jobs (domain_id) SELECT id FROM domains")  # a second live one for the domain is too much
    with pytest.raises(IntegrityError):
        query(db, wrong)


def test_a_domain_may_have_a_new_sitemap_job_when_the_last_one_ended(db: DatabaseConnection) -> None:
    query(db, "INSERT INTO domains (domain) VALUES ('there.example')")
    query(db, "INSERT INTO jobs (domain_id, status) SELECT id, 'failed' FROM domains")
    query(db, "INSERT INTO jobs (domain_id) SELECT id FROM domains")
    assert query(db, "SELECT count(*) FROM jobs") == [(2,)]


def test_a_business_that_is_deleted_leaves_its_domain(db: DatabaseConnection) -> None:
    query(db, "INSERT INTO local_businesses (place_id) VALUES ('p')")
    query(db, "INSERT INTO domains (domain, local_business_id) SELECT 'x.example', id FROM local_businesses")
    query(db, "DELETE FROM local_businesses")
    assert query(db, "SELECT domain, local_business_id FROM domains") == [("x.example", None)]
    assert places(db) == []
