"""Schedules for tests: a valid one, many of them, and invalid ones with the exact messages for the user."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

VALID: dict[str, Any] = {"domain": "example.com", "frequency": "daily", "time_config": {"hour": 2, "minute": 0}}

WORKFLOW: dict[str, Any] = {"job_type": "workflow", "job_config": {"queue": "deep_scan"}}

# The schedule that owns the name "taken" in the table of invalid input.
TAKEN = UUID("11111111-0000-0000-0000-000000000001")


def many(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {**VALID, "domain": f"host{number:06}.example", "time_config": {"hour": number % 24, "minute": 0}}


UUID_TEXT = "must be a UUID, got"
DEEP: dict[str, Any] = {}
for _ in range(65):
    DEEP = {"deeper": DEEP}

KNOWN_JOBS = "(known: celery_task, cookie_scan, http_request, workflow)"

# (changes to VALID, the expected lines)
BAD_INPUT: list[tuple[dict[str, Any], list[str]]] = [
    # domain
    ({"domain": ""}, ["domain: must not be empty"]),
    ({"domain": "   "}, ["domain: must not be empty"]),
    ({"domain": "https://example.com/shop"}, ["domain: must be the bare domain without a scheme: 'example.com'"]),
    ({"domain": "example.com/shop"}, ["domain: must be the bare domain without a path, got 'example.com/shop'"]),
    ({"domain": "example.com:8080"}, ["domain: must be the bare domain without a port: 'example.com'"]),
    ({"domain": "me@example.com"}, ["domain: must be the bare domain without a user name, got 'me@example.com'"]),
    ({"domain": "exam ple.com"}, ["domain: 'exam ple.com' contains whitespace"]),
    ({"domain": "localhost"}, ["domain: 'localhost' has no dot; a public domain name such as example.com is required"]),
    ({"domain": "127.0.0.1"}, ["domain: 127.0.0.1 is an IP address; a domain name is required"]),
    ({"domain": "[::1]"}, ["domain: [::1] is an IP address; a domain name is required"]),
    ({"domain": "a" * 300}, ["domain: has 300 characters; at most 255 are allowed"]),
    ({"domain": "bad\x00.com"}, ["domain: must not contain control characters"]),
    # frequency
    ({"frequency": "dayly"}, ["frequency: unknown frequency 'dayly': did you mean 'daily'?"]),
    ({"frequency": 7}, ["frequency: must be text, got 7"]),
    # time_config
    ({"time_config": [2, 0]}, ["time_config: must be an object, got [2, 0]"]),
    ({"time_config": {}}, ["time_config.hour: is required"]),
    ({"time_config": {"hour": 25}}, ["time_config.hour: must be between 0 and 23, got 25"]),
    ({"time_config": {"hour": -1}}, ["time_config.hour: must be between 0 and 23, got -1"]),
    ({"time_config": {"hour": "two"}}, ["time_config.hour: must be a whole number, got 'two'"]),
    ({"time_config": {"hour": 2.5}}, ["time_config.hour: must be a whole number, got 2.5"]),
    ({"time_config": {"hour": True}}, ["time_config.hour: must be a whole number, got true"]),
    ({"time_config": {"hour": 2, "minute": 60}}, ["time_config.minute: must be between 0 and 59, got 60"]),
    (
        {"frequency": "weekly", "time_config": {"day": "mondey", "hour": 2}},
        ["time_config.day: unknown weekday 'mondey': did you mean 'monday'?"],
    ),
    ({"frequency": "weekly", "time_config": {"hour": 2}}, ["time_config.day: is required"]),
    (
        {"frequency": "monthly", "time_config": {"day": 32, "hour": 2}},
        ["time_config.day: must be between 1 and 31, got 32"],
    ),
    # time zone and limits in time
    ({"timezone": "Europe/Berln"}, ["timezone: unknown time zone 'Europe/Berln': did you mean 'Europe/Berlin'?"]),
    ({"start_at": "tomorrow"}, ["start_at: must be an ISO 8601 timestamp, got 'tomorrow'"]),
    ({"start_at": "2027-01-01T00:00:00"}, ["start_at: needs a UTC offset, as in 2027-01-01T00:00:00+00:00"]),
    (
        {"start_at": "2027-01-02T00:00:00+00:00", "end_at": "2027-01-01T00:00:00+00:00"},
        ["end_at: must be after start_at (2027-01-02T00:00:00+00:00)"],
    ),
    (
        {"start_at": "0001-01-01T00:00+14:00"},
        ["start_at: must be between the years 1 and 9999 in UTC, got 0001-01-01T00:00:00+14:00"],
    ),
    (
        {"end_at": "9999-12-31T23:59:59-12:00"},
        ["end_at: must be between the years 1 and 9999 in UTC, got 9999-12-31T23:59:59-12:00"],
    ),
    # the job
    ({"job_type": "ftp_fetch"}, [f"job_type: no job type 'ftp_fetch' is registered {KNOWN_JOBS}"]),
    (
        {"job_type": "cookie_scn"},
        [f"job_type: no job type 'cookie_scn' is registered, did you mean 'cookie_scan'? {KNOWN_JOBS}"],
    ),
    ({"job_type": "http_request", "domain": "a hook"}, ["job_config.url: is required"]),
    (
        {"job_type": "http_request", "domain": "a hook", "job_config": {"url": "https://example.com", "methd": "GET"}},
        ["job_config.methd: is not a field of this job"],
    ),
    ({"job_config": "fast"}, ["job_config: must be an object, got 'fast'"]),
    ({"job_config": {"key": "a\x00b"}}, ["job_config: must not contain NUL characters"]),
    ({"job_config": {"key": "x" * 70_000}}, ["job_config: has 70011 bytes as JSON; at most 65536 are allowed"]),
    ({"job_config": DEEP}, ["job_config: is nested too deeply; at most 64 levels are allowed"]),
    ({"job_config": {"n": [10**309]}}, ["job_config: must not contain numbers of more than 300 digits"]),
    # policies
    ({"timeout_seconds": -5}, ["timeout_seconds: must be between 1 and 2592000, got -5"]),
    ({"timeout_seconds": "soon"}, ["timeout_seconds: must be a whole number, got 'soon'"]),
    ({"max_instances": 0}, ["max_instances: must be between 1 and 1000, got 0"]),
    ({"max_retries": 101}, ["max_retries: must be between 0 and 100, got 101"]),
    ({"pause_after_failures": 0}, ["pause_after_failures: must be between 1 and 1000, got 0"]),
    ({"backoff_after_failures": 1001}, ["backoff_after_failures: must be between 1 and 1000, got 1001"]),
    ({"ping_url": "ftp://hc-ping.com/x"}, ["ping_url: must start with http:// or https://"]),
    ({"ping_url": "https:///x"}, ["ping_url: must be a URL with a host and without spaces"]),
    ({"ping_url": "https://me:pw@hc-ping.com/x"}, ["ping_url: must have neither a user name nor a fragment ('#')"]),
    ({"retry_backoff_seconds": -1}, ["retry_backoff_seconds: must be between 0 and 86400, got -1"]),
    ({"misfire_grace_seconds": 0}, ["misfire_grace_seconds: must be between 1 and 86400, got 0"]),
    ({"spread_seconds": 100_000}, ["spread_seconds: must be between 0 and 86400, got 100000"]),
    ({"coalesce": "yes"}, ["coalesce: must be true or false, got 'yes'"]),
    ({"catchup": "some"}, ["catchup: must be one of none, one, all, got 'some'"]),
    ({"priority": 5000}, ["priority: must be between -1000 and 1000, got 5000"]),
    ({"source": "mars"}, ["source: must be one of manual, api, system, got 'mars'"]),
    ({"tags": "nightly"}, ["tags: must be a list of at most 50 words, got 'nightly'"]),
    ({"tags": ["ok", ""]}, ["tags: must not be empty"]),
    # disabled_note
    ({"enabled": False, "disabled_note": 7}, ["disabled_note: must be text, got 7"]),
    (
        {"enabled": False, "disabled_note": "x" * 501},
        ["disabled_note: has 501 characters; at most 500 are allowed"],
    ),
    ({"enabled": False, "disabled_note": "\x1b[2J"}, ["disabled_note: must not contain control characters"]),
    (
        {"disabled_note": "moving house"},
        ["disabled_note: explains why a schedule is disabled, but this one is enabled: set enabled=false or omit it"],
    ),
    # identity
    ({"profile_id": "none"}, [f"profile_id: {UUID_TEXT} 'none'"]),
    (
        {"profile_id": "99999999-0000-0000-0000-000000000009"},
        ["profile_id: scan profile 99999999-0000-0000-0000-000000000009 not found"],
    ),
    ({"name": "taken"}, [f"name: 'taken' is already used by schedule {TAKEN}"]),
    ({"name": "x" * 256}, ["name: has 256 characters; at most 255 are allowed"]),
    ({"timezon": "UTC"}, ["timezon: is not a field of a schedule, did you mean 'timezone'?"]),
    (
        {"external_id": "abc"},
        ["external_id: cannot be set directly: it is derived from domain_config_id; set that instead"],
    ),
    # several errors at once: all are reported
    (
        {"domain": "localhost", "time_config": {"hour": 24, "minute": "0"}, "max_retries": -1},
        [
            "max_retries: must be between 0 and 100, got -1",
            "domain: 'localhost' has no dot; a public domain name such as example.com is required",
            "time_config.hour: must be between 0 and 23, got 24",
            "time_config.minute: must be a whole number, got '0'",
        ],
    ),
]
