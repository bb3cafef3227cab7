"""A site of many pages among small ones: whose turn it is, and who may come in."""

from typing import Any

import pytest

from database.connection import DatabaseConnection
from database.workflow_models import LEAST_PRIORITY
from services.queues.outcomes import Summary
from services.workflows.fair_turns import priority_in_line
from services.workflows.page_curation import PAGE_CURATION
from services.workflows.sitemap_files import FILES_PER_POINT
from services.workflows.sitemap_import import SITEMAP_IMPORT
from services.workflows.sitemap_pages import PAGES_PER_POINT
from tests.support.pipeline_stand_ins import PipelineWorld
from tests.support.places import query
from tests.support.scan_site import Answer

BIG, SMALL = "big.example", "small.example"
MANY = 10 * PAGES_PER_POINT


def add_sitemap(world: PipelineWorld, db: DatabaseConnection, host: str, *paths: str, name: str = "sitemap") -> None:
    """It waits for its import."""
    world.sitemap(f"http://{host}/{name}.xml", *(f"http://{host}{path}" for path in paths))
    world.page(f"http://{host}/*", "<p>nobody</p>")
    add_file(db, host, f"/{name}.xml")


def add_file(db: DatabaseConnection, host: str, path: str) -> None:
    query(db, "INSERT INTO domains (domain, status) VALUES (:host, 'completed') ON CONFLICT DO NOTHING", host=host)
    query(
        db,
        """INSERT INTO sitemap_files (domain_id, url, sitemap_import_status)
           SELECT id, :url, 'Queued' FROM domains WHERE domain = :host""",
        host=host,
        url=f"http://{host}{path}",
    )


def pages(count: int) -> list[str]:
    return [f"/page-{number:04}" for number in range(count)]


def import_(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Summary:
    return world.run(SITEMAP_IMPORT, db, **settings)


def curated_order(world: PipelineWorld, db: DatabaseConnection) -> list[tuple[str, str]]:
    """Host and path of each page, in the order in which they are asked for, one by one."""
    seen = len(world.requests())
    world.run(PAGE_CURATION, db, concurrency=1)
    return [(request.headers["host"], request.path) for request in world.requests()[seen:]]


def test_a_site_that_comes_later_does_not_wait_for_all_pages_of_another(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    add_sitemap(world, db, BIG, *pages(MANY))
    import_(world, db)
    add_sitemap(world, db, SMALL, *pages(3))
    import_(world, db)
    order = [host for host, _ in curated_order(world, db)]
    assert len(order) == MANY + 3  # nobody waits for a time: what is last has its turn in the same run
    assert max(place for place, host in enumerate(order) if host == SMALL) < PAGES_PER_POINT + 3


def test_the_sitemaps_of_a_site_stand_in_one_line(world: PipelineWorld, db: DatabaseConnection) -> None:
    for number in range(4):
        names = [f"/{number}{path}" for path in pages(PAGES_PER_POINT)]
        add_sitemap(world, db, BIG, *names, name=f"sitemap-{number}")
    import_(world, db, concurrency=1)
    counts = query(db, "SELECT priority, count(*) FROM pages GROUP BY 1 ORDER BY 1 DESC")
    assert counts == [(-number, PAGES_PER_POINT) for number in range(4)]


def test_what_a_site_adds_later_does_not_wait_for_what_is_done(world: PipelineWorld, db: DatabaseConnection) -> None:
    add_sitemap(world, db, BIG, *pages(MANY))
    import_(world, db)
    query(db, "UPDATE pages SET page_processing_status = 'Complete'")
    world.sitemap(f"http://{BIG}/sitemap.xml", *(f"http://{BIG}{path}" for path in (*pages(MANY), "/zoo")))
    query(db, "UPDATE sitemap_files SET sitemap_import_status = 'Queued'")
    assert import_(world, db).succeeded == 1
    assert query(db, "SELECT url, priority FROM pages WHERE page_processing_status = 'Queued'") == [
        (f"http://{BIG}/zoo", 0)
    ]


def test_the_contact_page_of_a_huge_site_goes_first(world: PipelineWorld, db: DatabaseConnection) -> None:
    add_sitemap(world, db, BIG, *pages(MANY), "/zz/contact")
    import_(world, db)
    assert curated_order(world, db)[0] == (BIG, "/zz/contact")


def test_a_huge_site_does_not_keep_the_others_from_coming_in(world: PipelineWorld, db: DatabaseConnection) -> None:
    """Backpressure is about what waits although its turn has come."""
    add_sitemap(world, db, BIG, *pages(MANY))
    import_(world, db)
    add_sitemap(world, db, SMALL, *pages(3))
    assert import_(world, db, workflow_backpressure_depth=PAGES_PER_POINT).succeeded == 1
    assert import_(world, db, workflow_backpressure_depth=PAGES_PER_POINT).skipped == "backpressure"


def test_the_files_of_an_index_let_another_site_s_file_go_in_between(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    children = [f"http://{BIG}/{number:03}.xml" for number in range(5 * FILES_PER_POINT)]
    world.sitemap_index(f"http://{BIG}/index.xml", *children)
    world.page(f"http://{BIG}/*", Answer(status=404))
    add_file(db, BIG, "/index.xml")
    import_(world, db, run_budget_seconds=1, sitemap_import_scheduler_batch_size=1)
    query(db, "UPDATE sitemap_files SET sitemap_import_status = 'Queued'")  # again: the index and its children
    add_sitemap(world, db, SMALL, *pages(3))
    seen = len(world.requests())
    import_(world, db, concurrency=1)
    order = [request.headers["host"] for request in world.requests()[seen:]]
    assert order.index(SMALL) <= FILES_PER_POINT + 1
    assert len(order) == len(children) + 2


@pytest.mark.parametrize(("before", "priority"), [(0, 12), (19, 12), (20, 11), (400, -8), (10**9, LEAST_PRIORITY)])
def test_a_point_less_for_every_few_that_wait_before(before: int, priority: int) -> None:
    assert priority_in_line(12, before, 20) == priority
