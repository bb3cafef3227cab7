"""Contacts of a page: HTML -> contacts, one for each e-mail address. Pure.

Links (mailto, tel) take precedence over structured data, and structured data over the visible text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import unescape
from itertools import islice
from typing import Any

from database.workflow_statuses import EmailType
from services.workflows.parsing.email_addresses import (
    candidates_in,
    candidates_of_link,
    is_name,
    real_address,
    type_of,
    uncovered,
)
from services.workflows.parsing.page_content import PageContent, read_page
from services.workflows.parsing.phone_numbers import (
    MAX_LINKS,
    Phone,
    PhonesByLine,
    number_of_link,
    numbers_in,
    region_of,
)
from services.workflows.parsing.structured_data import objects_in, text_of, texts_of

MAX_CONTACTS = 200  # of one page
MAX_SIGHTINGS = 1_000  # examined in detail; crafted input takes half a millisecond each
MAX_CONTEXT, MAX_NAME = 300, 200


@dataclass(frozen=True, slots=True)
class FoundContact:
    email: str
    email_type: EmailType
    name: str | None = None
    phone_number: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class _Sighting:
    written: str  # has the form of an address
    line: int | None  # None: not in the visible text
    name: str | None = None
    phone_number: str | None = None


def find_contacts(
    html: str, url: str, domain: str, country: str | None = None, check: Callable[[], object] = lambda: None
) -> tuple[FoundContact, ...]:
    """`country`: the location of the business, if known. `check` is called at every line and sighting; it may raise."""
    page = read_page(html, url, check)
    return contacts_of(page, domain, phones_of(page, domain, country, check), country, check)


def contacts_of(
    page: PageContent,
    domain: str,
    phones: Sequence[Phone],
    country: str | None = None,
    check: Callable[[], object] = lambda: None,
) -> tuple[FoundContact, ...]:
    near = PhonesByLine(phones)
    region = region_of(country, domain, page.language)
    found: dict[str, FoundContact] = {}
    for sighting in islice(_sightings(page, region, check), MAX_SIGHTINGS):
        check()
        email = real_address(sighting.written, domain)
        if email is None or (email not in found and len(found) == MAX_CONTACTS):
            continue
        known = found.get(email) or FoundContact(email, type_of(email, domain))
        found[email] = _fill_gaps(known, sighting, page, near)
    return tuple(found.values())


def phones_of(
    page: PageContent, domain: str, country: str | None = None, check: Callable[[], object] = lambda: None
) -> list[Phone]:
    """Linked numbers first."""
    region = region_of(country, domain, page.language)
    links = [anchor for anchor in page.anchors if anchor.href[:4].lower() == "tel:"][:MAX_LINKS]
    phones: list[Phone] = []
    for anchor in links:
        check()
        if number := number_of_link(anchor.href, region):
            phones.append(Phone(number, anchor.line))
    return [*phones, *numbers_in(page.lines, region, check)]


def _sightings(page: PageContent, region: str | None, check: Callable[[], object]) -> Iterator[_Sighting]:
    for anchor in page.anchors:
        if anchor.href[:7].lower() == "mailto:":
            name = anchor.text if is_name(anchor.text) else None
            yield from (_Sighting(written, anchor.line, name) for written in candidates_of_link(anchor.href))
    for hidden in page.protected:
        if written := uncovered(hidden.code):
            yield _Sighting(written, hidden.line)
    for thing in (*objects_in(page.structured), *page.properties):
        check()
        yield from _from_structured_data(thing, region)
    for number, line in enumerate(page.lines):
        check()
        yield from (_Sighting(written, number) for written in candidates_in(line))


def _from_structured_data(thing: Mapping[str, Any], region: str | None) -> Iterator[_Sighting]:
    emails = texts_of(thing, "email")
    if not emails:
        return
    name = unescape(text_of(thing, "name")[: 10 * MAX_NAME]) or None
    phone = number_of_link(f"tel:{text_of(thing, 'telephone')}", region)
    for text in emails:
        yield from (_Sighting(written, None, name, phone) for written in candidates_in(text))


def _fill_gaps(known: FoundContact, sighting: _Sighting, page: PageContent, phones: PhonesByLine) -> FoundContact:
    """Fills empty fields only."""
    near, context = None, None
    if sighting.line is not None:
        near = phones.nearest(sighting.line)
        context = page.lines[sighting.line][:MAX_CONTEXT] if sighting.line < len(page.lines) else None
    return replace(
        known,
        name=known.name or (sighting.name and sighting.name[:MAX_NAME]),
        phone_number=known.phone_number or sighting.phone_number or near,
        context=known.context or context,
    )
