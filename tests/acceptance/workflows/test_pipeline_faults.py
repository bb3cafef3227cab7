"""The pipeline in trouble, as replicas run it: a row is late, never lost, never overwritten, never stuck."""

from tests.support.pipeline import column, start_pipeline
from tests.support.pipeline_stand_ins import PipelineWorld
from tests.support.places import query
from tests.support.replicas import Cluster
from tests.support.scan_site import Answer
from tests.support.sitemap_bombs import BOMBS, bomb
from tests.support.waiting import eventually

DOMAIN = "SELECT status, title, attempts FROM domains"
KEEPS_IN_PROCESSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON domains FOR EACH ROW
WHEN (OLD.status = 'processing' AND NEW.status <> 'processing') EXECUTE FUNCTION refuse()
"""

PATIENT = """UPDATE schedules SET job_config = job_config || '{"item_timeout_seconds": 600}', timeout_seconds = 900
             WHERE name = 'process_pending_domains'"""


def add_domain(cluster: Cluster, name: str, status: str = "pending") -> None:
    query(cluster.db, "INSERT INTO domains (domain, status) VALUES (:name, :status)", name=name, status=status)


def long_ago(cluster: Cluster) -> None:
    """As if time had passed since the row was claimed."""
    cluster.run("UPDATE domains SET claimed_at = now() - interval '1 hour' WHERE status = 'processing'")


def test_a_site_that_hangs_holds_up_its_own_row_only(cluster: Cluster, world: PipelineWorld) -> None:
    """The other domains of its queue go on, and so do all the other queues."""
    world.hangs("http://slow.example/")
    world.page("http://bakery.example/", "<title>Bakery</title>")
    world.sitemap("http://bakery.example/sitemap.xml", "http://bakery.example/contact")
    world.page("http://bakery.example/contact", "<p>info@bakery.example</p>")
    start_pipeline(cluster, 1, world.environment)
    cluster.run(PATIENT)
    add_domain(cluster, "slow.example")
    eventually(lambda: "/" in world.asked("slow.example"), 60)
    add_domain(cluster, "bakery.example")
    eventually(lambda: column(cluster, "SELECT email FROM contacts") == ["info@bakery.example"], 60)
    assert column(cluster, "SELECT status FROM domains WHERE domain = 'slow.example'") == ["processing"]


def test_slow_sites_leave_the_only_connection_to_the_others(cluster: Cluster, world: PipelineWorld) -> None:
    """A pool of one for all jobs of the replica: two queues wait for their sites, a third one needs Postgres."""
    sites = [f"slow-{number}.example" for number in range(5)]
    for site in sites:
        world.hangs(f"http://{site}/")
        world.hangs(f"http://{site}/contact")
        add_domain(cluster, site)
    query(
        cluster.db,
        """INSERT INTO pages (domain_id, url, page_processing_status)
           SELECT id, 'http://' || domain || '/contact', 'Queued' FROM domains""",
    )
    start_pipeline(cluster, 1, {**world.environment, "DATABASE_POOL_SIZE": "1"})
    eventually(lambda: all({"/", "/contact"} <= set(world.asked(site)) for site in sites), 60)
    query(
        cluster.db,
        """INSERT INTO local_businesses (place_id, website_url, domain_extraction_status)
           VALUES ('p1', 'https://quick.example/', 'Queued')""",
    )
    eventually(lambda: "quick.example" in column(cluster, "SELECT domain FROM domains"), 60)
    sessions = """SELECT pid FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name ~ '^replica-1(#|$)'"""
    assert len(column(cluster, sessions)) <= 1 + 11, "what the settings say that a replica may have"
    world.go_on.set()
    eventually(lambda: set(column(cluster, "SELECT page_processing_status FROM pages")) == {"Complete"}, 60)
    eventually(lambda: set(column(cluster, "SELECT status FROM domains WHERE domain ~ '^slow'")) == {"completed"}, 60)
    assert "were busy" not in cluster.logs(), "nobody waited in vain for a connection"
    assert column(cluster, "SELECT job_id FROM job_executions WHERE status = 'failed'") == []


def test_a_row_whose_replica_was_killed_is_finished_by_another(cluster: Cluster, world: PipelineWorld) -> None:
    world.hangs("http://bakery.example/")
    add_domain(cluster, "bakery.example")
    start_pipeline(cluster, 1, world.environment)
    eventually(lambda: "/" in world.asked("bakery.example"), 60)
    cluster.replicas[0].kill()
    long_ago(cluster)
    world.page("http://bakery.example/", "<title>Bakery</title>")
    cluster.start(1, **world.environment, WORKFLOWS_ENABLED="true")
    eventually(lambda: cluster.rows(DOMAIN) == [("completed", "Bakery", 2)], 60)


def test_a_worker_that_was_frozen_overwrites_nothing(cluster: Cluster, world: PipelineWorld) -> None:
    """Its row went to another replica meanwhile; when it wakes up, the answer that it had waited for is there, too."""
    world.hangs("http://bakery.example/")
    add_domain(cluster, "bakery.example")
    start_pipeline(cluster, 1, world.environment)
    eventually(lambda: "/" in world.asked("bakery.example"), 60)
    frozen = cluster.replicas[0]
    frozen.freeze()
    long_ago(cluster)
    world.page("http://bakery.example/", "<title>Bakery</title>")
    cluster.start(1, **world.environment, WORKFLOWS_ENABLED="true")
    eventually(lambda: cluster.rows(DOMAIN) == [("completed", "Bakery", 2)], 60)
    world.go_on.set()
    frozen.resume()
    lost = "SELECT lost FROM workflow_queues WHERE queue = 'domain_metadata'"
    eventually(lambda: column(cluster, lost) == [1], 60)
    assert cluster.rows(f"{DOMAIN} WHERE last_error IS NULL") == [("completed", "Bakery", 2)]


def test_no_row_stays_in_processing_although_its_failure_was_refused(cluster: Cluster, world: PipelineWorld) -> None:
    world.page("http://bakery.example/", Answer(status=404))
    add_domain(cluster, "bakery.example")
    cluster.run(KEEPS_IN_PROCESSING)
    start_pipeline(cluster, 1, world.environment)
    eventually(lambda: cluster.replicas[0].says("item_stranded"), 60)
    assert cluster.rows(DOMAIN) == [("processing", None, 1)]
    world.page("http://bakery.example/", "<title>Bakery</title>")
    cluster.run("DROP TRIGGER refuse ON domains")
    long_ago(cluster)
    eventually(lambda: cluster.rows(DOMAIN) == [("completed", "Bakery", 2)], 60)


def test_sitemap_bombs_end_as_errors_with_their_reason(cluster: Cluster, world: PipelineWorld) -> None:
    expected = {}
    for number, kind in enumerate(BOMBS):
        url = f"http://bakery.example/{number}.xml"
        answer, expected[url] = bomb(kind, url)
        world.page(url, answer)
    world.sitemap("http://bakery.example/honest.xml", "http://bakery.example/contact")
    add_domain(cluster, "bakery.example", "completed")
    query(
        cluster.db,
        """INSERT INTO sitemap_files (domain_id, url, sitemap_import_status)
           SELECT domains.id, file.url, 'Queued' FROM domains, unnest(CAST(:urls AS text[])) AS file (url)""",
        urls=[*expected, "http://bakery.example/honest.xml"],
    )
    start_pipeline(cluster, 1, world.environment)
    ended = "SELECT url, sitemap_import_error FROM sitemap_files WHERE sitemap_import_status = 'Error'"
    eventually(lambda: dict(cluster.rows(ended)) == expected, 60)
    eventually(lambda: column(cluster, "SELECT url FROM pages") == ["http://bakery.example/contact"], 60)
