"""Sitemap files: every shape that sites have, and every trick."""

import gzip
import re
import tracemalloc
from datetime import UTC, datetime

import pytest

from database.workflow_statuses import SitemapType
from services.fetching.sites import listing, sitemaps
from services.fetching.sites.listing import BadSitemap, parse_last_modified
from services.fetching.sites.sitemaps import read_sitemap
from tests.support.waiting import within_a_moment

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def urlset(*entries: str) -> bytes:
    urls = "".join(f"<url>{entry}</url>" for entry in entries)
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset {NAMESPACE}>{urls}</urlset>'.encode()


def urls(body: bytes, *, whole: bool = True) -> list[str]:
    return [entry.url for entry in read_sitemap(body, whole=whole).entries]


def test_a_urlset_lists_pages() -> None:
    sitemap = read_sitemap(urlset("<loc> https://a.example/x </loc><lastmod>2026-01-02</lastmod>", "<loc>/y</loc>"))
    assert sitemap.kind is SitemapType.STANDARD
    assert [(entry.url, entry.last_modified) for entry in sitemap.entries] == [
        ("https://a.example/x", datetime(2026, 1, 2, tzinfo=UTC)),
        ("/y", None),
    ]


def test_an_index_lists_sitemaps() -> None:
    body = f"<sitemapindex {NAMESPACE}><sitemap><loc>https://a.example/1.xml</loc></sitemap></sitemapindex>".encode()
    assert (read_sitemap(body).kind, urls(body)) == (SitemapType.INDEX, ["https://a.example/1.xml"])


def test_gzip_is_known_by_its_content() -> None:
    body = urlset("<loc>https://a.example/</loc>")
    in_two_parts = gzip.compress(body[:95]) + gzip.compress(body[95:])
    assert urls(gzip.compress(body)) == urls(in_two_parts) == ["https://a.example/"]


@pytest.mark.parametrize(
    "body",
    [
        '<x:urlset xmlns:x="http://www.sitemaps.org/schemas/sitemap/0.9"><x:url><x:loc>u</x:loc></x:url></x:urlset>',
        "<urlset><url><loc>u</loc></url></urlset>",
        '<!DOCTYPE urlset><urlset xmlns="http://www.google.com/schemas/sitemap/0.84"><url><loc>u</loc></url></urlset>',
        "\ufeff<urlset><url><loc><![CDATA[u]]></loc></url></urlset>",
        "<urlset><url><loc>u</loc><loc>second</loc></url><url><loc></loc></url><url/></urlset>",
    ],
)
def test_spellings_that_sites_use_are_understood(body: str) -> None:
    assert urls(body.encode()) == ["u"]


def test_an_entity_of_xml_itself_is_a_letter() -> None:
    assert urls(urlset("<loc>https://a.example/?a=1&amp;b=2&#38;c=3</loc>")) == ["https://a.example/?a=1&b=2&c=3"]


def test_the_address_of_an_image_is_no_page() -> None:
    image = "<image:image><image:loc>https://a.example/x.png</image:loc></image:image>"
    body = urlset(f"<loc>https://a.example/</loc>{image}").replace(b"<urlset", b'<urlset xmlns:image="i"')
    assert (urls(body), read_sitemap(body).kind) == (["https://a.example/"], SitemapType.IMAGE)


@pytest.mark.parametrize("kind", [SitemapType.IMAGE, SitemapType.VIDEO, SitemapType.NEWS])
def test_its_kind_is_what_all_of_its_pages_have(kind: SitemapType) -> None:
    medium = f"<m:{kind}><m:x>1</m:x></m:{kind}>"
    everywhere = urlset(f"<loc>a</loc>{medium}", f"<loc>b</loc>{medium}").replace(b"<urlset", b'<urlset xmlns:m="m"')
    somewhere = urlset(f"<loc>a</loc>{medium}", "<loc>b</loc>").replace(b"<urlset", b'<urlset xmlns:m="m"')
    assert (read_sitemap(everywhere).kind, read_sitemap(somewhere).kind) == (kind, SitemapType.STANDARD)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-03-01T10:00:00+02:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T10:00:00Z", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00.123456-05:00", datetime(2026, 3, 1, 15, 0, 0, 123456, tzinfo=UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026", datetime(2026, 1, 1, tzinfo=UTC)),
        ("yesterday", None),
        ("2026-13-40", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("", None),
    ],
)
def test_dates_with_and_without_a_zone(text: str, at: datetime | None) -> None:
    assert parse_last_modified(text) == at


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "its root element is <html>"),
        (b"<html><p>Not even<p>closed", "its root element is <html>"),
        (b'<rss version="2.0"><channel/></rss>', "it lists no address"),
        (b"<urlset><url><loc>a</url", "not well-formed XML: 1:19: "),
        (b"Not found: https://a.example/", "not well-formed XML"),
        (b"<p>https://a.example/<url>", "its root element is <p>"),
        (b'<?xml version="1.0" encoding="x-nobody"?><urlset/>', "not well-formed XML"),
        (b"\x00\x01\x02", "not well-formed XML"),
        (b"", "it is empty"),
        (gzip.compress(b"<urlset/>")[:-10], "compression breaks off"),
        (gzip.compress(b"<urlset/>")[:-8] + b"rubbish.", "compression is broken"),
        (b"<urlset>" + b"<a>" * 200, "nested deeper than 100"),
    ],
)  # fmt: skip
def test_what_is_no_sitemap_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    with pytest.raises(BadSitemap, match=reason):
        read_sitemap(body)


@pytest.mark.parametrize(
    "body",
    [
        b"\n\n <?xml version='1.0'?>\n" + urlset("<loc>u</loc>", "<loc>v</loc>")[38:],
        b"https://a.example/u\nhttps://a.example/v\n",
        b"\xef\xbb\xbfhttps://a.example/u\r\n\r\nhttps://a.example/v",
        gzip.compress(b"https://a.example/u\nhttps://a.example/v"),
        b"<rss version='2.0'><channel><link>c</link><image><url>i</url><link>c</link></image>"
        b"<item><title>t</title><link>u</link></item><item><guid>g</guid><link>v</link></item></channel></rss>",
        b"<rdf:RDF xmlns:rdf='r'><channel><link>c</link></channel><item><link>u</link></item><item>"
        b"<link>v</link></item></rdf:RDF>",
        b"<feed xmlns='http://www.w3.org/2005/Atom'><link href='c'/><entry><link rel='self' href='x'/><link href='u'/>"
        b"</entry><entry><link rel='alternate' href='v'/><link href='w'/></entry></feed>",
    ],
)
def test_every_kind_of_the_protocol_is_read_without_a_complaint(body: bytes) -> None:
    sitemap = read_sitemap(body)
    assert [entry.url.rpartition("/")[2] for entry in sitemap.entries] == ["u", "v"]
    assert (sitemap.kind, sitemap.problem) == (SitemapType.STANDARD, None)


def test_dates_of_feeds_are_read() -> None:
    rss = b"<rss><channel><item><link>u</link><pubDate>Tue, 10 Mar 2026 04:00:00 +0100</pubDate></item></channel></rss>"
    atom = b"<feed><entry><link href='u'/><updated>2026-03-10T03:00:00Z</updated></entry></feed>"
    at = datetime(2026, 3, 10, 3, tzinfo=UTC)
    assert [read_sitemap(body).entries[0].last_modified for body in (rss, atom)] == [at, at]


HEAD = b'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
FIRST, LAST = b"<url><loc>https://a.example/1</loc></url>", b"<url><loc>https://a.example/9</loc></url>"


@pytest.mark.parametrize(
    ("body", "between", "problem"),
    [
        (HEAD + FIRST + LAST + b"<url><loc>https://a.exam", [], "no element found"),
        (HEAD + FIRST + LAST + b"<url><loc>https://a.example/2</lo", [], "unclosed token"),
        (HEAD + FIRST + b"<url><loc>/?a=1&b=2&amp;c=3&copy=4</loc></url>" + LAST,
         ["/?a=1&b=2&c=3&copy=4"], "invalid token"),
        (HEAD + FIRST + b"<url><loc><![CDATA[/?a=1&b=2]]></loc></url><url><loc>/& b</loc></url>" + LAST,
         ["/?a=1&b=2", "/& b"], "invalid token"),
        (HEAD + FIRST + b"<url><loc>/caf\xe9</loc></url>" + LAST, ["/caf\xe9"], "invalid token"),
        (HEAD + FIRST + b"<url><loc>/\x0b2</loc></url>" + LAST, ["/2"], "invalid token"),
        (HEAD + FIRST + b"<url><loc>/2</url>" + LAST, ["/2"], "mismatched tag"),
        (HEAD + FIRST + b"<url><loc>/2</loc>" + LAST, ["/2"], "no element found|mismatched tag"),
        (b"Warning: headers sent\n" + HEAD + FIRST + LAST + b"</urlset>", [], "syntax error"),
        (HEAD + FIRST + LAST + b"</urlset><!-- cached --><x/>", [], "junk after document element"),
        (HEAD.replace(b"UTF-8", b"x-nobody") + FIRST + LAST + b"</urlset>", [], "unknown encoding"),
        (HEAD.replace(b"UTF-8", b"zip") + FIRST + LAST + b"</urlset>", [], "unknown encoding|not a text encoding"),
    ],
)  # fmt: skip
def test_of_a_broken_sitemap_all_that_can_be_read_counts_and_the_fault_is_told(
    body: bytes, between: list[str], problem: str
) -> None:
    sitemap = read_sitemap(body)
    assert [entry.url for entry in sitemap.entries] == ["https://a.example/1", *between, "https://a.example/9"]
    assert re.search(f"not well-formed XML: .*({problem})", sitemap.problem or "")


def test_what_a_broken_compression_holds_is_read() -> None:
    packed = gzip.compress(urlset(*(f"<loc>https://a.example/{number}</loc>" for number in range(10_000))))
    sitemap = read_sitemap(packed[: len(packed) // 2])
    assert 100 < len(sitemap.entries) < 10_000
    assert sitemap.problem == "its gzip compression breaks off"


def test_a_thousand_faults_are_as_good_as_one() -> None:
    """Each one leaves an element open; libxml2 gives up when they are nested too deep."""
    body = HEAD + b"<url><loc>https://a.example/</url>" * 1_000
    assert 100 < len(urls(body)) <= 1_000


BILLION_LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
]><urlset><url><loc>&b;</loc></url></urlset>"""
OUR_FILES = b"""<!DOCTYPE urlset [<!ENTITY f SYSTEM "file:///etc/passwd">]><urlset><url><loc>&f;</loc></url></urlset>"""
ELSEWHERE = b"""<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd"><urlset><url><loc>a</loc></url></urlset>"""


BEFORE_THE_FAULT = b"x\n", b"\x00", b"&", b'<?xml version="1.0" encoding="x-nobody"?>'
IN_UTF_16 = ("x" + BILLION_LAUGHS.decode()).encode("utf-16")


@pytest.mark.parametrize(
    "body",
    [
        *(BILLION_LAUGHS, OUR_FILES, ELSEWHERE, IN_UTF_16),
        *(fault + trick for fault in BEFORE_THE_FAULT for trick in (BILLION_LAUGHS, OUR_FILES, ELSEWHERE)),
        b"x<urlset><!DOCTYPE u [<!ENTITY a 'u'>]><url><loc>&a;</loc></url></urlset>",
    ],
)
def test_entities_and_other_documents_are_refused(body: bytes) -> None:
    with pytest.raises(BadSitemap, match="declares entities or refers to another document"):
        read_sitemap(body)


def _peak_megabytes(body: bytes, reason: str) -> float:
    tracemalloc.start()
    try:
        with pytest.raises(BadSitemap, match=reason):
            read_sitemap(body)
        return tracemalloc.get_traced_memory()[1] / 1024**2
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_noticed_without_being_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemaps, "MAX_BYTES", 10 * 1024**2)
    bomb = gzip.compress(b"<urlset>" + b" " * 30 * 1024**2, 1)
    assert len(bomb) < 1024**2
    assert _peak_megabytes(bomb, "unpacks to more than 10 MiB") < 2


def test_a_million_addresses_are_refused_before_they_are_held() -> None:
    entry = b"<url><loc>https://a.example/</loc></url>"
    bomb = gzip.compress(b"<urlset>" + entry * 1_000_000 + b"</urlset>", 1)
    assert _peak_megabytes(bomb, "lists more than 50,000 addresses") < 30


@pytest.mark.parametrize("fault", [b"x", b"<urlset>&"])
def test_the_limits_hold_for_broken_ones_too(fault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(fault + b"<urlset>" + b" " * 10 * 1024**2, 1)
    assert _peak_megabytes(bomb, "not well-formed") < 8
    monkeypatch.setattr(listing, "MAX_ENTRIES", 1_000)
    many = fault + b"<urlset>" + b"<url><loc>https://a.example/</loc></url>" * 1_001
    assert _peak_megabytes(many, "lists more than 1,000 addresses") < 8
    assert _peak_megabytes(fault + b"<urlset>" + b"<a>" * 200, "nested deeper than 100|not well-formed") < 8
    with within_a_moment(), pytest.raises(BadSitemap):
        read_sitemap(fault + b"<urlset><url><loc " + b"x" * 5 * 1024**2)
    monkeypatch.setattr(sitemaps, "MAX_BYTES", 1024**2)
    assert _peak_megabytes(gzip.compress(fault + b"<urlset>" + b"<url></url>" * 150_000, 1), "more than 1 MiB") < 8


@pytest.mark.parametrize("begin", [b"<urlset a='", b"<urlset><!--", b"<urlset", b"<urlset><url><loc "])
def test_a_tag_that_does_not_end_is_given_up(begin: bytes) -> None:
    with pytest.raises(BadSitemap, match="a tag or a comment in it is longer than 1 MiB"):
        read_sitemap(begin + b"x" * 5 * 1024 * 1024)


def test_an_endless_address_is_cut() -> None:
    (url,) = urls(urlset(f"<loc>https://a.example/{'x' * 1_000_000}</loc>"))
    assert len(url) < 200_000


def test_of_a_beginning_that_was_cut_off_what_is_there_counts() -> None:
    body = urlset(*(f"<loc>https://a.example/{number}</loc>" for number in range(10_000)))
    assert 100 < len(urls(body[:10_000], whole=False)) < 1000
    packed = gzip.compress(body)
    assert 0 < len(urls(packed[: len(packed) // 2], whole=False)) < 10_000


def test_whoever_waits_can_stop_it() -> None:
    class Stop(BaseException):
        pass

    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        read_sitemap(urlset(), check=stop)
