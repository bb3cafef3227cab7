"""The interface of a places provider, and the common handling of requests and failures."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from enhanced_scheduler.texts import Mask
from services.errors import ConfigurationError
from services.fetching import Fetched, Fetcher, Limits
from services.jobs import JobFailed
from services.queues.deadline import remaining_seconds
from services.workflows.places.usage import Operation, request_sent

# A redirect would forward the key, so it is treated as an unexpected response.
LIMITS = Limits(max_bytes=2 * 1024 * 1024, max_seconds=10.0, max_redirects=0)
MAX_SAID = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Business:
    """The columns of `local_businesses` that a provider can fill; None: unknown."""

    business_name: str | None = None
    full_address: str | None = None
    street_address: str | None = None
    city: str | None = None
    state: str | None = None
    zip: str | None = None
    country: str | None = None  # two-letter code
    phone: str | None = None
    website_url: str | None = None
    main_category: str | None = None
    extra_categories: list[str] | None = None
    rating: float | None = None
    reviews_count: int | None = None
    price_text: str | None = None
    timezone: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    monday_hours: str | None = None
    tuesday_hours: str | None = None
    wednesday_hours: str | None = None
    thursday_hours: str | None = None
    friday_hours: str | None = None
    saturday_hours: str | None = None
    sunday_hours: str | None = None
    additional_json: Mapping[str, Any] = field(default_factory=dict)

    def known(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, [], {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlace:
    """The columns of `places_staging` that a search can fill; None: unknown."""

    place_id: str
    name: str | None = None
    formatted_address: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    rating: float | None = None
    user_ratings_total: int | None = None


@dataclass(frozen=True, slots=True)
class SearchPage:
    places: list[FoundPlace]
    next_token: str | None  # None: this was the last page
    ready_in_seconds: float = 0.0  # the token is not valid before that


class PageNotReady(JobFailed):
    """The token of the next page is not valid yet."""


class PlacesProvider(Protocol):
    """Both methods raise PermanentFailure, JobFailed (a retry may help) or ConfigurationError (none will)."""

    def details(self, place_id: str) -> Business: ...

    def search(self, query: str, token: str | None = None) -> SearchPage:
        """A page of results for `dentists in Berlin`; `token` selects the next page."""


class KeyedApi:
    """Requests with a key, which never appears in a message, even if the server repeats it."""

    def __init__(self, fetcher: Fetcher, api: str, key: str | None) -> None:
        self._fetcher, self._name, self._key = fetcher, api, key
        self.mask = Mask()
        if key:
            self.mask.add(key)

    @property
    def key(self) -> str:
        if not self._key:
            raise ConfigurationError("GOOGLE_MAPS_API_KEY is not set: places cannot be looked up")
        return self._key

    def ask(self, operation: Operation, url: str, headers: Mapping[str, str], body: object = None) -> Fetched:
        """One request of the quota; a POST if there is a body."""
        request_sent(self._name, operation)
        if body is None:
            return self._fetcher.get(url, headers=headers, limits=LIMITS, remaining_seconds=remaining_seconds)
        return self._fetcher.post_json(url, body, headers=headers, limits=LIMITS, remaining_seconds=remaining_seconds)

    def answer(self, fetched: Fetched) -> Mapping[str, Any]:
        """The JSON object of a response with status 200; otherwise a failure of the service, not of the place."""
        if fetched.status_code in (401, 403):
            raise ConfigurationError(f"the places API rejected the key: {self.said(fetched.text)}")
        if fetched.status_code != 200:
            said = f"the places API answered {fetched.status_code}"
            raise JobFailed(said, retry_after_seconds=fetched.retry_after_seconds)
        try:
            answer = json.loads(fetched.text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise JobFailed("the places API did not answer with a JSON object")
        return answer

    def said(self, text: object) -> str:
        return self.mask(str(text or "no reason given"))[:MAX_SAID]
