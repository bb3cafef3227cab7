"""The dashboard's main journeys, in a real browser against a real web process and a real replica."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from database.connection import DatabaseConnection
from services.job_history import JobHistory
from services.schedule_repository import ScheduleRepository
from services.web.auth.roles import Role
from services.web.auth.tokens import ApiTokens
from tests.support.dashboard import FAINT_WORDS, PATIENCE_MS, enabled, insert, log_in
from tests.support.ledger import Answer, Ledger
from tests.support.notifying import Notifying, is_signed
from tests.support.pipeline_stand_ins import PipelineWorld, google_says
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

PAGES = (
    "/", "/schedules", "/schedules/new", "/executions", "/limits", "/notifications", "/timeline", "/scans", "/places",
    "/queues", "/contacts", "/replicas",
)  # fmt: skip


@contextmanager
def without_connections(cluster: Cluster, database: str) -> Iterator[None]:
    """Nobody gets into the database of the test, and who is in there is thrown out."""
    elsewhere = cluster.db.engine.url.set(database="postgres").render_as_string(hide_password=False)
    with closing(DatabaseConnection(elsewhere)) as db:

        def run(statement: str) -> None:
            with db.transaction() as connection:
                connection.exec_driver_sql(statement)

        run(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
        run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
        try:
            yield
        finally:
            run(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')


def test_without_a_token_nothing_is_shown(web: str, token: str, browser: Browser) -> None:
    page = browser.new_page(base_url=web)
    for path in PAGES:
        page.goto(path)
        expect(page).to_have_url(re.compile("/login"))
    page.get_by_label("Token").fill("es_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("the token is not valid")).to_be_visible(timeout=PATIENCE_MS)
    page.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v3/nothing", 404),
        ("PATCH", "/api/v3/replicas", 405),
        ("TRACE", "/api/v3/replicas", 405),
        ("PROPFIND", "/api/v3/replicas", 405),
        ("PROPFIND", "/api/v3/nothing", 404),
        ("POST", "/healthz", 405),
    ],
)
def test_beside_the_pages_the_api_still_answers_like_an_api(
    web: str, token: str, method: str, path: str, status: int
) -> None:
    answer = requests.request(method, web + path, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")


def test_who_ends_a_path_of_the_api_with_a_slash_is_told(web: str) -> None:
    said = [requests.get(f"{web}/api/v3/{path}/", timeout=60).json()["detail"] for path in ("replicas", "nothing")]
    assert said == [
        "there is no /api/v3/replicas/; did you mean /api/v3/replicas?",
        "there is no /api/v3/nothing/",
    ]


def test_a_schedule_is_made_with_a_typo_corrected_previewed_and_saved(page: Page, cluster: Cluster) -> None:
    page.goto("/schedules")
    page.get_by_role("button", name="New schedule").click()
    page.get_by_label("Domain or subject").fill("weekly report")
    page.get_by_label("Name (optional, unique)").fill("weekly report")
    expect(page.get_by_label("Misfire grace (s)")).to_be_visible()
    page.get_by_label("Job type", exact=True).click()
    page.get_by_role("option", name="http_request").click()
    expect(page.get_by_label("url (required)", exact=True)).to_be_visible()
    page.get_by_label("Job type", exact=True).click()
    page.get_by_role("option", name="noop").click()
    page.get_by_label("When", exact=True).fill("weekly mondey 02:30")
    expect(page.get_by_text("did you mean 'monday'")).to_be_visible()
    page.get_by_label("When", exact=True).fill("weekly monday 02:30")
    expect(page.get_by_text("every Monday at 02:30 Europe/Berlin")).to_be_visible()
    expect(page.get_by_text(re.compile(r"^Mon \d{4}-\d\d-\d\d 02:30:00 CE"))).to_have_count(5)
    page.get_by_label("time zone").fill("America/New_York")  # typed whole, and nothing chosen
    expect(page.get_by_text("every Monday at 02:30 America/New_York")).to_be_visible()
    page.get_by_label("time zone").fill("Europe/Berlin")
    expect(page.get_by_text("every Monday at 02:30 Europe/Berlin")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile("/schedules/[0-9a-f-]{36}$"))  # the form says the same words
    expect(page.get_by_text("every Monday at 02:30 Europe/Berlin")).to_be_visible()
    saved = cluster.rows("SELECT frequency, timezone, job_type FROM schedules WHERE name = 'weekly report'")
    assert saved == [("weekly", "Europe/Berlin", "noop")]


def test_a_key_that_is_there_twice_is_refused_in_the_form(page: Page, cluster: Cluster) -> None:
    page.goto("/schedules/new")
    page.get_by_label("Domain or subject").fill("two meanings")
    page.get_by_label("Job type", exact=True).click()
    page.get_by_role("option", name="noop").click()
    page.get_by_role("tab", name="JSON").click()
    page.get_by_label("Configuration (JSON)").fill('{"url": "https://a.example/", "url": "https://b.example/"}')
    expect(page.get_by_text("duplicate key 'url'")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    page.get_by_label("Configuration (JSON)").fill('{"url": "https://a.example/"}')
    expect(page.get_by_text("duplicate key 'url'")).to_have_count(0)
    expect(page).to_have_url(re.compile("/schedules/new$"))
    assert cluster.rows("SELECT FROM schedules WHERE domain = 'two meanings'") == []
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile("/schedules/[0-9a-f-]{36}$"))


def test_a_double_click_saves_once_and_runs_once(page: Page, cluster: Cluster) -> None:
    page.goto("/schedules/new")
    page.get_by_label("Domain or subject").fill("clicked twice")
    page.get_by_label("Job type", exact=True).click()
    page.get_by_role("option", name="noop").click()
    page.get_by_role("button", name="Save").dblclick()
    expect(page).to_have_url(re.compile("/schedules/[0-9a-f-]{36}$"))
    ((schedule_id,),) = cluster.rows("SELECT schedule_id FROM schedules WHERE domain = 'clicked twice'")
    page.get_by_role("button", name="Run now").dblclick()
    expect(page).to_have_url(re.compile("/executions/"))
    expect(page.get_by_text("success", exact=True).first).to_be_visible()
    runs = "SELECT count(*) FROM job_executions WHERE schedule_id = %s"
    assert cluster.rows(runs, schedule_id) == [(1,)]


def test_a_refusal_of_the_database_is_a_message_and_not_a_dead_button(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "refused", "noop")
    page.goto(f"/schedules/{schedule_id}")
    expect(page.get_by_role("button", name="Disable")).to_be_visible()
    cluster.run(
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'locked' USING ERRCODE = 'lock_not_available'; END $$;
           CREATE TRIGGER refuse BEFORE UPDATE OF enabled ON schedules
           FOR EACH ROW WHEN (OLD.name = 'refused') EXECUTE FUNCTION refuse()"""
    )
    try:
        page.get_by_role("button", name="Disable").click()
        page.get_by_role("dialog").get_by_role("button", name="Disable").click()
        expect(page.get_by_text("The database refuses the change right now; try again")).to_be_visible()
    finally:
        cluster.run("DROP TRIGGER refuse ON schedules; DROP FUNCTION refuse")
    assert enabled(cluster, "refused")


def test_the_buttons_of_a_schedule_stay_the_same_while_other_things_of_it_change(page: Page, cluster: Cluster) -> None:
    """A click on a button that is replaced at that moment would be lost: a new schedule is planned while one looks."""
    schedule_id = insert(cluster, "looked at closely", "noop")
    page.goto(f"/schedules/{schedule_id}")
    buttons = page.get_by_role("button", name=re.compile("^(Run now|Edit|Disable|Delete)$"))
    expect(buttons).to_have_count(4)
    buttons.evaluate_all("buttons => buttons.forEach(button => button.dataset.seen = 'yes')")
    cluster.run("UPDATE schedules SET priority = 7 WHERE schedule_id = %s", schedule_id)
    expect(page.get_by_text("priority: 0 → 7")).to_be_visible()
    assert buttons.evaluate_all("buttons => buttons.map(button => button.dataset.seen)") == ["yes"] * 4
    page.get_by_role("button", name="Disable").click()
    page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    expect(page.get_by_role("button", name="Enable")).to_be_visible()


def test_the_time_to_the_next_fires_is_told_anew(page: Page, cluster: Cluster) -> None:
    """While nothing else of the schedule changes."""
    cluster.run(
        """INSERT INTO schedules (domain_config_id, domain, name, job_type, frequency, time_config)
           SELECT gen_random_uuid(), 'soon', 'soon', 'noop', 'once',
                  json_build_object('at', to_char(now() + interval '100 seconds', 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM'))"""
    )
    planned = "SELECT schedule_id FROM schedules WHERE name = 'soon' AND next_run IS NOT NULL"
    ((schedule_id,),) = eventually(lambda: cluster.rows(planned), 60)
    page.goto(f"/schedules/{schedule_id}")
    told = page.get_by_text(re.compile(r", in \d+ (min|s)$"))
    expect(told).not_to_have_text(told.inner_text())


def test_a_schedule_is_run_now_and_watched_until_it_ends(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "slow one", "sleep", '{"seconds": 2}')
    page.goto(f"/schedules/{schedule_id}")
    page.get_by_role("button", name="Run now").click()
    expect(page).to_have_url(re.compile("/executions/"))
    expect(page.get_by_text("success", exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile("^started by replica-1"))).to_be_visible()
    expect(page.get_by_text(re.compile("^requested by token:olga"))).to_be_visible()
    page.get_by_role("link", name="slow one").click()
    expect(page.get_by_text("last: success")).to_be_visible()


def test_a_skipped_fire_says_why(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "too slow", "sleep", '{"seconds": 5}', '{"seconds": 2}')
    newest = "SELECT max(scheduled_for) FROM job_executions WHERE status = 'skipped' AND job_id = 'too slow'"
    at = eventually(lambda: cluster.rows(newest)[0][0], 60)
    page.goto(f"/schedules/{schedule_id}")
    page.get_by_label("Fire time (empty: latest fire)").fill(at.isoformat())
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text(re.compile(r":\d\d CES?T: skipped$"))).to_be_visible()
    expect(page.get_by_text(re.compile("at most 1 of this schedule may run at once"))).to_be_visible()
    page.get_by_role("link", name="attempt 1: skipped").click()
    expect(page).to_have_title("too slow · Execution · Enhanced Scheduler")
    expect(page.get_by_text(re.compile("at most 1 of this schedule may run at once"))).to_be_visible()
    cluster.run("UPDATE schedules SET enabled = false WHERE name = 'too slow'")


def test_a_schedule_is_disabled_and_one_can_see_who_did_it(page: Page, cluster: Cluster) -> None:
    insert(cluster, "to be disabled", "noop")
    page.goto("/schedules?search=be disabled")
    page.get_by_role("link", name="to be disabled").click()
    page.get_by_role("button", name="Disable").click()
    page.get_by_label("Reason (optional)").fill("moving house")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Enable")).to_be_visible()
    assert not enabled(cluster, "to be disabled")
    expect(page.get_by_text("moving house", exact=True)).to_be_visible()
    expect(page.get_by_text("token:olga")).to_be_visible()
    expect(page.get_by_text("enabled: True → False")).to_be_visible()
    page.get_by_role("button", name="Enable").click()
    expect(page.get_by_role("button", name="Disable")).to_be_visible()
    expect(page.get_by_text("moving house", exact=True)).to_have_count(0)


def test_a_schedule_stays_on_if_nobody_says_that_it_shall_go_off(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "stays on", "noop")
    page.goto(f"/schedules/{schedule_id}")
    asked = page.get_by_label("Reason (optional)")
    page.get_by_role("button", name="Disable").click()
    expect(asked).to_be_focused()
    page.keyboard.press("Escape")
    expect(asked).to_have_count(0)
    page.get_by_role("button", name="Disable").click()
    page.get_by_role("button", name="Cancel").click()
    expect(asked).to_have_count(0)
    assert enabled(cluster, "stays on")


def test_who_is_asked_is_not_interrupted_by_what_happens_meanwhile(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "busy", "noop")
    page.goto(f"/schedules/{schedule_id}")
    page.get_by_role("button", name="Disable").click()
    page.get_by_label("Reason (optional)").fill("too busy")
    cluster.run("UPDATE schedules SET priority = 7 WHERE name = 'busy'")
    expect(page.get_by_text("priority: 0 → 7")).to_be_visible()
    page.get_by_label("Reason (optional)").press("Enter")
    expect(page.get_by_text("too busy", exact=True)).to_be_visible()
    assert not enabled(cluster, "busy")
    page.get_by_role("button", name="Delete").click()
    cluster.run("UPDATE schedules SET priority = 9 WHERE name = 'busy'")
    expect(page.get_by_text("priority: 7 → 9")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("/schedules$"))
    assert cluster.rows("SELECT FROM schedules WHERE name = 'busy'") == []


def test_who_deleted_a_schedule_is_told_on_its_page(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "to be deleted", "noop")
    page.goto(f"/schedules/{schedule_id}")
    expect(page.get_by_role("button", name="Disable")).to_be_visible()
    ScheduleRepository(cluster.db).delete_schedule(schedule_id, actor="cli:mallory")
    expect(page.get_by_text("This schedule was deleted")).to_be_visible()
    expect(page.get_by_text("to be deleted", exact=True)).to_be_visible()
    expect(page).to_have_title("to be deleted · Schedule · Enhanced Scheduler")
    expect(page.get_by_text("cli:mallory")).to_be_visible()
    page.goto("/schedules?search=to be deleted")
    page.get_by_role("link", name="to be deleted was deleted").click()
    expect(page.get_by_text("cli:mallory")).to_be_visible()
    page.get_by_role("link", name="its executions").click()
    expect(page.get_by_role("link", name="Filtered by schedule; show all")).to_be_visible()


def test_executions_are_found_by_the_name_of_their_schedule(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "its domain", "noop")
    cluster.run("UPDATE schedules SET name = 'its name' WHERE schedule_id = %s", schedule_id)
    JobHistory(cluster.db).request_run(schedule_id, "test")
    page.goto("/executions?domain=its name")
    expect(page.get_by_role("link", name="its name")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_what_went_wrong_within_the_hour_is_a_link_away(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "went wrong", "fail")
    JobHistory(cluster.db).request_run(schedule_id, "test")
    failed = "SELECT count(*) FROM job_executions WHERE job_id = 'went wrong' AND status = 'failed'"
    eventually(lambda: cluster.rows(failed)[0][0], 60)
    cluster.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, created_at, scheduled_for)
           SELECT schedule_id, 'yesterday', domain, domain_config_id, 'failed', now() - interval '20 h',
                  now() - interval '20 h' FROM schedules WHERE schedule_id = %s""",
        schedule_id,
    )
    page.goto("/")
    page.get_by_role("link", name="Fires in 1 hour").click()
    expect(page.get_by_role("link", name="went wrong", exact=True).first).to_be_visible()
    expect(page.get_by_role("link", name="yesterday")).to_have_count(0)
    expect(page.locator("tbody").get_by_text("success", exact=True)).to_have_count(0)
    page.get_by_label("Created within").click()
    page.get_by_role("option", name="24 hours").click()
    expect(page.get_by_role("link", name="yesterday")).to_be_visible()


def test_a_fire_that_a_retry_mended_is_a_cell_of_its_own_and_leads_to_its_execution(
    page: Page, cluster: Cluster
) -> None:
    schedule_id = insert(cluster, "mended", "noop")
    for status, attempt in (("failed", 1), ("success", 2)):
        cluster.run(
            """INSERT INTO job_executions
                   (schedule_id, job_id, domain, domain_config_id, status, attempt, scheduled_for)
               SELECT schedule_id, name, domain, domain_config_id, %s, %s, date_trunc('day', now())
               FROM schedules WHERE schedule_id = %s""",
            status, attempt, schedule_id,
        )  # fmt: skip
    page.goto("/timeline")
    row = page.locator(".es-scroll", has=page.get_by_role("link", name="recovered by retry"))
    expect(row.get_by_role("link")).to_have_count(1)  # one fire, although it took two attempts
    row.get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("attempt 2 (this one)")).to_be_visible()
    page.goto(f"/schedules/{schedule_id}")
    page.get_by_role("button", name="24 hours").click()
    expect(page.get_by_text("Fires in 24 hours: 1 recovered by retry.")).to_be_visible()


def test_the_window_is_remembered_and_all_times_are_in_utc_if_one_wants(page: Page, cluster: Cluster) -> None:
    page.goto("/")
    page.get_by_role("button", name="7 days").click()
    expect(page.get_by_role("link", name="Fires in 7 days")).to_be_visible()
    page.goto("/timeline")
    expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="show them in UTC").click()
    expect(page.get_by_role("button", name="Times are in UTC")).to_be_visible()
    page.goto("/executions")
    page.get_by_role("button", name="Times are in UTC").click()
    expect(page.get_by_role("button", name="Times are in Europe/Berlin")).to_be_visible()


def test_all_that_match_are_disabled_with_a_reason_after_a_dry_run(page: Page, cluster: Cluster) -> None:
    cluster.run(
        """INSERT INTO schedules (domain_config_id, domain, name, job_type, frequency, time_config, tags, enabled)
           SELECT gen_random_uuid(), 'many', 'many ' || n, 'noop', 'interval', '{"hours": 12}', '{of-many}', n > 3
           FROM generate_series(1, 60) AS n"""
    )
    page.goto("/schedules?tag=of-many")
    page.get_by_label(re.compile("^Select many")).first.click()
    page.get_by_role("button", name="Select all 60 that match").click()
    expect(page.get_by_text("60 schedules selected, on all pages")).to_be_visible()
    page.get_by_role("status").get_by_role("button", name="Disable").click()
    dialog = page.get_by_role("dialog", name="Disable 57 schedules?")
    expect(dialog.get_by_text("57 would be disabled, 3 unchanged.")).to_be_visible()
    assert cluster.rows("SELECT count(*) FROM schedules WHERE domain = 'many' AND enabled") == [(57,)]
    dialog.get_by_label("Reason (optional)").fill("supplier is migrating")
    dialog.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("57 schedules disabled, 3 unchanged")).to_be_visible()
    noted = "SELECT count(*) FROM schedules WHERE disabled_note = 'supplier is migrating' AND NOT enabled"
    assert cluster.rows(noted) == [(57,)]


def test_an_unknown_page_is_ours_and_leads_home(page: Page, web: str) -> None:
    answer = page.request.get("/nowhere")
    assert answer.status == 404
    lost = page.context.new_page()
    lost.goto("/nowhere")
    expect(lost.get_by_text("Page not found")).to_be_visible()
    lost.get_by_role("link", name="Back to the overview").click()
    expect(lost.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_parked_schedule_says_that_it_is(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "makes no sense", "noop", "{}", '{"parsecs": 12}')
    eventually(lambda: cluster.rows("SELECT 1 FROM schedules WHERE invalid_reason <> ''"), 60)
    page.goto(f"/schedules/{schedule_id}")
    expect(page.get_by_text("It is parked because it is invalid; the reason is shown above.")).to_be_visible()
    expect(page.get_by_text("It runs only when started manually.")).to_be_visible()
    page.goto("/schedules?last=invalid")
    expect(page.locator("tbody").get_by_text("parked", exact=True)).to_be_visible()
    cluster.run("DELETE FROM schedules WHERE schedule_id = %s", schedule_id)


def test_a_replica_that_starts_nothing_is_on_the_first_page(page: Page, cluster: Cluster) -> None:
    page.goto("/")
    page.set_viewport_size({"width": 1500, "height": 900})  # in a narrower window the zone is called CET or CEST
    expect(page.get_by_text("Europe/Berlin", exact=True).first).to_be_visible()  # what the times of all pages mean
    cluster.run(
        """INSERT INTO scheduler_instances (incarnation, instance_id, claiming, heartbeat_at)
           VALUES (gen_random_uuid(), 'idle', false, now() + interval '1 h')"""
    )
    try:
        expect(page.get_by_text("live, 1 not claiming")).to_be_visible()
    finally:
        cluster.run("DELETE FROM scheduler_instances WHERE instance_id = 'idle'")


def test_a_schedule_is_switched_and_run_from_its_row(page: Page, cluster: Cluster) -> None:
    insert(cluster, "from the list", "noop")
    page.goto("/schedules?search=from the list")
    page.get_by_label("Enabled: from the list").click()
    expect(page.get_by_label("Reason (optional)")).to_be_focused()
    page.keyboard.type("not needed")
    page.keyboard.press("Enter")
    expect(page.get_by_text("not needed", exact=True)).to_be_visible()
    assert not enabled(cluster, "from the list")
    page.get_by_label("Run from the list now").click()
    expect(page).to_have_url(re.compile("/executions/"))
    expect(page.get_by_text("success", exact=True).first).to_be_visible()


def test_a_running_execution_is_cancelled_and_tried_again(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "endless", "sleep", '{"seconds": 600}')
    page.goto(f"/schedules/{schedule_id}")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("running", exact=True).first).to_be_visible()
    expect(page.get_by_text("Elapsed")).to_be_visible()
    page.get_by_text("Configuration used").click()
    expect(page.get_by_text('"seconds": 600')).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()
    expect(page.get_by_text("cancellation requested by token:olga")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("attempt 2 (this one)")).to_be_visible()


def test_what_a_running_job_says_is_on_its_page_without_reloading(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "talkative", "talk", '{"lines": 20, "pause_seconds": 0.2}')
    page.goto(f"/schedules/{schedule_id}")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("attempt 1 said 0")).to_be_visible()
    expect(page.get_by_text("of 20")).to_be_visible()
    expect(page.get_by_text("running", exact=True).first).to_be_visible()
    expect(page.get_by_text("WARNING talking: attempt 1 logged 19")).to_be_visible()
    expect(page.get_by_text("20 of 20")).to_be_visible()
    page.reload()
    expect(page.get_by_text("WARNING talking: attempt 1 logged 19")).to_be_visible()


def test_what_fails_is_on_the_first_page_without_reloading(page: Page, cluster: Cluster) -> None:
    page.goto("/")
    expect(page.get_by_role("link", name="always fails")).to_have_count(0)
    insert(cluster, "always fails", "fail", "{}", '{"seconds": 1}')
    expect(page.get_by_role("link", name="always fails").first).to_be_visible()
    expect(page.get_by_text("failing", exact=True).first).to_be_visible()
    cluster.run("UPDATE schedules SET enabled = false WHERE name = 'always fails'")


def test_contacts_are_listed_searched_and_linked_to_where_they_were_found(page: Page, cluster: Cluster) -> None:
    cluster.run(
        """WITH made AS (INSERT INTO domains (domain) VALUES ('bakery.example') RETURNING id)
           INSERT INTO contacts (domain_id, email, source_url)
           SELECT id, 'anna@bakery.example', 'https://bakery.example/team' FROM made
           UNION ALL SELECT id, 'mallory@bakery.example', 'javascript:alert(1)' FROM made"""
    )
    page.goto("/")
    page.get_by_role("navigation").get_by_role("link", name="Contacts").click()
    expect(page.get_by_text("javascript:alert(1)")).to_be_visible()
    expect(page.get_by_role("link", name="javascript:alert(1)")).to_have_count(0)
    page.get_by_label("Email contains").fill("ANNA@")
    expect(page.get_by_text("mallory@bakery.example")).to_have_count(0)
    link = page.get_by_role("link", name="https://bakery.example/team")
    expect(link).to_have_attribute("rel", "noopener noreferrer")


def test_a_search_of_the_directory_stages_places_and_a_curator_selects_one(
    page: Page, cluster: Cluster, town: PipelineWorld
) -> None:
    town.search("dentists in Berlin", "p1", "p2")
    page.goto("/places")
    page.get_by_label("Search query").fill("dentists in Berlin")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("2 places found: 2 new, 0 already known")).to_be_visible()
    page.get_by_role("row", name="Bakery p1").get_by_role("checkbox").click()
    page.get_by_role("button", name="Selected", exact=True).click()
    expect(page.get_by_text("1 place set to Selected, 1 deep scan queued")).to_be_visible()
    rows = cluster.rows("SELECT place_id, status, deep_scan_status FROM places_staging ORDER BY place_id")
    assert [tuple(row) for row in rows] == [("p1", "Selected", "Queued"), ("p2", "New", None)]
    page.get_by_label("Name or address contains").fill("bakery P2")
    expect(page.get_by_role("row", name="Bakery p1")).to_have_count(0)
    town.google = google_says("OVER_QUERY_LIMIT")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("Google says OVER_QUERY_LIMIT")).to_be_visible()


def test_a_limit_is_added_shows_what_waits_for_it_and_is_deleted(page: Page, cluster: Cluster) -> None:
    page.goto("/limits")
    expect(page.get_by_text("No limits yet")).to_be_visible()
    name = page.get_by_label("Key, or pattern ending in *")
    name.fill("two words")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("must be 1 to 200 printable characters")).to_be_visible()
    name.fill("site:https://a.example/*")
    page.get_by_label("At most at once").fill("1")
    page.get_by_role("button", name="Add").click()
    expect(page).to_have_title("site:https://a.example/* · Limit · Enhanced Scheduler")
    cluster.run(  # nobody looks at them for an hour: their schedules do not exist
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, reason, due_at, settle_at)
           SELECT gen_random_uuid(), 'held ' || n, 'held', gen_random_uuid(), 'pending',
                  'limit:site:https://a.example/' || n, now() - interval '40 s', now() + interval '1 hour'
           FROM generate_series(1, 2) AS n"""
    )
    try:
        expect(page.get_by_text("0 of 1 running")).to_have_count(2)
        page.get_by_role("link", name="held 1").click()
        waits = re.compile(r"^waiting .* for limit site:https://a.example/1 \(0 of 1 running by site:")
        expect(page.get_by_text(waits)).to_be_visible()
        page.get_by_role("link", name="Show the limit").click()
        page.get_by_label("At most at once").fill("0")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("stopped", exact=True)).to_be_visible()
        expect(page.get_by_text("max_running: 1 → 0")).to_be_visible()
        page.goto("/limits")
        expect(page.get_by_role("link", name="site:https://a.example/*")).to_be_visible()
        page.goto("/")
        expect(page.get_by_text("lets nothing start (max_running 0)")).to_be_visible()
        page.get_by_role("link", name="limit site:https://a.example/*").click()
        page.get_by_role("link", name="site:https://a.example/*").click()
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No limits yet")).to_be_visible()
    finally:
        cluster.run("DELETE FROM job_executions WHERE domain = 'held'")
        cluster.run("DELETE FROM limits")
    assert cluster.rows("SELECT changed_by FROM limit_changes")[0][0].startswith("token:olga")


def test_a_channel_is_added_tested_and_a_failed_delivery_is_repeated(page: Page, cluster: Cluster) -> None:
    notifying = Notifying(cluster.db)
    with Ledger() as receiver:
        receiver.answer("/hook", Answer(status=503), Answer())
        page.goto("/notifications")
        expect(page.get_by_text("No channels yet")).to_be_visible()
        page.get_by_label("Name", exact=True).fill("ops")
        configuration = page.get_by_label("Configuration (JSON)")
        configuration.fill('{"url": "ftp://a.example"}')
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_text("config.url: must start with http:// or https://")).to_be_visible()
        configuration.fill(f'{{"url": "{receiver.url}/hook"}}')
        page.get_by_role("button", name="Add").click()
        secret = page.get_by_role("dialog").get_by_text(re.compile("^whsec_")).inner_text()
        page.get_by_role("button", name="I have saved it").click()
        expect(page.get_by_text("unused", exact=True)).to_be_visible()
        page.get_by_role("button", name="Test ops").click()
        expect(page.get_by_text("ops: 127.0.0.1 answered 503: ok")).to_be_visible()
        expect(page.get_by_text("failing", exact=True)).to_be_visible()
        page.get_by_role("link", name="Test of the notification channel ops").click()
        expect(page.get_by_role("heading", name="Attempts")).to_be_visible()
        page.get_by_role("button", name="Repeat").click()
        expect(page.get_by_text("answered 200")).to_be_visible()
        assert [is_signed(request, secret) for request in receiver.requests("/hook")] == [True, True]
        assert notifying.all()[0].repeated_by is not None
        page.goto("/notifications?state=failed")
        expect(page.get_by_text("works", exact=True)).to_be_visible()
        expect(page.get_by_text("No deliveries")).to_be_visible()
        page.get_by_role("button", name="Disable ops").click()
        expect(page.get_by_text("disabled", exact=True)).to_be_visible()
        assert secret not in page.content()
        page.get_by_role("button", name="Delete ops").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No channels yet")).to_be_visible()


def test_a_rule_is_made_tried_and_switched_off(page: Page, cluster: Cluster) -> None:
    cluster.run("INSERT INTO notification_channels (name, kind, config) VALUES ('night', 'webhook', '{}')")
    schedule = insert(cluster, f"told-{uuid4().hex[:6]}", "noop")
    cluster.run(
        "INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, completed_at, "
        "error_message) VALUES (%s, 'told', 'told.example', gen_random_uuid(), 'failed', clock_timestamp(), "
        "'disk full')",
        schedule,
    )
    page.goto("/notifications")
    expect(page.get_by_text("No rules yet")).to_be_visible()
    page.get_by_label("Rule", exact=True).fill("failures")
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_text("channels: must be a list of 1 to 10 items")).to_be_visible()
    page.get_by_label("Channels").click()
    page.get_by_role("option", name="night").click()
    page.keyboard.press("Escape")
    page.get_by_label("Filters, thresholds").fill('{"after_failure": 3}')
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_text("after_failure: is unknown, did you mean 'after_failures'?")).to_be_visible()
    page.get_by_label("Filters, thresholds").fill(f'{{"schedule_ids": ["{schedule}"]}}')
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_text("failed, recovered; for schedule")).to_be_visible()
    page.get_by_role("button", name="Try failures").click()
    expect(page.get_by_role("dialog").get_by_text("told failed: disk full")).to_be_visible()
    expect(page.get_by_role("dialog").get_by_text("Nothing was sent")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Disable failures").click()
    expect(page.get_by_role("button", name="Enable failures")).to_be_visible()
    page.get_by_role("button", name="Delete rule failures").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No rules yet")).to_be_visible()
    cluster.run("DELETE FROM notification_channels WHERE name = 'night'")


def test_a_button_stays_the_same_while_only_other_things_change(page: Page, cluster: Cluster) -> None:
    page.goto("/queues")
    pause = page.get_by_role("button", name="Pause").first
    pause.evaluate("button => button.dataset.seen = 'yes'")
    for key in ("first", "second"):
        cluster.run(
            "INSERT INTO dead_letters (queue, item_key, attempts, error) VALUES ('deep_scan', %s, 1, 'gone')", key
        )
        expect(page.get_by_text(key, exact=True)).to_be_visible()
    expect(pause).to_have_attribute("data-seen", "yes")
    page.get_by_role("link", name="2 dead letters").click()
    expect(page.get_by_role("button", name="Requeue second")).to_be_in_viewport()
    pause.click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    expect(page.get_by_text("Paused: Deep scan.")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


def test_without_postgres_an_open_page_says_since_when_and_what_that_means(page: Page, cluster: Cluster) -> None:
    overview = page.context.new_page()
    overview.goto("/")
    page.goto("/replicas")
    expect(page.get_by_text("replica-1").first).to_be_visible()
    with without_connections(cluster, str(cluster.db.engine.url.database)):
        for open_page in (overview, page):
            alert = open_page.get_by_role("alert")
            expect(alert).to_contain_text(re.compile(r"Postgres has not answered since \d\d:\d\d:\d\d"))
            expect(alert).to_contain_text("No job starts until Postgres is back. Running jobs finish")
            expect(alert).to_contain_text(re.compile(r"Everything below is as of \d\d:\d\d:\d\d"))
        expect(page.get_by_text("replica-1").first).to_be_visible()
        expect(overview.get_by_text("down", exact=True)).to_be_visible()
        expect(overview.get_by_text("All is well")).to_have_count(0)
        expect(overview.locator(".es-page > .es-card", has_text="Needs attention")).to_have_css("opacity", "0.55")
    expect(overview.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(overview.get_by_text("down", exact=True)).to_have_count(0)


def test_a_postgres_that_stands_still_is_noticed_although_it_says_nothing(page: Page, cluster: Cluster) -> None:
    expect(page.get_by_text("answered just now")).to_be_visible()
    with cluster.db.transaction() as connection:
        connection.exec_driver_sql("LOCK TABLE schedules")
        expect(page.get_by_role("alert")).to_contain_text("Postgres has not answered since")
        expect(page.get_by_text("All is well")).to_have_count(0)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_page_that_is_opened_without_postgres_leads_to_the_others_and_returns_by_itself(
    page: Page, cluster: Cluster
) -> None:
    fresh, name = page.context.new_page(), str(cluster.db.engine.url.database)
    with without_connections(cluster, name):
        answer = fresh.goto("/schedules?order=next_run")
        assert answer is not None
        assert (answer.status, answer.headers["retry-after"]) == (503, "3")
        expect(fresh.get_by_role("alert")).to_contain_text(re.compile(r"Postgres has not answered since \d\d:\d\d"))
        expect(fresh.get_by_role("navigation").get_by_role("link", name="Executions")).to_be_visible()
        assert name not in fresh.content()
    expect(fresh.get_by_role("heading", name="Schedules")).to_be_visible()
    expect(fresh).to_have_url(re.compile(r"/schedules\?order=next_run$"))


def test_a_viewer_can_change_nothing(page: Page, cluster: Cluster) -> None:
    config = '{"url": "https://u:hunter2@example.com", "headers": {"X-Api-Key": "hunter3", "Accept": "text/html"}}'
    schedule_id = insert(cluster, "looked at", "noop", config)
    cluster.run("UPDATE schedules SET max_retries = 7 WHERE name = 'looked at'")
    changed = config.replace("hunter3", "hunter4")
    cluster.run("UPDATE schedules SET job_config = %s WHERE name = 'looked at'", changed)
    viewer = ApiTokens(cluster.db).create("victor", Role.VIEWER, "test").text
    page.goto("/logout")
    expect(page.get_by_label("Token")).to_be_visible()
    log_in(page, viewer)
    page.goto(f"/schedules/{schedule_id}")
    expect(page.get_by_text("looked at").first).to_be_visible()
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)
    expect(page.locator("dt", has_text=re.compile("^Max retries$")).locator("+ dd")).to_have_text("7")
    expect(page.get_by_text("text/html").first).to_be_visible()
    expect(page.get_by_text(re.compile("^job_config: .*text/html"))).to_be_visible()
    assert "hunter" not in page.content()
    page.goto("/schedules/new")
    expect(page.get_by_text("Read-only access")).to_be_visible()


def test_a_token_that_was_revoked_meanwhile_cannot_act(page: Page, token: str, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "left alone", "noop")
    page.goto(f"/schedules/{schedule_id}")
    expect(page.get_by_role("button", name="Disable")).to_be_visible()
    ApiTokens(cluster.db).revoke(token.split("_")[1], "test")
    page.get_by_role("button", name="Disable").click()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/login"))
    assert enabled(cluster, "left alone")


def test_who_is_logged_out_sees_nothing_new_on_a_page_that_is_still_open(
    page: Page, token: str, cluster: Cluster
) -> None:
    page.goto("/executions")
    expect(page.get_by_role("heading", name="Executions")).to_be_visible()
    ApiTokens(cluster.db).revoke(token.split("_")[1], "test")
    expect(page).to_have_url(re.compile(r"/login\?to=/executions"))


@pytest.mark.parametrize(("width", "theme"), [(1360, "light"), (390, "dark")], ids=["desktop", "phone"])
def test_every_page_fits_can_be_read_and_loads_nothing_from_elsewhere(
    page: Page, cluster: Cluster, width: int, theme: str
) -> None:
    insert(cluster, f"busy {width}", "noop", "{}", '{"seconds": 5}')
    name = f"{width}-{'a-name-without-a-place-to-break' * 5}"[:156]
    schedule_id = insert(cluster, name, "fail")
    execution_id = JobHistory(cluster.db).request_run(schedule_id, "test")
    eventually(lambda: cluster.rows("SELECT 1 FROM schedules WHERE name = %s AND last_status = 'failed'", name), 60)
    cluster.run("INSERT INTO limits (name, max_running) VALUES ('customer:*', 2) ON CONFLICT DO NOTHING")
    notifying = Notifying(cluster.db)
    notifying.tell(notifying.webhook("http://127.0.0.1:9/hook", f"hook-{width}"), title=name, text="one\ntwo")
    delivery = next(each for each in notifying.all() if each.message.title == name)
    detail = (
        f"/schedules/{schedule_id}", f"/schedules/{schedule_id}/edit", f"/executions/{execution_id}",
        "/limits/customer:*", f"/notifications/{delivery.delivery_id}", "/api/docs",
    )  # fmt: skip
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate(f"localStorage.setItem('es-theme', '{theme}')")
    for path in (*PAGES, *detail):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path != "/api/docs":
            expect(page.locator(f"body.body--{theme}")).to_be_visible()
            assert page.evaluate(FAINT_WORDS) == [], path
        wide: dict[str, Any] = page.evaluate(
            "({page: document.documentElement.scrollWidth, window: document.documentElement.clientWidth})"
        )
        assert wide["page"] <= wide["window"], path
    assert "Needs attention" in page.request.get("/").text()  # a page comes whole, not as a frame that fills later
    page.goto("/")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_in_viewport()  # before anybody scrolls
    expect(page.get_by_text(re.compile(r"^(CES?T|Europe/Berlin)$")).filter(visible=True).first).to_be_visible()
    own = page.url.split("/")[2]
    assert {url.split("/")[2] for url in requested if url.startswith(("http", "ws"))} == {own}


def test_the_account_is_in_reach_at_every_width_whatever_the_time_zone(page: Page, cluster: Cluster) -> None:
    cluster.run("INSERT INTO workflow_queues (queue) VALUES ('deep_scan') ON CONFLICT DO NOTHING")  # eleven pages
    longest = "America%2FArgentina%2FComodRivadavia"
    page.context.add_cookies([{"name": "tz", "value": longest, "url": page.url}])
    page.goto("/")
    account, pages = page.get_by_role("button", name="Account"), page.get_by_role("navigation")
    expect(pages.get_by_text("Contacts")).to_be_attached()
    for width in (390, 1000, 1221, 1300, 1421, 1500, 1641, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        box = account.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width, width


def test_dark_and_light_are_remembered(page: Page) -> None:
    page.goto("/")
    was_dark = page.evaluate("document.body.classList.contains('body--dark')")
    page.get_by_label("Toggle dark mode").click()
    page.wait_for_function(f"document.body.classList.contains('body--dark') !== {str(was_dark).lower()}")
    page.goto("/replicas")
    page.wait_for_function(f"document.body.classList.contains('body--dark') !== {str(was_dark).lower()}")
