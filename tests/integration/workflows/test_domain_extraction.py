"""WF3, first half: from a business's web site to a domain."""

from dataclasses import replace
from typing import Any

import pytest

from config import Settings
from database.connection import DatabaseConnection
from database.workflow_models import Domain
from database.workflow_statuses import DomainStatus
from services.jobs import PermanentFailure
from services.queues.outcomes import Summary
from services.queues.queue_table import Words
from services.workflows import queues
from services.workflows.domain_extraction import DOMAIN_EXTRACTION, domain_of
from tests.support.places import query

USER = "00000000-0000-4000-8000-000000004711"


@pytest.mark.parametrize(
    ("website", "domain"),
    [
        ("https://www.Example.com/contact?x=1", "example.com"),
        ("example.com", "example.com"),
        ("//example.com/x", "example.com"),
        ("HTTP://EXAMPLE.COM:8080/", "example.com"),
        ("https://anna:secret@example.com/", "example.com"),
        (" https://example.com. ", "example.com"),
        ("https://www.www.example.com", "www.example.com"),
        ("https://www.com", "www.com"),
        ("https://bücher.example", "xn--bcher-kva.example"),
        ("https://shop.example.co.uk", "shop.example.co.uk"),
    ],
)
def test_the_bare_host_of_a_web_site_is_its_domain(website: str, domain: str) -> None:
    assert domain_of(website) == domain


@pytest.mark.parametrize(
    "website",
    ["https://192.0.2.1/", "http://[2001:db8::1]/", "localhost", "https://", "mailto:anna@localhost", "no site", "http://[x"],
)  # fmt: skip
def test_what_has_no_public_name_is_refused_for_good(website: str) -> None:
    with pytest.raises(PermanentFailure, match="no domain in"):
        domain_of(website)


def businesses(db: DatabaseConnection, *websites: str | None) -> None:
    for website in websites:
        query(
            db,
            """INSERT INTO local_businesses (place_id, website_url, domain_extraction_status)
               VALUES (gen_random_uuid(), :url, 'Queued')""",
            url=website,
        )


def run(db: DatabaseConnection, **settings: Any) -> Summary:
    return DOMAIN_EXTRACTION.run(settings=Settings(**settings), db=db)


def test_a_business_becomes_a_domain_that_waits_for_its_metadata(db: DatabaseConnection) -> None:
    businesses(db, "https://www.one.example/")
    assert run(db).succeeded == 1
    found = query(db, "SELECT d.domain, d.status FROM domains d JOIN local_businesses b ON b.id = d.local_business_id")
    assert found == [("one.example", "pending")]


@pytest.mark.parametrize(
    ("settings", "maker"),
    [({}, "system:domain_extraction"), ({"scheduler_system_user_id": USER}, f"system:{USER}")],
)
def test_what_the_workflow_makes_is_told_from_what_people_make(
    db: DatabaseConnection, settings: dict[str, Any], maker: str
) -> None:
    businesses(db, "https://www.one.example/")
    run(db, **settings)
    assert query(db, "SELECT created_by FROM domains") == [(maker,)]


def test_a_domain_that_is_known_already_stays_as_it_is(db: DatabaseConnection) -> None:
    query(db, "INSERT INTO domains (domain, status, title) VALUES ('one.example', 'completed', 'One')")
    businesses(db, "https://one.example/", "https://www.one.example/about")
    assert run(db).succeeded == 2
    assert query(db, "SELECT domain, status, title FROM domains") == [("one.example", "completed", "One")]


@pytest.mark.parametrize("website", [None, "", "  "])
def test_a_business_without_a_web_site_is_done(db: DatabaseConnection, website: str | None) -> None:
    businesses(db, website)
    assert run(db).succeeded == 1
    assert query(db, "SELECT domain_extraction_status FROM local_businesses") == [("Completed",)]
    assert query(db, "SELECT * FROM domains") == []


def test_a_bad_web_site_is_an_error_with_its_reason_and_costs_the_others_nothing(db: DatabaseConnection) -> None:
    businesses(db, "https://one.example", "https://10.0.0.1/", "https://two.example")
    summary = run(db)
    assert (summary.succeeded, summary.failed) == (2, 1)
    ((error,),) = query(
        db, "SELECT domain_extraction_error FROM local_businesses WHERE domain_extraction_status = 'Error'"
    )
    assert error == "no domain in 'https://10.0.0.1/': 10.0.0.1 is an IP address; a domain name is required"


def test_a_run_waits_while_too_many_domains_wait_for_their_metadata(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = replace(
        DOMAIN_EXTRACTION,
        name="domain_metadata",
        model=Domain,
        words=Words(DomainStatus.PENDING, DomainStatus.PROCESSING, DomainStatus.COMPLETED, DomainStatus.ERROR),
        status_field_name="status",
        error_field_name="last_error",
    )
    monkeypatch.setitem(queues._queues, "domain_metadata", waiting)
    businesses(db, "https://one.example", "https://two.example")
    assert run(db, workflow_backpressure_depth=1).succeeded == 2
    businesses(db, "https://three.example")
    assert run(db, workflow_backpressure_depth=1).skipped == "backpressure"
    assert run(db, workflow_backpressure_depth=2).succeeded == 1
