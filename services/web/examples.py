"""Consistent examples for the API documentation: one value per field name, all from the same story.

A field with another meaning in its model, or a whole model, has its own example (`Field(examples=[…])`).
`example_of` assembles them; a test checks that every response has a valid example.
"""

from collections.abc import Mapping
from typing import Any

REF = "#/components/schemas/"

_SCHEDULE, _EXECUTION = "7d9f1c52-3f6a-4d0e-9b1c-2f4a8e6d5c31", "c3245c03-3ba8-40d5-b773-61c6fa97231c"
_SCAN, _FORMER_SCAN = "5b0e7a94-8c1d-4f3b-a2e6-9d7c4b1f0e83", "1f6c2d3e-4a5b-4c6d-8e7f-9a0b1c2d3e4f"
_CHANNEL = "6e2b9d14-7c3f-4a58-91e0-5d8c4b7a2f36"
_CURSOR = "WyJkb21haW4iLCAiZXhhbXBsZS5jb20iLCAi4oCmIl0="
_PAGE = "https://example.com/"

STORY: dict[str, Any] = {
    # schedules
    "schedule_id": _SCHEDULE, "name": "nightly-example", "domain": "example.com", "enabled": True,
    "disabled_note": None, "frequency": "daily", "time_config": {"hour": 2, "minute": 30}, "timezone": "Europe/Berlin",
    "next_run": "2027-02-01T01:30:00Z", "last_run": "2027-01-31T01:30:00.021Z", "last_status": "success",
    "invalid_reason": None, "job_type": "cookie_scan", "job_config": {"max_pages": 50}, "external_id": None,
    "domain_config_id": "0c9b8a7d-6e5f-4a3b-8c2d-1e0f9a8b7c6d", "profile_id": None, "priority": 0, "tags": ["nightly"],
    "requires": ["eu"], "limit_keys": ["customer:42"],
    "start_at": None, "end_at": None, "spread_seconds": 300, "source": "manual", "max_instances": None,
    "coalesce": None, "misfire_grace_seconds": None, "timeout_seconds": 600, "max_retries": 2,
    "retry_backoff_seconds": None, "catchup": None,
    "pause_after_failures": 5, "backoff_after_failures": None, "ping_url": None,
    "failures_in_a_row": 0, "backoff_until": None,
    "revision": 4711, "effective_from": "2027-01-04T09:12:44.318Z",
    "created_at": "2027-01-04T09:12:44.318Z", "updated_at": "2027-01-04T09:12:44.318Z", "next_cursor": _CURSOR,
    "total": 1204, "field": "priority", "old": 0, "new": 5, "changed_at": "2027-01-12T14:03:27.504Z",
    "warnings": ["02:30 does not exist on 2027-03-28 in Europe/Berlin: runs at 03:00 that day"], "problems": [],
    "changed": [_SCHEDULE], "unchanged": [], "missing": [], "refused": [],
    # executions
    "execution_id": _EXECUTION, "job_id": "nightly-example", "attempt": 1, "scheduled_for": "2027-01-31T01:30:00Z",
    "due_at": "2027-01-31T01:30:00Z", "claimed_at": "2027-01-31T01:30:00.012Z",
    "started_at": "2027-01-31T01:30:00.021Z", "completed_at": "2027-01-31T01:30:41.877Z", "cancel_requested_at": None,
    "duration_seconds": 41.856, "instance_id": "replica-1", "scan_id": _SCAN, "error_message": None,
    "fencing_token": 90210, "error_details": None, "metadata": {"result": {"pages": 50, "cookies": 17}},
    # statistics
    "total_executions": 8400, "successful": 8316, "failed": 84, "success_rate": 99.0, "avg_duration": 12.4,
    "min_duration": 0.2, "max_duration": 88.1, "cancelled": 1, "skipped": 12, "missed": 0, "abandoned": 2,
    "timed_out": 3, "running": 4, "p50_duration": 9.8, "p95_duration": 41.2, "p99_duration": 66.0,
    "p50_lateness": 0.012, "p99_lateness": 0.041, "at": "2027-01-31T01:30:00Z",
    "outcomes": {"success": 118, "failed": 2}, "p50_seconds": 0.012, "p99_seconds": 0.041,
    "seconds": 1488.0, "since": "2027-01-31T01:30:41.877Z",
    "label": "nightly-example", "labels": {"example.com and 119 more": 120}, "late_seconds": 0.021,
    "previous_fire_at": "2027-01-30T01:30:00Z", "next_fire_at": "2027-02-01T01:30:00Z",
    # replicas
    "newest_revision": 4711, "are_converged": True, "incarnation": "9e8d7c6b-5a49-4382-9170-6f5e4d3c2b1a",
    "heartbeat_at": "2027-01-31T01:30:02.500Z", "heartbeat_age_seconds": 1.4, "is_live": True, "claiming": True,
    "schedules": 803, "buckets": 683, "host": "scheduler-1", "abilities": ["browser", "job:cookie_scan"],
    "queues": ["browser", "default"],
    "is_converged": True, "clock_skew_seconds": 0.003, "version": "1.0.0", "tzdata": "2026.3", "max_workers": 5,
    "redis_degraded": False, "pool": "prefork",
    # scans
    "finished_at": "2027-01-31T01:30:41.840Z", "previous_scan_id": _FORMER_SCAN,
    "config": {"engine": "http", "max_pages": 50},
    "summary": {"complete": True, "pages": {"seen": 50, "failed": 0}, "cookies": 17, "changes": {"new": 1, "gone": 0}},
    "url": _PAGE, "final_url": _PAGE, "depth": 0, "status_code": 200, "elapsed_ms": 184, "notes": [], "path": "/",
    "host_only": False, "expires_at": "2028-01-31T01:30:12Z", "lifetime_seconds": 31536000, "secure": True,
    "http_only": False, "same_site": "lax", "category_rule": "_ga", "page_url": _PAGE, "request_url": _PAGE,
    "pages_seen": 50,
    # sync
    "configured": True, "periodic": True, "is_busy": False, "lease_owner": None,
    "synced_at": "2027-01-31T01:35:02.118Z", "not_before": None,
    "item": 0, "reasons": [], "by": "replica-1", "counts": {"created": 1, "unchanged": 1203},
    "error": None,
    # workflows
    "id": "2b7e1516-28ae-42d2-a6ab-f7158809cf4f", "updated_count": 2, "queued_count": 2, "created": True,
    "domain_id": "2b7e1516-28ae-42d2-a6ab-f7158809cf4f",
    "page_id": None, "email": "info@example.com", "email_type": "SERVICE", "phone_number": "+49 30 123456",
    "source_url": "https://example.com/contact", "context": "Write to us", "contact_curation_status": "New",
    "created_by": "token:ci", "display_name": "Domain metadata", "due": 40, "processing": 5, "stale": 0, "dead": 1,
    "oldest_seconds": 12.5, "paused_at": None, "paused_by": None, "paused_reason": None, "batch_size": 20,
    "last_run_at": "2027-01-31T01:29:00Z", "totals": {"succeeded": 9120, "retried": 14, "failed": 3, "dead": 1},
    "queue": "domain_metadata", "item_key": "2b7e1516-28ae-42d2-a6ab-f7158809cf4f", "traceback": None,
    "died_at": "2027-01-31T01:12:09.400Z", "requeued_at": None, "requeued_by": None, "next_before": None, "found": 3,
    "requeued": {"domain_metadata": 3}, "dry_run": False,
    # notifications
    "channel_id": _CHANNEL, "updated_by": "token:ci", "failing_since": None, "resume_at": None,
    "last_sent_at": "2027-01-31T01:30:42.300Z", "delivery_id": "a3f1c2d4-5b6e-4f70-8a91-b2c3d4e5f607", "rule_id": None,
    "subject": _EXECUTION, "next_at": None, "ended_at": "2027-01-31T01:30:42.300Z",
    # tokens, sessions, tools, probes
    "token_id": "e2ddf3af88c2", "role": "operator", "revoked_at": None, "revoked_by": None,
    "last_used_at": "2027-01-31T01:29:00Z", "token": "es_e2ddf3af88c2_…", "actor": "token:ci",
    "trigger": "daily at 02:30 Europe/Berlin", "next_run_time": "2027-02-01T01:30:00Z", "pending": False,
    "total_jobs": 7, "timestamp": "2027-01-31T01:31:00Z", "stalled_seconds": {}, "message": "5 domains processed",
}  # fmt: skip


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str = "") -> Any:
    """A valid value for the schema, taken from the story; KeyError for a field that the story lacks."""
    if reference := schema.get("$ref"):
        return example_of(schemas[reference.removeprefix(REF)], schemas, name)
    if "examples" in schema:
        return schema["examples"][0]
    if "properties" in schema:
        return {field: example_of(inner, schemas, field) for field, inner in schema["properties"].items()}
    if name in STORY:
        return STORY[name]
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    inside = next((option for option in schema.get("anyOf", ()) if option.get("type") != "null"), None)
    if inside is None:
        raise KeyError(f"the story has no {name!r}")
    return example_of(inside, schemas, name)
