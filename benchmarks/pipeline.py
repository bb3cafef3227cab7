"""The whole pipeline on local stand-ins: items per minute of one process, workflow by workflow.

The sites run in the same process, and no distance is kept between requests: this is the cost of our own work.
"""

import logging
import time
from collections.abc import Iterator

from rich.table import Table

from benchmarks.job_loop import database
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet, from_table
from database.connection import DatabaseConnection
from services.workflows import queues
from tests.support.pipeline_stand_ins import PipelineWorld
from tests.support.places import query

SITES, PAGES = 100, 5
BASELINE = 30  # items per minute over all workflows, as measured with the first design


def run(scale: Scale) -> Iterator[Sheet]:
    logging.disable()
    table = Table("workflow", "items", "seconds", "items/min", f"x {BASELINE}/min", title=f"pipeline, {SITES} sites")
    with database() as (db, _url), PipelineWorld() as world:
        fill(db, world)
        items, all_seconds = 0, 0.0
        for queue in queues.all():
            begun = time.perf_counter()
            summary = world.run(queue, db, run_budget_seconds=600)
            seconds = time.perf_counter() - begun
            assert summary.succeeded == summary.claimed > 0, (queue.name, summary)
            table.add_row(queue.name, *_pace(summary.succeeded, seconds))
            items, all_seconds = items + summary.succeeded, all_seconds + seconds
        table.add_row("one after the other", *_pace(items, all_seconds))
        ((contacts,),) = query(db, "SELECT count(*) FROM contacts")
    yield from_table("pipeline", table)
    assert contacts == SITES * PAGES


def _pace(items: int, seconds: float) -> tuple[str, str, str, str]:
    rate = items / seconds * 60
    return str(items), f"{seconds:.1f}", f"{rate:,.0f}", f"{rate / BASELINE:,.0f} x"


def fill(db: DatabaseConnection, world: PipelineWorld) -> None:
    for number in range(SITES):
        site = f"http://site{number}.example"
        world.place(f"p{number}", website=f"{site}/")
        world.page(f"{site}/", "<title>A site</title>")
        pages = [f"{site}/team/{page}" for page in range(PAGES)]
        world.sitemap(f"{site}/sitemap.xml", *pages)
        for page, url in enumerate(pages):
            world.page(
                url, f"<p>Number {page}: person{page}@site{number}.example, +1 716 555 0100</p>" + "<p>text</p>" * 500
            )
        query(db, "INSERT INTO places_staging (place_id, deep_scan_status) VALUES (:id, 'Queued')", id=f"p{number}")
