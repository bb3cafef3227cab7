"""Contacts in HTML: what counts as one, what does not, and what is known about each."""

import json

import pytest

from database.workflow_statuses import EmailType
from services.workflows.parsing.contacts import MAX_NAME, FoundContact, find_contacts
from services.workflows.parsing.email_addresses import addresses_in
from tests.support.waiting import within_a_moment


def found(body: str, domain: str = "bakery.example", country: str | None = None) -> tuple[FoundContact, ...]:
    return find_contacts(f"<html><body>{body}</body></html>", f"https://{domain}/contact", domain, country)


def emails(body: str) -> list[str]:
    return [contact.email for contact in found(body)]


@pytest.mark.parametrize(
    "body",
    [
        '<a href="mailto:anna@bakery.example">Mail</a>',
        '<a href="MAILTO:Anna@Bakery.Example?subject=Hi%20there">Mail</a>',
        '<a href="mailto:anna%40bakery.example">Mail</a>',
        '<a href="mailto:%20anna@bakery.example">Mail</a>',
        "<p>Write to anna@bakery.example.</p>",
        "<p>(anna@bakery.example)</p>",
        "<p>E-mail:anna@bakery.example</p>",
        "<p>anna&#64;bakery.example</p>",
        "<p>anna&amp;#64;bakery.example</p>",
        "<p>anna&#x40;bakery&#46;example</p>",
        "<p>anna [at] bakery [dot] example</p>",
        "<p>anna(at)bakery(dot)example</p>",
        "<p>anna {AT} bakery {DOT} example</p>",
        "<p>anna at bakery dot example</p>",
        "<p>Write to anna at bakery dot example or call</p>",
        "<p>E-mail: anna at bakery dot example</p>",
        "<p>Anna Baker, anna @ bakery.example</p>",
        "<p>anna @ bakery.example</p>",
        "<p>anna%40bakery.example</p>",
        '<a href="mailto:anna%2540bakery.example">Mail</a>',
        '<meta itemprop="email" content="anna@bakery.example">',
        '<span itemprop="email" content="mailto:anna@bakery.example">Mail</span>',
        "<p>anna@<b>bakery</b>.example</p>",
        "<p>anna@\u200bbakery.ex\u00adample</p>",
        "<p>anna\uff20bakery.example</p>",
        "<p>write to 'anna@bakery.example'</p>",
        "<p><b>716-555-0100</b><i>anna@bakery.example</i><b>Call</b></p>",
        '<span data-cfemail="1d7c73737c5d7f7c76786f643378657c706d7178">[email&#160;protected]</span>',
        '<script type="application/ld+json">{"@type": "Bakery", "email": "mailto:anna@bakery.example"}</script>',
        '<script type="application/ld+json">{"@graph": [{"a": {"email": ["anna\\u0040bakery.example"]}}]}</script>',
        '<script type="application/ld+json">[{"email": "anna [at] bakery [dot] example"}]</script>',
        '<script type="application/ld+json">{"email": "anna&#64;bakery.example"}</script>',
        '<script type="application/ld+json">{"email": "Anna Baker <anna@bakery.example>"}</script>',
    ],
)
def test_an_address_is_found_however_it_is_written(body: str) -> None:
    assert emails(body) == ["anna@bakery.example"]


@pytest.mark.parametrize(
    "body",
    [
        '<img src="logo@2x.png"> <p>logo@2x.png</p>',
        "<p>banner@3x.webp</p>",
        "<p>you@example.com</p>",
        "<p>somebody@mail.yourdomain.com</p>",
        "<p>your.name@bakery.example</p>",
        "<p>605a7baede844d278b89dc95ae0a9123@sentry.io</p>",
        "<p>605a7baede844d278b89dc95ae0a9123@bakery.example</p>",
        "<p>noreply@bakery.example no-reply@bakery.example do-not-reply@bakery.example</p>",
        "<p>NoReply-orders@bakery.example orders-noreply@bakery.example shop.no-reply@bakery.example</p>",
        "<p>20240101123456789@bakery.example</p>",
        "<p>anna@localhost anna@10.0.0.1 @bakery.example anna@ anna@bakery</p>",
        "<p>follow @anna on https://social.example/@anna</p>",
        "<p>Meet us at bakery dot</p>",
        "<p>https://key@errors.bakery.example/1 ftp://anna:secret@files.bakery.example git@github.com</p>",
        "<p>@anna@social.example</p>",
        "<p>I worked at a dot com, then she was a manager at google dot com</p>",
        "<p>Find us at bakery dot example. Meet me @ bakery.example. Shop at bakery dot example!</p>",
        "<p>Our friend Anna at bakery dot example says hello; 5 @ bakery.example</p>",
        "<p>follow @bakery.example</p>",
        "<p>anna@bakery.local root@srv.lan anna@bakery.invalid anna@elsewhere.test pot@toes.mash</p>",
        "<p>intro@2x.mov app@1.map</p>",
        "<script>var mail = 'anna@bakery.example'</script>",
        "<!-- anna@bakery.example -->",
        "<style>.a { content: 'anna@bakery.example' }</style>",
        '<div style="display: none">anna@bakery.example</div>',
        "<p hidden>anna@bakery.example <b>twice@bakery.example</b></p>",
        '<script type="application/ld+json">{"email": "anna at home", "x": </script>',
        '<script type="application/ld+json">{"email": 7}</script>',
        '<span data-cfemail="zz"></span><span data-cfemail=""></span>',
        "",
    ],
)
def test_what_only_looks_like_an_address_is_nobody(body: str) -> None:
    assert emails(body) == []


def test_one_contact_for_each_address_linked_ones_first() -> None:
    body = """<p>bert@bakery.example</p><p>Anna: anna@bakery.example</p><a href="mailto:anna@bakery.example">Mail</a>
              <a href="mailto:cleo@bakery.example,dora@bakery.example">Both</a>"""
    assert emails(body) == [f"{name}@bakery.example" for name in ("anna", "cleo", "dora", "bert")]


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("info@bakery.example", EmailType.SERVICE),
        ("sales2@elsewhere.example", EmailType.SERVICE),
        ("anna@bakery.example", EmailType.CORPORATE),
        ("anna@mail.bakery.example", EmailType.CORPORATE),
        ("anna@gmail.com", EmailType.FREE),
        ("info@gmx.de", EmailType.FREE),
        ("anna@elsewhere.example", EmailType.UNKNOWN),
    ],
)
def test_the_kind_of_an_address(address: str, kind: EmailType) -> None:
    (contact,) = found(f"<p>{address}</p>")
    assert contact.email_type is kind


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ('<a href="tel:+1-716-555-0100">Call</a>', "+17165550100"),
        ('<a href="tel:(716)%20555-0100">Call</a>', "+17165550100"),
        ('<a href="TEL:716.555.0100;ext=7">Call</a>', "+17165550100"),
        ("<p>Call (716) 555-0100</p>", "+17165550100"),
        ("<p>716-555-0100 or 716-555-0199</p>", "+17165550100"),
        ("<p>+49 30 901820</p>", "+4930901820"),
        ('<p>(716) 555-0199</p><p>or</p><p>so</p><a href="tel:+17165550100">Call</a>', "+17165550199"),
    ],
)
def test_a_phone_number_beside_the_address_belongs_to_it(body: str, number: str) -> None:
    (contact,) = found(f"<p>info@bakery.example</p>{body}", country="US")
    assert contact.phone_number == number


@pytest.mark.parametrize(
    "body",
    [
        "<p>Order 20240101123456</p>",
        "<p>1234567890123456789012345</p>",
        "<p>ISBN 978-3-16-148410-0</p>",
        "<p>2024-01-01 12:00:00</p>",
        "<p>192.168.100.200</p>",
        '<a href="tel:12345678901234567890">Call</a>',
        '<a href="tel:soon">Call</a>',
    ],
)
def test_other_digits_are_no_phone_number(body: str) -> None:
    (contact,) = found(f"<p>info@bakery.example</p>{body}", country="US")
    assert contact.phone_number is None


def test_the_country_of_a_number_is_known_from_the_domain_or_the_language() -> None:
    body = "<p>info@bakery.com 030 901820</p>"
    (german,) = find_contacts(body, "https://b.de/", "b.de")
    (unknown,) = find_contacts(body, "https://b.example/", "b.example")
    (spoken,) = find_contacts(f'<html lang="de-DE"><body>{body}', "https://b.example/", "b.example")
    assert (german.phone_number, unknown.phone_number, spoken.phone_number) == ("+4930901820", None, "+4930901820")


def test_what_is_said_about_a_person_stays_together() -> None:
    body = """<script type="application/ld+json">
        {"@type": "Person", "name": "Anna Baker", "email": "anna@bakery.example", "telephone": "+1 716 555 0101"}
        </script><a href="mailto:bert@bakery.example">Bert Miller</a> <a href="mailto:info@bakery.example">Write!</a>
        <p>Write to us: bert@bakery.example</p><p>(716) 555-0100</p>"""
    contacts = {contact.email.partition("@")[0]: contact for contact in found(body, country="US")}
    assert (contacts["anna"].name, contacts["anna"].phone_number) == ("Anna Baker", "+17165550101")
    assert (contacts["bert"].name, contacts["info"].name) == ("Bert Miller", None)
    assert contacts["bert"].context == "Bert Miller Write!"


@pytest.mark.parametrize(("name", "kept"), [("Baker &amp; Sons", "Baker & Sons"), ("x" * 50_000, "x" * MAX_NAME)])
def test_a_name_in_structured_data_is_one_for_people(name: str, kept: str) -> None:
    said = json.dumps({"email": "anna@bakery.example", "name": name})
    (contact,) = found(f'<script type="application/ld+json">{said}</script>')
    assert contact.name == kept


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Anna Baker", "Anna Baker"),
        ("Anna van der Berg", "Anna van der Berg"),
        ("Dr. J. O'Neil", "Dr. J. O'Neil"),
        ("Anna", None),
        ("Write to us", None),
        ("Contact Us", None),
        ("anna@bakery.example", None),
        ("Click Here Now", None),
        ("", None),
    ],
)
def test_the_words_of_a_link_are_a_name_when_they_look_like_one(text: str, name: str | None) -> None:
    (contact,) = found(f'<a href="mailto:anna@bakery.example">{text}</a>')
    assert contact.name == name


def _json_ld(**thing: object) -> str:
    return f'<script type="application/ld+json">{json.dumps(thing)}</script>'


TEL_LINKS = '<a href="tel:+17165550100">Call</a>' * 4_900
HOSTILE = {
    "digits and at signs": "".join(f"<p>{n} 716 555 0100 a@b@c@d {n}@2x.png</p>" for n in range(20_000)),
    "an endless name": _json_ld(email=["anna@bakery.example"] * 3_000, name="&x" * 125_000),
    "an endless phone number": _json_ld(email=["anna@bakery.example"] * 3_000, telephone="1%" * 125_000),
    "phone links and recipients": f'{TEL_LINKS}<a href="mailto:{"anna@bakery.example," * 100_000}">Mail</a>',
    "phone links and addresses": TEL_LINKS + "<p>anna@bakery.example</p>" * 19_000,
    "mail links": '<a href="mailto:anna@bakery.example">Mail</a>' * 100_000,
    "international hosts": "".join(f"<p>a@{n}{('ü' * 30 + '.') * 5}com</p>" for n in range(10_000)),
    "hidden elements": f"<div hidden>{'<b>' * 1_900}{'<i></i>' * 200_000}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_page_is_read_in_a_moment(kind: str) -> None:
    with within_a_moment():
        found(HOSTILE[kind], country="US")


@pytest.mark.parametrize(
    "body",
    [
        "<p>anna@bakery.example</p>" * 1_000,
        f'<a href="mailto:{"anna@bakery.example," * 1_000}">Mail</a>',
        '<a href="tel:+17165550100">Call</a>' * 1_000,
        _json_ld(email=["anna@bakery.example"] * 1_000),
        _json_ld(thing=[{"email": "anna@bakery.example"}] * 1_000),
    ],
)
def test_the_deadline_is_asked_for_at_every_sighting(body: str) -> None:
    class Over(Exception):
        pass

    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 500:
            raise Over

    with pytest.raises(Over):
        find_contacts(body, "https://bakery.example/", "bakery.example", check=check)


def test_an_address_counts_under_a_top_level_domain_that_exists_or_is_the_sites_own() -> None:
    body = "<p>anna@bakery.pizza bert@bäcker.рф cleo@b.co.uk dora@bakery.example</p>"
    own, other = found(body, "bakery.example"), found(body, "bakery.com")
    assert [contact.email.partition("@")[0] for contact in own] == ["anna", "bert", "cleo", "dora"]
    assert [contact.email.partition("@")[0] for contact in other] == ["anna", "bert", "cleo"]


def test_end_tags_that_end_nothing_cannot_keep_a_thread_busy() -> None:
    """Each one would be compared with every open element: two minutes for a page of 1.7 MB."""
    with within_a_moment():
        assert emails("<p>anna@bakery.example</p>" + "<b>" * 100_000 + "</i>" * 100_000) == ["anna@bakery.example"]


@pytest.mark.parametrize("html", ["", "<", "\x00\x00", "<<<>>>", "<a href='mailto:'>", "<a href='tel:'>", "\ud800"])
def test_rubbish_has_no_contacts(html: str) -> None:
    assert find_contacts(html, "https://a.example/", "a.example") == ()


@pytest.mark.parametrize("blanks", ["&nbsp;" * 20_000, " " * 20_000, "[ at ] " * 20_000])
def test_text_made_of_blanks_or_hints_is_read_in_a_moment(blanks: str) -> None:
    with within_a_moment():
        assert list(addresses_in(f"name @ {blanks} dot")) == []
