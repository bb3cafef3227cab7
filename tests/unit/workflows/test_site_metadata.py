"""What a home page says about its site."""

import pytest

from services.workflows.parsing.site_metadata import SiteMetadata, metadata_of
from tests.support.waiting import within_a_moment

WORDPRESS = """<!DOCTYPE html><html lang="en-US"><head>
<title> Elmwood &amp; Sons
 Bakery </title>
<meta name="Description" content="Fresh bread."><meta name="generator" content="WordPress 6.7.1">
<meta name="generator" content="Elementor 3.2"><meta property="og:image" content="/share.png">
<link rel="shortcut icon" href="/favicon.ico">
<link rel="stylesheet" href="https://bakery.example/wp-content/plugins/elementor/style.css">
<script src="/wp-includes/js/jquery/jquery.min.js"></script>
</head><body class="home elementor-page"><img src="/img/logo.svg" class="site-logo" alt="">
<a href="https://www.facebook.com/elmwood">F</a> <a href="https://www.facebook.com/sharer.php?u=x">Share</a>
<a href="https://twitter.com/intent/tweet">Share</a> <a href="https://x.com/elmwood">X</a>
<a href="https://www.instagram.com/">Nobody</a><a href="https://youtube.com/@elmwood">Y</a>
<a href="mailto:info@bakery.example">Mail</a> <a href="tel:+17165550100">Call</a>
<script type="application/ld+json">{"@type": "Bakery", "sameAs": ["https://www.linkedin.com/company/elmwood"]}</script>
</body></html>"""


def read(html: str, **headers: str) -> SiteMetadata:
    return metadata_of(html, "https://bakery.example/", "bakery.example", headers)


def test_a_site_made_with_wordpress() -> None:
    assert read(WORDPRESS, Server="nginx/1.2") == SiteMetadata(
        title="Elmwood & Sons Bakery",
        description="Fresh bread.",
        language="en-US",
        favicon_url="https://bakery.example/favicon.ico",
        logo_url="https://bakery.example/img/logo.svg",
        is_wordpress=True,
        wordpress_version="6.7.1",
        has_elementor=True,
        tech_stack=("WordPress", "Elementor", "jQuery", "nginx"),
        email_addresses=("info@bakery.example",),
        phone_numbers=("+17165550100",),
        facebook_url="https://www.facebook.com/elmwood",
        twitter_url="https://x.com/elmwood",
        linkedin_url="https://www.linkedin.com/company/elmwood",
        youtube_url="https://youtube.com/@elmwood",
        final_url="https://bakery.example/",
    )


@pytest.mark.parametrize("html", ["", "<p>under construction</p>", "<title></title>", "\x00<<"])
def test_a_page_that_says_nothing_claims_nothing(html: str) -> None:
    assert read(html) == SiteMetadata(final_url="https://bakery.example/")


def test_a_site_that_is_made_with_something_else_is_no_wordpress() -> None:
    found = read('<meta name="generator" content="Joomla! 5">')
    assert (found.is_wordpress, found.has_elementor, found.tech_stack) == (False, False, ("Joomla",))


@pytest.mark.parametrize(
    ("html", "logo"),
    [
        ('<script type="application/ld+json">{"logo": "/a.png"}</script><img src="/logo.png">', "/a.png"),
        ('<script type="application/ld+json">{"logo": {"url": "/b.png"}}</script>', "/b.png"),
        ('<img src="/photo.jpg"><img src="/c.png" alt="Our Logo">', "/c.png"),
        ('<img class="logo" src="data:image/png;base64,AA"><meta property="og:image" content="/d.png">', "/d.png"),
    ],
)
def test_the_logo_is_what_is_called_so(html: str, logo: str) -> None:
    assert read(html).logo_url == f"https://bakery.example{logo}"


def test_addresses_are_read_from_their_base() -> None:
    html = '<base href="https://cdn.example/x/"><link rel="icon" href="i.png">'
    assert read(html).favicon_url == "https://cdn.example/x/i.png"


@pytest.mark.parametrize(
    "html",
    [
        f'<base href="https://bakery.example/{"a/" * 200_000}">' + "<a href=x>x</a>" * 5_000,
        '<script type="application/ld+json">{"sameAs": ["x"' + ', "x"' * 400_000 + "]}</script>",
    ],
)
def test_a_page_with_many_addresses_is_read_in_a_moment(html: str) -> None:
    with within_a_moment():
        assert read(html).facebook_url is None


def test_what_is_too_long_is_cut_or_left_out() -> None:
    found = read(f'<title>{"x" * 10_000}</title><link rel="icon" href="/{"y" * 10_000}">')
    assert (len(found.title or ""), found.favicon_url) == (2000, None)


@pytest.mark.parametrize("word", ["jquery", "bootstrap", "wordpress ", "/wp-content", "/plugins/elementor"])
def test_an_address_made_of_one_word_is_read_in_a_moment(word: str) -> None:
    """A search that begins anew at each of them stops the whole process, heartbeats included."""
    many = word * (1_000_000 // len(word))
    with within_a_moment():
        read(f'<script src="{many}"></script><meta name="generator" content="{many}">')
