"""Metadata of a site: `detect_site_metadata` fetches its home page, `metadata_of` parses it (pure)."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from services.fetching import Fetcher
from services.queues.deadline import remaining_seconds
from services.workflows.parsing.contacts import contacts_of, phones_of
from services.workflows.parsing.page_content import MAX_ITEMS, PageContent, read_page
from services.workflows.parsing.structured_data import objects_in, texts_of
from services.workflows.parsing.technologies import technologies_of, wordpress_version_of
from services.workflows.web_pages import home_page, html_of

MAX_TEXT = 2_000
MAX_LISTED = 50
SOCIAL_HOSTS = {
    "facebook": ("facebook.com", "fb.com"),
    "twitter": ("twitter.com", "x.com"),
    "linkedin": ("linkedin.com",),
    "instagram": ("instagram.com",),
    "youtube": ("youtube.com", "youtu.be"),
}
# Share links point to the network, not to the site's own profile there.
_NOT_A_PROFILE = re.compile(
    r"/(sharer?|intent|dialog|plugins|share(article)?|embed|watch|tr|hashtag|search)\b|/$|^$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteMetadata:
    """Named like the columns of `domains`; None or empty: not stated."""

    title: str | None = None
    description: str | None = None
    language: str | None = None
    favicon_url: str | None = None
    logo_url: str | None = None
    is_wordpress: bool | None = None
    wordpress_version: str | None = None
    has_elementor: bool | None = None
    tech_stack: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    phone_numbers: tuple[str, ...] = ()
    facebook_url: str | None = None
    twitter_url: str | None = None
    linkedin_url: str | None = None
    instagram_url: str | None = None
    youtube_url: str | None = None
    final_url: str


def detect_site_metadata(domain: str, fetcher: Fetcher, country: str | None = None) -> SiteMetadata:
    """https first, then http. Raises FetchFailed or JobFailed, which say whether a retry may help."""
    page = home_page(fetcher, domain)
    return metadata_of(html_of(page), page.url, domain, page.headers, country, remaining_seconds)


def metadata_of(
    html: str,
    url: str,
    domain: str,
    headers: Mapping[str, str] | None = None,
    country: str | None = None,
    check: Callable[[], object] = lambda: None,
) -> SiteMetadata:
    page = read_page(html, url, check)
    technologies = technologies_of(page, headers or {})
    phones = phones_of(page, domain, country, check)
    emails = (contact.email for contact in contacts_of(page, domain, phones, country, check))
    return SiteMetadata(
        title=_short(page.title or page.metas.get("og:title", "")),
        description=_short(page.metas.get("description") or page.metas.get("og:description", "")),
        language=_short(page.language[:35]),
        favicon_url=_favicon(page),
        logo_url=_logo(page),
        is_wordpress="WordPress" in technologies if technologies else None,
        wordpress_version=wordpress_version_of(page),
        has_elementor="Elementor" in technologies if technologies else None,
        tech_stack=technologies,
        email_addresses=_some(emails),
        phone_numbers=_some(phone.number for phone in phones),
        final_url=url,
        **_social_urls(page, check),
    )


def _favicon(page: PageContent) -> str | None:
    for tag in page.tags:
        if tag.name == "link" and "icon" in tag.get("rel").lower().split():
            return _short_url(page.absolute(tag.get("href")))
    return None


def _logo(page: PageContent) -> str | None:
    """The logo of the structured data, otherwise an image named logo, otherwise the social media image."""
    return next(
        (url for address in islice(_logos(page), MAX_ITEMS) if (url := _short_url(page.absolute(address)))), None
    )


def _logos(page: PageContent) -> Iterator[str]:
    for thing in objects_in(page.structured):
        logo = thing.get("logo")
        yield from texts_of(logo if isinstance(logo, dict) else thing, "url" if isinstance(logo, dict) else "logo")
    for tag in page.tags:
        called = " ".join(tag.get(name) for name in ("class", "id", "alt", "src")).lower()
        if tag.name == "img" and "logo" in called and not tag.get("src").startswith("data:"):
            yield tag.get("src")
    if image := page.metas.get("og:image"):
        yield image


def _social_urls(page: PageContent, check: Callable[[], object]) -> dict[str, Any]:
    found: dict[str, str] = {}
    same_as = (url for thing in objects_in(page.structured) for url in texts_of(thing, "sameAs"))
    for address in (*(anchor.href for anchor in page.anchors), *islice(same_as, MAX_ITEMS)):
        check()
        url = _short_url(page.absolute(address))
        network = _network_of(url) if url else None
        if network and url:
            found.setdefault(f"{network}_url", url)
    return found


def _network_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.")
    network = next((name for name, hosts in SOCIAL_HOSTS.items() if host in hosts), None)
    return None if network is None or _NOT_A_PROFILE.match(parts.path.rstrip()) else network


def _short(text: str) -> str | None:
    return text[:MAX_TEXT].strip() or None


def _short_url(url: str | None) -> str | None:
    return url if url and len(url) <= MAX_TEXT else None


def _some(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))[:MAX_LISTED]
