"""The outside world of the workflows on one local server: Google's two place APIs, and sites by their Host header.

with PipelineWorld() as world:
    world.place("p1", website="https://bakery.example/")     both of Google's APIs know it
    world.search("bakeries in Buffalo", "p1", "p2")           what both find for that, `page_size` to a page
    world.google = denied                                     from now on Google answers like that
    world.page("http://bakery.example/contact", "<p>…</p>")   any page; /* is what all the others answer
    world.sitemap("http://bakery.example/sitemap.xml", "http://bakery.example/contact")
    world.settings(page_curation_scheduler_batch_size=2)      settings that lead there, without politeness
    world.run(PAGE_CURATION, db, concurrency=2)               one run, with numbers of its schedule or with settings
"""

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from config import Settings
from database.connection import DatabaseConnection
from services.checks.queue_numbers import QueueNumbers
from services.queues.outcomes import Summary
from services.queues.queue import Queue
from tests.support.scan_site import Answer, Page, Request, WebServer

KEY = "AIza-secret-of-the-tests"
DETAILS_PATH = "/maps/api/place/details/json"
PLACES_PATH = "/v1/places/"
SEARCH_PATH, NEWER_SEARCH_PATH = "/maps/api/place/textsearch/json", "/v1/places:searchText"


class PipelineWorld(WebServer):
    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, dict[str, Any]] = {}
        self._sites: dict[str, dict[str, Page]] = {}
        self._searches: dict[str, list[str]] = {}
        self.page_size = 20
        self.unripe = 0  # so many times the token of a next page is not valid yet
        self.google: Callable[[Request], Answer] | None = None
        self.go_on = threading.Event()  # set at the end, for pages that hang

    # --- what there is ---

    def place(self, place_id: str, **result: Any) -> None:
        self._places[place_id] = details(**result)

    def search(self, query: str, *place_ids: str) -> None:
        for place_id in place_ids:
            self._places.setdefault(place_id, details(name=f"Bakery {place_id}"))
        self._searches[query] = list(place_ids)

    def page(self, url: str, page: Page | Answer | str) -> None:
        parts = urlsplit(url)
        answer = Answer(page) if isinstance(page, str) else page
        pages = self._sites.setdefault(parts.hostname or "", {})
        pages[parts.path or "/"] = answer if callable(answer) else lambda _request: answer

    def sitemap(self, url: str, *pages: str) -> None:
        entries = "".join(f"<url><loc>{page}</loc></url>" for page in pages)
        self.page(url, xml(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'))

    def sitemap_index(self, url: str, *sitemaps: str) -> None:
        entries = "".join(f"<sitemap><loc>{sitemap}</loc></sitemap>" for sitemap in sitemaps)
        self.page(
            url, xml(f'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</sitemapindex>')
        )

    def hangs(self, url: str) -> None:
        def hang(_request: Request) -> Answer:
            self.go_on.wait(120)
            return Answer("at last")

        self.page(url, hang)

    # --- the way there ---

    @property
    def environment(self) -> dict[str, str]:
        port = urlsplit(self.url).port
        return {
            "GOOGLE_MAPS_API_KEY": KEY,
            "GOOGLE_MAPS_BASE_URL": self.url,
            "GOOGLE_PLACES_BASE_URL": self.url,
            "FETCH_ALLOWED_NETWORKS": "127.0.0.0/8",
            "FETCH_CONNECT_TO": f"*.example=127.0.0.1:{port}",
            "WORKFLOW_FETCH_DELAY_SECONDS": "0",
        }

    def settings(self, **more: Any) -> Settings:
        given: dict[str, Any] = {name.lower(): value for name, value in self.environment.items()}
        return Settings(**{**given, "workflow_retry_backoff_seconds": 60, **more})

    def run(self, queue: Queue[Any], db: DatabaseConnection, **given: Any) -> Summary:
        """As its schedule would run it: numbers of the job_config by their names, everything else is a setting."""
        numbers = {name: given.pop(name) for name in QueueNumbers.model_fields if name in given}
        assert given.keys() <= Settings.model_fields.keys()
        return queue.run(settings=self.settings(**given), db=db, numbers=QueueNumbers(**numbers))

    def asked(self, host: str) -> list[str]:
        """The paths that somebody has asked this host for."""
        return [request.path for request in self.requests() if _host(request) == host]

    # --- inside ---

    def respond(self, request: Request) -> Answer:
        site = self._sites.get(_host(request))
        usual = super().respond(request)  # counts it
        if request.path == DETAILS_PATH or request.path.startswith(PLACES_PATH):
            return (self.google or self._google)(request)
        if request.path in (SEARCH_PATH, NEWER_SEARCH_PATH):
            return (self.google or self._search)(request)
        if site is None:
            return usual
        page = site.get(request.path) or site.get("/*")
        return page(request) if page else Answer("<h1>Not here</h1>", status=404)

    def _google(self, request: Request) -> Answer:
        if request.path == DETAILS_PATH:
            query = {name: values[0] for name, values in parse_qs(request.query).items()}
            found = self._places.get(query["place_id"])
            if query["key"] != KEY:
                return denied(request)
            return as_json({"status": "OK", "result": found} if found else {"status": "NOT_FOUND"})
        found = self._places.get(request.path.removeprefix(PLACES_PATH))
        return as_json(_newer(found)) if found else as_json({"error": {"code": 404, "status": "NOT_FOUND"}}, 404)

    def _search(self, request: Request) -> Answer:
        """A token is `query#offset`. The classic one replaces the question, the newer one goes with it."""
        classic = request.path == SEARCH_PATH
        asked = {name: values[0] for name, values in parse_qs(request.query).items()} if classic else {}
        asked = asked or json.loads(request.body)
        key = asked.get("key") or request.headers.get("x-goog-api-key")
        if key != KEY:
            return denied(request)
        token = asked.get("pagetoken") or asked.get("pageToken")
        if token and classic and self.unripe:
            self.unripe -= 1
            return as_json({"status": "INVALID_REQUEST"})
        query, _, offset = (token or f"{asked.get('query') or asked.get('textQuery')}#0").rpartition("#")
        if not classic:
            assert asked["textQuery"] == query
        found, start = self._searches.get(query, []), int(offset)
        end = start + self.page_size
        following = f"{query}#{end}" if end < len(found) else None
        shown = [(place_id, self._places[place_id]) for place_id in found[start:end]]
        return _found_classic(shown, following) if classic else _found_newer(shown, following)

    def __exit__(self, *error: object) -> None:
        self.go_on.set()
        super().__exit__(*error)


def _found_classic(shown: list[tuple[str, dict[str, Any]]], token: str | None) -> Answer:
    wanted = ("name", "formatted_address", "geometry", "rating", "user_ratings_total", "types", "business_status")
    results = [{"place_id": place_id, **{name: place[name] for name in wanted}} for place_id, place in shown]
    status = {"status": "OK" if results else "ZERO_RESULTS", "results": results, "html_attributions": []}
    return as_json(status | ({"next_page_token": token} if token else {}))


def _found_newer(shown: list[tuple[str, dict[str, Any]]], token: str | None) -> Answer:
    wanted = ("displayName", "formattedAddress", "location", "rating", "userRatingCount")
    places = [{"id": place_id, **{name: _newer(place)[name] for name in wanted}} for place_id, place in shown]
    return as_json(({"places": places} if places else {}) | ({"nextPageToken": token} if token else {}))


def _host(request: Request) -> str:
    return request.headers.get("host", "").partition(":")[0]


def xml(body: str | bytes) -> Answer:
    return Answer(body, content_type="application/xml")


def as_json(body: object, status: int = 200) -> Answer:
    return Answer(json.dumps(body), status=status, content_type="application/json")


def google_says(status: str, message: str | None = None) -> Callable[[Request], Answer]:
    """How the classic API fails: with HTTP 200."""
    return lambda _request: as_json({"status": status} | ({"error_message": message} if message else {}))


def denied(request: Request) -> Answer:
    """With the key in its words, which it should not do."""
    key = parse_qs(request.query).get("key", ["?"])[0]
    return as_json({"status": "REQUEST_DENIED", "error_message": f"The provided API key {key} is invalid."})


def details(**result: Any) -> dict[str, Any]:
    """The result of the classic API, as documented, for a bakery in Buffalo."""
    return {
        "name": "Elmwood Bakery",
        "formatted_address": "123 Elmwood Ave, Buffalo, NY 14201, USA",
        "address_components": [
            {"long_name": "123", "short_name": "123", "types": ["street_number"]},
            {"long_name": "Elmwood Avenue", "short_name": "Elmwood Ave", "types": ["route"]},
            {"long_name": "Buffalo", "short_name": "Buffalo", "types": ["locality", "political"]},
            {"long_name": "New York", "short_name": "NY", "types": ["administrative_area_level_1", "political"]},
            {"long_name": "United States", "short_name": "US", "types": ["country", "political"]},
            {"long_name": "14201", "short_name": "14201", "types": ["postal_code"]},
        ],
        "international_phone_number": "+1 716-555-0100",
        "formatted_phone_number": "(716) 555-0100",
        "types": ["bakery", "food", "store"],
        "rating": 4.6,
        "user_ratings_total": 128,
        "price_level": 2,
        "utc_offset": -300,
        "geometry": {"location": {"lat": 42.9, "lng": -78.9}},
        "opening_hours": {"weekday_text": ["Monday: Closed", "Tuesday: 7:00 AM - 3:00 PM"]},
        "business_status": "OPERATIONAL",
        "url": "https://maps.example/?cid=1",
        **result,
    }


def _newer(found: dict[str, Any]) -> dict[str, Any]:
    """The same place in the words of the newer API."""
    parts = [
        {"longText": part["long_name"], "shortText": part["short_name"], "types": part["types"]}
        for part in found["address_components"]
    ]
    return {
        "displayName": {"text": found["name"], "languageCode": "en"},
        "formattedAddress": found["formatted_address"],
        "addressComponents": parts,
        "internationalPhoneNumber": found["international_phone_number"],
        "types": found["types"],
        "primaryType": found["types"][0],
        "rating": found["rating"],
        "userRatingCount": found["user_ratings_total"],
        "priceLevel": "PRICE_LEVEL_MODERATE",
        "utcOffsetMinutes": found["utc_offset"],
        "timeZone": {"id": "America/New_York"},
        "location": {
            "latitude": found["geometry"]["location"]["lat"],
            "longitude": found["geometry"]["location"]["lng"],
        },
        "regularOpeningHours": {"weekdayDescriptions": found["opening_hours"]["weekday_text"]},
        "businessStatus": found["business_status"],
        "googleMapsUri": found["url"],
        **({"websiteUri": found["website"]} if "website" in found else {}),
    }
