"""What pages link to and embed, and what sitemaps offer, from markup of any quality."""

import gzip

import pytest

from services.fetching import Fetched
from services.fetching.sites.listing import MAX_ENTRIES
from services.scanning.crawl.sitemaps import LIMITS, addresses_in
from services.scanning.engines.markup import MAX_LINKS, read_markup
from tests.support.waiting import within_a_moment

PAGE = "https://example.com/dir/page"


def links(html: str) -> list[str]:
    return list(read_markup(html, PAGE, lambda: True).links)


def resources(html: str) -> list[str]:
    return list(read_markup(html, PAGE, lambda: True).resources)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<a href="a">', ["https://example.com/dir/a"]),
        ("<A HREF=/a><area href='/b'>", ["https://example.com/a", "https://example.com/b"]),
        ('<a href="/a?x=1&amp;y=2">', ["https://example.com/a?x=1&y=2"]),
        ('<a href="/a"><a href="/a#top">', ["https://example.com/a"]),
        ('<base href="/other/"><base href="/no/"><a href="a">', ["https://example.com/other/a"]),
        ('<base href="javascript:x"><a href="a">', ["https://example.com/dir/a"]),
        ('<meta http-equiv="Refresh" content="5; URL=\'/next\'">', ["https://example.com/next"]),
        ("<a><a href><a href=''><a href='mailto:x'><a href='javascript:y'>", []),
        ("<script>'<a href=/no>'</script><!-- <a href=/no> --><textarea><a href=/no></textarea>", []),
        ("<div><p><table><a href=/a></div></span><li><a href=/b>", ["https://example.com/a", "https://example.com/b"]),
        ("\0<a href=/a>\ud800<a href=/b", ["https://example.com/a"]),
        ("no markup at all", []),
        ("", []),
    ],
)
def test_links_are_found(html: str, expected: list[str]) -> None:
    assert links(html) == expected


def test_everything_that_a_browser_loads_by_itself_is_found() -> None:
    html = """
    <link rel="stylesheet" href="/s.css"><link rel="shortcut icon" href="/i.ico"><link rel="canonical" href="/no">
    <script src="https://cdn.example/s.js?utm_source=kept"></script><script>inline()</script>
    <img src="/p.png" srcset="/p1.png 1x, /p2.png 2x"><noscript><img src="//tracker.example/t.gif"></noscript>
    <iframe src="/frame"></iframe><video src="/v.mp4" poster="/v.jpg"><source src="/v.webm"><track src="/t.vtt"></video>
    <object data="/o"></object><embed src="/e"><input type="image" src="/b.png"><img src="data:image/gif;base64,x">
    """
    assert resources(html) == [
        *("https://example.com/s.css", "https://example.com/i.ico", "https://cdn.example/s.js?utm_source=kept"),
        *("https://example.com/p.png", "https://example.com/p1.png", "https://tracker.example/t.gif"),
        *("https://example.com/frame", "https://example.com/v.mp4", "https://example.com/v.jpg"),
        *("https://example.com/v.webm", "https://example.com/t.vtt", "https://example.com/o", "https://example.com/e"),
        "https://example.com/b.png",
    ]


def test_a_page_of_links_gives_only_so_many() -> None:
    assert len(links("".join(f"<a href=/{number}>" for number in range(MAX_LINKS + 10)))) == MAX_LINKS


def test_reading_a_large_page_can_be_stopped_between_two_pieces() -> None:
    calls = 0

    def stop_at_the_third() -> bool:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        read_markup("<p>" * 200_000, PAGE, stop_at_the_third)


def test_what_was_read_before_the_time_was_over_counts() -> None:
    answers = iter([True, True, False])
    cut = read_markup("<a href=/first>" + "<p>" * 200_000 + "<a href=/last>", PAGE, lambda: next(answers))
    assert (cut.links, cut.is_whole) == (("https://example.com/first",), False)


@pytest.mark.parametrize(
    "page",
    [
        *("<div>", "<b>", '<a href="', "<!--", "<![CDATA[", "<?", "&", "<svg>", "<select><option>", "</a", "<table>"),
        "".join(f"<font id={number}><p>" for number in range(1_000)),
    ],
)
def test_a_megabyte_of_nesting_or_nonsense_is_read_in_a_moment(page: str) -> None:
    links(page * (1_000_000 // len(page)))  # a parser that builds trees needs gigabytes for the last one


def test_a_refresh_made_of_blanks_is_read_in_a_moment() -> None:
    with within_a_moment():
        assert links(f'<meta http-equiv=refresh content="{" " * 2_000}x"><a href=/b>') == ["https://example.com/b"]


def test_end_tags_that_end_nothing_cannot_keep_a_thread_busy() -> None:
    with within_a_moment():
        assert links("<a href=/b></a>" + "<b>" * 100_000 + "</i>" * 100_000) == ["https://example.com/b"]


# --- sitemaps ---


def sitemap(body: bytes) -> tuple[list[str], list[str]]:
    return addresses_in(Fetched("https://example.com/sitemap.xml", 200, {}, body, False, (), 0))


URLS = b"<urlset><url><loc> https://example.com/a </loc></url><url><loc>https://example.com/b?x=1&amp;y=2</loc></url>"


@pytest.mark.parametrize(
    "body",
    [
        URLS + b"</urlset>",
        b'<?xml version="1.0" encoding="UTF-8"?>\n' + URLS.replace(b"<urlset>", b"<urlset xmlns='http://x/0.9'>"),
        URLS + b"<url><loc>https://exam",  # it broke off
        gzip.compress(URLS + b"</urlset>", mtime=0),
        b"\xef\xbb\xbfhttps://example.com/a\r\nhttps://example.com/b?x=1&y=2\n",
    ],
)
def test_pages_are_read_from_sitemaps_of_every_kind(body: bytes) -> None:
    assert sitemap(body) == (["https://example.com/a", "https://example.com/b?x=1&y=2"], [])


def test_of_a_sitemap_only_as_many_addresses_are_read_as_one_may_have() -> None:
    many = range(MAX_ENTRIES + 10)
    lines = "\n".join(f"https://example.com/{number}" for number in many)
    pages = "".join(f"<url><loc>https://example.com/{number}</loc></url>" for number in many)
    for body in (lines, f"<urlset>{pages}</urlset>"):
        assert len(sitemap(body.encode())[0]) == MAX_ENTRIES


def test_an_index_names_further_files() -> None:
    index = b"<sitemapindex><sitemap><loc>https://example.com/1.xml</loc></sitemap></sitemapindex>"
    assert sitemap(index) == ([], ["https://example.com/1.xml"])


@pytest.mark.parametrize("body", [b"", b"\x1f\x8bnot gzip", b"<", b"<html><body>404</body></html>", b"<a><b></a>"])
def test_a_broken_sitemap_offers_nothing(body: bytes) -> None:
    assert sitemap(body) == ([], [])


def test_entities_are_neither_multiplied_nor_read_from_files() -> None:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE u [<!ENTITY e0 "x">{levels}]><urlset><url><loc>&e9;</loc></url></urlset>'
    theft = '<!DOCTYPE u [<!ENTITY f SYSTEM "file:///etc/hostname">]><urlset><url><loc>&f;</loc></url></urlset>'
    multiplied = '<!DOCTYPE u [<!ENTITY e "https://example.com/">]><urlset><url><loc>&e;</loc></url></urlset>'
    for body in (bomb, theft, multiplied):
        assert sitemap(body.encode()) == ([], [])


def test_a_zipped_bomb_is_cut() -> None:
    pages, _ = sitemap(gzip.compress(b"<urlset>" + b" " * 40_000_000))
    assert pages == []
    pages, _ = sitemap(gzip.compress(b"https://example.com/ " * 1_000_000))
    assert len(" ".join(pages)) <= LIMITS.max_bytes
