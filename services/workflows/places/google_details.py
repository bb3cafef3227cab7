"""Google's classic Place Details and Text Search. Errors also come with HTTP 200, in `status`."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from services.errors import ConfigurationError
from services.fetching import Fetcher
from services.jobs import JobFailed, PermanentFailure
from services.workflows.places.provider import Business, FoundPlace, KeyedApi, PageNotReady, SearchPage
from services.workflows.places.values import (
    address_parts,
    categories,
    hours,
    items,
    mapping,
    number,
    offset,
    price,
    text,
    whole,
    without_nothing,
)

PATH = "/maps/api/place/details/json"
SEARCH_PATH = "/maps/api/place/textsearch/json"
TOKEN_SECONDS = 2.0  # a token becomes valid this long after its page
FIELDS = (
    "name,formatted_address,address_components,international_phone_number,formatted_phone_number,website,types,rating,"
    "user_ratings_total,price_level,utc_offset,geometry/location,opening_hours/weekday_text,business_status,url"
)
PERMANENT = frozenset({"ZERO_RESULTS", "NOT_FOUND", "INVALID_REQUEST"})


class GoogleDetails:
    def __init__(self, fetcher: Fetcher, base_url: str, key: str | None) -> None:
        self._api, self._base_url = KeyedApi(fetcher, "details", key), base_url

    def details(self, place_id: str) -> Business:
        query = urlencode({"place_id": place_id, "fields": FIELDS, "language": "en", "key": self._api.key})
        answer = self._api.answer(self._api.ask("details", f"{self._base_url}{PATH}?{query}", {}))
        self._check(str(answer.get("status")), answer.get("error_message"))
        return business_of(mapping(answer.get("result")))

    def search(self, query: str, token: str | None = None) -> SearchPage:
        asked = {"query": query} if token is None else {"pagetoken": token}
        url = f"{self._base_url}{SEARCH_PATH}?{urlencode({**asked, 'language': 'en', 'key': self._api.key})}"
        answer = self._api.answer(self._api.ask("search", url, {}))
        status = str(answer.get("status"))
        if status == "INVALID_REQUEST" and token is not None:
            raise PageNotReady("Google does not know the token of the next page yet")
        if status != "ZERO_RESULTS":
            self._check(status, answer.get("error_message"))
        found = [place_of(mapping(item)) for item in items(answer.get("results"))]
        return SearchPage([place for place in found if place], text(answer.get("next_page_token")), TOKEN_SECONDS)

    def _check(self, status: str, said: object) -> None:
        reason = f"Google says {self._api.said(status)}" + (f": {self._api.said(said)}" if said else "")
        match status:
            case "OK":
                return
            case "REQUEST_DENIED":
                raise ConfigurationError(f"GOOGLE_MAPS_API_KEY does not work: {reason}")
            case _ if status in PERMANENT:
                raise PermanentFailure(reason)
            case _:  # OVER_QUERY_LIMIT, UNKNOWN_ERROR, and any future status
                raise JobFailed(reason)


def business_of(result: Mapping[str, Any]) -> Business:
    """Pure."""
    location = mapping(mapping(result.get("geometry")).get("location"))
    main, extra = categories(result.get("types"))
    return Business(
        business_name=text(result.get("name")),
        full_address=text(result.get("formatted_address")),
        phone=text(result.get("international_phone_number")) or text(result.get("formatted_phone_number")),
        website_url=text(result.get("website")),
        main_category=main,
        extra_categories=extra,
        rating=number(result.get("rating")),
        reviews_count=whole(result.get("user_ratings_total")),
        price_text=price(result.get("price_level")),
        timezone=offset(result.get("utc_offset")),
        latitude=number(location.get("lat")),
        longitude=number(location.get("lng")),
        additional_json=without_nothing(
            business_status=text(result.get("business_status")),
            maps_url=text(result.get("url")),
            utc_offset_minutes=whole(result.get("utc_offset")),
        ),
        **address_parts(items(result.get("address_components")), "long_name", "short_name"),
        **hours(mapping(result.get("opening_hours")).get("weekday_text")),
    )


def place_of(result: Mapping[str, Any]) -> FoundPlace | None:
    """Pure. None: without an id the place cannot be looked up later."""
    place_id, location = text(result.get("place_id")), mapping(mapping(result.get("geometry")).get("location"))
    if place_id is None:
        return None
    return FoundPlace(
        place_id=place_id,
        name=text(result.get("name")),
        formatted_address=text(result.get("formatted_address")),
        latitude=number(location.get("lat")),
        longitude=number(location.get("lng")),
        rating=number(result.get("rating")),
        user_ratings_total=whole(result.get("user_ratings_total")),
    )
