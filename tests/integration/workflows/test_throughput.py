"""Seed 002 asks for 30 items a minute, deep scans and extractions together."""

import time

from database.connection import DatabaseConnection
from services.workflows.deep_scan import DEEP_SCAN
from services.workflows.domain_extraction import DOMAIN_EXTRACTION
from tests.pipeline_stand_ins import PipelineWorld
from tests.places import add_places, places

ITEMS_A_MINUTE = 30


def test_thirty_items_a_minute_are_beaten_by_two_orders_of_magnitude(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    """By the processor's time, which a busy machine does not change much; the stand-in's share counts as ours."""
    add_places(db, 100)
    for place_id in places(db, "place_id"):
        world.place(place_id, website=f"https://{place_id}.example/")
    settings = world.settings()
    begun = time.process_time()
    done = sum(queue.run(settings=settings, db=db).succeeded for queue in (DEEP_SCAN, DOMAIN_EXTRACTION))
    seconds = time.process_time() - begun
    assert done == 200
    assert done / seconds * 60 > 100 * ITEMS_A_MINUTE
