"""The client for asyncio.

Generated from the OpenAPI document: python -m tests.support.client_methods
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from enhanced_scheduler.client import shapes
from enhanced_scheduler.client.transport import Call, Id, Transport, key, match, path

TIMEOUT_SECONDS = 30.0
RETRIES = 3


class AsyncClient:
    """The same for asyncio: each call waits in a thread, so the event loop does not."""

    def __init__(
        self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS, retries: int = RETRIES
    ) -> None:
        self._transport = Transport(url, token, timeout_seconds=timeout_seconds, retries=retries)

    async def preview_new_schedule(
        self, changes: shapes.ScheduleChanges, *, n: int | None = None, zone: str | None = None
    ) -> shapes.PreviewOut:
        """The next fires of a definition. Only an invalid timing gives 422; other problems are part of the response."""
        result: shapes.PreviewOut = await self._send(
            Call("POST", "/api/v3/schedules/preview", {"n": n, "zone": zone}, body=changes, may_repeat=True)
        )
        return result

    async def preview_schedule(
        self,
        schedule: Id,
        changes: shapes.ScheduleChanges | None = None,
        *,
        n: int | None = None,
        zone: str | None = None,
    ) -> shapes.PreviewOut:
        """The next fires of a schedule, with the given changes applied."""
        result: shapes.PreviewOut = await self._send(
            Call(
                "POST",
                path("/api/v3/schedules/{}/preview", schedule),
                {"n": n, "zone": zone},
                body=changes,
                may_repeat=True,
            )
        )
        return result

    async def run_schedule(self, schedule: Id, *, idempotency_key: str | None = None) -> shapes.RunRequested:
        """Run a schedule once, now, on any replica, even if it is disabled. Its next fire is not affected."""
        result: shapes.RunRequested = await self._send(
            Call("POST", path("/api/v3/schedules/{}/run", schedule), headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def backfill_schedule(
        self, schedule: Id, backfill_wish: shapes.BackfillWish, *, idempotency_key: str | None = None
    ) -> shapes.BackfillOut:
        """Run past fires that did not succeed, oldest first, even if the schedule is disabled."""
        result: shapes.BackfillOut = await self._send(
            Call(
                "POST",
                path("/api/v3/schedules/{}/backfill", schedule),
                body=backfill_wish,
                headers=key(idempotency_key),
                may_repeat=True,
            )
        )
        return result

    async def list_schedule_changes(self, schedule: Id, *, limit: int | None = None) -> shapes.ChangeList:
        """Change history of a schedule, newest first; also of a deleted one."""
        result: shapes.ChangeList = await self._send(
            Call("GET", path("/api/v3/schedules/{}/changes", schedule), {"limit": limit}, may_repeat=True)
        )
        return result

    async def explain_schedule(self, schedule: Id, *, at: datetime | str | None = None) -> shapes.ExplanationOut:
        """Why a fire ran, did not run, or ran late."""
        result: shapes.ExplanationOut = await self._send(
            Call("GET", path("/api/v3/schedules/{}/explain", schedule), {"at": at}, may_repeat=True)
        )
        return result

    def list_schedules(
        self,
        *,
        search: str | None = None,
        enabled: bool | None = None,
        domain: str | None = None,
        job_type: str | None = None,
        source: str | None = None,
        tag: str | None = None,
        last_status: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.ScheduleOut]:
        """Schedules. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/schedules",
            {
                "search": search,
                "enabled": enabled,
                "domain": domain,
                "job_type": job_type,
                "source": source,
                "tag": tag,
                "last_status": last_status,
                "sort": sort,
                "limit": limit,
            },
            "cursor",
        )

    async def create_schedule(
        self, schedule: shapes.NewSchedule, *, idempotency_key: str | None = None
    ) -> shapes.ScheduleOut:
        """Create a schedule. Every replica picks it up within a second."""
        result: shapes.ScheduleOut = await self._send(
            Call("POST", "/api/v3/schedules", body=schedule, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def change_many_schedules(
        self, bulk_switch: shapes.BulkSwitch, *, idempotency_key: str | None = None
    ) -> shapes.BulkResult:
        """Run, enable, disable or delete up to 1,000 schedules, by id or by filter. An invalid schedule can only be
        disabled or deleted. With `dry_run` nothing is done."""
        result: shapes.BulkResult = await self._send(
            Call("POST", "/api/v3/schedules/bulk", body=bulk_switch, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def read_schedule(self, schedule: Id) -> shapes.ScheduleOut:
        """A schedule. With If-None-Match, 304 if it has not changed."""
        result: shapes.ScheduleOut = await self._send(
            Call("GET", path("/api/v3/schedules/{}", schedule), may_repeat=True)
        )
        return result

    async def replace_schedule(
        self, schedule: Id, schedule_definition: shapes.ScheduleDefinition, *, revision: int | None = None
    ) -> shapes.ScheduleOut:
        """Replace the whole definition; fields that the body omits return to their defaults. Requires If-Match."""
        result: shapes.ScheduleOut = await self._send(
            Call("PUT", path("/api/v3/schedules/{}", schedule), body=schedule_definition, headers=match(revision))
        )
        return result

    async def change_schedule(
        self, schedule: Id, changes: shapes.ScheduleChanges, *, revision: int | None = None
    ) -> shapes.ScheduleOut:
        """Change individual fields, including `enabled`. The resulting schedule must be valid."""
        result: shapes.ScheduleOut = await self._send(
            Call("PATCH", path("/api/v3/schedules/{}", schedule), body=changes, headers=match(revision))
        )
        return result

    async def delete_schedule(self, schedule: Id, *, revision: int | None = None) -> None:
        """Delete a schedule. Its executions and change history remain."""
        await self._send(Call("DELETE", path("/api/v3/schedules/{}", schedule), headers=match(revision)))

    def list_limits(self, *, limit: int | None = None) -> AsyncIterator[shapes.LimitOut]:
        """Limits, by name, with their running and waiting executions. Reads page after page; `limit` is the size of
        one."""
        return self._items("/api/v3/limits", {"limit": limit}, "cursor")

    async def add_limit(self, limit: shapes.NewLimit, *, idempotency_key: str | None = None) -> shapes.LimitDetail:
        """Add a limit. It applies from the next start on; running executions are not stopped."""
        result: shapes.LimitDetail = await self._send(
            Call("POST", "/api/v3/limits", body=limit, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def read_limit(self, name: Id) -> shapes.LimitDetail:
        """A limit with its keys, the executions that run and wait, and its changes."""
        result: shapes.LimitDetail = await self._send(Call("GET", path("/api/v3/limits/{}", name), may_repeat=True))
        return result

    async def change_limit(self, name: Id, changes: shapes.LimitChanges) -> shapes.LimitDetail:
        """Change individual fields. The change applies from the next start on."""
        result: shapes.LimitDetail = await self._send(Call("PATCH", path("/api/v3/limits/{}", name), body=changes))
        return result

    async def delete_limit(self, name: Id) -> None:
        """Delete a limit. Executions that wait for it start as soon as nothing else holds them back."""
        await self._send(Call("DELETE", path("/api/v3/limits/{}", name)))

    def list_channels(self, *, limit: int | None = None) -> AsyncIterator[shapes.ChannelOut]:
        """Channels, by name, without their secrets. Reads page after page; `limit` is the size of one."""
        return self._items("/api/v3/channels", {"limit": limit}, "cursor")

    async def add_channel(
        self, channel: shapes.NewChannel, *, idempotency_key: str | None = None
    ) -> shapes.AddedChannelOut:
        """Add a channel. Kind `apprise` requires an administrator, because its calls bypass the address guard."""
        result: shapes.AddedChannelOut = await self._send(
            Call("POST", "/api/v3/channels", body=channel, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def read_channel(self, name: Id) -> shapes.ChannelOut:
        """Read Channel."""
        result: shapes.ChannelOut = await self._send(Call("GET", path("/api/v3/channels/{}", name), may_repeat=True))
        return result

    async def change_channel(self, name: Id, changes: shapes.ChannelChanges) -> shapes.ChannelOut:
        """Change individual fields. A channel that failed is tried at once with its new configuration."""
        result: shapes.ChannelOut = await self._send(Call("PATCH", path("/api/v3/channels/{}", name), body=changes))
        return result

    async def delete_channel(self, name: Id) -> None:
        """Delete a channel. Its waiting messages are cancelled; the history of its deliveries stays."""
        await self._send(Call("DELETE", path("/api/v3/channels/{}", name)))

    async def send_test_message(self, name: Id, *, idempotency_key: str | None = None) -> shapes.DeliveryDetail:
        """Create a test message, which the next free replica sends once. Read the delivery for the result."""
        result: shapes.DeliveryDetail = await self._send(
            Call("POST", path("/api/v3/channels/{}/test", name), headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def repeat_failed_deliveries(self, name: Id, *, idempotency_key: str | None = None) -> shapes.RepeatedOut:
        """Send all failed deliveries of a channel again, oldest first, except tests."""
        result: shapes.RepeatedOut = await self._send(
            Call("POST", path("/api/v3/channels/{}/repeat", name), headers=key(idempotency_key), may_repeat=True)
        )
        return result

    def list_rules(self, *, limit: int | None = None) -> AsyncIterator[shapes.RuleOut]:
        """Rules, by name. Reads page after page; `limit` is the size of one."""
        return self._items("/api/v3/rules", {"limit": limit}, "cursor")

    async def add_rule(self, rule: shapes.NewRule, *, idempotency_key: str | None = None) -> shapes.RuleOut:
        """Add a rule. It reports what happens from now on."""
        result: shapes.RuleOut = await self._send(
            Call("POST", "/api/v3/rules", body=rule, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def read_rule(self, name: Id) -> shapes.RuleOut:
        """Read Rule."""
        result: shapes.RuleOut = await self._send(Call("GET", path("/api/v3/rules/{}", name), may_repeat=True))
        return result

    async def change_rule(self, name: Id, changes: shapes.RuleChanges) -> shapes.RuleOut:
        """Change individual fields. A rule forgets open problems that it no longer reports, or while it is disabled."""
        result: shapes.RuleOut = await self._send(Call("PATCH", path("/api/v3/rules/{}", name), body=changes))
        return result

    async def delete_rule(self, name: Id) -> None:
        """Delete a rule. Messages it has already created are still sent and stay in the history."""
        await self._send(Call("DELETE", path("/api/v3/rules/{}", name)))

    async def try_rule(self, name: Id, *, hours: float | None = None) -> shapes.TrialOut:
        """A dry run: what this rule would have sent in the last hours. Nothing is written or sent."""
        result: shapes.TrialOut = await self._send(
            Call("GET", path("/api/v3/rules/{}/trial", name), {"hours": hours}, may_repeat=True)
        )
        return result

    def list_deliveries(
        self,
        *,
        channel: str | None = None,
        state: shapes.DeliveryState | None = None,
        event: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.DeliveryOut]:
        """Deliveries, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/deliveries", {"channel": channel, "state": state, "event": event, "limit": limit}, "cursor"
        )

    async def read_delivery(self, delivery_id: Id) -> shapes.DeliveryDetail:
        """A delivery with its message, and every attempt to send it."""
        result: shapes.DeliveryDetail = await self._send(
            Call("GET", path("/api/v3/deliveries/{}", delivery_id), may_repeat=True)
        )
        return result

    async def repeat_delivery(self, delivery_id: Id, *, idempotency_key: str | None = None) -> shapes.DeliveryDetail:
        """Send it again at once, under the same id, whatever its state."""
        result: shapes.DeliveryDetail = await self._send(
            Call(
                "POST", path("/api/v3/deliveries/{}/repeat", delivery_id), headers=key(idempotency_key), may_repeat=True
            )
        )
        return result

    def list_executions(
        self,
        *,
        schedule: str | None = None,
        domain: str | None = None,
        status: str | None = None,
        cause: str | None = None,
        outcome: shapes.Fate | None = None,
        error: str | None = None,
        job_type: str | None = None,
        tag: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.ExecutionOut]:
        """Executions, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/executions",
            {
                "schedule": schedule,
                "domain": domain,
                "status": status,
                "cause": cause,
                "outcome": outcome,
                "error": error,
                "job_type": job_type,
                "tag": tag,
                "since": since,
                "until": until,
                "limit": limit,
            },
            "cursor",
        )

    async def change_many_executions(
        self, bulk_on_executions: shapes.BulkOnExecutions, *, idempotency_key: str | None = None
    ) -> shapes.BulkExecutionsResult:
        """Retry or cancel up to 1,000 executions, by id or by filter, newest first. With `dry_run` nothing is done."""
        result: shapes.BulkExecutionsResult = await self._send(
            Call(
                "POST",
                "/api/v3/executions/bulk",
                body=bulk_on_executions,
                headers=key(idempotency_key),
                may_repeat=True,
            )
        )
        return result

    async def read_execution(self, execution_id: Id) -> shapes.ExecutionDetail:
        """An execution with its attempts and timeline."""
        result: shapes.ExecutionDetail = await self._send(
            Call("GET", path("/api/v3/executions/{}", execution_id), may_repeat=True)
        )
        return result

    async def read_log(self, execution_id: Id, *, after: str | None = None, limit: int | None = None) -> shapes.LogOut:
        """What the handler has logged so far, and its progress; also while it runs."""
        result: shapes.LogOut = await self._send(
            Call(
                "GET",
                path("/api/v3/executions/{}/log", execution_id),
                {"after": after, "limit": limit},
                may_repeat=True,
            )
        )
        return result

    async def cancel_execution(self, execution_id: Id) -> shapes.CancelRequested:
        """Cancel a pending execution at once, or ask the replica to stop a running one. Also cancels its retries."""
        result: shapes.CancelRequested = await self._send(
            Call("POST", path("/api/v3/executions/{}/cancel", execution_id), may_repeat=True)
        )
        return result

    async def retry_execution(self, execution_id: Id, *, idempotency_key: str | None = None) -> shapes.RunRequested:
        """Add another attempt at the same fire, if the last attempt has ended without success."""
        result: shapes.RunRequested = await self._send(
            Call(
                "POST", path("/api/v3/executions/{}/retry", execution_id), headers=key(idempotency_key), may_repeat=True
            )
        )
        return result

    async def read_statistics(self, *, days: int | None = None) -> shapes.StatisticsOut:
        """Counts, durations and lateness over the last days."""
        result: shapes.StatisticsOut = await self._send(
            Call("GET", "/api/v3/statistics", {"days": days}, may_repeat=True)
        )
        return result

    async def read_errors(self, *, hours: int | None = None, limit: int | None = None) -> shapes.ErrorGroupList:
        """The errors of the last hours, equal ones together, from at most the newest 5,000 failed attempts."""
        result: shapes.ErrorGroupList = await self._send(
            Call("GET", "/api/v3/statistics/errors", {"hours": hours, "limit": limit}, may_repeat=True)
        )
        return result

    async def read_overview(self, *, minutes: int | None = None) -> shapes.OverviewOut:
        """Outcomes per minute, and what needs attention."""
        result: shapes.OverviewOut = await self._send(
            Call("GET", "/api/v3/statistics/overview", {"minutes": minutes}, may_repeat=True)
        )
        return result

    async def read_forecast(self, *, minutes: int | None = None) -> shapes.ForecastOut:
        """Expected load of the coming minutes."""
        result: shapes.ForecastOut = await self._send(
            Call("GET", "/api/v3/statistics/forecast", {"minutes": minutes}, may_repeat=True)
        )
        return result

    async def read_replicas(self) -> shapes.ReplicaList:
        """All replicas with their health and the newest change that each has applied."""
        result: shapes.ReplicaList = await self._send(Call("GET", "/api/v3/replicas", may_repeat=True))
        return result

    def list_scans(
        self,
        *,
        domain: str | None = None,
        engine: str | None = None,
        schedule_id: str | None = None,
        execution_id: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.ScanOut]:
        """Scans, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/scans",
            {
                "domain": domain,
                "engine": engine,
                "schedule_id": schedule_id,
                "execution_id": execution_id,
                "since": since,
                "until": until,
                "limit": limit,
            },
            "cursor",
        )

    async def read_scan(self, scan_id: Id) -> shapes.ScanDetail:
        """A scan with its pages."""
        result: shapes.ScanDetail = await self._send(Call("GET", path("/api/v3/scans/{}", scan_id), may_repeat=True))
        return result

    async def list_scan_cookies(self, scan_id: Id) -> shapes.CookieList:
        """Every cookie and storage entry of a scan, with its category."""
        result: shapes.CookieList = await self._send(
            Call("GET", path("/api/v3/scans/{}/cookies", scan_id), may_repeat=True)
        )
        return result

    async def read_scan_diff(self, scan_id: Id) -> shapes.ScanDiff:
        """New, gone and changed cookies since the previous scan of the same domain with the same engine."""
        result: shapes.ScanDiff = await self._send(Call("GET", path("/api/v3/scans/{}/diff", scan_id), may_repeat=True))
        return result

    async def read_sync_status(self) -> shapes.SyncStatusOut:
        """Last successful sync, last report, and which process is syncing right now."""
        result: shapes.SyncStatusOut = await self._send(Call("GET", "/api/v3/sync", may_repeat=True))
        return result

    async def run_sync(
        self, sync_wish: shapes.SyncWish | None = None, *, idempotency_key: str | None = None
    ) -> shapes.SyncReportOut:
        """Run a sync and wait for the result."""
        result: shapes.SyncReportOut = await self._send(
            Call("POST", "/api/v3/sync/run", body=sync_wish, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def preview_sync(
        self, sync_wish: shapes.SyncWish | None = None, *, limit: int | None = None
    ) -> shapes.SyncReportOut:
        """What a sync would change. Nothing is written."""
        result: shapes.SyncReportOut = await self._send(
            Call("POST", "/api/v3/sync/preview", {"limit": limit}, body=sync_wish, may_repeat=True)
        )
        return result

    async def curate_places(self, curate_places: shapes.CuratePlaces) -> shapes.CuratedOut:
        """Set the status of places. `Selected` also queues their deep scan."""
        result: shapes.CuratedOut = await self._send(Call("PUT", "/api/v3/places/staging/status", body=curate_places))
        return result

    async def queue_deep_scans(self, queue_places: shapes.QueuePlaces) -> shapes.CuratedOut:
        """Queue the deep scan of places, whatever their status."""
        result: shapes.CuratedOut = await self._send(
            Call("PUT", "/api/v3/places/staging/queue-deep-scan", body=queue_places)
        )
        return result

    async def curate_businesses(self, curate: shapes.Curate) -> shapes.CuratedOut:
        """Set the status of businesses. `Selected` also queues the extraction of their domains."""
        result: shapes.CuratedOut = await self._send(Call("PUT", "/api/v3/local-businesses/status", body=curate))
        return result

    async def curate_domains(self, curate: shapes.Curate) -> shapes.CuratedOut:
        """Set the status of domains. `Selected` also queues the search for their sitemaps."""
        result: shapes.CuratedOut = await self._send(
            Call("PUT", "/api/v3/domains/sitemap-curation/status", body=curate)
        )
        return result

    async def submit_domains(
        self, direct_submit: shapes.DirectSubmit, *, idempotency_key: str | None = None
    ) -> shapes.SubmittedOut:
        """Submit domains directly, bypassing places and businesses."""
        result: shapes.SubmittedOut = await self._send(
            Call(
                "POST",
                "/api/v3/domains/direct-submit",
                body=direct_submit,
                headers=key(idempotency_key),
                may_repeat=True,
            )
        )
        return result

    async def curate_sitemap_files(self, curate: shapes.Curate) -> shapes.CuratedOut:
        """Set the status of sitemap files. `Selected` also queues their import."""
        result: shapes.CuratedOut = await self._send(
            Call("PUT", "/api/v3/sitemap-files/sitemap_import_curation/status", body=curate)
        )
        return result

    async def curate_pages(self, curate: shapes.Curate) -> shapes.CuratedOut:
        """Set the status of pages. `Selected` also queues the search for contacts. `Not a Fit` excludes pages
        permanently, unless they are already queued."""
        result: shapes.CuratedOut = await self._send(Call("PUT", "/api/v3/pages/status", body=curate))
        return result

    def list_places(
        self,
        *,
        search: str | None = None,
        status: shapes.PlaceStatus | None = None,
        deep_scan_status: shapes.DeepScanStatus | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.PlaceOut]:
        """Places, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/places",
            {"search": search, "status": status, "deep_scan_status": deep_scan_status, "limit": limit},
            "cursor",
        )

    async def add_places(self, places: shapes.NewPlaces, *, idempotency_key: str | None = None) -> shapes.StagedPlaces:
        """Stage places as `New`. A place that is already known stays unchanged."""
        result: shapes.StagedPlaces = await self._send(
            Call("POST", "/api/v3/places", body=places, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def search_places(
        self, search_places: shapes.SearchPlaces, *, idempotency_key: str | None = None
    ) -> shapes.SearchedPlaces:
        """Search the directory (Google Text Search, all pages) and stage the results as `New`. Uses quota."""
        result: shapes.SearchedPlaces = await self._send(
            Call("POST", "/api/v3/places/search", body=search_places, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    def list_businesses(
        self,
        *,
        search: str | None = None,
        status: shapes.PlaceStatus | None = None,
        domain_extraction_status: shapes.DomainExtractionStatus | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.BusinessOut]:
        """Businesses, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/local-businesses",
            {"search": search, "status": status, "domain_extraction_status": domain_extraction_status, "limit": limit},
            "cursor",
        )

    def list_domains(
        self,
        *,
        search: str | None = None,
        status: shapes.DomainStatus | None = None,
        sitemap_curation_status: shapes.PlaceStatus | None = None,
        sitemap_analysis_status: shapes.SitemapAnalysisStatus | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.DomainOut]:
        """Domains, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/domains",
            {
                "search": search,
                "status": status,
                "sitemap_curation_status": sitemap_curation_status,
                "sitemap_analysis_status": sitemap_analysis_status,
                "limit": limit,
            },
            "cursor",
        )

    def list_sitemap_files(
        self,
        *,
        search: str | None = None,
        domain: str | None = None,
        sitemap_import_curation_status: shapes.PlaceStatus | None = None,
        sitemap_import_status: shapes.SitemapImportStatus | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.SitemapFileOut]:
        """Sitemap files, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/sitemap-files",
            {
                "search": search,
                "domain": domain,
                "sitemap_import_curation_status": sitemap_import_curation_status,
                "sitemap_import_status": sitemap_import_status,
                "limit": limit,
            },
            "cursor",
        )

    def list_pages(
        self,
        *,
        search: str | None = None,
        domain: str | None = None,
        page_curation_status: shapes.PlaceStatus | None = None,
        page_processing_status: shapes.PageProcessingStatus | None = None,
        contact_scrape_status: shapes.ContactScrapeStatus | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.SitePageOut]:
        """Web pages, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/pages",
            {
                "search": search,
                "domain": domain,
                "page_curation_status": page_curation_status,
                "page_processing_status": page_processing_status,
                "contact_scrape_status": contact_scrape_status,
                "limit": limit,
            },
            "cursor",
        )

    def list_contacts(
        self,
        *,
        domain: str | None = None,
        email: str | None = None,
        email_type: shapes.EmailType | None = None,
        contact_curation_status: shapes.ContactCurationStatus | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.ContactOut]:
        """Contacts, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/contacts",
            {
                "domain": domain,
                "email": email,
                "email_type": email_type,
                "contact_curation_status": contact_curation_status,
                "limit": limit,
            },
            "cursor",
        )

    async def create_contact(
        self, contact: shapes.NewContact, *, idempotency_key: str | None = None
    ) -> shapes.ContactOut:
        """Create a contact. 409 if the domain already has this email address."""
        result: shapes.ContactOut = await self._send(
            Call("POST", "/api/v3/contacts", body=contact, headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def read_contact(self, contact_id: Id) -> shapes.ContactOut:
        """A contact."""
        result: shapes.ContactOut = await self._send(
            Call("GET", path("/api/v3/contacts/{}", contact_id), may_repeat=True)
        )
        return result

    async def change_contact(self, contact_id: Id, changes: shapes.ContactChanges) -> shapes.ContactOut:
        """Change individual fields of a contact."""
        result: shapes.ContactOut = await self._send(
            Call("PATCH", path("/api/v3/contacts/{}", contact_id), body=changes)
        )
        return result

    async def delete_contact(self, contact_id: Id) -> None:
        """Delete a contact. The pipeline adds it again if it reads a page that still contains it."""
        await self._send(Call("DELETE", path("/api/v3/contacts/{}", contact_id)))

    async def list_queues(self) -> shapes.QueueList:
        """Depth, age, failures and state of every queue, in pipeline order."""
        result: shapes.QueueList = await self._send(Call("GET", "/api/v3/queues", may_repeat=True))
        return result

    async def read_queue(self, queue: Id) -> shapes.QueueOut:
        """A queue."""
        result: shapes.QueueOut = await self._send(Call("GET", path("/api/v3/queues/{}", queue), may_repeat=True))
        return result

    async def pause_queue(
        self, queue: Id, pause_queue: shapes.PauseQueue, *, idempotency_key: str | None = None
    ) -> shapes.QueueOut:
        """Pause a queue: no run starts, and current runs stop within seconds. A paused queue keeps its first reason."""
        result: shapes.QueueOut = await self._send(
            Call(
                "POST",
                path("/api/v3/queues/{}/pause", queue),
                body=pause_queue,
                headers=key(idempotency_key),
                may_repeat=True,
            )
        )
        return result

    async def resume_queue(self, queue: Id, *, idempotency_key: str | None = None) -> shapes.QueueOut:
        """Resume a paused queue with its next run; also closes its circuit breaker."""
        result: shapes.QueueOut = await self._send(
            Call("POST", path("/api/v3/queues/{}/resume", queue), headers=key(idempotency_key), may_repeat=True)
        )
        return result

    async def requeue_failed_rows(
        self, queue: Id, requeue_failed: shapes.RequeueFailed, *, idempotency_key: str | None = None
    ) -> shapes.RequeuedRows:
        """Requeue failed rows, dead letters included, oldest first; each gets all of its attempts again."""
        result: shapes.RequeuedRows = await self._send(
            Call(
                "POST",
                path("/api/v3/queues/{}/requeue", queue),
                body=requeue_failed,
                headers=key(idempotency_key),
                may_repeat=True,
            )
        )
        return result

    def list_dead_letters(
        self,
        *,
        queue: str | None = None,
        error: str | None = None,
        since: datetime | str | None = None,
        closed: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[shapes.LetterOut]:
        """Dead letters, newest first. Reads page after page; `limit` is the size of one."""
        return self._items(
            "/api/v3/dead-letters",
            {"queue": queue, "error": error, "since": since, "closed": closed, "limit": limit},
            "before",
        )

    async def read_dead_letter(self, letter_id: int) -> shapes.LetterOut:
        """A dead letter."""
        result: shapes.LetterOut = await self._send(
            Call("GET", path("/api/v3/dead-letters/{}", letter_id), may_repeat=True)
        )
        return result

    async def requeue_dead_letters(
        self, requeue_letters: shapes.RequeueLetters, *, idempotency_key: str | None = None
    ) -> shapes.RequeuedOut:
        """Requeue dead letters, oldest first. Their attempts are counted from zero again."""
        result: shapes.RequeuedOut = await self._send(
            Call(
                "POST",
                "/api/v3/dead-letters/requeue",
                body=requeue_letters,
                headers=key(idempotency_key),
                may_repeat=True,
            )
        )
        return result

    async def list_tokens(self) -> shapes.TokenList:
        """All tokens, newest first, without their secrets."""
        result: shapes.TokenList = await self._send(Call("GET", "/api/v3/tokens", may_repeat=True))
        return result

    async def create_token(self, token: shapes.NewTokenIn) -> shapes.NewTokenOut:
        """Create a token. Only this response contains it."""
        result: shapes.NewTokenOut = await self._send(Call("POST", "/api/v3/tokens", body=token))
        return result

    async def revoke_token(self, token_id: Id) -> None:
        """Revoke a token by id or name. The token and its browser sessions become invalid at once."""
        await self._send(Call("DELETE", path("/api/v3/tokens/{}", token_id)))

    async def _send(self, call: Call) -> Any:
        return await asyncio.to_thread(self._transport.send, call)

    async def _items(self, url: str, query: Mapping[str, Any], cursor: str) -> AsyncIterator[Any]:
        value = None
        while True:
            page = await self._send(Call("GET", url, {**query, cursor: value}, may_repeat=True))
            for item in page["items"]:
                yield item
            if (value := page[f"next_{cursor}"]) is None:
                return
