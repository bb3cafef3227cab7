"""The demo of `make run`: what its site serves, and what happens to the schedules of an earlier start."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import requests

from config import get_settings
from services.cli.demo.shop import RELEASE_SECONDS, RELEASES, shop_answer
from services.cli.demo.site import DemoSite
from services.cli.dev_demo import BROWSER_SCAN, demo_scans, demo_schedules, prepare_demo
from services.scanning.config import CookieScanConfig
from services.scanning.scan import scan_domain
from services.schedule_repository import ScheduleRepository

OLD, NEW = "http://127.0.0.1:1111", "http://127.0.0.1:2222"


@pytest.fixture
def without_browser(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAN_BROWSER", "no-such-browser")
    monkeypatch.setenv("FETCH_ALLOWED_NETWORKS", "127.0.0.1,::1")
    get_settings.cache_clear()


@pytest.fixture
def site() -> Iterator[DemoSite]:
    with DemoSite() as site:
        yield site


def names(repository: ScheduleRepository) -> set[str | None]:
    return {record.name for record in repository.get_all_schedules()}


def test_the_shop_has_findings_of_both_parties(site: DemoSite, without_browser: None) -> None:
    config = CookieScanConfig(base_url=f"{site.url}/", delay_seconds=0)
    outcome = scan_domain("shop.example", config, get_settings())
    assert {page.error for page in outcome.pages} == {None}
    found = {(cookie.name, cookie.party.value) for cookie in outcome.cookies}
    assert {("session_id", "first"), ("cart_token", "first"), ("lang", "first"), ("track_id", "third")} <= found


def test_each_release_of_the_shop_differs_from_the_one_before() -> None:
    seen = []
    for number in range(len(RELEASES) + 1):
        page = shop_answer("/", "127.0.0.1", 80, (number + 0.5) * RELEASE_SECONDS)
        assert page is not None
        seen.append(page.cookies)
    assert all(before != after for before, after in pairwise(seen))
    assert seen[0] == seen[-1]


def test_the_site_answers_what_it_does_not_have(site: DemoSite) -> None:
    assert requests.get(f"{site.url}/nothing", timeout=10).status_code == 404
    assert requests.get(f"{site.url}/health", timeout=10).text == "healthy\n"


def test_an_empty_database_gets_schedules_and_a_scan(repository: ScheduleRepository, without_browser: None) -> None:
    said = list(prepare_demo(repository, NEW))
    assert said[0] == "added 6 demo schedules to the empty database"
    assert said[1].startswith("demo scans run without a browser: there is no browser")
    assert names(repository) == {given["name"] for given in demo_schedules(NEW)} | {"shop scan"}
    said_again = list(prepare_demo(repository, NEW))
    assert [line for line in said if line not in said_again] == said[:1]


def test_schedules_and_scans_of_an_earlier_start_are_moved(
    repository: ScheduleRepository, without_browser: None
) -> None:
    list(prepare_demo(repository, OLD))
    assert next(iter(prepare_demo(repository, NEW))) == f"6 demo schedules call the demo site at its new address {NEW}"
    assert repository.find_schedule("shop scan").job_config["base_url"] == f"{NEW}/"
    assert repository.find_schedule("report").job_config["url"] == f"{NEW}/report"


def test_a_demo_from_before_the_scans_gets_them(repository: ScheduleRepository, without_browser: None) -> None:
    repository.save_schedules(demo_schedules(NEW))
    assert "added 1 demo scans" in list(prepare_demo(repository, NEW))
    assert "shop scan" in names(repository)


def test_somebody_elses_schedule_of_that_name_is_left_alone(
    repository: ScheduleRepository, without_browser: None
) -> None:
    repository.save_schedules(demo_schedules(NEW))
    own = repository.create_schedule(
        domain="example.com", name="shop scan", frequency="daily", time_config={"hour": 2, "minute": 0}
    )
    list(prepare_demo(repository, NEW))
    assert repository.find_schedule(own).job_config == {}


def test_a_database_without_the_demo_stays_without_it(repository: ScheduleRepository, without_browser: None) -> None:
    repository.create_schedule(domain="example.com", frequency="daily", time_config={"hour": 2, "minute": 0})
    list(prepare_demo(repository, NEW))
    assert repository.count_schedules() == 1


def test_the_browser_scan_is_switched_off_where_there_is_no_browser(
    repository: ScheduleRepository, without_browser: None
) -> None:
    repository.save_schedules(demo_scans(NEW, with_browser=True))
    assert f"{BROWSER_SCAN} is disabled" in list(prepare_demo(repository, NEW))
    assert not repository.find_schedule(BROWSER_SCAN).enabled
    assert repository.find_schedule("shop scan").enabled


def test_there_is_a_browser_scan_where_there_is_a_browser(
    repository: ScheduleRepository, own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAN_BROWSER", "sh")  # any program will do: it is not started
    get_settings.cache_clear()
    list(prepare_demo(repository, NEW))
    assert repository.find_schedule(BROWSER_SCAN).job_config["engine"] == "browser"
