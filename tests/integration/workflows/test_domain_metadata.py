"""WF3, second half: from a domain to what its home page says."""

import socketserver
import threading
from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.queues.outcomes import Summary
from services.workflows.domain_metadata import DOMAIN_METADATA
from tests.support.pipeline_stand_ins import PipelineWorld, as_json
from tests.support.places import query
from tests.support.scan_site import Answer, Request

HOME = "http://bakery.example/"
TLS_HELLO = b"\x16"  # its first byte


def add_domain(db: DatabaseConnection, domain: str = "bakery.example", **columns: Any) -> None:
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", :{name}" for name in columns)
    query(db, f"INSERT INTO domains (domain{names}) VALUES (:domain{values})", domain=domain, **columns)


def run(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Summary:
    return world.run(DOMAIN_METADATA, db, **settings)


def domain(db: DatabaseConnection, columns: str) -> tuple[Any, ...]:
    (found,) = query(db, f"SELECT {columns} FROM domains")
    return found


def test_a_domain_says_what_it_is_and_waits_for_its_sitemaps(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(HOME, '<html lang="en"><title>Bakery</title><p>Call (716) 555-0100 or info@bakery.example</p>')
    query(db, "INSERT INTO local_businesses (place_id, country) VALUES ('p1', 'US')")
    add_domain(db)
    query(db, "UPDATE domains SET local_business_id = (SELECT id FROM local_businesses)")
    assert run(world, db).succeeded == 1
    assert domain(
        db, "status, last_error, title, language, email_addresses, phone_numbers, sitemap_analysis_status"
    ) == ("completed", None, "Bakery", "en", ["info@bakery.example"], ["+17165550100"], "queued")
    assert domain(db, "meta_json") == ({"final_url": HOME},)


@pytest.mark.parametrize("status", ["processing", "submitted"])
def test_a_search_for_sitemaps_that_is_under_way_is_left_alone(
    world: PipelineWorld, db: DatabaseConnection, status: str
) -> None:
    world.page(HOME, "<title>Bakery</title>")
    add_domain(db, sitemap_analysis_status=status)
    run(world, db)
    assert domain(db, "status, sitemap_analysis_status") == ("completed", status)


@pytest.mark.parametrize("status", [None, "pending", "queued", "failed"])
def test_any_other_one_is_queued(world: PipelineWorld, db: DatabaseConnection, status: str | None) -> None:
    world.page(HOME, "<title>Bakery</title>")
    add_domain(db, sitemap_analysis_status=status)
    run(world, db)
    assert domain(db, "sitemap_analysis_status") == ("queued",)


@pytest.mark.parametrize("word", ["Not a Fit", "Archived"])
def test_the_sitemaps_of_a_domain_that_a_curator_turned_down_are_not_looked_for(
    world: PipelineWorld, db: DatabaseConnection, word: str
) -> None:
    world.page(HOME, "<title>Bakery</title>")
    add_domain(db, sitemap_curation_status=word)
    assert run(world, db).succeeded == 1
    assert domain(db, "status, title, sitemap_analysis_status") == ("completed", "Bakery", None)


def test_known_values_are_not_overwritten_by_nothing(world: PipelineWorld, db: DatabaseConnection) -> None:
    known: dict[str, Any] = {
        "title": "Known", "description": "Known", "is_wordpress": True, "wordpress_version": "6", "language": "en",
        "tech_stack": ["WordPress"], "email_addresses": ["a@b.example"], "facebook_url": "https://facebook.com/known",
    }  # fmt: skip
    add_domain(db, **known)
    world.page(HOME, '<meta name="description" content="New">')
    run(world, db)
    assert domain(db, ", ".join(known)) == tuple({**known, "description": "New"}.values())


def test_https_is_tried_first(world: PipelineWorld, db: DatabaseConnection) -> None:
    """Here nobody speaks TLS, so http answers after it."""
    beginnings: list[bytes] = []

    class Door(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heard = self.request.recv(65536)
            beginnings.append(heard[:1])
            if heard.startswith(b"GET"):
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n<title>Bakery</title>\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Door) as door:
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
        add_domain(db)
        run(world, db, fetch_connect_to=f"*.example=127.0.0.1:{door.server_address[1]}")
        door.shutdown()
    assert beginnings == [TLS_HELLO, b"G"]
    assert domain(db, "title, meta_json->>'final_url'") == ("Bakery", HOME)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status=404), "GET http://bakery.example/ answered 404"),
        (Answer(status=403), "GET http://bakery.example/ answered 403"),
        (as_json({}), "GET http://bakery.example/ answered application/json, not HTML"),
    ],
)
def test_a_home_page_that_is_none_is_an_error(
    world: PipelineWorld, db: DatabaseConnection, answer: Answer, error: str
) -> None:
    world.page(HOME, answer)
    add_domain(db)
    assert run(world, db).failed == 1
    assert domain(db, "status, last_error, sitemap_analysis_status") == ("error", error, None)


def test_retry_after_is_obeyed(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(HOME, Answer(status=503, headers={"Retry-After": "600"}))
    add_domain(db)
    assert run(world, db).retried == 1
    assert domain(db, "status, not_before > now() + interval '590 s', not_before < now() + interval '610 s'") == (
        "pending", True, True,
    )  # fmt: skip


def test_a_domain_that_hangs_times_out_and_costs_the_others_nothing(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    world.hangs("http://slow.example/")
    world.page(HOME, "<title>Bakery</title>")
    add_domain(db, "slow.example")
    add_domain(db)
    summary = run(world, db, item_timeout_seconds=0.5, max_attempts=1)
    assert (summary.succeeded, summary.dead) == (1, 1)
    assert query(db, "SELECT last_error FROM domains WHERE domain = 'slow.example'") == [
        ("did not finish within 0.5 s",)
    ]


def test_dead_domains_stop_nobody_else_s_turn(world: PipelineWorld, db: DatabaseConnection) -> None:
    """Nobody listens at the port that they lead to: more of them in a row than a circuit bears."""
    world.page(HOME, "<title>Bakery</title>")
    for number in range(20):
        add_domain(db, f"dead{number}.invalid")
    add_domain(db)
    alive = world.settings().fetch_connect_to
    summary = run(world, db, fetch_connect_to=f"{alive},*.invalid=127.0.0.1:1", concurrency=1)
    assert (summary.retried, summary.succeeded, summary.ended) == (20, 1, "empty")
    assert query(db, "SELECT circuit FROM workflow_queues") == [("closed",)]


def test_a_slow_site_holds_no_connection(world: PipelineWorld, database_url: str) -> None:
    """The pool has one connection, and the page is served only after somebody else could use it."""
    db = DatabaseConnection(database_url, pool_size=1)
    used = []

    def page(_request: Request) -> Answer:
        used.append(query(db, "SELECT status FROM domains WHERE domain = 'bakery.example'"))
        return Answer("<title>Bakery</title>")

    world.page(HOME, page)
    add_domain(db)
    assert run(world, db).succeeded == 1
    assert used == [[("processing",)]]
    db.close()
