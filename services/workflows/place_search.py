"""WF1: the search `dentists in Berlin` stages places for a curator.

Each page of results is staged as soon as it arrives, so earlier results stay when a later page fails.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from config import Settings
from database.connection import DatabaseConnection
from enhanced_scheduler.texts import storable
from services.errors import InvalidInput, Problem, SchedulerError, Unavailable
from services.fetching import FetchFailed
from services.jobs import JobFailed
from services.schedules.spec import plain_text
from services.workflows.place_staging import MAX_TEXT, NewPlace, PlaceStaging, StagedPlace, is_place_id
from services.workflows.places import FoundPlace, PlacesProvider, open_provider
from services.workflows.places.provider import PageNotReady, SearchPage
from services.workflows.places.usage import write_usage

logger = logging.getLogger(__name__)

MOST_FOUND = 60  # places that Google returns for one search, on three pages
MAX_QUERY = 200
NOT_READY_TRIES = 4

OnPage = Callable[[int], None]  # receives the number of places so far


class PlaceSearchFailed(SchedulerError):
    """The directory gave no usable response; the message has its reason."""


@dataclass(slots=True)
class SearchResult:
    query: str
    places: list[StagedPlace] = field(default_factory=list)
    requests: int = 0  # requests of the quota
    incomplete: str | None = None  # why there may be more places

    @property
    def created(self) -> int:
        return sum(place.created for place in self.places)

    @property
    def known(self) -> int:
        return len(self.places) - self.created


class PlaceSearch:
    def __init__(
        self, db: DatabaseConnection, settings: Settings, actor: str, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._db, self._settings, self._pause = db, settings, pause
        self._staging = PlaceStaging(db, actor, settings.default_tenant_id)

    def run(
        self, query: str, *, limit: int = MOST_FOUND, dry_run: bool = False, on_page: OnPage = lambda found: None
    ) -> SearchResult:
        """Raises InvalidInput, PlaceSearchFailed, or ConfigurationError without a working key."""
        result = SearchResult(checked_query(query))
        try:
            with open_provider(self._settings) as provider:
                self._search(provider, result, limit, dry_run, on_page)
        finally:
            self._write_usage()
        return result

    def _search(
        self, provider: PlacesProvider, result: SearchResult, limit: int, dry_run: bool, on_page: OnPage
    ) -> None:
        token: str | None = None
        while True:
            try:
                page = self._page(provider, result, token)
            except (JobFailed, FetchFailed) as error:
                if not result.places:
                    raise PlaceSearchFailed(f"the search failed: {error}") from None
                result.incomplete = str(error)
                return
            found = [_new(place) for place in page.places if is_place_id(place.place_id)]
            found = found[: limit - len(result.places)]
            for staged in self._staging.add(found, dry_run=dry_run):
                result.places += staged
            on_page(len(result.places))
            token = page.next_token
            if token is None:
                return
            if len(result.places) >= limit:
                result.incomplete = f"the limit of {limit} places"
                return
            self._pause(page.ready_in_seconds)

    def _page(self, provider: PlacesProvider, result: SearchResult, token: str | None) -> SearchPage:
        for tries_left in range(NOT_READY_TRIES - 1, -1, -1):
            result.requests += 1
            try:
                return provider.search(result.query, token)
            except PageNotReady:
                if not tries_left:
                    raise
                self._pause(1.0)
        raise AssertionError("unreachable: the last try returns or raises")

    def _write_usage(self) -> None:
        """A count that cannot be written now is written with the next one."""
        try:
            write_usage(self._db)
        except Unavailable as error:
            logger.warning("%s", error, extra={"event": "server_unavailable"})


def checked_query(query: str) -> str:
    said = " ".join(plain_text("query", query).split())
    if not said.isprintable() or not 2 <= len(said) <= MAX_QUERY:
        raise InvalidInput(Problem("query", f"must be 2 to {MAX_QUERY} printable characters, as in dentists in Berlin"))
    return said


def _new(place: FoundPlace) -> NewPlace:
    """An invalid value in one field does not spoil the others."""
    return NewPlace.model_construct(
        place_id=place.place_id,
        name=_clean(place.name),
        formatted_address=_clean(place.formatted_address),
        latitude=place.latitude,
        longitude=place.longitude,
        rating=place.rating,
        user_ratings_total=place.user_ratings_total,
        tenant_id=None,
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else storable(text, MAX_TEXT)
