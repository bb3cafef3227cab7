"""Opens the provider that the settings name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from config import Settings
from services.fetching import fetcher_from
from services.workflows.places.google_details import GoogleDetails
from services.workflows.places.google_places import GooglePlaces
from services.workflows.places.provider import PlacesProvider


@contextmanager
def open_provider(settings: Settings) -> Iterator[PlacesProvider]:
    key = settings.google_maps_api_key.get_secret_value() if settings.google_maps_api_key else None
    with fetcher_from(settings) as fetcher:
        match settings.google_maps_api:
            case "details":
                yield GoogleDetails(fetcher, settings.google_maps_base_url, key)
            case "places":
                yield GooglePlaces(fetcher, settings.google_places_base_url, key)
            case name:
                assert_never(name)
