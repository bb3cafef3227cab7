"""Who can be reached through a page: HTML -> contacts, one for each e-mail address. Pure.

What somebody linked to counts first (mailto, tel), then structured data, then the visible text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

from database.workflow_statuses import EmailType
from services.workflows.parsing.email_addresses import (
    addresses_in,
    addresses_of_link,
    is_name,
    type_of,
    uncovered,
)
from services.workflows.parsing.page_content import PageContent, read_page
from services.workflows.parsing.phone_numbers import Phone, number_of_link, numbers_in, region_of
from services.workflows.parsing.structured_data import objects_in, text_of, texts_of

MAX_CONTACTS = 200  # of one page
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
    email: str
    line: int | None  # None: not in the visible text
    name: str | None = None
    phone_number: str | None = None


def find_contacts(
    html: str, url: str, domain: str, country: str | None = None, check: Callable[[], object] = lambda: None
) -> tuple[FoundContact, ...]:
    """`country`: where the business is, if that is known. `check` is asked now and then and may raise."""
    return contacts_of(read_page(html, url, check), domain, country, check)


def contacts_of(
    page: PageContent, domain: str, country: str | None = None, check: Callable[[], object] = lambda: None
) -> tuple[FoundContact, ...]:
    phones = phones_of(page, domain, country, check)
    region = region_of(country, domain, page.language)
    found: dict[str, FoundContact] = {}
    for sighting in _sightings(page, region):
        known = found.get(sighting.email)
        if known is None and len(found) < MAX_CONTACTS:
            known = FoundContact(sighting.email, type_of(sighting.email, domain))
        if known is not None:
            found[sighting.email] = _filled(known, sighting, page, phones)
    return tuple(found.values())


def phones_of(
    page: PageContent, domain: str, country: str | None = None, check: Callable[[], object] = lambda: None
) -> list[Phone]:
    """Linked ones first."""
    region = region_of(country, domain, page.language)
    linked = [
        Phone(number, anchor.line)
        for anchor in page.anchors
        if anchor.href.lower().startswith("tel:") and (number := number_of_link(anchor.href, region))
    ]
    return [*linked, *numbers_in(page.lines, region, check)]


def _sightings(page: PageContent, region: str | None) -> Iterator[_Sighting]:
    for anchor in page.anchors:
        if anchor.href.lower().startswith("mailto:"):
            name = anchor.text if is_name(anchor.text) else None
            yield from (_Sighting(email, anchor.line, name) for email in addresses_of_link(anchor.href))
    for hidden in page.protected:
        if email := uncovered(hidden.code):
            yield _Sighting(email, hidden.line)
    for thing in objects_in(page.structured):
        yield from _structured(thing, region)
    for number, line in enumerate(page.lines):
        yield from (_Sighting(email, number) for email in addresses_in(line))


def _structured(thing: dict[str, Any], region: str | None) -> Iterator[_Sighting]:
    for text in texts_of(thing, "email"):
        for email in addresses_in(text):
            phone = number_of_link(f"tel:{text_of(thing, 'telephone')}", region)
            yield _Sighting(email, None, unescape(text_of(thing, "name")) or None, phone)


def _filled(known: FoundContact, sighting: _Sighting, page: PageContent, phones: list[Phone]) -> FoundContact:
    """Only what was unknown."""
    near, context = None, None
    if sighting.line is not None and phones:
        line = sighting.line
        near = min(phones, key=lambda phone: abs(phone.line - line)).number
    if sighting.line is not None and sighting.line < len(page.lines):
        context = page.lines[sighting.line][:MAX_CONTEXT]
    return replace(
        known,
        name=known.name or (sighting.name and sighting.name[:MAX_NAME]),
        phone_number=known.phone_number or sighting.phone_number or near,
        context=known.context or context,
    )
