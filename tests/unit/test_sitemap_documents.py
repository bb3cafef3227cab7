"""Sitemap files: every shape that sites have, and every trick."""

import gzip
import tracemalloc
from datetime import UTC, datetime

import pytest

from database.workflow_statuses import SitemapType
from services.workflows.parsing import sitemap_documents
from services.workflows.parsing.sitemap_documents import BadSitemap, parse_last_modified, read_sitemap

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
        (b'<rss version="2.0"><channel/></rss>', "its root element is <rss>"),
        (b"<urlset><url><loc>a</url></urlset>", "not well-formed XML: 1:21: mismatched tag"),
        (b"<urlset><url><loc>a</loc></url>", "not well-formed XML"),
        (b"https://a.example/", "not well-formed XML"),
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


BILLION_LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
]><urlset><url><loc>&b;</loc></url></urlset>"""
OUR_FILES = b"""<!DOCTYPE urlset [<!ENTITY f SYSTEM "file:///etc/passwd">]><urlset><url><loc>&f;</loc></url></urlset>"""
ELSEWHERE = b"""<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd"><urlset><url><loc>a</loc></url></urlset>"""


@pytest.mark.parametrize("body", [BILLION_LAUGHS, OUR_FILES, ELSEWHERE])
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
    monkeypatch.setattr(sitemap_documents, "MAX_BYTES", 10 * 1024**2)
    bomb = gzip.compress(b"<urlset>" + b" " * 30 * 1024**2, 1)
    assert len(bomb) < 1024**2
    assert _peak_megabytes(bomb, "unpacks to more than 10 MiB") < 2


def test_a_million_addresses_are_refused_before_they_are_held() -> None:
    entry = b"<url><loc>https://a.example/</loc></url>"
    bomb = gzip.compress(b"<urlset>" + entry * 1_000_000 + b"</urlset>", 1)
    assert _peak_megabytes(bomb, "lists more than 50,000 addresses") < 30


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
