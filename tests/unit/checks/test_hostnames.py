"""Names of web hosts, in their one spelling."""

import pytest

from services.checks.hostnames import bare_host
from services.fetching.sites.urls import normal_url


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("qa--site.netlify.app", "qa--site.netlify.app"),
        ("QA--Site.Netlify.App", "qa--site.netlify.app"),
        ("r3---sn-4g5e6nz7.googlevideo.com", "r3---sn-4g5e6nz7.googlevideo.com"),
        ("qa--site.b\u00fccher.example", "qa--site.xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_hyphens_in_third_and_fourth_place_are_a_name_like_any_other(name: str, host: str) -> None:
    assert (bare_host(name), normal_url(f"https://{name}/")) == (host, f"https://{host}/")


@pytest.mark.parametrize(
    "name", ["xn--a.example", "qa--site", "qa--site..example", f"qa--{'x' * 60}.example", "-a--b.example"]
)
def test_what_is_no_host_stays_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"valid domain name|has no dot"):
        bare_host(name)
