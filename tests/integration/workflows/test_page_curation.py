"""WF7: from a page to contacts."""

from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.queues.outcomes import Summary
from services.workflows.page_curation import PAGE_CURATION
from tests.support.pipeline_stand_ins import PipelineWorld, as_json
from tests.support.places import query
from tests.support.scan_site import Answer

SITE = "http://bakery.example"
PAGE = f"{SITE}/contact"


def add_page(db: DatabaseConnection, url: str = PAGE) -> None:
    query(db, "INSERT INTO local_businesses (place_id, country) VALUES ('p1', 'US') ON CONFLICT DO NOTHING")
    query(
        db,
        """INSERT INTO domains (domain, status, local_business_id)
           SELECT 'bakery.example', 'completed', id FROM local_businesses ON CONFLICT DO NOTHING""",
    )
    query(
        db, "INSERT INTO pages (domain_id, url, page_processing_status) SELECT id, :url, 'Queued' FROM domains", url=url
    )


def run(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Summary:
    return world.run(PAGE_CURATION, db, **settings)


def page(db: DatabaseConnection) -> tuple[Any, ...]:
    (found,) = query(db, "SELECT page_processing_status, contact_scrape_status, page_processing_error FROM pages")
    return found


def contacts(db: DatabaseConnection, columns: str = "email") -> list[Any]:
    rows = query(db, f"SELECT {columns} FROM contacts ORDER BY email")
    return [row[0] if len(row) == 1 else row for row in rows]


def test_a_page_with_addresses_makes_contacts(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(PAGE, '<a href="mailto:Anna@Bakery.Example">Anna Baker</a><p>info@bakery.example (716) 555-0100</p>')
    add_page(db)
    assert run(world, db).succeeded == 1
    assert page(db) == ("Complete", "ContactFound", None)
    columns = "email, email_type, name, phone_number, source_url, contact_curation_status, created_by"
    assert contacts(db, columns) == [
        ("anna@bakery.example", "CORPORATE", "Anna Baker", "+17165550100", PAGE, "New", "system:page_curation"),
        ("info@bakery.example", "SERVICE", None, "+17165550100", PAGE, "New", "system:page_curation"),
    ]
    assert query(
        db, "SELECT count(*) FROM contacts c JOIN pages p ON (p.id, p.domain_id) = (c.page_id, c.domain_id)"
    ) == [(2,)]


def test_a_page_without_any_says_so(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(PAGE, "<p>Call us: (716) 555-0100</p>")
    add_page(db)
    assert run(world, db).succeeded == 1
    assert (page(db), contacts(db)) == (("Complete", "NoContactFound", None), [])


def test_a_known_contact_gets_only_what_was_unknown(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(PAGE, '<a href="mailto:anna@bakery.example">Somebody Else</a><p>(716) 555-0100</p>')
    add_page(db)
    query(
        db,
        """INSERT INTO contacts (domain_id, email, name, context, contact_curation_status)
           SELECT id, 'anna@bakery.example', 'Anna Baker', 'typed in', 'Complete' FROM domains""",
    )
    run(world, db)
    assert contacts(db, "email, name, phone_number, email_type, context, contact_curation_status, source_url") == [
        ("anna@bakery.example", "Anna Baker", "+17165550100", "CORPORATE", "typed in", "Complete", PAGE)
    ]


def test_one_address_on_many_pages_is_one_contact(world: PipelineWorld, db: DatabaseConnection) -> None:
    for number in range(5):
        world.page(f"{SITE}/{number}", "<p>info@bakery.example</p>")
        add_page(db, f"{SITE}/{number}")
    assert run(world, db).succeeded == 5
    assert contacts(db) == ["info@bakery.example"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status=404), f"GET {PAGE} answered 404"),
        (as_json({"email": "a@bakery.example"}), f"GET {PAGE} answered application/json, not HTML"),
        (
            Answer(status=302, headers={"Location": "http://other.example/x"}),
            "redirects to another site, other.example",
        ),
        (
            Answer(status=302, headers={"Location": "http://169.254.169.254/"}),
            "169.254.169.254 is not a public address; to let jobs call it, add it to FETCH_ALLOWED_NETWORKS "
            "or set FETCH_ALLOW_PRIVATE_ADDRESSES=true",
        ),
    ],
)
def test_what_is_no_page_of_the_site_is_an_error(
    world: PipelineWorld, db: DatabaseConnection, answer: Answer, error: str
) -> None:
    world.page("http://other.example/x", "<p>anna@other.example</p>")
    world.page(PAGE, answer)
    add_page(db)
    assert run(world, db).failed == 1
    assert (page(db), contacts(db)) == (("Error", "Error", error), [])


def test_a_page_of_many_megabytes_is_read_to_its_limit(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(PAGE, "<p>anna@bakery.example</p>" + " " * 2 * 1024**2 + "<p>bert@bakery.example</p>")
    add_page(db)
    run(world, db)
    assert contacts(db) == ["anna@bakery.example"]


def test_a_page_that_never_ends_is_given_up(world: PipelineWorld, db: DatabaseConnection) -> None:
    def drip() -> Any:
        while not world.go_on.wait(0.05):
            yield b" "

    world.page(PAGE, Answer(drip()))
    add_page(db)
    summary = run(world, db, item_timeout_seconds=0.5, max_attempts=1)
    assert summary.dead == 1
    assert page(db) == ("Error", "Error", "did not finish within 0.5 s")


def test_what_postgres_cannot_hold_is_cleaned(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(PAGE, "<p>a\x00b anna@bakery.example &#xD800;</p>")
    add_page(db)
    assert run(world, db).succeeded == 1
    assert contacts(db) == ["anna@bakery.example"]


def test_requests_to_one_host_keep_their_distance(world: PipelineWorld, db: DatabaseConnection) -> None:
    for number in range(3):
        world.page(f"{SITE}/{number}", "<p>x</p>")
        add_page(db, f"{SITE}/{number}")
    assert run(world, db, workflow_fetch_delay_seconds=0.3).seconds >= 0.6
