"""What a scan may be told, and in which spelling it is kept."""

from typing import Any

import pytest

from services.jobs import default_registry
from services.scanning.config import CookieScanConfig, config_problems, one_spelling
from services.scanning.findings import EngineName

FROM_THE_API = {
    "description": "Example domain",
    "allow_deep_scan": True,
    "maxPages": 50,
    "scanDepth": 5,
    "maxRetries": 3,
    "customPages": ["/page1", "/page2"],
    "accept_selector": "button[data-role='accept']",
}
STORED = {
    "description": "Example domain",
    "allow_deep_scan": True,
    "max_pages": 50,
    "scan_depth": 5,
    "max_retries": 3,
    "custom_pages": ["/page1", "/page2"],
    "accept_selector": "button[data-role='accept']",
}


def test_the_other_systems_spelling_is_understood_and_ours_is_kept() -> None:
    assert CookieScanConfig.model_validate(FROM_THE_API).given() == STORED
    assert CookieScanConfig.model_validate(STORED).given() == STORED
    assert default_registry.get("cookie_scan").one_spelling(FROM_THE_API) == STORED


def test_the_spelling_of_other_words_is_left_alone() -> None:
    assert one_spelling({"isolation": "process", "maxPages": 1}) == {"isolation": "process", "max_pages": 1}
    assert default_registry.get("http_request").one_spelling({"maxPages": 1}) == {"maxPages": 1}


@pytest.mark.parametrize(
    ("given", "engine"),
    [
        ({}, EngineName.HTTP),
        ({"allow_deep_scan": True}, EngineName.BROWSER),
        ({"engine": "browser"}, EngineName.BROWSER),
        ({"engine": "http", "allow_deep_scan": True}, EngineName.HTTP),
    ],
)
def test_a_deep_scan_takes_the_browser_unless_told_otherwise(given: dict[str, Any], engine: EngineName) -> None:
    assert CookieScanConfig.model_validate(given).engine_name is engine


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"maxPages": 0}, "max_pages: input should be greater than or equal to 1"),
        ({"max_pages": 10_001}, "max_pages: input should be less than or equal to 10000"),
        ({"max_pages": "50"}, "max_pages: input should be a valid integer"),
        ({"max_pages": True}, "max_pages: input should be a valid integer"),
        ({"max_pages": 5, "maxPages": 5}, "config: maxPages and max_pages are the same field; keep one of them"),
        ({"scan_depth": -1}, "scan_depth: input should be greater than or equal to 0"),
        ({"max_retries": 11}, "max_retries: input should be less than or equal to 10"),
        ({"custom_pages": "/a"}, "custom_pages: input should be a valid list"),
        (
            {"custom_pages": ["/a"] * 1001},
            "custom_pages: list should have at most 1000 items after validation, not 1001",
        ),
        ({"custom_pages": [""]}, "custom_pages.0: string should have at least 1 character"),
        ({"custom_pages": ["/a b"]}, "custom_pages: '/a b' contains whitespace or control characters"),
        (
            {"custom_pages": ["javascript:x"]},
            "custom_pages: 'javascript:x' is not a path such as /imprint, or an address of the site "
            "that starts with http:// or https://",
        ),
        ({"allow_deep_scan": "yes"}, "allow_deep_scan: input should be a valid boolean"),
        ({"accept_selector": "a\nb"}, "accept_selector: must be one line without control characters"),
        ({"engine": "curl"}, "engine: input should be 'http' or 'browser'"),
        ({"delay_seconds": float("nan")}, "delay_seconds: input should be a finite number"),
        ({"delay_seconds": -0.1}, "delay_seconds: input should be greater than or equal to 0"),
        ({"page_timeout_seconds": 0}, "page_timeout_seconds: input should be greater than or equal to 1"),
        ({"user_agent": "über"}, "user_agent: must consist of ASCII characters"),
        ({"user_agent": "a\r\nX-Evil: 1"}, "user_agent: must be one line without control characters"),
        ({"base_url": "example.com"}, "base_url: 'example.com' is not an address that starts with http:// or https://"),
        ({"base_url": "http://a:b@example.com/"}, "base_url: must not contain a user name or a password"),
        ({"base_url": "http://example.com:99999/"}, "base_url: port out of range 0-65535"),
        ({"pages": 5}, "pages: is not a field of a cookie scan"),
    ],
)
def test_what_makes_no_sense_is_named_by_its_field(given: dict[str, Any], problem: str) -> None:
    assert [str(found) for found in config_problems(given)] == [problem]


def test_a_whole_number_of_seconds_is_fine() -> None:
    assert CookieScanConfig.model_validate({"delay_seconds": 1}).delay_seconds == 1.0
