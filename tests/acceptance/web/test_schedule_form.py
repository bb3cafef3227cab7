"""The form of a schedule, in a real browser: fields of the job type's own model, defaults, and messages that stay."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.support.dashboard import insert
from tests.support.replicas import Cluster

SAVED = re.compile("/schedules/[0-9a-f-]{36}$")


def new_schedule(page: Page, domain: str, job_type: str) -> None:
    page.goto("/schedules/new")
    page.get_by_label("Domain or subject").fill(domain)
    choose(page, "Job type", job_type)


def choose(page: Page, field: str, word: str) -> None:
    page.get_by_label(field, exact=True).click()
    page.get_by_role("option", name=word, exact=True).click()


def as_json(page: Page) -> Locator:
    page.get_by_role("tab", name="JSON").click()
    return page.get_by_label("Configuration (JSON)")


def config_of(cluster: Cluster, domain: str) -> object:
    return cluster.rows("SELECT job_config FROM schedules WHERE domain = %s", domain)[0][0]


def save(page: Page) -> None:
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(SAVED)


def test_the_fields_of_the_job_type_are_filled_in_and_saved_with_their_own_types(page: Page, cluster: Cluster) -> None:
    new_schedule(page, "by fields", "http_request")
    page.get_by_label("url (required)", exact=True).fill("https://example.com/${env:TOKEN}")
    choose(page, "method", "POST")
    choose(page, "follow_redirects", "false")
    page.get_by_label("timeout_seconds", exact=True).fill("2.5")
    page.get_by_label("headers, as JSON", exact=True).fill('{"X-Team": "billing"}')
    expect(as_json(page)).to_have_value(re.compile('"X-Team": "billing"'))
    save(page)
    assert config_of(cluster, "by fields") == {
        "url": "https://example.com/${env:TOKEN}",
        "method": "POST",
        "follow_redirects": False,
        "timeout_seconds": 2.5,
        "headers": {"X-Team": "billing"},
    }


def test_an_empty_field_leaves_its_default_to_the_job_type_and_shows_it(page: Page, cluster: Cluster) -> None:
    new_schedule(page, "example.org", "cookie_scan")
    pages = page.get_by_label("max_pages", exact=True)
    expect(pages).to_have_attribute("placeholder", "50")
    expect(page.get_by_text("pages visited at most; 1 to 10,000; default 50")).to_be_visible()
    expect(page.get_by_text("default: true", exact=True)).to_be_visible()  # respect_robots
    pages.fill("7")
    expect(as_json(page)).to_have_value('{\n  "max_pages": 7\n}')
    page.get_by_role("tab", name="Fields").click()
    page.get_by_label("custom_pages, one per line").fill("/shop\n\n /about ")
    pages.fill("")
    expect(as_json(page)).to_have_value(re.compile(r'\{\s*"custom_pages": \[\s*"/shop",\s*"/about"\s*\]\s*\}'))
    save(page)
    assert config_of(cluster, "example.org") == {"custom_pages": ["/shop", "/about"]}


def test_what_is_written_as_json_is_in_the_fields_and_what_they_do_not_know_stays(page: Page, cluster: Cluster) -> None:
    new_schedule(page, "by json", "http_request")
    as_json(page).fill('{"url": "https://a.example/", "expected_status": [200, 204], "colour": "red"}')
    expect(page.get_by_text(re.compile("^colour: "))).not_to_have_count(0)
    page.get_by_role("tab", name="Fields").click()
    expect(page.get_by_label("url (required)", exact=True)).to_have_value("https://a.example/")
    expect(page.get_by_label("expected_status, as JSON")).to_have_value(re.compile(r"\[\s*200,\s*204\s*\]"))
    expect(page.get_by_text(re.compile("^colour: "))).to_be_visible()  # no field could show it
    page.get_by_label("url (required)", exact=True).fill("https://b.example/")
    text = as_json(page)
    expect(text).to_have_value(re.compile('"https://b.example/".*"colour": "red"', re.DOTALL))
    text.fill('{"url": "https://b.example/", "method": ')
    page.get_by_role("tab", name="Fields").click()
    expect(page.get_by_text("The JSON cannot be read.")).to_be_visible()
    expect(page.get_by_label("url (required)", exact=True)).to_have_count(0)
    as_json(page).fill('{"url": "https://b.example/", "method": "PUT"}')
    save(page)
    assert config_of(cluster, "by json") == {"url": "https://b.example/", "method": "PUT"}


def test_each_message_is_at_its_field_and_all_of_them_are_there_at_once(page: Page, cluster: Cluster) -> None:
    new_schedule(page, "", "http_request")
    page.get_by_label("When", exact=True).fill("weekly mondey 02:30")
    page.get_by_label("timeout_seconds", exact=True).fill("0")
    page.get_by_label("headers, as JSON", exact=True).fill("{")
    page.get_by_label("Max retries", exact=True).fill("101")
    for _ in range(2):
        for message in ("did you mean 'monday'", "greater than 0", "is not JSON", "between 0 and 100", "not be empty"):
            expect(page.get_by_text(message).filter(visible=True)).to_have_count(1)
        expect(page.get_by_text(re.compile("^(field|is) required", re.IGNORECASE)).filter(visible=True)).to_have_count(
            1
        )
        page.get_by_role("button", name="Save").click()  # a click that is refused takes none of them away
    page.get_by_label("When", exact=True).fill("weekly monday 02:30")
    expect(page.get_by_text("did you mean 'monday'")).to_have_count(0)
    expect(page.get_by_text("between 0 and 100")).to_be_visible()
    expect(page).to_have_url(re.compile("/schedules/new$"))


def test_what_the_database_refuses_stays_at_the_field_until_it_is_changed(page: Page, cluster: Cluster) -> None:
    insert(cluster, "taken", "noop")
    new_schedule(page, "second of that name", "noop")
    page.get_by_label("Name (optional, unique)").fill("taken")
    page.get_by_role("button", name="Save").click()
    refused = page.get_by_text("is already used").filter(visible=True)
    expect(refused).to_have_count(1)
    page.get_by_label("Tags (comma-separated)").fill("nightly")
    expect(page.get_by_text("daily at 02:00")).to_be_visible()
    page.get_by_label("When", exact=True).fill("daily 03:00")
    expect(page.get_by_text("daily at 03:00")).to_be_visible()  # the form was looked at again
    expect(refused).to_have_count(1)
    page.get_by_label("Name (optional, unique)").fill("free")
    expect(refused).to_have_count(0)
    save(page)


def test_the_policies_show_the_values_that_empty_fields_mean(page: Page, cluster: Cluster) -> None:
    page.goto("/schedules/new")
    expect(page.get_by_label("Timeout (s)", exact=True)).to_have_attribute("placeholder", "3,600")
    expect(page.get_by_text("1 to 2,592,000; default 3,600 (JOB_TIMEOUT_SECONDS)")).to_be_visible()
    expect(page.get_by_text("default: run the latest")).to_be_visible()
    choose(page, "Coalesce overdue fires", "each on its own")
    page.get_by_label("Domain or subject").fill("one by one")
    choose(page, "Job type", "noop")
    expect(page.get_by_text("declares no fields of its own")).to_be_visible()
    save(page)
    assert cluster.rows("SELECT coalesce, timeout_seconds FROM schedules WHERE domain = 'one by one'") == [
        (False, None)
    ]
    expect(page.get_by_text("default: 3,600 (JOB_TIMEOUT_SECONDS)")).to_be_visible()


def test_a_schedule_that_is_edited_shows_its_configuration_in_the_fields(page: Page, cluster: Cluster) -> None:
    schedule_id = insert(cluster, "talks", "talk", '{"lines": 3, "pause_seconds": "soon"}')
    page.goto(f"/schedules/{schedule_id}/edit")
    expect(page.get_by_label("lines", exact=True)).to_have_value("3")
    pause = page.get_by_label("pause_seconds, as JSON", exact=True)  # what is no number is not hidden
    expect(pause).to_have_value('"soon"')
    pause.fill("0.5")
    save(page)
    assert config_of(cluster, "talks") == {"lines": 3, "pause_seconds": 0.5}
