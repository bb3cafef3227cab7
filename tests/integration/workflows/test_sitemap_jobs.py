"""WF4: a domain is handed over as a job, and the job finds its sitemaps."""

import gzip
from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.queues.outcomes import Summary
from services.queues.queue_table import FailedFilter
from services.queues.requeue import Requeue
from services.workflows.sitemap_discovery import MAX_FILES, MAX_LOOKED_INTO
from services.workflows.sitemap_jobs import SITEMAP_JOBS
from services.workflows.sitemap_submission import SITEMAP_SUBMISSION
from tests.support.pipeline_stand_ins import PipelineWorld, xml
from tests.support.places import query
from tests.support.scan_site import Answer
from tests.support.sitemap_bombs import bomb

SITE = "http://bakery.example"
Found = dict[str, tuple[str, str]]


def add_domain(db: DatabaseConnection, domain: str = "bakery.example") -> None:
    query(
        db, "INSERT INTO domains (domain, status, sitemap_analysis_status) VALUES (:d, 'completed', 'queued')", d=domain
    )


def submit(world: PipelineWorld, db: DatabaseConnection) -> Summary:
    return SITEMAP_SUBMISSION.run(settings=world.settings(), db=db)


def search(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Summary:
    return world.run(SITEMAP_JOBS, db, **settings)


def found(world: PipelineWorld, db: DatabaseConnection, **settings: Any) -> Found:
    """What a whole search finds: kind and method of each file, by its address."""
    add_domain(db)
    submit(world, db)
    assert search(world, db, **settings).succeeded == 1
    return {
        row[0]: (row[1], row[2]) for row in query(db, "SELECT url, sitemap_type, discovery_method FROM sitemap_files")
    }


def test_a_domain_is_handed_over_as_a_job(world: PipelineWorld, db: DatabaseConnection) -> None:
    add_domain(db)
    assert submit(world, db).succeeded == 1
    assert query(db, "SELECT sitemap_analysis_status FROM domains") == [("submitted",)]
    assert query(db, "SELECT job_type, status, domain_id = (SELECT id FROM domains) FROM jobs") == [
        ("sitemap", "pending", True)
    ]


@pytest.mark.parametrize(("status", "jobs"), [("pending", 1), ("running", 1), ("complete", 2), ("failed", 2)])
def test_a_domain_has_one_live_job(world: PipelineWorld, db: DatabaseConnection, status: str, jobs: int) -> None:
    add_domain(db)
    submit(world, db)
    query(db, "UPDATE jobs SET status = :status", status=status)
    query(db, "UPDATE domains SET sitemap_analysis_status = 'queued'")
    assert submit(world, db).succeeded == 1
    assert query(db, "SELECT count(*) FROM jobs") == [(jobs,)]


def test_a_new_job_takes_the_place_of_the_one_that_failed(world: PipelineWorld, db: DatabaseConnection) -> None:
    """Else somebody could queue both again, and a domain has one live job."""
    world.page(f"{SITE}/robots.txt", Answer(status=503))
    add_domain(db)
    submit(world, db)
    assert search(world, db, max_attempts=1).dead == 1
    query(db, "UPDATE domains SET sitemap_analysis_status = 'queued'")
    assert submit(world, db).succeeded == 1
    assert query(db, "SELECT status FROM jobs ORDER BY id") == [("cancelled",), ("pending",)]
    assert query(db, "SELECT requeued_by FROM dead_letters") == [("system:sitemap_submission",)]
    assert Requeue(db, "anna").failed(SITEMAP_JOBS, FailedFilter()) == 0


def test_robots_txt_names_sitemaps(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/robots.txt", f"User-agent: *\nDisallow: /x\nSitemap: {SITE}/here.xml\nsitemap: /there.xml")
    world.sitemap(f"{SITE}/here.xml", f"{SITE}/")
    world.sitemap(f"{SITE}/there.xml", f"{SITE}/")
    assert found(world, db) == {
        f"{SITE}/here.xml": ("standard", "robots_txt"),
        f"{SITE}/there.xml": ("standard", "robots_txt"),
    }


def test_what_robots_txt_names_beyond_what_can_be_looked_into_is_recorded_too(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    names = [f"{SITE}/{number}.xml" for number in range(2 * MAX_LOOKED_INTO)]
    world.page(f"{SITE}/robots.txt", "\n".join(f"Sitemap: {name}" for name in names))
    for name in names:
        world.sitemap(name, f"{SITE}/")
    assert set(found(world, db)) == set(names)
    unseen = "SELECT count(*), min(sitemap_import_status) FROM sitemap_files WHERE status = 'Pending'"
    assert query(db, unseen) == [(MAX_LOOKED_INTO + 2, "Queued")]  # the home page and robots.txt were asked for, too


def test_a_home_page_that_links_to_a_hundred_dead_ones_has_none(world: PipelineWorld, db: DatabaseConnection) -> None:
    """Looking again would end in the same way."""
    world.page(f"{SITE}/", "".join(f'<link rel="sitemap" href="/{number}.xml">' for number in range(100)))
    assert found(world, db) == {}
    assert query(db, "SELECT status, result_data->>'note' FROM jobs") == [
        ("complete", f"none found with {MAX_LOOKED_INTO} requests")
    ]


@pytest.mark.parametrize("path", ["/sitemap.xml", "/sitemap_index.xml", "/wp-sitemap.xml", "/post-sitemap.xml"])
def test_the_usual_paths_are_tried(world: PipelineWorld, db: DatabaseConnection, path: str) -> None:
    world.sitemap(f"{SITE}{path}", f"{SITE}/")
    assert found(world, db) == {f"{SITE}{path}": ("standard", "common_path")}


def test_the_home_page_links_to_its_sitemap(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/", '<link rel="sitemap" href="map.xml">')
    world.sitemap(f"{SITE}/map.xml", f"{SITE}/")
    assert found(world, db) == {f"{SITE}/map.xml": ("standard", "html_link")}


def test_an_index_leads_to_its_children(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap_index(f"{SITE}/sitemap.xml", f"{SITE}/a.xml", "http://other.example/b.xml", f"{SITE}/gone.xml")
    world.page(f"{SITE}/a.xml", xml(gzip.compress(b"<urlset><url><loc>http://bakery.example/</loc></url></urlset>")))
    world.sitemap("http://other.example/b.xml", "http://other.example/")
    assert found(world, db) == {
        f"{SITE}/sitemap.xml": ("index", "common_path"),
        f"{SITE}/a.xml": ("standard", "sitemap_index"),
    }
    assert world.asked("other.example") == []


def test_an_index_in_an_index_is_followed_to_the_third(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap_index(f"{SITE}/sitemap.xml", f"{SITE}/1.xml")
    for depth in range(1, 6):
        world.sitemap_index(f"{SITE}/{depth}.xml", f"{SITE}/{depth + 1}.xml", f"{SITE}/sitemap.xml")
    assert sorted(found(world, db)) == [*(f"{SITE}/{depth}.xml" for depth in (1, 2, 3)), f"{SITE}/sitemap.xml"]


def test_a_site_cannot_send_us_to_the_inside(world: PipelineWorld, db: DatabaseConnection) -> None:
    """What is refused once is not tried again: the job ends, without a sitemap."""
    inside = ["http://169.254.169.254/a.xml", "http://10.0.0.1/b.xml", "file:///etc/passwd", "javascript:alert(1)"]
    world.page(f"{SITE}/robots.txt", "\n".join(f"Sitemap: {address}" for address in inside))
    world.page(f"{SITE}/", "".join(f'<link rel="sitemap" href="{address}">' for address in inside))
    world.page(f"{SITE}/sitemap.xml", Answer(status=302, headers={"Location": inside[0]}))
    world.sitemap_index(f"{SITE}/wp-sitemap.xml", *inside)
    assert found(world, db) == {f"{SITE}/wp-sitemap.xml": ("index", "common_path")}


@pytest.mark.parametrize(
    "answer",
    [
        Answer("<!DOCTYPE html><html><body>Welcome!</body></html>"),
        Answer("<html><p>Welcome<br>", content_type="application/xml"),
        Answer("OK", content_type="text/plain"),
        Answer("<rss><channel/></rss>", content_type="application/xml"),
        Answer("", content_type="application/xml"),
    ],
)
def test_a_site_that_answers_200_to_everything_has_no_sitemap(
    world: PipelineWorld, db: DatabaseConnection, answer: Answer
) -> None:
    world.page(f"{SITE}/*", answer)
    assert found(world, db) == {}
    assert query(db, "SELECT status, result_data->'sitemaps' FROM jobs") == [("complete", {})]
    assert query(db, "SELECT sitemap_analysis_status, total_sitemaps FROM domains") == [("submitted", 0)]


def test_a_broken_sitemap_is_kept_with_its_error(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/robots.txt", f"Sitemap: {SITE}/named.xml\nSitemap: {SITE}/list.txt")
    world.page(f"{SITE}/named.xml", "<html><body>Not found")
    world.page(f"{SITE}/list.txt", Answer(f"{SITE}/a\n{SITE}/b\n", content_type="text/plain"))
    world.page(f"{SITE}/sitemap.xml", xml(f"<urlset><url><loc>{SITE}/?a&b</loc></url></urlset>"))
    world.page(f"{SITE}/sitemap_index.xml", bomb("entities", SITE)[0])
    world.page(f"{SITE}/wp-sitemap.xml", "<html><body>Not found")
    found(world, db)
    columns = "url, status, url_count, sitemap_import_status, sitemap_import_error"
    assert query(db, f"SELECT {columns} FROM sitemap_files ORDER BY url") == [
        (f"{SITE}/list.txt", "Completed", 2, "Queued", None),
        (f"{SITE}/named.xml", "Error", None, "Error", "it is not a sitemap: its root element is <html>"),
        (
            f"{SITE}/sitemap.xml",
            "Error",
            1,
            "Queued",
            "it is not well-formed XML: 1:44: not well-formed (invalid token)",
        ),
        (f"{SITE}/sitemap_index.xml", "Error", None, "Error", bomb("entities", SITE)[1]),
    ]


def test_two_ways_to_one_file_are_one_file(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/sitemap.xml", Answer(status=301, headers={"Location": "/wp-sitemap.xml"}))
    world.sitemap(f"{SITE}/wp-sitemap.xml", f"{SITE}/")
    assert found(world, db) == {f"{SITE}/wp-sitemap.xml": ("standard", "common_path")}


def test_a_site_that_moved_to_somebody_else_has_no_sitemap_of_its_own(
    world: PipelineWorld, db: DatabaseConnection
) -> None:
    world.page(f"{SITE}/", Answer(status=302, headers={"Location": "http://social.example/bakery"}))
    world.page("http://social.example/bakery", "<p>Hi</p>")
    world.sitemap("http://social.example/sitemap.xml", "http://social.example/")
    assert found(world, db) == {}
    assert query(db, "SELECT result_data->>'note' FROM jobs") == [("redirects to another site, social.example",)]


def test_a_huge_index_is_recorded_as_far_as_it_is_reasonable(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap_index(f"{SITE}/sitemap.xml", *(f"{SITE}/{number}.xml" for number in range(3 * MAX_FILES)))
    for number in range(3 * MAX_FILES):
        world.sitemap(f"{SITE}/{number}.xml", f"{SITE}/")
    assert len(found(world, db)) <= MAX_FILES
    assert len(world.asked("bakery.example")) <= MAX_LOOKED_INTO + 1
    assert query(
        db, "SELECT count(*) > 500, min(sitemap_import_status) FROM sitemap_files WHERE status = 'Pending'"
    ) == [(True, "Queued")]


def test_what_was_found_is_told(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(f"{SITE}/sitemap.xml", f"{SITE}/", f"{SITE}/about")
    found(world, db)
    assert query(db, "SELECT status, progress, result_data->'sitemaps' FROM jobs") == [
        ("complete", 1.0, {"common_path": 1})
    ]
    assert query(db, "SELECT total_sitemaps, sitemap_urls, last_scan IS NOT NULL FROM domains") == [
        (1, [f"{SITE}/sitemap.xml"], True)
    ]
    assert query(db, "SELECT url_count, size_bytes > 100, status, sitemap_import_status FROM sitemap_files") == [
        (2, True, "Completed", "Queued")
    ]


def test_with_curation_new_files_wait(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(f"{SITE}/sitemap.xml", f"{SITE}/")
    found(world, db, sitemap_auto_queue_import=False)
    assert query(db, "SELECT sitemap_import_status FROM sitemap_files") == [(None,)]


def test_a_file_that_is_known_keeps_what_became_of_it(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.sitemap(f"{SITE}/sitemap.xml", f"{SITE}/")
    found(world, db)
    query(
        db, "UPDATE sitemap_files SET sitemap_import_status = 'Complete', page_count = 7, discovery_method = 'manual'"
    )
    query(db, "UPDATE domains SET sitemap_analysis_status = 'queued'")
    submit(world, db)
    assert search(world, db).succeeded == 1
    assert query(db, "SELECT sitemap_import_status, page_count, discovery_method FROM sitemap_files") == [
        ("Complete", 7, "manual")
    ]


@pytest.mark.parametrize("broken", ["robots.txt", "sitemap.xml"])
def test_trouble_is_no_proof_that_there_is_none(world: PipelineWorld, db: DatabaseConnection, broken: str) -> None:
    world.page(f"{SITE}/{broken}", Answer(status=503, headers={"Retry-After": "60"}))
    add_domain(db)
    submit(world, db)
    assert search(world, db).retried == 1
    assert query(db, "SELECT status, error FROM jobs") == [("pending", f"{SITE}/{broken} answered 503")]


def test_a_job_that_failed_for_good_marks_the_domain(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/robots.txt", Answer(status=503))
    add_domain(db)
    submit(world, db)
    assert search(world, db, max_attempts=1).dead == 1
    assert query(db, "SELECT status FROM jobs") == [("failed",)]
    assert query(db, "SELECT sitemap_analysis_status, sitemap_analysis_error FROM domains") == [
        ("failed", f"{SITE}/robots.txt answered 503")
    ]


def test_a_domain_that_was_handed_over_again_is_not_marked(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/robots.txt", Answer(status=503))
    add_domain(db)
    submit(world, db)
    query(db, "UPDATE domains SET sitemap_analysis_status = 'queued'")
    search(world, db, max_attempts=1)
    assert query(db, "SELECT sitemap_analysis_status FROM domains") == [("queued",)]


def test_a_repeated_job_that_works_clears_the_domain(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.page(f"{SITE}/robots.txt", Answer(status=503))
    add_domain(db)
    submit(world, db)
    search(world, db, max_attempts=1)
    world.page(f"{SITE}/robots.txt", Answer(status=404))
    query(db, "UPDATE jobs SET status = 'pending'")
    assert search(world, db).succeeded == 1
    assert query(db, "SELECT sitemap_analysis_status, sitemap_analysis_error FROM domains") == [("submitted", None)]


def test_the_job_s_own_timeout_is_enforced(world: PipelineWorld, db: DatabaseConnection) -> None:
    world.hangs(f"{SITE}/robots.txt")
    add_domain(db)
    submit(world, db)
    summary = search(world, db, sitemap_job_timeout_seconds=1, max_attempts=1)
    assert summary.dead == 1
    assert query(db, "SELECT error FROM jobs") == [("did not finish within 1 s",)]


def test_nothing_found_in_a_hurry_is_no_proof_either(world: PipelineWorld, db: DatabaseConnection) -> None:
    """With little time left no further place is looked at."""
    world.sitemap(f"{SITE}/sitemap.xml", f"{SITE}/")
    add_domain(db)
    submit(world, db)
    assert search(world, db, sitemap_job_timeout_seconds=11).retried == 1
    assert world.asked("bakery.example") == ["/", "/robots.txt"]
    assert query(db, "SELECT error FROM jobs") == [("the site is too slow: not every location could be checked",)]


def test_a_job_of_another_kind_fails_with_its_reason(world: PipelineWorld, db: DatabaseConnection) -> None:
    add_domain(db)
    query(db, "INSERT INTO jobs (job_type, domain_id) SELECT 'laundry', id FROM domains")
    assert search(world, db).failed == 1
    assert query(db, "SELECT error FROM jobs") == [("unknown job type 'laundry'",)]
