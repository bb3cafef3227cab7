"""WF5 and WF6: from a sitemap to pages."""

import gzip
from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.queues.outcomes import Summary
from services.workflows.sitemap_discovery import MAX_FILES
from services.workflows.sitemap_import import SITEMAP_IMPORT
from services.workflows.sitemap_pages import CHUNK_ROWS
from tests.support.pipeline_stand_ins import PipelineWorld, xml
from tests.support.places import query
from tests.support.scan_site import Answer
from tests.support.sitemap_bombs import BOMBS, bomb

SITE = "http://bakery.example"
FILE = f"{SITE}/sitemap.xml"


def add_file(db: DatabaseConnection, url: str = FILE, status: str | None = "Queued") -> None:
    query(db, "INSERT INTO domains (domain, status) VALUES ('bakery.example', 'completed') ON CONFLICT DO NOTHING")
    query(
        db,
        """INSERT INTO sitemap_files (domain_id, url, sitemap_import_status) SELECT id, :url, :status FROM domains""",
        url=url,
        status=status,
    )


def run(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Summary:
    return world.run(SITEMAP_IMPORT, db, **settings)


def file(db: DatabaseConnection, columns: str = "sitemap_import_status, sitemap_import_error") -> tuple[Any, ...]:
    (found,) = query(db, f"SELECT {columns} FROM sitemap_files WHERE url = :url", url=FILE)
    return found


def pages(db: DatabaseConnection, columns: str = "url") -> list[Any]:
    rows = query(db, f"SELECT {columns} FROM pages ORDER BY url")
    return [row[0] if len(row) == 1 else row for row in rows]


def test_every_address_becomes_a_page_with_its_place_in_the_queue(world: PipelineWorld, db: DatabaseConnection) -> None:
    paths = ("/", "/contact", "/menu.pdf", "/blog/2026/05/bread")
    world.sitemap(FILE, *(f"{SITE}{path}" for path in paths))
    add_file(db)
    assert run(world, db).succeeded == 1
    columns = "url, page_type, path_depth, priority_level, page_processing_status, priority, contact_scrape_status"
    assert pages(db, columns) == [
        (f"{SITE}/", "home", 0, 2, "Queued", 0, "New"),
        (f"{SITE}/blog/2026/05/bread", "blog", 4, 3, "Filtered", 0, "New"),
        (f"{SITE}/contact", "contact", 1, 1, "Queued", 12, "New"),
        (f"{SITE}/menu.pdf", "file", 1, 3, "Filtered", 0, "New"),
    ]
    assert file(db, "status, sitemap_import_status, url_count, page_count, size_bytes > 100, sitemap_type") == (
        "Completed", "Complete", 4, 4, True, "standard",
    )  # fmt: skip
    assert query(db, "SELECT count(*) FROM pages p JOIN sitemap_files f ON f.id = p.sitemap_file_id") == [(4,)]


def test_with_the_strict_policy_only_the_best_are_queued(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(FILE, f"{SITE}/menu", f"{SITE}/contact", f"{SITE}/x.pdf")
    add_file(db)
    run(world, db, page_import_queue_policy="high_value")
    assert pages(db, "page_processing_status") == ["Queued", None, "Filtered"]


def test_addresses_are_normalised_and_others_left_out(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(
        FILE,
        "HTTP://Bakery.Example:80/a?utm_source=x",
        f"{SITE}/a#top",
        f"{SITE}/a",
        "/b",
        "https://www.bakery.example/c",
        "http://other.example/d",
        "http://notbakery.example/e",
        "ftp://bakery.example/f",
        "mailto:anna@bakery.example",
        f"{SITE}/{'x' * 3000}",
        "http://[",
        "",
    )
    add_file(db)
    run(world, db)
    assert pages(db) == [f"{SITE}/a", f"{SITE}/b", "https://www.bakery.example/c"]
    assert file(db, "url_count, page_count") == (11, 3)


def test_dates_with_and_without_a_zone(world: PipelineWorld, db: DatabaseConnection) -> None:
    dates = {"a": "2026-03-01T10:00:00+02:00", "b": "2026-03-01", "c": "soon"}
    urls = "".join(f"<url><loc>/{name}</loc><lastmod>{date}</lastmod></url>" for name, date in dates.items())
    world.page(FILE, xml(f"<urlset>{urls}</urlset>"))
    add_file(db)
    run(world, db)
    assert pages(db, "to_char(last_modified AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')") == [
        "2026-03-01 08:00", "2026-03-01 00:00", None,
    ]  # fmt: skip


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}])
def test_gzip_is_unpacked_whatever_it_is_called(
    world: PipelineWorld, db: DatabaseConnection, headers: dict[str, str]
) -> None:
    packed = gzip.compress(f"<urlset><url><loc>{SITE}/a</loc></url></urlset>".encode())
    world.page(FILE, Answer(packed, content_type="text/plain", headers=headers))
    add_file(db)
    run(world, db)
    assert pages(db) == [f"{SITE}/a"]


def test_a_page_that_is_known_stays_as_it_is(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(FILE, f"{SITE}/a", f"{SITE}/b")
    add_file(db)
    query(
        db,
        "INSERT INTO pages (domain_id, url, page_processing_status) SELECT id, :u, 'Complete' FROM domains",
        u=f"{SITE}/a",
    )
    run(world, db)
    assert pages(db, "page_processing_status") == ["Complete", "Queued"]
    assert file(db, "url_count, page_count") == (2, 1)


def test_many_pages_go_in_chunks(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(FILE, *(f"{SITE}/{number}" for number in range(2 * CHUNK_ROWS + 1)))
    add_file(db)
    run(world, db)
    assert CHUNK_ROWS <= 500
    assert query(db, "SELECT count(*) FROM pages") == [(2 * CHUNK_ROWS + 1,)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer("<!DOCTYPE html><html><body>Moved"), "it is not a sitemap: its root element is <html>"),
        (xml("<urlset><url><loc>a</l"), "it is not well-formed XML: 1:19: unclosed token"),
        (xml(""), "it is empty"),
        (Answer(status=404), f"GET {FILE} answered 404"),
        (Answer(status=410), f"GET {FILE} answered 410"),
    ],
)
def test_what_is_no_sitemap_is_an_error_with_its_reason(
    world: PipelineWorld, db: DatabaseConnection, answer: Answer, error: str
) -> None:
    world.page(FILE, answer)
    add_file(db)
    assert run(world, db).failed == 1
    assert (*file(db), pages(db)) == ("Error", error, [])
    assert file(db, "status") == ("Error",)


@pytest.mark.parametrize(
    "body",
    [
        f"<urlset><url><loc>{SITE}/a</loc></url><url><loc>{SITE}/b?x=1&y=2</loc></url></urlset>",
        f"<urlset><url><loc>{SITE}/a</loc></url><url><loc>{SITE}/b?x=1&amp;y=2</loc></url><url><loc>{SITE}/c",
    ],
)
def test_the_pages_of_a_broken_sitemap_are_imported_and_its_error_is_kept(
    world: PipelineWorld, db: DatabaseConnection, body: str
) -> None:
    world.page(FILE, xml(body))
    add_file(db)
    assert run(world, db).failed == 1
    assert pages(db) == [f"{SITE}/a", f"{SITE}/b?x=1&y=2"]
    status, error = file(db)
    assert (status, error[:27]) == ("Error", "it is not well-formed XML: ")
    assert file(db, "status, url_count, page_count") == ("Error", 2, 2)


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_an_error_with_its_reason(world: PipelineWorld, db: DatabaseConnection, kind: str) -> None:
    answer, error = bomb(kind, FILE)
    world.page(FILE, answer)
    add_file(db)
    assert run(world, db).failed == 1
    assert (*file(db), pages(db)) == ("Error", error, [])


def test_a_server_in_trouble_is_asked_again(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(FILE, Answer(status=502))
    add_file(db)
    assert run(world, db).retried == 1
    assert file(db) == ("Queued", f"GET {FILE} answered 502")


def test_an_index_brings_its_children_into_the_queue(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap_index(FILE, f"{SITE}/a.xml", "/b.xml", f"{SITE}/done.xml", "http://other.example/c.xml")
    world.sitemap(f"{SITE}/a.xml", f"{SITE}/a")
    world.sitemap_index(f"{SITE}/b.xml", f"{SITE}/nested.xml", FILE)
    world.sitemap(f"{SITE}/nested.xml", f"{SITE}/nested")
    add_file(db)
    add_file(db, f"{SITE}/a.xml", None)
    add_file(db, f"{SITE}/done.xml", "Complete")
    assert run(world, db).succeeded == 4
    assert pages(db) == [f"{SITE}/a", f"{SITE}/nested"]
    assert query(db, "SELECT url, sitemap_type, sitemap_import_status FROM sitemap_files ORDER BY url") == [
        (f"{SITE}/a.xml", "standard", "Complete"),
        (f"{SITE}/b.xml", "index", "Complete"),
        (f"{SITE}/done.xml", "standard", "Complete"),
        (f"{SITE}/nested.xml", "standard", "Complete"),
        (FILE, "index", "Complete"),
    ]


@pytest.mark.parametrize("word", ["Not a Fit", "Archived"])
def test_an_index_does_not_queue_a_file_that_a_curator_turned_down(
    world: PipelineWorld, db: DatabaseConnection, word: str
) -> None:
    world.sitemap_index(FILE, f"{SITE}/a.xml", f"{SITE}/b.xml")
    world.page(f"{SITE}/*", Answer(status=404))
    for url, status in ((FILE, "Queued"), (f"{SITE}/a.xml", None), (f"{SITE}/b.xml", None)):
        add_file(db, url, status)
    curated = "UPDATE sitemap_files SET sitemap_import_curation_status = :word WHERE url LIKE '%/a.xml'"
    query(db, curated, word=word)
    run(world, db)
    left_out = query(db, "SELECT url FROM sitemap_files WHERE sitemap_import_status IS NULL")
    assert left_out == [(f"{SITE}/a.xml",)]


def test_an_index_cannot_lead_on_for_ever(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap_index(FILE, *(f"{SITE}/{number}.xml" for number in range(2 * MAX_FILES)))
    world.page(f"{SITE}/*", Answer(status=404))
    add_file(db)
    run(world, db, run_budget_seconds=1)
    assert query(db, "SELECT count(*) FROM sitemap_files") == [(MAX_FILES,)]


def test_an_index_queues_the_files_that_wait_however_many_there_are(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    names = [f"{SITE}/{number}.xml" for number in range(MAX_FILES)]
    world.sitemap_index(FILE, *names)
    world.page(f"{SITE}/*", Answer(status=404))
    add_file(db)
    query(
        db,
        "INSERT INTO sitemap_files (domain_id, url) SELECT id, unnest(CAST(:urls AS text[])) FROM domains",
        urls=names,
    )
    run(world, db, run_budget_seconds=1)
    assert query(db, "SELECT count(*) FROM sitemap_files WHERE sitemap_import_status IS NULL") == [(0,)]
