"""/api/v3/places: list, stage and search places."""

from collections.abc import Sequence
from typing import Any

from database.workflow_statuses import DeepScanStatus, PlaceStatus
from services.errors import ConfigurationError
from services.web.auth.guard import IdempotencyKey, Operator, Viewer
from services.web.problems import CONFLICT, UPSTREAM, HttpProblem
from services.web.routes.pipeline_lists import Search
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.pipeline import (
    NewPlaces,
    PlaceList,
    SearchedPlaces,
    SearchPlaces,
    StagedOut,
    StagedPlaces,
)
from services.workflows.place_search import PlaceSearch, PlaceSearchFailed
from services.workflows.place_staging import PlaceStaging, StagedPlace
from services.workflows.row_lists import PLACES, RowFilter, list_rows

places = router(f"{API}/places", "workflows")


@places.get("")
def list_places(
    parts: PartsOf,
    who: Viewer,
    search: Search = None,
    status: PlaceStatus | None = None,
    deep_scan_status: DeepScanStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PlaceList:
    """A page of places, newest first."""
    wanted = RowFilter(search=search, words={"status": status, "deep_scan_status": deep_scan_status})
    return PlaceList.model_validate(list_rows(parts.db, PLACES, wanted, limit=limit, cursor=cursor))


@places.post("")
def add_places(body: NewPlaces, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> StagedPlaces:
    """Stage places as `New`. A place that is already known stays unchanged."""
    staged = PlaceStaging(parts.db, who.actor, parts.settings.default_tenant_id).stage(body.places)
    return StagedPlaces(**_staged_out(staged))


@places.post(
    "/search",
    responses={
        409: {"description": "GOOGLE_MAPS_API_KEY is missing or invalid"},
        502: {"description": "The directory gave no usable response"},
    },
)
def search_places(body: SearchPlaces, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> SearchedPlaces:
    """Search the directory (Google Text Search, all pages) and stage the results as `New`. Uses quota."""
    try:
        found = PlaceSearch(parts.db, parts.settings, who.actor).run(body.query, limit=body.limit, dry_run=body.dry_run)
    except PlaceSearchFailed as error:
        raise HttpProblem(UPSTREAM, str(error)) from None
    except ConfigurationError as error:
        raise HttpProblem(CONFLICT, str(error)) from None
    return SearchedPlaces(
        query=found.query, requests=found.requests, incomplete=found.incomplete, **_staged_out(found.places)
    )


def _staged_out(staged: Sequence[StagedPlace]) -> dict[str, Any]:
    created = sum(place.created for place in staged)
    items = [StagedOut.model_validate(place) for place in staged]
    return {"created_count": created, "known_count": len(staged) - created, "items": items}
