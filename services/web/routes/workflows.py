"""Curation: sets the status of pipeline rows and queues the selected ones for the next step."""

from services.web.auth.guard import IdempotencyKey, Operator
from services.web.parts import Parts
from services.web.routing import API, PartsOf, router
from services.web.schemas.workflows import (
    Curate,
    CuratedOut,
    CuratePlaces,
    DirectSubmit,
    QueuePlaces,
    SubmittedDomain,
    SubmittedOut,
)
from services.workflows.curation import Curation

workflows = router(API, "workflows")


@workflows.put("/places/staging/status")
def curate_places(body: CuratePlaces, parts: PartsOf, who: Operator) -> CuratedOut:
    """Set the status of places. `Selected` also queues their deep scan."""
    return CuratedOut.model_validate(_curation(parts, who).places(body.ids, body.status))


@workflows.put("/places/staging/queue-deep-scan")
def queue_deep_scans(body: QueuePlaces, parts: PartsOf, who: Operator) -> CuratedOut:
    """Queue the deep scan of places, whatever their status."""
    return CuratedOut.model_validate(_curation(parts, who).queue_deep_scans(body.ids))


@workflows.put("/local-businesses/status")
def curate_businesses(body: Curate, parts: PartsOf, who: Operator) -> CuratedOut:
    """Set the status of businesses. `Selected` also queues the extraction of their domains."""
    return CuratedOut.model_validate(_curation(parts, who).businesses(body.ids, body.status))


@workflows.put("/domains/sitemap-curation/status")
def curate_domains(body: Curate, parts: PartsOf, who: Operator) -> CuratedOut:
    """Set the status of domains. `Selected` also queues the search for their sitemaps."""
    return CuratedOut.model_validate(_curation(parts, who).domains(body.ids, body.status))


@workflows.post("/domains/direct-submit")
def submit_domains(body: DirectSubmit, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> SubmittedOut:
    """Submit domains directly, bypassing places and businesses."""
    submitted = _curation(parts, who).submit_domains(body.domains)
    created = sum(each.created for each in submitted)
    items = [SubmittedDomain.model_validate(each) for each in submitted]
    return SubmittedOut(updated_count=created, queued_count=created, items=items)


@workflows.put("/sitemap-files/sitemap_import_curation/status")
def curate_sitemap_files(body: Curate, parts: PartsOf, who: Operator) -> CuratedOut:
    """Set the status of sitemap files. `Selected` also queues their import."""
    return CuratedOut.model_validate(_curation(parts, who).sitemap_files(body.ids, body.status))


@workflows.put("/pages/status")
def curate_pages(body: Curate, parts: PartsOf, who: Operator) -> CuratedOut:
    """Set the status of pages. `Selected` also queues the search for contacts.

    `Not a Fit` excludes pages permanently, unless they are already queued.
    """
    return CuratedOut.model_validate(_curation(parts, who).pages(body.ids, body.status))


def _curation(parts: Parts, who: Operator) -> Curation:
    return Curation(parts.db, who.actor)
