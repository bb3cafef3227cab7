"""The pipeline as replicas run it: a place becomes contacts, and nobody touches it on the way."""

from collections import Counter
from urllib.parse import parse_qs

from services.cli.demo.directory import BUSINESSES
from services.cli.demo.site import DemoSite
from services.cli.dev_pipeline import pipeline_environment
from tests.support.pipeline import column, start_pipeline
from tests.support.pipeline_stand_ins import DETAILS_PATH, PipelineWorld
from tests.support.places import add_places, places, query
from tests.support.replicas import Cluster
from tests.support.waiting import eventually


def test_a_place_becomes_contacts_and_nobody_touches_it_on_the_way(cluster: Cluster) -> None:
    """A town of six: robots.txt and an index with gzip, usual paths, a link; one without a site, one whose is gone."""
    for business in BUSINESSES:
        cluster.run("INSERT INTO places_staging (place_id, deep_scan_status) VALUES (%s, 'Queued')", business.place_id)
    with DemoSite() as site:
        start_pipeline(cluster, 2, pipeline_environment(site.url))
        eventually(lambda: len(column(cluster, "SELECT email FROM contacts")) == 7, 120)
        eventually(
            lambda: not cluster.rows("SELECT FROM pages WHERE page_processing_status IN ('Queued', 'Processing')"), 60
        )
    contacts = cluster.rows(
        """SELECT b.business_name, c.email, c.email_type, c.name, c.phone_number FROM contacts AS c
           JOIN domains AS d ON d.id = c.domain_id JOIN local_businesses AS b ON b.id = d.local_business_id
           ORDER BY c.email"""
    )
    assert contacts == [
        ("Elmwood Bakery", "info@elmwood-bakery.example", "SERVICE", None, "+17165550111"),
        ("Northside Plumbing", "jobs@northside-plumbing.example", "SERVICE", None, None),
        ("Lakeview Dental", "lakeview.dental@gmail.com", "FREE", None, None),
        ("Lakeview Dental", "mara.quinn@lakeview-dental.example", "CORPORATE", "Dr. Mara Quinn", "+17165550113"),
        ("Northside Plumbing", "office@northside-plumbing.example", "SERVICE", None, "+17165550112"),
        ("Elmwood Bakery", "olivia@elmwood-bakery.example", "CORPORATE", "Olivia Hart", None),
        ("Harbor Books", "sam@harbor-books.example", "CORPORATE", None, None),
    ]
    assert places(cluster.db) == ["Completed"] * len(BUSINESSES)
    assert Counter(column(cluster, "SELECT domain_extraction_status FROM local_businesses")) == {"Completed": 6}
    assert cluster.rows("SELECT domain, last_error FROM domains WHERE status <> 'completed'") == [
        ("gone-garage.example", "GET http://gone-garage.example/ answered 404")
    ]
    assert Counter(column(cluster, "SELECT discovery_method FROM sitemap_files")) == {
        "robots_txt": 1, "sitemap_index": 2, "common_path": 2, "html_link": 1,
    }  # fmt: skip
    assert cluster.rows("SELECT url FROM pages WHERE page_processing_status = 'Error'") == [
        ("http://www.lakeview-dental.example/gone",)
    ]


def test_with_curation_it_waits_where_a_curator_decides(cluster: Cluster, world: PipelineWorld) -> None:
    world.place("p1", website="http://bakery.example/")
    query(cluster.db, "INSERT INTO places_staging (place_id, deep_scan_status) VALUES ('p1', 'Queued')")
    start_pipeline(cluster, 1, {**world.environment, "DEEP_SCAN_AUTO_QUEUE_EXTRACTION": "false"})
    eventually(lambda: column(cluster, "SELECT status FROM local_businesses") == ["New"], 60)
    runs = "SELECT FROM job_executions WHERE job_id = 'process_domain_extraction_queue' AND status = 'success'"
    seen = len(cluster.rows(runs))
    eventually(lambda: len(cluster.rows(runs)) > seen, 30)
    assert column(cluster, "SELECT domain FROM domains") == []


def test_two_replicas_work_on_each_of_200_places_once(cluster: Cluster, world: PipelineWorld) -> None:
    add_places(cluster.db, 200)
    for place_id in places(cluster.db, "place_id"):
        world.place(place_id)
    start_pipeline(cluster, 2, {**world.environment, "DEEP_SCAN_SCHEDULER_MAX_INSTANCES": "2"})
    eventually(lambda: places(cluster.db) == ["Completed"] * 200, 90)
    asked = Counter(parse_qs(request.query)["place_id"][0] for request in world.requests(DETAILS_PATH))
    assert set(asked.values()) == {1}
    assert len(asked) == len(column(cluster, "SELECT id FROM local_businesses")) == 200
