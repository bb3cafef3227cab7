"""Which cookie scans need a browser, by their own configuration and their profile's."""

from typing import Any

import pytest

from services.job_types.cookie_scan import _labels


@pytest.mark.parametrize(
    ("config", "profile", "labels"),
    [
        ({}, None, ()),
        ({"engine": "browser"}, None, ("browser",)),
        ({"allow_deep_scan": True}, None, ("browser",)),
        ({}, {"engine": "browser"}, ("browser",)),
        ({"engine": "http"}, {"engine": "browser"}, ()),
        ({"max_pages": "nonsense"}, {"allow_deep_scan": True}, ("browser",)),
    ],
)
def test_a_scan_needs_a_browser_if_its_merged_configuration_says_so(
    config: dict[str, Any], profile: dict[str, Any] | None, labels: tuple[str, ...]
) -> None:
    assert _labels(config, profile) == labels
