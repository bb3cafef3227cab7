"""The demo town for the workflows: a directory of businesses, and their web sites.

The directory answers like Google's Place Details and Text Search. The Host header selects the site. Each site presents
its contacts in a different way. One business has no site and one site is down, as in a real town.
"""

import gzip
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from services.cli.demo.shop import ShopAnswer

DETAILS_PATH, SEARCH_PATH = "/maps/api/place/details/json", "/maps/api/place/textsearch/json"
NOT_FOUND = ShopAnswer(404, b"there is nothing here", "text/plain")


@dataclass(frozen=True, slots=True)
class DemoBusiness:
    place_id: str
    name: str
    category: str
    host: str | None
    head: str = ""  # of all its pages
    pages: dict[str, str] = field(default_factory=dict)
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict)  # content and content type

    @property
    def details(self) -> dict[str, Any]:
        """The response of Google's Place Details."""
        number = int(self.place_id[-2:])
        website = {"website": f"http://www.{self.host}/"} if self.host else {}
        return {
            "name": self.name,
            "formatted_address": f"{number} Main Street, Buffalo, NY 14201, USA",
            "address_components": [
                {"long_name": str(number), "short_name": str(number), "types": ["street_number"]},
                {"long_name": "Main Street", "short_name": "Main St", "types": ["route"]},
                {"long_name": "Buffalo", "short_name": "Buffalo", "types": ["locality", "political"]},
                {"long_name": "New York", "short_name": "NY", "types": ["administrative_area_level_1"]},
                {"long_name": "United States", "short_name": "US", "types": ["country", "political"]},
                {"long_name": "14201", "short_name": "14201", "types": ["postal_code"]},
            ],
            "international_phone_number": f"+1 716-555-01{number:02}",
            "types": [self.category, "point_of_interest", "establishment"],
            "rating": 4.0 + number % 10 / 10,
            "user_ratings_total": 3 * number,
            "utc_offset": -300,
            "geometry": {"location": {"lat": 42.88, "lng": -78.87 + number / 1000}},
            "opening_hours": {"weekday_text": ["Monday: 9:00 AM - 5:00 PM", "Sunday: Closed"]},
            "business_status": "OPERATIONAL",
            **website,
        }


def directory_answer(host: str, path: str, query: str) -> ShopAnswer | None:
    """None if the request is neither for the directory nor for one of its sites."""
    if path == DETAILS_PATH:
        return _details(parse_qs(query).get("place_id", [""])[0])
    if path == SEARCH_PATH:
        return _search(parse_qs(query).get("query", [""])[0])
    business = _BY_HOST.get(host.lower().removeprefix("www."))
    if business is None:
        return NOT_FOUND if host.endswith(".example") else None
    if path in business.files:
        return ShopAnswer(200, *business.files[path])
    return ShopAnswer(200, _page(business, path).encode()) if path in business.pages else NOT_FOUND


def _details(place_id: str) -> ShopAnswer:
    found = next((each.details for each in BUSINESSES if each.place_id == place_id), None)
    answer = {"status": "OK", "result": found} if found else {"status": "NOT_FOUND"}
    return ShopAnswer(200, json.dumps(answer).encode(), "application/json")


def _search(query: str) -> ShopAnswer:
    """`bakeries in Buffalo` finds the bakery: its first four letters begin a word of the name or kind."""
    beginnings = {word[:4] for word in query.lower().split() if len(word) > 3}
    found = [
        {"place_id": each.place_id, **each.details}
        for each in BUSINESSES
        if beginnings & {word[:4] for word in f"{each.name} {each.category.replace('_', ' ')}".lower().split()}
    ]
    answer = {"status": "OK" if found else "ZERO_RESULTS", "results": found}
    return ShopAnswer(200, json.dumps(answer).encode(), "application/json")


def _page(business: DemoBusiness, path: str) -> str:
    links = "".join(f'<li><a href="{target}">{target}</a>' for target in business.pages)
    return (
        f'<!DOCTYPE html><html lang="en-US"><head><meta charset="utf-8"><title>{business.name}</title>'
        f"{business.head}</head><body><h1>{business.name}</h1>{business.pages[path]}<ul>{links}</ul></body></html>"
    )


def _sitemap(host: str, *paths: str) -> bytes:
    pages = "".join(f"<url><loc>http://www.{host}{path}</loc><lastmod>2026-01-15</lastmod></url>" for path in paths)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{pages}</urlset>'.encode()


def _index(host: str, *paths: str) -> bytes:
    files = "".join(f"<sitemap><loc>http://www.{host}{path}</loc></sitemap>" for path in paths)
    return f'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{files}</sitemapindex>'.encode()


XML, TEXT = "application/xml", "text/plain; charset=utf-8"

BUSINESSES = (
    DemoBusiness(
        "demo-place-11",
        "Elmwood Bakery",
        "bakery",
        "elmwood-bakery.example",
        head='<meta name="description" content="Bread since 1954.">',
        pages={
            "/": "<p>Fresh every morning.</p>",
            "/about": '<p>Ask for <a href="mailto:olivia@elmwood-bakery.example">Olivia Hart</a>.</p>',
            "/contact": '<p><a href="mailto:info@elmwood-bakery.example?subject=Bread">Write to us</a> or call '
            '<a href="tel:+1-716-555-0111">us</a>.</p>',
            "/blog/2026/01/rye": "<p>On rye.</p>",
        },
        files={
            "/robots.txt": (b"User-agent: *\nSitemap: http://www.elmwood-bakery.example/sitemaps/all.xml\n", TEXT),
            "/sitemaps/all.xml": (
                _index("elmwood-bakery.example", "/sitemaps/pages.xml.gz", "/sitemaps/blog.xml"),
                XML,
            ),
            "/sitemaps/pages.xml.gz": (
                gzip.compress(_sitemap("elmwood-bakery.example", "/", "/about", "/contact")),
                "application/gzip",
            ),
            "/sitemaps/blog.xml": (_sitemap("elmwood-bakery.example", "/blog/2026/01/rye"), XML),
        },
    ),
    DemoBusiness(
        "demo-place-12",
        "Northside Plumbing",
        "plumber",
        "northside-plumbing.example",
        head='<script src="/js/jquery.min.js"></script>',
        pages={
            "/": "<p>Day and night: (716) 555-0112</p>",
            "/contact-us": "<p>office [at] northside-plumbing [dot] example</p><p>(716) 555-0112</p>",
            "/careers": "<p>Jobs: jobs&#64;northside-plumbing.example</p>",
        },
        files={"/sitemap.xml": (_sitemap("northside-plumbing.example", "/", "/contact-us", "/careers"), XML)},
    ),
    DemoBusiness(
        "demo-place-13",
        "Lakeview Dental",
        "dentist",
        "lakeview-dental.example",
        head='<meta name="generator" content="WordPress 6"><script src="/wp-content/plugins/elementor/a.js"></script>',
        pages={
            "/": '<script type="application/ld+json">{"@type": "Dentist", "name": "Dr. Mara Quinn", "email": '
            '"mara.quinn@lakeview-dental.example", "telephone": "+1 716 555 0113"}</script>',
            "/impressum": "<p>lakeview.dental@gmail.com</p>",
        },
        files={"/wp-sitemap.xml": (_sitemap("lakeview-dental.example", "/", "/impressum", "/gone"), XML)},
    ),
    DemoBusiness(
        "demo-place-14",
        "Harbor Books",
        "book_store",
        "harbor-books.example",
        head='<link rel="sitemap" href="/books-map.xml">',
        pages={
            "/": "<p>noreply@harbor-books.example and logo@2x.png are nobody.</p>",
            "/team": "<p>Sam: sam at harbor-books dot example</p>",
        },
        files={"/books-map.xml": (_sitemap("harbor-books.example", "/", "/team", "/catalogue.pdf"), XML)},
    ),
    DemoBusiness("demo-place-15", "Old Mill Cafe", "cafe", None),
    DemoBusiness("demo-place-16", "Gone Garage", "car_repair", "gone-garage.example"),
)

_BY_HOST = {business.host: business for business in BUSINESSES if business.host and business.pages}
