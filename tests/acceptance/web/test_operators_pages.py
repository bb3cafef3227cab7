"""What an operator asks of the pages at three in the morning, in a real browser: counts, groups, selections, facts."""

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from services.job_history import JobHistory
from tests.support.dashboard import FAINT_WORDS, insert
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

FIRE = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, attempt, error_message, instance_id,
                            scheduled_for, due_at, created_at, started_at, completed_at, duration_seconds)
SELECT schedule_id, name, domain, domain_config_id, %s, %s, %s, 'replica-1', at, at, at, at, at, %s
FROM schedules, (SELECT %s::timestamptz AS at) AS moment WHERE schedule_id = %s
"""


def fire(
    cluster: Cluster, schedule_id: str, *statuses: str, minutes_ago: int, error: str = "no", seconds: float = 1.0
) -> None:
    """A fire with an attempt for each status."""
    at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    for number, status in enumerate(statuses):
        cluster.run(FIRE, status, number + 1, error if status == "failed" else None, seconds, at, schedule_id)


def test_equal_errors_are_one_line_with_the_numbers_of_fires_and_lead_to_them(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "counted", "noop")
    for minutes_ago in range(1, 8):
        error = f"host shop{minutes_ago}.example cannot be resolved"
        fire(cluster, schedule_id, "failed", minutes_ago=minutes_ago, error=error)
    fire(
        cluster,
        schedule_id,
        "failed",
        "failed",
        "success",
        minutes_ago=20,
        error="host shop9.example cannot be resolved",
    )
    page.goto("/")
    page.get_by_role("button", name="24 hours").click()
    line = page.locator(".es-line", has=page.get_by_text(re.compile("cannot be resolved")))
    expect(line).to_have_count(1)
    expect(line.get_by_text("7 failed for good, 1 recovered by retry")).to_be_visible()
    line.get_by_role("link").first.click()
    expect(page.get_by_text("7 failed for good")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(9)  # attempts
    page.get_by_label("Outcome of the fire").click()
    page.get_by_role("option", name="recovered by retry").click()
    expect(page.locator("tbody tr")).to_have_count(1)  # the fire once, although two of its attempts failed
    expect(page.get_by_text("failed, recovered")).to_be_visible()


def test_equal_failures_of_many_schedules_are_one_line_of_what_needs_attention(page: Page, cluster: Cluster) -> None:
    for number in range(4):
        schedule_id = insert(cluster, f"equal {number}", "noop")
        fire(cluster, schedule_id, "failed", minutes_ago=3, error=f"host shop{number}.example hung up")
        cluster.run("UPDATE schedules SET last_status = 'failed' WHERE schedule_id = %s", schedule_id)
    page.goto("/")
    attention = page.locator(".es-card", has=page.get_by_role("heading", name="Needs attention"))
    line = attention.locator(".es-line", has=page.get_by_text("hung up"))
    expect(line).to_have_count(1)
    line.get_by_role("link", name="4 schedules").click()
    expect(page).to_have_url(re.compile("/schedules.last=failed"))


def test_the_window_that_is_chosen_on_one_page_is_that_of_all_charts(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "windows", "noop")
    page.goto("/queues")
    page.get_by_role("button", name="30 days").click()
    page.wait_for_function("document.cookie.includes('window=')")
    for path in ("/", "/timeline", f"/schedules/{schedule_id}", "/queues"):
        page.goto(path)
        expect(page.get_by_role("button", name="30 days")).to_have_attribute("aria-pressed", "true")
        for other in ("1 hour", "24 hours", "7 days"):
            expect(page.get_by_role("button", name=other).first).to_have_attribute("aria-pressed", "false")


def test_what_failed_is_chosen_on_all_pages_and_retried_after_a_dry_run(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "mass", "noop")
    for minutes_ago in range(1, 61):
        fire(cluster, schedule_id, "failed", minutes_ago=minutes_ago)
    page.goto(f"/executions?schedule={schedule_id}&outcome=failed")
    page.get_by_label("Select mass").first.click()
    page.get_by_role("button", name=re.compile("^Select (all|the newest) .*that match$")).click()
    page.get_by_role("status").get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog", name="Retry 60 executions?")
    expect(dialog.get_by_text("60 would be retried.")).to_be_visible()
    assert cluster.rows("SELECT count(*) FROM job_executions WHERE schedule_id = %s AND attempt = 2", schedule_id) == [
        (0,)
    ]
    dialog.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("60 executions retried")).to_be_visible()
    assert cluster.rows("SELECT count(*) FROM job_executions WHERE schedule_id = %s AND attempt = 2", schedule_id) == [
        (60,)
    ]


def test_executions_are_filtered_by_the_tag_and_the_job_type_of_their_schedule(page: Page, cluster: Cluster) -> None:
    billed, other = insert(cluster, "billed", "noop"), insert(cluster, "not billed", "fail")
    cluster.run("UPDATE schedules SET tags = '{month-end}' WHERE schedule_id = %s", billed)
    for schedule_id in (billed, other):
        fire(cluster, schedule_id, "failed", minutes_ago=2)
    page.goto("/executions?outcome=failed")
    expect(page.get_by_role("link", name="not billed").first).to_be_visible()
    page.get_by_label("Tag", exact=True).click()
    page.get_by_role("option", name="month-end").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="billed", exact=True)).to_be_visible()
    page.get_by_label("Job type", exact=True).click()
    page.get_by_role("option", name="fail", exact=True).click()
    expect(page.get_by_text("No executions match")).to_be_visible()


def test_schedules_are_filtered_by_tag_and_job_type_sorted_by_headings_run_and_deleted(
    page: Page, cluster: Cluster
) -> None:
    cluster.run(
        """INSERT INTO schedules (domain_config_id, domain, name, job_type, frequency, time_config, tags)
           SELECT gen_random_uuid(), 'sorted', 'sorted ' || n, CASE WHEN n = 3 THEN 'talk' ELSE 'noop' END, 'interval',
                  '{"hours": 12}', CASE WHEN n = 4 THEN '{}'::text[] ELSE '{of-three}' END
           FROM generate_series(1, 4) AS n"""
    )
    page.goto("/schedules?search=sorted")
    expect(page.get_by_text("4 schedules", exact=True)).to_be_visible()
    page.get_by_label("Tag", exact=True).click()
    page.get_by_role("option", name="of-three").click()
    expect(page.get_by_text("3 schedules", exact=True)).to_be_visible()
    page.get_by_label("Job type", exact=True).click()
    page.get_by_role("option", name="noop", exact=True).click()
    expect(page.get_by_text("2 schedules", exact=True)).to_be_visible()
    names = page.get_by_role("link", name=re.compile("^sorted "))
    page.locator("thead .es-order").filter(has_text="Schedule").click()
    expect(names).to_have_text(["sorted 1", "sorted 2"])
    page.locator("thead .es-order").filter(has_text="Schedule").click()
    expect(names).to_have_text(["sorted 2", "sorted 1"])
    page.get_by_label("Select all of this page").click()
    bar = page.get_by_role("status")
    bar.get_by_role("button", name="Run").click()
    page.get_by_role("dialog", name="Run 2 schedules?").get_by_role("button", name="Run").click()
    expect(page.get_by_text("2 schedules run")).to_be_visible()
    runs = "SELECT count(*) FROM job_executions WHERE cause = 'manual' AND domain = 'sorted'"
    assert cluster.rows(runs) == [(2,)]
    page.get_by_label("Select all of this page").click()
    bar.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete 2 schedules?")
    expect(dialog.get_by_text("2 would be deleted.")).to_be_visible()
    assert cluster.rows("SELECT count(*) FROM schedules WHERE domain = 'sorted'") == [(4,)]
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("2 schedules deleted")).to_be_visible()
    assert cluster.rows("SELECT name FROM schedules WHERE domain = 'sorted' ORDER BY name") == [
        ("sorted 3",),
        ("sorted 4",),
    ]


def test_a_running_execution_says_how_long_it_takes_usually_and_who_cancels_it(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "usual", "sleep", '{"seconds": 600}')
    for minutes_ago in (1, 2, 3):
        fire(cluster, schedule_id, "success", minutes_ago=minutes_ago, seconds=3600.0)
    execution_id = JobHistory(cluster.db).request_run(schedule_id, "test")
    page.goto(f"/executions/{execution_id}")
    expect(page.get_by_text("Elapsed")).to_be_visible()
    facts = page.locator(".es-facts").first
    expect(facts.get_by_text("Usually takes")).to_be_visible()
    expect(facts.get_by_text(re.compile("^about (59|60) min|^about 1 h"))).to_be_visible()
    expect(facts.get_by_text(str(execution_id))).to_be_visible()
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text(re.compile("^Cancelling … .asked by token:olga"))).to_be_visible()


def test_a_fire_that_waits_for_its_retry_says_when_it_is_tried_again(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "again", "fail")
    cluster.run(
        "UPDATE schedules SET max_retries = 2, retry_backoff_seconds = 3000 WHERE schedule_id = %s", schedule_id
    )
    execution_id = JobHistory(cluster.db).request_run(schedule_id, "test")
    eventually(
        lambda: cluster.rows("SELECT 1 FROM job_executions WHERE schedule_id = %s AND attempt = 2", schedule_id), 60
    )
    page.goto(f"/executions/{execution_id}")
    facts = page.locator(".es-facts").first
    expect(facts.get_by_text("Attempt 2")).to_be_visible()
    expect(facts.get_by_text(re.compile(r"^in \d+ min"))).to_be_visible()


def test_queues_have_titles_that_people_read(page: Page, cluster: Cluster) -> None:
    page.goto("/queues")
    expect(page.get_by_role("heading", name="Deep scan")).to_be_visible()
    words = page.locator(".es-card-title").all_inner_texts()
    assert words
    assert [title for title in words if "_" in title] == []


def test_every_kind_of_toast_can_be_read_in_both_themes(page: Page, cluster: Cluster) -> None:
    for theme in ("light", "dark"):
        page.evaluate(f"localStorage.setItem('es-theme', '{theme}')")
        page.goto("/replicas")
        expect(page.locator(f"body.body--{theme}")).to_be_visible()
        for kind in ("positive", "negative", "warning", "info"):
            told = f"Quasar.Notify.create({{message: 'toast {kind}', type: '{kind}', timeout: 0}})"
            page.evaluate(f"() => {{ {told} }}")
            expect(page.get_by_text(f"toast {kind}")).to_be_visible()
        page.wait_for_function("document.getAnimations().every(one => one.playState !== 'running')")
        assert page.evaluate(FAINT_WORDS) == [], theme
