"""Everything that an API can get wrong: a clear reason for each, and nothing else is touched.

Answers that are no list of items at all are in tests/unit/api_sync/test_answer.py, items of the wrong types in
tests/unit/api_sync/test_items.py, servers that misbehave in test_client.py.
"""

import json
from typing import Any

import pytest

from database.connection import DatabaseConnection
from services.api_sync.report import Kind, Outcome
from services.schedule_repository import ScheduleRepository
from tests.integration.api_sync.looking import EXACTLY, Run, counts, of, rows
from tests.support.api_stand_in import ApiStandIn, item, raw


def at(frequency: Any, **time: Any) -> dict[str, Any]:
    return {"schedule": {"frequency": frequency, "time": time}}


IP = "is an IP address; a domain name is required"
DISGUISED = "would be read as an IP address; a domain name is required"
NO_DOT = "has no dot; a public domain name such as example.com is required"
DAY = "data.schedule.time.day"

# (what differs from a good item, what is told)
BAD_ITEMS: list[tuple[dict[str, Any], list[str]]] = [
    # domains
    ({"domain": ""}, ["data.domain: must not be empty"]),
    ({"domain": "exam ple.com"}, ["data.domain: 'exam ple.com' contains whitespace"]),
    ({"domain": "https://example.com/a"}, ["data.domain: must be the bare domain without a scheme: 'example.com'"]),
    ({"domain": "//example.com"}, ["data.domain: must be the bare domain without a path, got '//example.com'"]),
    ({"domain": "example.com:8443"}, ["data.domain: must be the bare domain without a port: 'example.com'"]),
    ({"domain": "a@example.com"}, ["data.domain: must be the bare domain without a user name, got 'a@example.com'"]),
    ({"domain": "a" * 300}, ["data.domain: has 300 characters; at most 255 are allowed"]),
    ({"domain": "localhost"}, [f"data.domain: 'localhost' {NO_DOT}"]),
    ({"domain": "169.254.169.254"}, [f"data.domain: 169.254.169.254 {IP}"]),
    ({"domain": "127.0.0.1"}, [f"data.domain: 127.0.0.1 {IP}"]),
    ({"domain": "[::1]"}, [f"data.domain: [::1] {IP}"]),
    ({"domain": "::ffff:10.0.0.1"}, [f"data.domain: ::ffff:10.0.0.1 {IP}"]),
    ({"domain": "127.1"}, [f"data.domain: 127.1 {DISGUISED}"]),
    ({"domain": "0x7f.0.0.1"}, [f"data.domain: 0x7f.0.0.1 {DISGUISED}"]),
    ({"domain": "１２７.0.0.1"}, [f"data.domain: １２７.0.0.1 {DISGUISED}"]),  # noqa: RUF001 - that is the point
    ({"domain": "a..example"}, ["data.domain: 'a..example' is not a valid domain name: empty label"]),
    ({"domain": "169.254.169.254.."}, ["data.domain: '169.254.169.254.' is not a valid domain name: empty label"]),
    ({"domain": "localhost。"}, ["data.domain: 'localhost。' is not a valid domain name: empty label"]),
    ({"domain": "http://[::1]:80/"}, [f"data.domain: [::1] {IP}"]),
    ({"domain": "http://10.0.0.1/"}, [f"data.domain: 10.0.0.1 {IP}"]),
    ({"domain": "bad\0.example"}, ["data.domain: must not contain control characters"]),
    ({"domain": "\ud800.example"}, ["data.domain: must not contain control characters"]),
    # when
    (at("sometimes"), ["data.schedule.frequency: unknown frequency 'sometimes'"]),
    (at("dayly", hour=2), ["data.schedule.frequency: unknown frequency 'dayly': did you mean 'daily'?"]),
    (at("daily", hour="two"), ["data.schedule.time.hour: must be a whole number, got 'two'"]),
    (at("daily", hour=None), ["data.schedule.time.hour: must be a whole number, got null"]),
    (at("daily", hour=2.0), ["data.schedule.time.hour: must be a whole number, got 2.0"]),
    (at("daily", hour=True), ["data.schedule.time.hour: must be a whole number, got true"]),
    (at("daily", hour=float("nan")), ["data.schedule.time: cannot be stored as JSON: out of range float values"]),
    (at("daily", hour=10**400), ["data.schedule.time: must not contain numbers of more than 300 digits"]),
    (at("daily", hour=24, minute=-1), [
        "data.schedule.time.hour: must be between 0 and 23, got 24",
        "data.schedule.time.minute: must be between 0 and 59, got -1",
    ]),
    (at("daily"), ["data.schedule.time.hour: is required"]),
    (at("weekly", day="mondey", hour=2), [f"{DAY}: unknown weekday 'mondey': did you mean 'monday'?"]),
    (at("monthly", day=32, hour=2), [f"{DAY}: must be between 1 and 31, got 32"]),
    (at("interval", minutes=-5), ["data.schedule.time.minutes: must be "]),
    (at("cron", expression="* * *"), ["data.schedule.time.expression: "]),
    # the scan
    ({"maxPages": 0}, ["data.maxPages: "]),
    ({"scanDepth": -1}, ["data.scanDepth: "]),
    ({"maxRetries": 10**6}, ["data.maxRetries: "]),
    ({"description": "a\0b"}, ["data: must not contain NUL characters"]),
    ({"description": "x" * 70_000}, ["data"]),
    # as many mistakes as words: the first are told
    ({"customPages": [""] * 900}, [*["data.customPages."] * 10, "… and 890 more"]),
    (at("daily", hour=2, **{f"k{number}": 1 for number in range(500)}), [
        *["data.schedule.time.k"] * 10, "… and 490 more",
    ]),
    # several at once: all are told
    ({"domain": "localhost", **at("daily", hour="two")}, [
        f"data.domain: 'localhost' {NO_DOT}",
        "data.schedule.time.hour: must be a whole number, got 'two'",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("difference", "reasons"), BAD_ITEMS, ids=lambda value: ascii(value)[:60])
def test_a_bad_item_gets_its_reason_and_its_schedule_stays(
    api: ApiStandIn,
    run: Run,
    repository: ScheduleRepository,
    db: DatabaseConnection,
    difference: dict[str, Any],
    reasons: list[str],
) -> None:
    api.items = [item(0), item(1), item(2)]
    run()
    before = rows(db, EXACTLY)
    api.items = [item(0), item(1, **difference), item(2)]
    report = run()
    assert (report.outcome, counts(report)) == (Outcome.DONE, {"unchanged": 2, "skipped": 1})
    (entry,) = report.of(Kind.SKIPPED)
    assert entry.item == 2
    assert len(entry.reasons) == len(reasons)
    for told, expected in zip(entry.reasons, reasons, strict=True):
        assert told.startswith(expected)
    assert rows(db, EXACTLY) == before


def test_an_item_with_a_key_twice_is_skipped_and_its_schedule_stays(
    api: ApiStandIn, run: Run, db: DatabaseConnection
) -> None:
    api.items = [item(0), item(1), item(2)]
    run()
    before = rows(db, EXACTLY)
    body = json.dumps({"data": api.items})
    api.script = [raw(body.replace('"hour": 1', '"hour": 1, "hour": 5').encode())]
    report = run()
    assert (report.outcome, counts(report)) == (Outcome.DONE, {"unchanged": 2, "skipped": 1})
    (entry,) = report.of(Kind.SKIPPED)
    assert (entry.item, entry.reasons) == (2, ("duplicate key 'hour'",))
    assert rows(db, EXACTLY) == before


def test_an_item_with_two_ids_is_nobody_and_nothing_is_switched_off(
    api: ApiStandIn, run: Run, db: DatabaseConnection
) -> None:
    api.items = [item(0), item(1), item(2)]
    run()
    before = rows(db, EXACTLY)
    two = '"domain_config_id": "config-1", "domain_config_id": "config-9"'
    body = json.dumps({"data": api.items}).replace('"domain_config_id": "config-1"', two)
    api.script = [raw(body.encode())]
    report = run()
    assert "1 of the items cannot be identified" in str(report.refused)
    (entry,) = report.of(Kind.SKIPPED)
    assert (entry.item, entry.reasons) == (2, ("duplicate key 'domain_config_id'",))
    assert rows(db, EXACTLY) == before


GOOD_DOMAINS = [
    ("Bücher.example", "xn--bcher-kva.example"), ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("EXAMPLE.com.", "example.com"), (" example.com ", "example.com"), ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
]  # fmt: skip


@pytest.mark.parametrize(("domain", "stored"), GOOD_DOMAINS)
def test_a_name_in_another_script_or_case_is_one_and_the_same(
    api: ApiStandIn, run: Run, repository: ScheduleRepository, domain: str, stored: str
) -> None:
    api.items = [item(1, domain=domain)]
    assert counts(run()) == {"created": 1}
    assert of(repository, 1).domain == stored
    api.items[0] = item(1, domain=f"www.{domain.strip()}")
    assert counts(run()) == {"updated": 1}, "and nobody has edited it here"
    assert of(repository, 1).domain == f"www.{stored}"


def test_an_answer_of_nothing_but_bad_items_removes_nothing(api: ApiStandIn, run: Run, db: DatabaseConnection) -> None:
    run()
    api.items = [{"domain_config_id": f"config-{number}", "data": None} for number in range(10)]
    assert counts(run()) == {"skipped": 10}
    assert rows(db, "SELECT count(*) FROM schedules WHERE enabled") == [(10,)]
