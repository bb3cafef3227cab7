"""What answers say, read without a server: characters, Retry-After, URLs in messages."""

import pytest

from services.fetching import decode_text, parse_retry_after, shown_url, without_userinfo
from services.fetching.retry_after import MAX_RETRY_AFTER_SECONDS
from tests.support.waiting import within_a_moment

META = '<html><head><meta charset="{}">'
META_EQUIV = '<meta http-equiv="Content-Type" content="text/html; charset={}">'
XML = '<?xml version="1.0" encoding="{}"?><urlset>'


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("grüße €".encode(), "", "grüße €"),
        ("grüße €".encode(), "text/html", "grüße €"),
        ("grüße".encode("latin-1"), "text/html", "grüße"),
        ("grüße €".encode("cp1252"), "text/html; charset=ISO-8859-1", "grüße €"),
        ("grüße".encode("latin-1"), 'text/html; charset="latin-1"', "grüße"),
        ("привет".encode("koi8-r"), "text/html; Charset = KOI8-R", "привет"),
        ("こんにちは".encode("shift_jis"), "text/html;charset=Shift_JIS", "こんにちは"),
        ("你好".encode("gbk"), "text/html; charset=gb2312", "你好"),
        (b"\xef\xbb\xbf" + "ü".encode(), "text/html; charset=latin-1", "ü"),
        ("\ufeffü".encode("utf-16-le"), "text/html; charset=latin-1", "ü"),
        ("\ufeffü".encode("utf-16-be"), "", "ü"),
        ("ü".encode("utf-16-le"), "text/html; charset=utf-16", "ü"),
    ],
)
def test_the_bytes_are_read_as_the_server_says(body: bytes, content_type: str, text: str) -> None:
    assert decode_text(body, content_type) == text


@pytest.mark.parametrize("declaration", [META, META_EQUIV, XML])
def test_the_document_may_say_its_encoding_itself(declaration: str) -> None:
    said = declaration.format("windows-1251") + "привет"
    assert decode_text(said.encode("cp1251"), "text/html") == said
    assert decode_text(said.encode(), "text/html; charset=utf-8") == said


def test_a_document_that_was_read_as_ascii_so_far_is_not_utf16() -> None:
    said = META.format("utf-16") + "grüße"
    assert decode_text(said.encode()) == said


@pytest.mark.parametrize(
    "name", ["klingon", "", "hex", "zlib", "punycode", "idna", "unicode_escape", "undefined", "x" * 99]
)
def test_an_encoding_that_is_none_for_the_web_is_not_believed(name: str) -> None:
    assert decode_text("ü".encode(), f"text/html; charset={name}") == "ü"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", f"text/html; charset={' ' * 20_000}!"),
        (b"<meta" * 39 + b"charset=" + b" " * 3_800 + b"!", ""),
    ],
)
def test_a_declaration_made_of_blanks_is_read_in_a_moment(body: bytes, content_type: str) -> None:
    with within_a_moment():
        decode_text(body, content_type)


def test_a_body_that_was_cut_inside_a_character_is_still_utf8() -> None:
    assert decode_text("über €".encode()[:-1]) == "über "


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "shift_jis", "gb18030", "iso-2022-jp", "big5", "ascii"])
def test_broken_bytes_are_replaced(charset: str) -> None:
    rubbish = bytes(range(256)) * 3 + b"\xff"
    assert decode_text(rubbish, f"text/html; charset={charset}")
    assert decode_text(rubbish + META.format(charset).encode())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7),
        (" 0 ", 0),
        ("999999999", MAX_RETRY_AFTER_SECONDS),
        ("-5", None),
        ("soon", None),
        ("٣", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_SECONDS),
        ("Fri, 99 Dec 9999 99:99:99 GMT", None),
        ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value) == seconds


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/a/b", "https://example.com/a/b"),
        ("https://anna:hunter2@example.com:8443/a?token=hunter2#hunter2", "https://example.com:8443/a?***"),
        ("https://hunter2@example.com", "https://example.com"),
        ("https://a@b:hunter2@example.com/", "https://example.com/"),
        ("http://[::1/hunter2", "a URL that cannot be read"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_long_url_is_shown_in_part() -> None:
    assert len(shown_url("https://example.com/" + "x" * 10_000)) < 250


def test_userinfo_alone_can_be_taken_away() -> None:
    assert without_userinfo("https://anna:hunter2@example.com/?a=1#b") == "https://example.com/?a=1#b"
    assert without_userinfo("https://example.com/?mail=a@b") == "https://example.com/?mail=a@b"
