"""Whose word counts, field by field."""

from dataclasses import replace
from typing import Any

import pytest

from services.api_sync.edits import Edit, LocalEdits, merge
from services.schedules.spec import ScheduleSpec

KEEP, OVERWRITE = LocalEdits.KEEP, LocalEdits.OVERWRITE
THEIRS: dict[str, Any] = {
    "domain": "a.example",
    "frequency": "daily",
    "time_config": {"hour": 2, "minute": 0},
    "job_type": "cookie_scan",
    "job_config": {"max_pages": 50, "description": "shop"},
}


def schedule(**changes: Any) -> ScheduleSpec:
    return replace(ScheduleSpec(**THEIRS), **changes)


def now_says(**changes: Any) -> dict[str, Any]:
    return {**THEIRS, **changes}


@pytest.mark.parametrize("policy", LocalEdits)
def test_what_only_the_api_changed_is_taken(policy: LocalEdits) -> None:
    later = now_says(domain="b.example", job_config={"max_pages": 60})
    merged = merge(schedule(), THEIRS, later, policy)
    assert (merged.fields, merged.edits) == (later, ())


@pytest.mark.parametrize(
    ("change", "field", "ours", "theirs"),
    [
        ({"domain": "c.example"}, "domain", "c.example", "a.example"),
        (
            {"time_config": {"hour": 5}},
            "frequency, time_config",
            ("daily", {"hour": 5}),
            ("daily", {"hour": 2, "minute": 0}),
        ),
        ({"job_config": {"max_pages": 9, "description": "shop"}}, "job_config.max_pages", 9, 50),
        ({"job_config": {"max_pages": 50}}, "job_config.description", None, "shop"),
    ],
)
def test_a_local_edit_stays_or_goes_as_the_policy_says_and_is_told(
    change: dict[str, Any], field: str, ours: Any, theirs: Any
) -> None:
    kept = merge(schedule(**change), THEIRS, THEIRS, KEEP)
    assert (kept.fields, kept.edits) == ({**THEIRS, **change}, (Edit(field, ours, theirs),))
    overwritten = merge(schedule(**change), THEIRS, THEIRS, OVERWRITE)
    assert (overwritten.fields, overwritten.edits) == (THEIRS, kept.edits)


def test_a_kept_edit_of_one_field_does_not_hold_back_the_others() -> None:
    later = now_says(domain="b.example", job_config={"max_pages": 60, "description": "new shop"})
    edited = schedule(job_config={"max_pages": 9, "description": "shop"})
    assert merge(edited, THEIRS, later, KEEP).fields == {
        **later,
        "job_config": {"max_pages": 9, "description": "new shop"},
    }


def test_frequency_and_time_are_one_thing() -> None:
    later = now_says(frequency="weekly", time_config={"day": "monday", "hour": 2})
    merged = merge(schedule(time_config={"hour": 5, "minute": 0}), THEIRS, later, KEEP)
    assert (merged.fields["frequency"], merged.fields["time_config"]) == ("daily", {"hour": 5, "minute": 0})


def test_whoever_already_says_what_the_api_says_now_has_edited_nothing() -> None:
    assert merge(schedule(domain="b.example"), THEIRS, now_says(domain="b.example"), KEEP).edits == ()


@pytest.mark.parametrize("policy", LocalEdits)
def test_configuration_that_the_api_has_no_word_for_is_never_touched(policy: LocalEdits) -> None:
    edited = schedule(job_config={**THEIRS["job_config"], "engine": "browser"})
    merged = merge(edited, THEIRS, now_says(job_config={"max_pages": 60}), policy)
    assert (merged.fields["job_config"], merged.edits) == ({"engine": "browser", "max_pages": 60}, ())


def test_another_job_keeps_its_whole_configuration() -> None:
    other = schedule(job_type="http_request", job_config={"url": "https://a.example"})
    kept = merge(other, THEIRS, THEIRS, KEEP)
    assert [edit.field for edit in kept.edits] == ["job_type"]
    assert (kept.fields["job_type"], kept.fields["job_config"]) == ("http_request", {"url": "https://a.example"})
    assert merge(other, THEIRS, THEIRS, OVERWRITE).fields == THEIRS


def test_without_a_record_of_the_last_sync_the_api_is_right() -> None:
    merged = merge(schedule(domain="c.example"), None, THEIRS, KEEP)
    assert (merged.fields, merged.edits) == (THEIRS, ())
