"""Hosts that are reached elsewhere."""

import pytest

from config import Settings
from services.errors import ConfigurationError
from services.fetching import FetchFailed, fetcher_from
from services.fetching.detours import Detours


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("shop.example", ("127.0.0.1", 8080)),
        ("WWW.Shop.Example.", ("127.0.0.1", 8080)),
        ("special.test", ("::1", 81)),
        ("example", ("example", 443)),
        ("shop.example.org", ("shop.example.org", 443)),
    ],
)
def test_a_host_that_fits_a_pattern_is_reached_elsewhere(host: str, target: tuple[str, int]) -> None:
    assert Detours.parse("*.example=127.0.0.1:8080, special.test=[::1]:81").of(host, 443) == target


@pytest.mark.parametrize("entry", ["x", "x=", "x=127.0.0.1", "=127.0.0.1:80", "x=127.0.0.1:0", "x=a:70000", "x=:80"])
def test_an_entry_that_makes_no_sense_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="FETCH_CONNECT_TO"):
        Detours.parse(entry)


def test_the_other_address_is_guarded_like_any() -> None:
    with (
        fetcher_from(Settings(fetch_connect_to="*.example=127.0.0.1:9")) as fetcher,
        pytest.raises(FetchFailed, match="is not a public address"),
    ):
        fetcher.get("http://shop.example/")
