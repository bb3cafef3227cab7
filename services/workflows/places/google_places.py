"""Google's newer Places API: key and field mask are headers, errors are HTTP statuses."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from services.errors import ConfigurationError
from services.fetching import Fetched, Fetcher
from services.jobs import PermanentFailure
from services.workflows.places.provider import Business, FoundPlace, KeyedApi, SearchPage
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

FIELDS = (
    "displayName,formattedAddress,addressComponents,internationalPhoneNumber,nationalPhoneNumber,websiteUri,types,"
    "primaryType,rating,userRatingCount,priceLevel,utcOffsetMinutes,timeZone,location,regularOpeningHours,"
    "businessStatus,googleMapsUri"
)
SEARCH_FIELDS = (
    "places.id,places.displayName,places.formattedAddress,places.location,places.rating,places.userRatingCount,"
    "nextPageToken"
)
PAGE_SIZE = 20  # the most
PRICE_LEVELS = ("FREE", "INEXPENSIVE", "MODERATE", "EXPENSIVE", "VERY_EXPENSIVE")


class GooglePlaces:
    def __init__(self, fetcher: Fetcher, base_url: str, key: str | None) -> None:
        self._api, self._base_url = KeyedApi(fetcher, "places", key), base_url

    def details(self, place_id: str) -> Business:
        url = f"{self._base_url}/v1/places/{quote(place_id, safe='')}?languageCode=en"
        return business_of(self._answer(self._api.ask("details", url, self._headers(FIELDS))))

    def search(self, query: str, token: str | None = None) -> SearchPage:
        """All pages of a search repeat its query."""
        asked = {"textQuery": query, "languageCode": "en", "pageSize": PAGE_SIZE}
        body = asked if token is None else {**asked, "pageToken": token}
        url = f"{self._base_url}/v1/places:searchText"
        answer = self._answer(self._api.ask("search", url, self._headers(SEARCH_FIELDS), body))
        found = [place_of(mapping(item)) for item in items(answer.get("places"))]
        return SearchPage([place for place in found if place], text(answer.get("nextPageToken")))

    def _headers(self, fields: str) -> dict[str, str]:
        return {"X-Goog-Api-Key": self._api.key, "X-Goog-FieldMask": fields}

    def _answer(self, fetched: Fetched) -> Mapping[str, Any]:
        self._check(fetched)
        return self._api.answer(fetched)

    def _check(self, fetched: Fetched) -> None:
        """An invalid key gets status 400, like an invalid place."""
        if fetched.status_code not in (400, 404):
            return
        error = _error(fetched.text)
        said = self._api.said(error.get("message"))
        if "API_KEY" in json.dumps(error.get("details")):
            raise ConfigurationError(f"GOOGLE_MAPS_API_KEY does not work: {said}")
        raise PermanentFailure(f"Google says {self._api.said(error.get('status'))}: {said}")


def business_of(place: Mapping[str, Any]) -> Business:
    """Pure."""
    location = mapping(place.get("location"))
    main, extra = categories(place.get("types"), place.get("primaryType"))
    return Business(
        business_name=text(mapping(place.get("displayName")).get("text")),
        full_address=text(place.get("formattedAddress")),
        phone=text(place.get("internationalPhoneNumber")) or text(place.get("nationalPhoneNumber")),
        website_url=text(place.get("websiteUri")),
        main_category=main,
        extra_categories=extra,
        rating=number(place.get("rating")),
        reviews_count=whole(place.get("userRatingCount")),
        price_text=price(_level(place.get("priceLevel"))),
        timezone=text(mapping(place.get("timeZone")).get("id")) or offset(place.get("utcOffsetMinutes")),
        latitude=number(location.get("latitude")),
        longitude=number(location.get("longitude")),
        additional_json=without_nothing(
            business_status=text(place.get("businessStatus")),
            maps_url=text(place.get("googleMapsUri")),
            utc_offset_minutes=whole(place.get("utcOffsetMinutes")),
        ),
        **address_parts(items(place.get("addressComponents")), "longText", "shortText"),
        **hours(mapping(place.get("regularOpeningHours")).get("weekdayDescriptions")),
    )


def place_of(place: Mapping[str, Any]) -> FoundPlace | None:
    """Pure. None: without an id the place cannot be looked up later."""
    place_id, location = text(place.get("id")), mapping(place.get("location"))
    if place_id is None:
        return None
    return FoundPlace(
        place_id=place_id,
        name=text(mapping(place.get("displayName")).get("text")),
        formatted_address=text(place.get("formattedAddress")),
        latitude=number(location.get("latitude")),
        longitude=number(location.get("longitude")),
        rating=number(place.get("rating")),
        user_ratings_total=whole(place.get("userRatingCount")),
    )


def _level(name: object) -> int | None:
    bare = str(name).removeprefix("PRICE_LEVEL_")
    return PRICE_LEVELS.index(bare) if bare in PRICE_LEVELS else None


def _error(body: str) -> Mapping[str, Any]:
    try:
        return mapping(mapping(json.loads(body)).get("error"))
    except (ValueError, RecursionError):
        return {}
