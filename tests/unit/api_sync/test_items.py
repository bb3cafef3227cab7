"""One item of the API: what it may say, what is told about a bad one, and that a bad one has not vanished."""

from collections.abc import Mapping
from typing import Any

import pytest

from services.api_sync.items import ApiItem, ApiItems, BadItem, Unreadable, few, plain_line, their_words
from services.errors import Problem
from services.schedules.spec import config_id
from tests.support.api_stand_in import SEED_ITEM, item


def read_one(raw: Any) -> ApiItem | BadItem:
    (found,) = ApiItems().read([raw])
    return found


def good(raw: Any) -> ApiItem:
    found = read_one(raw)
    assert isinstance(found, ApiItem), found
    return found


def test_the_documented_item_becomes_the_fields_of_a_schedule() -> None:
    found = good(SEED_ITEM)
    assert (found.number, found.given_id, found.config_id) == (1, "abc-123", config_id("abc-123"))
    assert found.fields == {
        "domain": "example.com",
        "frequency": "daily",
        "time_config": {"hour": 2, "minute": 0},
        "job_type": "cookie_scan",
        "job_config": {
            "description": "Example domain",
            "allow_deep_scan": True,
            "max_pages": 50,
            "scan_depth": 5,
            "max_retries": 3,
            "custom_pages": ["/page1", "/page2"],
            "accept_selector": "button[data-role='accept']",
        },
    }


def test_what_nobody_knows_is_ignored() -> None:
    strange = {**SEED_ITEM, "etag": [1], "data": {**SEED_ITEM["data"], "owner": {"name": "Anna"}}}
    assert good(strange).fields == good(SEED_ITEM).fields
    assert good(strange).digest == good(SEED_ITEM).digest


def test_a_field_without_a_value_is_as_good_as_absent() -> None:
    assert "max_pages" not in good(item(1, maxPages=None)).job_config


def test_a_number_may_be_an_id() -> None:
    assert good({**SEED_ITEM, "domain_config_id": 7}).config_id == config_id("7")


@pytest.mark.parametrize(
    "change",
    [{"domain": "b.example"}, {"maxPages": 51}, {"schedule": {"frequency": "daily", "time": {"hour": 1.0}}}],
)
def test_every_difference_is_another_digest(change: Mapping[str, Any]) -> None:
    before = item(1, schedule={"frequency": "daily", "time": {"hour": 1}})
    assert good({**before, "data": {**before["data"], **change}}).digest != good(before).digest


def test_the_order_of_keys_makes_no_difference() -> None:
    turned = {"data": dict(reversed(SEED_ITEM["data"].items())), "domain_config_id": "abc-123"}
    assert good(turned).digest == good(SEED_ITEM).digest


WITHOUT_ID = {"data": SEED_ITEM["data"]}
UNIDENTIFIED: list[tuple[Any, str]] = [
    (None, "must be an object, got None"),
    (3, "must be an object, got 3"),
    ("abc-123", "must be an object, got 'abc-123'"),
    ([SEED_ITEM], "must be an object, got [{'domain_config_id': 'abc-123', "),
    ({}, "domain_config_id: is required"),
    (WITHOUT_ID, "domain_config_id: is required"),
    ({**WITHOUT_ID, "domain_config_id": None}, "domain_config_id: is required"),
    ({**WITHOUT_ID, "domain_config_id": ""}, "domain_config_id: must not be empty"),
    ({**WITHOUT_ID, "domain_config_id": "  "}, "domain_config_id: must not be empty"),
    ({**WITHOUT_ID, "domain_config_id": ["a"]}, "domain_config_id: must be text, got ['a']"),
    ({**WITHOUT_ID, "domain_config_id": True}, "domain_config_id: must be text, got True"),
    ({**WITHOUT_ID, "domain_config_id": 1.5}, "domain_config_id: must be text, got 1.5"),
    ({**WITHOUT_ID, "domain_config_id": "a\0b"}, "domain_config_id: must not contain control characters"),
    ({**WITHOUT_ID, "domain_config_id": "x" * 256}, "domain_config_id: has 256 characters; at most 255 are allowed"),
    (Unreadable(), "is nested too deeply"),
]


@pytest.mark.parametrize(("raw", "reason"), UNIDENTIFIED, ids=lambda value: str(value)[:50])
def test_an_item_that_cannot_be_identified_says_why_and_is_counted(raw: Any, reason: str) -> None:
    items = ApiItems()
    (found,) = items.read([raw])
    assert isinstance(found, BadItem)
    assert found.reasons[0].startswith(reason)
    assert items.unidentified == 1


def with_data(**data: Any) -> dict[str, Any]:
    return {"domain_config_id": "abc-123", "data": {**SEED_ITEM["data"], **data}}


# Of the wrong type; what is of the right type and still makes no sense is refused where every schedule is.
BAD_TYPES: list[tuple[Any, list[str]]] = [
    ({"domain_config_id": "abc-123"}, ["data: is required"]),
    ({"domain_config_id": "abc-123", "data": None}, ["data: must be an object, got None"]),
    ({"domain_config_id": "abc-123", "data": []}, ["data: must be an object, got []"]),
    ({"domain_config_id": "abc-123", "data": {}}, ["data.domain: is required", "data.schedule: is required"]),
    (with_data(domain=None), ["data.domain: must be text, got None"]),
    (with_data(domain=["a.example"]), ["data.domain: must be text, got ['a.example']"]),
    (with_data(schedule=None), ["data.schedule: must be an object, got None"]),
    (with_data(schedule="daily"), ["data.schedule: must be an object, got 'daily'"]),
    (
        with_data(schedule={}),
        ["data.schedule.frequency: is required", "data.schedule.time: is required"],
    ),
    (
        with_data(schedule={"frequency": 7, "time": [2, 0]}),
        ["data.schedule.frequency: must be text, got 7", "data.schedule.time: must be an object, got [2, 0]"],
    ),
    (with_data(maxPages="50"), ["data.maxPages: must be a whole number, got '50'"]),
    (with_data(maxPages=50.5), ["data.maxPages: must be a whole number, got 50.5"]),
    (with_data(maxPages=True), ["data.maxPages: must be a whole number, got True"]),
    (with_data(maxPages=float("nan")), ["data.maxPages: must be a whole number, got nan"]),
    (with_data(allow_deep_scan="yes"), ["data.allow_deep_scan: must be true or false, got 'yes'"]),
    (with_data(customPages="/page1"), ["data.customPages: must be a list, got '/page1'"]),
    (with_data(customPages=["/a", 2]), ["data.customPages.1: must be text, got 2"]),
    (with_data(accept_selector={"css": "a"}), ["data.accept_selector: must be text, got {'css': 'a'}"]),
    (with_data(description="x", scanDepth=[], maxRetries={}), [
        "data.scanDepth: must be a whole number, got []", "data.maxRetries: must be a whole number, got {}",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "reasons"), BAD_TYPES, ids=lambda value: str(value)[-50:])
def test_a_bad_item_tells_every_reason_in_the_api_s_own_words_and_has_not_vanished(
    raw: Any, reasons: list[str]
) -> None:
    items = ApiItems()
    (found,) = items.read([raw])
    assert isinstance(found, BadItem)
    assert list(found.reasons) == reasons
    assert config_id("abc-123").bytes in items
    assert items.unidentified == 0


def test_of_a_list_of_mistakes_the_first_is_told() -> None:
    (found,) = ApiItems().read([with_data(customPages=list(range(200_000)))])
    assert isinstance(found, BadItem)
    assert found.reasons == ("data.customPages.0: must be text, got 0",)


def test_of_many_reasons_the_first_are_told_and_the_rest_is_counted() -> None:
    reasons = [f"reason {number}" for number in range(4_006)]
    assert few(reasons) == (*reasons[:10], "… and 3,996 more")
    assert few(reasons[:10]) == tuple(reasons[:10])


def test_the_first_of_several_items_with_one_id_wins() -> None:
    twice = [item(1), item(2), item(1, domain="other.example"), {**item(3), "domain_config_id": " config-1 "}]
    first, second, *others = ApiItems().read(twice)
    assert isinstance(first, ApiItem)
    assert isinstance(second, ApiItem)
    assert [(other.number, other.reasons) for other in others if isinstance(other, BadItem)] == [
        (3, ("domain_config_id: 'config-1' is already used by item 1",)),
        (4, ("domain_config_id: ' config-1 ' is already used by item 1",)),
    ]


def test_two_spellings_of_a_uuid_are_one_id() -> None:
    one = "7d4c9d52-64b5-5a9c-8e0f-6a1c0a3c9b11"
    _, second = ApiItems().read([{**item(1), "domain_config_id": one}, {**item(2), "domain_config_id": one.upper()}])
    assert isinstance(second, BadItem)


def test_an_item_nested_beyond_what_json_can_write_is_bad_and_alone() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    first, second = ApiItems().read([item(1, schedule={"frequency": "daily", "time": {"hour": deep}}), item(2)])
    assert isinstance(first, BadItem)
    assert first.reasons == ("is nested too deeply",)
    assert isinstance(second, ApiItem)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("domain", "data.domain: why"), ("frequency", "data.schedule.frequency: why"),
        ("time_config.hour", "data.schedule.time.hour: why"), ("job_config.max_pages", "data.maxPages: why"),
        ("job_config", "data: why"), ("timezone", "timezone: why"),
    ],
)  # fmt: skip
def test_problems_are_told_in_the_api_s_own_words(field: str, told: str) -> None:
    assert their_words(Problem(field, "why")) == told


def test_a_line_for_people_obeys_nobody() -> None:
    assert plain_line("a\x1b[2Jb\n\0\ud800") == "a\\x1b[2Jb\\n\\x00\\ud800"
    assert len(plain_line("x" * 1000)) == 80
