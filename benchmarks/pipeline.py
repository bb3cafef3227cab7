"""The whole pipeline on local stand-ins: what one process gets through in a minute, workflow by workflow.

The sites run in the same process, and no distance is kept between requests: this is the cost of our own work.
"""

import logging
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.job_loop import database
from database.connection import DatabaseConnection
from services.workflows.queue import queues
from tests.pipeline_stand_ins import PipelineWorld
from tests.places import query

SITES, PAGES = 100, 5
BASELINE = 30  # items a minute, all workflows together: what the first design reached


def run() -> None:
    logging.disable()
    table = Table("workflow", "items", "seconds", "items/min", f"x {BASELINE}/min", title=f"pipeline, {SITES} sites")
    with database() as (db, _url), PipelineWorld() as world:
        fill(db, world)
        for queue in queues.all():
            begun = time.perf_counter()
            summary = queue.run(settings=world.settings(**_without_budget()), db=db)
            seconds = time.perf_counter() - begun
            assert summary.succeeded == summary.claimed > 0, (queue.name, summary)
            rate = summary.succeeded / seconds * 60
            table.add_row(
                queue.name, str(summary.succeeded), f"{seconds:.1f}", f"{rate:,.0f}", f"{rate / BASELINE:,.0f} x"
            )
        ((contacts,),) = query(db, "SELECT count(*) FROM contacts")
    Console().print(table)
    assert contacts == SITES * PAGES


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


def _without_budget() -> dict[str, Any]:
    return {f"{queue.settings}_run_budget_seconds": 600 for queue in queues.all()}
