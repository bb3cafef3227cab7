"""The body of the API's answer: read whole or not at all, whatever somebody sends."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api_sync import answer
from services.api_sync.answer import UnusableAnswer, count_items, read_items
from services.api_sync.items import Ambiguous, Unreadable
from tests.support.api_stand_in import SEED_ANSWER
from tests.support.waiting import within_a_moment


def items(text: str | bytes) -> list[Any]:
    return list(read_items(text.encode() if isinstance(text, str) else text))


def test_the_documented_answer_has_its_items() -> None:
    assert items(json.dumps(SEED_ANSWER)) == SEED_ANSWER["data"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"data": []}', []), ('{"data":[1]}', [1]), (' \n{ "data" : [ 1 , null ] } \r\n', [1, None]),
        ('{"count": 2, "data": [{}], "next": {"data": [9]}}', [{}]), ('{"d\\u0061ta": [1]}', [1]),
        ("\ufeff" + '{"data": ["ü"]}', ["ü"]), ('{"data": [12.5e3, -0, true]}', [12500.0, 0, True]),
    ],
)  # fmt: skip
def test_items_are_found_whatever_is_around_them(text: str, expected: list[Any]) -> None:
    assert items(text) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("<!doctype html><html><body>sign in, please</body></html>", "it is a page of HTML or XML, not JSON"),
        ("[]", 'it is a list, not an object with a list under "data"'),
        ("null", 'it is null, not an object with a list under "data"'),
        ('"data"', 'it is text, not an object with a list under "data"'),
        ("3", 'it is a number, not an object with a list under "data"'),
        ("true", 'it is true or false, not an object with a list under "data"'),
        ("{}", 'it has no "data"'),
        ('{"Data": []}', 'it has no "data"'),
        ('{"data": null}', '"data" is null, not a list'),
        ('{"data": {}}', '"data" is an object, not a list'),
        ('{"data": "[]"}', '"data" is text, not a list'),
        ('{"data": [1], "data": [2]}', '"data" appears twice'),
        ('{"data": [1]', "it is not JSON: expecting ',' or '}' near byte 12"),
        ('{"data": [{"a": 1}, {"a"', "it is not JSON: expecting ':' delimiter near byte 20"),
        ('{"data": [1,]}', "it is not JSON: expecting value near byte 12"),
        ('{"data": [1] "x": 2}', "it is not JSON: expecting ',' or '}' near byte 13"),
        ('{"data": [1]} {"data": [2]}', "it is not JSON: extra data near byte 14"),
        ('{"data": [1]}garbage', "it is not JSON: extra data near byte 13"),
        ("{data: [1]}", "it is not JSON: expecting property name enclosed in double quotes near byte 1"),
        ("{'data': [1]}", "it is not JSON: expecting property name enclosed in double quotes near byte 1"),
        ('{"data" [1]}', "it is not JSON: expecting ':' near byte 8"),
        ('{"data": ["never closed]}', "it is not JSON: unterminated string starting at near byte 10"),
        (b'{"data": ["\xff\xfe"]}', "it is not UTF-8 text"),
        ('{"data": []}'.encode("utf-16"), "it is not UTF-8 text"),
        (b'{"data": ["cut off \xc3', "it is not UTF-8 text"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_an_answer_of_another_form_is_refused_with_the_reason(body: str | bytes, reason: str) -> None:
    with pytest.raises(UnusableAnswer) as refused:
        items(body)
    assert str(refused.value) == reason


def test_what_is_strange_inside_an_item_is_left_to_that_item() -> None:
    huge = "9" * 100_000
    found = items(f'{{"data": [{{"hour": NaN}}, {{"hour": {huge}}}, {{"hour": -{huge}}}, {{"hour": 1e999}}, 1]}}')
    assert math.isnan(found[0]["hour"])
    assert [part["hour"] for part in found[1:4]] == [math.inf, -math.inf, math.inf]
    assert found[4] == 1


@pytest.mark.parametrize("window", [1, 30, 1024])
def test_an_item_with_a_key_twice_is_told_apart_and_alone(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "WINDOW_BYTES", window)
    twice = '{"id": 1, "time": {"hour": 2, "hour": 3}, "a": 1, "\\u0061": 2}'
    same = '{"id": 2, "a": {"hour": 2}, "b": {"hour": 2}}'
    found = items(f'{{"count": 1, "data": [{same}, {twice}, {same}, [{twice}], {{"n": {"9" * 5_000}, "n": 1}}]}}')
    assert found[:2] == [json.loads(same), Ambiguous(json.loads(twice), ("hour", "a"))]
    assert found[2:] == [json.loads(same), Ambiguous([json.loads(twice)], ("hour", "a")), Ambiguous({"n": 1}, ("n",))]


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_an_item_of_a_thousand_brackets_is_stepped_over(depth: int) -> None:
    deep = '[{"a": "]}\\"", "b": ' * (depth // 2) + "1" + "}]" * (depth // 2)
    before, unreadable, after = items(f'{{"data": ["before", {deep}, "after"]}}')
    assert (before, after) == ("before", "after")
    assert isinstance(unreadable, Unreadable)


def test_brackets_that_are_never_closed_are_refused() -> None:
    with pytest.raises(UnusableAnswer, match="closing bracket"):
        items('{"data": [' + "[" * 100_000)


def test_quotes_that_are_never_closed_in_there_are_refused_in_a_moment() -> None:
    with within_a_moment(), pytest.raises(UnusableAnswer, match="closing bracket"):
        items('{"data": [' + "[" * 3_000 + '"' + '\\"' * 20_000)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(data=st.lists(VALUES), more=st.dictionaries(st.text().filter(lambda name: name != "data"), VALUES),
       window=st.integers(1, 40), ascii_only=st.booleans(), indent=st.none() | st.just(1))  # fmt: skip
def test_the_items_are_those_of_the_json_wherever_a_window_ends(
    data: list[Any], more: dict[str, Any], window: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps({**more, "data": data, "more": more}, ensure_ascii=ascii_only, indent=indent)
    body = text.encode(errors="replace")
    usual = answer.WINDOW_BYTES
    answer.WINDOW_BYTES = window
    try:
        assert list(read_items(body)) == json.loads(body)["data"]
    finally:
        answer.WINDOW_BYTES = usual


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,data01eE.- \\un', max_size=40).map(str.encode))
def test_rubbish_is_refused_and_never_more_than_that(body: bytes) -> None:
    try:
        count_items(body)
    except UnusableAnswer:
        return
    assert isinstance(json.loads(body)["data"], list)
