"""Inventory: all sightings of a scan merged into one list of cookies, each with its party, category and lifetime."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.fetching.sites.urls import Site
from services.scanning.cookies.categories import CategoryRules
from services.scanning.findings import Consent, Cookie, Party, SeenCookie, Storage

MAX_COOKIES = 5_000

Key = tuple[str, str, str, str]


@dataclass(slots=True)
class _Found:
    """One cookie so far: the first sighting, with the longest lifetime and the earliest consent state."""

    seen: SeenCookie
    lifetime_seconds: int | None
    pages: set[str] = field(default_factory=set)

    def add(self, seen: SeenCookie, lifetime_seconds: int | None) -> None:
        if (lifetime_seconds or 0) > (self.lifetime_seconds or 0):
            self.lifetime_seconds = lifetime_seconds
            self.seen = replace(self.seen, expires_at=seen.expires_at)
        if seen.consent is Consent.BEFORE:
            self.seen = replace(self.seen, consent=Consent.BEFORE)


class Inventory:
    def __init__(self) -> None:
        self._found: dict[Key, _Found] = {}
        self.left_out = 0  # sightings of cookies beyond the limit

    def __len__(self) -> int:
        return len(self._found)

    def add(self, sightings: Iterable[SeenCookie], seen_at: datetime) -> None:
        for seen in sightings:
            if seen.expires_at is not None and seen.expires_at <= seen_at:
                continue  # the cookie was deleted
            lifetime = None if seen.expires_at is None else round((seen.expires_at - seen_at).total_seconds())
            found = self._found.get(seen.key)
            if found is None:
                if len(self._found) >= MAX_COOKIES:
                    self.left_out += 1
                    continue
                found = self._found[seen.key] = _Found(seen, lifetime)
            found.add(seen, lifetime)
            found.pages.add(seen.page_url)

    def cookies(self, site: Site, rules: CategoryRules) -> tuple[Cookie, ...]:
        """In the order of their first sighting."""
        return tuple(_cookie(found, site, rules) for found in self._found.values())


def _cookie(found: _Found, site: Site, rules: CategoryRules) -> Cookie:
    seen = found.seen
    category, rule = rules.category_of(seen)
    return Cookie(
        name=seen.name,
        domain=seen.domain,
        path=seen.path,
        storage=Storage(seen.storage),
        host_only=seen.host_only,
        expires_at=seen.expires_at,
        lifetime_seconds=found.lifetime_seconds,
        secure=seen.secure,
        http_only=seen.http_only,
        same_site=seen.same_site,
        party=Party.FIRST if site.owns(seen.domain) else Party.THIRD,
        consent=seen.consent,
        category=category,
        category_rule=rule,
        page_url=seen.page_url,
        request_url=seen.request_url,
        pages_seen=len(found.pages),
    )
